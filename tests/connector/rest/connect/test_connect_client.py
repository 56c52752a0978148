"""A client that was written for Kafka Connect manages a job through its whole life."""

import contextlib
from typing import Any

from kafka_connect import KafkaConnect

from helpers.servers.rest_server import RestWorker, eventually


def state(client: KafkaConnect, name: str) -> str:
    """Return what the client sees of a connector."""
    return str(client.get_connector_status(name)["connector"]["state"])


def wait(client: KafkaConnect, name: str, wanted: str) -> None:
    """Wait until the client sees *wanted*."""
    for _ in eventually():
        if state(client, name) == wanted:
            return
    raise AssertionError(state(client, name))


def lines(worker: RestWorker) -> list[str]:
    """Return what came out."""
    with contextlib.suppress(FileNotFoundError):
        return (worker.folder / "out.jsonl").read_text().splitlines()
    return []


def append(worker: RestWorker, *numbers: int) -> None:
    """Let more come in."""
    with (worker.folder / "in.jsonl").open("a") as file:
        file.writelines(f'{{"n": {number}}}\n' for number in numbers)


def test_life_of_a_connector(worker: RestWorker) -> None:
    """Create, watch, pause, change, restart, stop, and delete: while data flows, none lost."""
    client = KafkaConnect(url=f"http://127.0.0.1:{worker.client.port}")
    config: dict[str, Any] = {
        "connector.class": "BrookBrookSource",
        "tasks.max": "1",
        "keyspace": "shop",
        "table": "orders",
        "sink": "k",
    }
    assert client.get_cluster_info()["version"].startswith("4.")
    assert "BrookBrookSource" in [plugin["class"] for plugin in client.list_connector_plugins()]
    assert (
        0
        == client.validate_connector_config("BrookBrookSource", config | {"name": "o"})[
            "error_count"
        ]
    )
    made = client.create_connector({"name": "o", "config": config})
    assert config | {"name": "o"} == made["config"]
    wait(client, "o", "RUNNING")
    for verb, seen, number in (
        (client.pause_connector, "PAUSED", 1),
        (client.resume_connector, "RUNNING", 2),
        (client.stop_connector, "STOPPED", 3),
        (client.resume_connector, "RUNNING", 4),
    ):
        verb("o")
        append(worker, number)
        wait(client, "o", seen)
    client.update_connector("o", config | {"tasks.max": "2"})
    assert "2" == client.get_connector_config("o")["tasks.max"]
    client.restart_connector("o", include_tasks=True, only_failed=False)
    client.restart_connector_task("o", 0)
    append(worker, 5)
    for _ in eventually():
        if len(lines(worker)) >= 6:
            break
    assert [f'{{"n":{n}}}' for n in (123456, 1, 2, 3, 4, 5)] == [
        line.replace(" ", "") for line in lines(worker)
    ]
    assert {"o": {"topics": ["lines"]}} == client.list_connector_topics("o")
    assert [0] == [task["id"]["task"] for task in client.list_connector_tasks("o")]
    assert ["o", "k"] == client.list_connectors()
    client.delete_connector("o")
    assert ["k"] == client.list_connectors()

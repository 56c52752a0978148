"""Data sinks are connectors, too: made, changed, steered and forgotten by Connect's paths."""

from typing import Any

import pytest

from headrace.connector.language.statements import AlterSink
from helpers.servers.rest_server import RestWorker, eventually

SINK: dict[str, Any] = {
    "connector.class": "com.example.KafkaSinkConnector",
    "bootstrap.servers": "h1:1,h2:2",
    "topic": "changes of/it",
    "tasks.max": "3",
}
SOURCE = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}


@pytest.fixture
def sink(served: RestWorker) -> dict[str, Any]:
    """Return the config of a sink that was made."""
    config = SINK | {"topic": "changes"}
    made = served.client("POST", "/connectors", {"name": "lake", "config": config})
    assert (201, "sink", []) == (made.status, made.json["type"], made.json["tasks"])
    return config | {"name": "lake"}


def test_config_is_kept(served: RestWorker, sink: dict[str, Any]) -> None:
    """What was given comes back as it was; the statement says the same, and makes it again."""
    assert sink == served.client("GET", "/connectors/lake/config").json
    entry = served.commands.sink("lake")
    assert (
        "CREATE DATA_SINK lake WITH 'kafka://h1:1,h2:2' AND topic = 'changes';" == entry.statement
    )
    put = served.client("PUT", "/connectors/lake/config", sink | {"linger.ms": "7"})
    assert (200, sink | {"linger.ms": "7"}) == (put.status, put.json["config"])
    patched = served.client("PATCH", "/connectors/lake/config", {"linger.ms": None, "topic": "b"})
    assert (200, sink | {"topic": "b"}) == (patched.status, patched.json["config"])


def test_statements_keep_what_was_given(served: RestWorker, sink: dict[str, Any]) -> None:
    """An ALTER changes what it names, and neither the class nor what has no effect here."""
    served.commands.alter_sink(AlterSink(name="lake", options=(("topic", "b"),)))

    assert sink | {"topic": "b"} == served.client("GET", "/connectors/lake/config").json


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("a", {"topic": "a/b"}, "topic"),
        ("a", {"bootstrap.servers": "169.254.169.254:1"}, "of the link itself"),
        ("a", {"sasl.password": "canary"}, "Is a secret"),
        ("a", {"tasks.max": "0"}, "tasks.max"),
        ("a", {"topcs": "x"}, "topcs"),
        ("a", {"connector.class": "NoSink"}, "available connectors are"),
        ("a", {"connector.class": "AvroCodec"}, "available connectors are"),
        ("a.b", {}, "is not a sink name"),
        ("a", {"bootstrap.servers": "PLAINTEXT://h:1"}, "bootstrap.servers"),
    ],
)
def test_refused(shared: RestWorker, name: str, change: dict[str, str], message: str) -> None:
    """A config with a mistake makes nothing, and no answer repeats a secret."""
    config = SINK | {"topic": "changes"} | change
    answer = shared.client("POST", "/connectors", {"name": name, "config": config})

    assert 400 == answer.status
    assert message in answer.json["message"]
    assert b"canary" not in answer.body
    assert ["k"] == shared.client("GET", "/connectors").json


def test_kinds_stay(served: RestWorker, sink: dict[str, Any]) -> None:
    """A name is a source's or a sink's, and no one's else while it is."""
    client = served.client
    assert 409 == client("POST", "/connectors", {"name": "lake", "config": SOURCE}).status
    assert 409 == client("POST", "/connectors", {"name": "lake", "config": sink}).status
    answer = client("PUT", "/connectors/lake/config", SOURCE)
    assert (400, True) == (answer.status, "is a sink, and stays one" in answer.json["message"])
    assert 201 == client("POST", "/connectors", {"name": "o", "config": SOURCE}).status
    config = {key: value for key, value in sink.items() if key != "name"}
    assert 409 == client("POST", "/connectors", {"name": "o", "config": config}).status
    state = {"name": "p", "config": config, "initial_state": "PAUSED"}
    assert 400 == client("POST", "/connectors", state).status


def test_offsets_are_those_of_sources(served: RestWorker, sink: dict[str, Any]) -> None:
    """A sink has no positions to show or to move."""
    assert "lake" == sink["name"]
    assert {"offsets": []} == served.client("GET", "/connectors/lake/offsets").json
    assert 400 == served.client("DELETE", "/connectors/lake/offsets").status
    moved = {"offsets": [{"partition": {"split": "0"}, "offset": {"offset": 0}}]}
    assert 400 == served.client("PATCH", "/connectors/lake/offsets", moved).status


def test_steers_its_sources(worker: RestWorker) -> None:
    """A sink shows the worst of its sources, is steered as they are, and stays while it is used."""
    client = worker.client
    assert "UNASSIGNED" == client("GET", "/connectors/k/status").json["connector"]["state"]
    assert 201 == client("POST", "/connectors", {"name": "o", "config": SOURCE}).status
    for verb, status, state in (
        ("resume", 202, "RUNNING"),
        ("pause", 202, "PAUSED"),
        ("stop", 204, "STOPPED"),
        ("resume", 202, "RUNNING"),
    ):
        assert status == client("PUT", f"/connectors/k/{verb}").status
        for _ in eventually():
            found = client("GET", "/connectors/k/status").json
            if state == found["connector"]["state"]:
                break
        assert ("sink", state) == (found["type"], found["connector"]["state"])
        assert state == client("GET", "/connectors/o/status").json["connector"]["state"]
    assert [0] == [task["id"] for task in found["tasks"]]
    assert {"k": {"topics": ["lines"]}} == client("GET", "/connectors/k/topics").json
    restarted = client("POST", "/connectors/k/restart?includeTasks=true").json
    assert ["RESTARTING"] == [task["state"] for task in restarted["tasks"]]
    assert 204 == client("POST", "/connectors/k/tasks/0/restart").status
    assert 404 == client("POST", "/connectors/k/tasks/1/restart").status
    answer = client("DELETE", "/connectors/k")
    assert (400, True) == (answer.status, "is used by o" in answer.json["message"])
    assert 204 == client("DELETE", "/connectors/o").status
    assert 204 == client("DELETE", "/connectors/k").status
    assert [] == client("GET", "/connectors").json


def test_a_source_whose_table_lacks(worker: RestWorker) -> None:
    """It is FAILED with a trace that names the table; another one of the same job runs."""
    client = worker.client
    (worker.folder / "s.late").touch()
    for name, table in (("o", "t"), ("p", "late")):
        made = client("POST", "/connectors", {"name": name, "config": SOURCE | {"table": table}})
        assert 201 == made.status
    for _ in eventually():
        found = client("GET", "/connectors/p/status").json["connector"]
        if "FAILED" == found["state"]:
            break
    assert "config: s.late is not there; make it" == found["trace"]
    for _ in eventually():
        if "RUNNING" == client("GET", "/connectors/o/status").json["connector"]["state"]:
            break
    else:
        pytest.fail("the other one does not run")

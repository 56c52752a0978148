"""A connector whose source has no table runs as any other: made, steered and forgotten."""

import json
from typing import Any

import pytest

from helpers.servers.rest_server import RestWorker, eventually, until_read

LINES = [{"n": n} for n in range(3)]
CONFIG = {"connector.class": "FilesSource", "path": "lines/*.jsonl", "sink": "k"}


@pytest.fixture
def size(worker: RestWorker) -> int:
    """Write a file, make a source that reads it, and wait until it has; return the size."""
    folder = worker.folder / "lines"
    folder.mkdir()
    text = "".join(f"{json.dumps(line)}\n" for line in LINES)
    (folder / "a.jsonl").write_text(text)
    made = worker.client("POST", "/connectors", {"name": "lines", "config": CONFIG})
    assert (201, "source", []) == (made.status, made.json["type"], made.json["tasks"])
    until_read(worker.client, "lines", len(text))
    return len(text)


def written(worker: RestWorker) -> list[Any]:
    """Return what the sink has."""
    lines = (worker.folder / "out.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def until_is(worker: RestWorker, state: str, tasks: list[str]) -> None:
    """Wait until the connector and its tasks are in these states."""
    for _ in eventually():
        found = worker.client("GET", "/connectors/lines/status").json
        if (state, tasks) == (found["connector"]["state"], [t["state"] for t in found["tasks"]]):
            return
    raise AssertionError(found)


def test_it_runs(worker: RestWorker, size: int) -> None:
    """Its lines are in the sink; its task is its file, and its position that of the file."""
    until_is(worker, "RUNNING", ["RUNNING"])

    assert LINES == written(worker)
    assert CONFIG | {"name": "lines"} == worker.client("GET", "/connectors/lines/config").json
    (task,) = worker.client("GET", "/connectors/lines/tasks").json
    assert ("FilesSourceTask", "lines/a.jsonl") == (
        *(task["config"][key] for key in ("task.class", "split")),
    )
    (part,) = worker.client("GET", "/connectors/lines/offsets").json["offsets"]
    assert {"offset": size} == part["offset"]


def test_it_is_steered(worker: RestWorker, size: int) -> None:
    """Paused it reads nothing; stopped, its position can be forgotten, and all is read again."""
    client = worker.client
    assert 202 == client("PUT", "/connectors/lines/pause").status
    until_is(worker, "PAUSED", ["PAUSED"])
    with (worker.folder / "lines" / "a.jsonl").open("a") as file:
        file.write('{"n": 3}\n')
    assert 202 == client("PUT", "/connectors/lines/resume").status
    until_read(client, "lines", size + len('{"n": 3}\n'))
    assert [*LINES, {"n": 3}] == written(worker)

    assert 204 == client("PUT", "/connectors/lines/stop").status
    until_is(worker, "STOPPED", [])
    for _ in eventually():  # Until its splits are given back.
        answer = client("DELETE", "/connectors/lines/offsets")
        if answer.status == 200:
            break
    assert {"offsets": []} == client("GET", "/connectors/lines/offsets").json
    assert 202 == client("PUT", "/connectors/lines/resume").status
    until_read(client, "lines", size + len('{"n": 3}\n'))
    assert [*LINES, {"n": 3}] * 2 == written(worker)

    assert 204 == client("DELETE", "/connectors/lines").status
    assert 404 == client("GET", "/connectors/lines/status").status


def test_other_files(worker: RestWorker, size: int) -> None:
    """With another path it continues with those files; a file of both paths keeps its position."""
    client, folder = worker.client, worker.folder / "lines"
    (folder / "b.jsonl").write_text('{"n": 3}\n')
    (folder / "c.txt").write_text('{"n": 40}\n')
    for path, offsets in (
        ("lines/[ab].jsonl", [size, 9]),
        ("lines/b.*", [9]),
        ("lines/c.txt", [10]),
        ("lines/*.jsonl", [size, 9]),
    ):
        changed = client("PUT", "/connectors/lines/config", CONFIG | {"path": path})
        assert 200 == changed.status, changed.body
        for _ in eventually():
            found = client("GET", "/connectors/lines/offsets").json["offsets"]
            if offsets == [part["offset"]["offset"] for part in found]:
                break
        else:
            raise AssertionError((path, found))
        until_is(worker, "RUNNING", ["RUNNING"] * len(offsets))

    again = [*LINES, {"n": 3}]
    assert [*again, {"n": 40}, *again] == written(worker)


def test_a_file_that_is_gone(worker: RestWorker, size: int) -> None:
    """It fails, and its trace says what is missing and what to do."""
    (worker.folder / "lines" / "b.jsonl").write_text('{"n": 3}\n')
    assert size
    worker.client("POST", "/connectors/lines/restart?includeTasks=true")
    until_is(worker, "RUNNING", ["RUNNING", "RUNNING"])
    (worker.folder / "lines" / "a.jsonl").unlink()
    worker.client("POST", "/connectors/lines/restart?includeTasks=true")
    for _ in eventually():
        found = worker.client("GET", "/connectors/lines/status").json["connector"]
        if found["state"] == "FAILED":
            break
    assert "'lines/a.jsonl', which has state" in found["trace"]
    assert "\nhint: restore" in found["trace"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": None}, "path"),
        ({"pth": "x"}, "pth"),
        ({"snapshot": "initial"}, "Is of sources with tables"),
        ({"sink": "none"}, "none"),
        ({"connector.class": "BrookBrookSource"}, "table"),
    ],
)
def test_refused(shared: RestWorker, change: dict[str, str | None], message: str) -> None:
    """A config with a mistake makes nothing; a source of tables needs a table."""
    config = {key: value for key, value in (CONFIG | change).items() if value is not None}
    answer = shared.client("POST", "/connectors", {"name": "lines", "config": config})

    assert answer.status in (400, 404), answer.body
    assert message in answer.json["message"]
    assert ["k"] == shared.client("GET", "/connectors").json

"""A plugin that hangs holds up its job and nothing else."""

import threading
import time
from collections.abc import Iterator

import pytest

from headrace.connector.foundation.states import Observed
from helpers.jobs import toys
from helpers.servers.rest_server import RestWorker, answers_here, eventually, supervised

PATHS = (
    *("/", "/connectors?expand=status&expand=info", "/connectors/o/status", "/connectors/o/tasks"),
    *("/api/v1/sources", "/api/v1/sinks", "/connectors/o/offsets", "/health"),
)
READ_SECONDS_MAX = 2  # What waits for the calls waits for ever.
QUESTIONS = 8  # More than there are threads that ask plugins.


@pytest.fixture
def hanging(served: RestWorker) -> Iterator[RestWorker]:
    """Return a worker whose job hangs in a call of its sink, until the test is over."""
    file = served.folder / "worker.yaml"
    file.write_text(file.read_text().replace("{tick", "{stall_seconds: 1, tick"))
    with supervised(file, served.folder / "state.db"):
        try:
            yield served
        finally:
            toys.OVER.set()


def test_reads_are_answered(hanging: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """While calls hang, reads are answered in time, and say which split stops, and why."""
    client = hanging.client

    def hang(_: object) -> list[str]:
        toys.OVER.wait()
        return []

    answers_here(monkeypatch, hang)
    question = {"statement": "VALIDATE DATA_SINK k"}
    askers = [
        threading.Thread(target=lambda: client("POST", "/api/v1/statements", question))
        for _ in range(QUESTIONS)
    ]
    for asker in askers:
        asker.start()
    client("POST", "/api/v1/sinks", {"name": "m", "uri": "mud://x"})
    config = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "m"}
    assert 201 == client("POST", "/connectors", {"name": "o", "config": config}).status
    for _ in eventually():
        found = client("GET", "/api/v1/sources/o").json
        if found["state"] == Observed.STALLED:
            break
    assert (Observed.STALLED, True) == (found["state"], "has not returned" in found["reason"])
    took = dict.fromkeys(PATHS, 60.0)
    for _ in range(5):
        for path in PATHS:
            started = time.monotonic()
            assert 200 == client("GET", path).status
            took[path] = min(took[path], time.monotonic() - started)

    assert {} == {path: seconds for path, seconds in took.items() if seconds > READ_SECONDS_MAX}
    assert "RUNNING" == client("GET", "/connectors/o/status").json["tasks"][0]["state"]
    assert all(asker.is_alive() for asker in askers)
    toys.OVER.set()
    for asker in askers:
        asker.join()

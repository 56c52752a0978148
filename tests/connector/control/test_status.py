"""The status of a source is what the state file has about its job."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.connector.control.service import ControlService
from headrace.connector.control.status import ConnectorStatus, connector_statuses
from headrace.connector.foundation.states import Desired, Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.stores import Owner, Seen
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.connector.stores.target_state import WHOLE_JOB, Route

OWNER = Owner(worker="w1", host="h", boot="b", pid_space="p", pid=1, started=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return the store of a job named orders with two splits that w1 owns."""
    store = SqliteStore.open(tmp_path / "state.db", "orders")
    store.job_key()
    store.register(["a", "b"])
    store.enroll(OWNER)
    store.claim("w1", store.leases(), 10_000)
    yield store
    store.close()


def shown(
    tmp_path: Path, *seen: Seen, desired: Desired = Desired.RUNNING, dead: bool = False
) -> ConnectorStatus:
    """Return the status of the job's source, after a worker reported *seen*."""
    connection = open_notes(tmp_path / "state.db")
    try:
        board = connection.board
        connection.store("orders").see(seen)
        with connection.transaction():
            board.add_route(Route("cdc.ks.t", "orders", "k", desired))
        (status,) = connector_statuses(connection, dead=lambda _: dead)
    finally:
        connection.close()
    return status


def seen(split: str, state: Observed, reason: str = "", **more: int) -> Seen:
    """Return a report of a worker."""
    return Seen(split=split, state=state, generation=1, worker="w1", reason=reason, **more)


def release(store: SqliteStore, problem: str = "") -> None:
    """Release all leases."""
    for row in store.leases():
        store.release("w1", row.split, row.token, problem)


def test_running(store: SqliteStore, tmp_path: Path) -> None:
    """A source is RUNNING while its splits have owners; each shows number, owner, generation."""
    assert store.leases()
    status = shown(tmp_path, seen("a", Observed.RUNNING), seen("b", Observed.RUNNING))

    assert (Observed.RUNNING, "h:1", 1) == (status.state, status.worker, status.generation)
    assert [(0, "a", 1, "h:1"), (1, "b", 1, "h:1")] == [
        (split.task, split.split, split.generation, split.worker) for split in status.splits
    ]


def test_stalled(store: SqliteStore, tmp_path: Path) -> None:
    """One stalled split makes the source stalled."""
    assert store.leases()
    reason = "the sink reported no result for 12 s"
    status = shown(tmp_path, seen("a", Observed.RUNNING), seen("b", Observed.STALLED, reason))

    assert (Observed.STALLED, reason) == (status.state, status.reason)


def test_dead_owner(store: SqliteStore, tmp_path: Path) -> None:
    """The report of a dead worker does not count."""
    assert store.leases()
    status = shown(tmp_path, seen("a", Observed.RUNNING), dead=True)

    assert [Observed.UNASSIGNED] * 2 == [split.state for split in status.splits]
    assert (Observed.UNASSIGNED, "") == (status.state, status.worker)


def test_what_another_worker_saw(store: SqliteStore, tmp_path: Path) -> None:
    """The report of a previous owner does not count, also before the new owner reports."""
    before = replace(seen("a", Observed.STALLED, "the sink reported no result"), worker="w0")
    row = store.leases()[0]
    store.release("w1", "a", row.token)
    store.see([before])
    store.claim("w1", [row for row in store.leases() if row.split == "a"], 10_000)
    status = shown(tmp_path)

    assert (Observed.RUNNING, "") == (status.splits[0].state, status.splits[0].reason)


def test_job_problem(store: SqliteStore, tmp_path: Path) -> None:
    """An unreachable broker shows as its named error, without the hint."""
    release(store)
    store.report("kafka_unreachable: h:9092: no answer\nhint: is it running?")
    status = shown(tmp_path)

    assert (Observed.FAILED, "kafka_unreachable: h:9092: no answer") == (
        status.state,
        status.reason,
    )


def test_job_tried_again(store: SqliteStore, tmp_path: Path) -> None:
    """A job that is retried shows the cause, the attempt and the time."""
    release(store)
    store.report("kafka_unreachable: h:9092: no answer")
    whole = seen(WHOLE_JOB, Observed.RESTARTING, attempt=2, next_attempt_ms=17)
    status = shown(tmp_path, whole)

    assert (Observed.RESTARTING, 2, 17) == (status.state, status.attempt, status.next_attempt_ms)
    assert "no answer" in status.reason


@pytest.mark.parametrize("state", [Observed.RESTARTING, Observed.FAILED])
def test_split_problem(store: SqliteStore, tmp_path: Path, state: Observed) -> None:
    """A failed split shows although the job runs, and whether it is retried."""
    row = store.leases()[0]
    store.release("w1", row.split, row.token, "segment: byte 7")
    status = shown(tmp_path, seen("a", state, attempt=3))

    assert (state, "segment: byte 7", 3) == (status.state, status.reason, status.attempt)
    assert Observed.UNASSIGNED == status.job_state


def test_stopped(store: SqliteStore, tmp_path: Path) -> None:
    """A source with target state STOPPED is not STOPPED while a split has an owner."""
    assert store.leases()
    assert Observed.RUNNING == shown(tmp_path, desired=Desired.STOPPED).state


def test_stopped_at_last(store: SqliteStore, tmp_path: Path) -> None:
    """Without owners it is STOPPED, after any state."""
    release(store, "segment: byte 7")
    status = shown(tmp_path, desired=Desired.STOPPED)

    assert (Observed.STOPPED, "") == (status.state, status.reason)


def test_never_ran(tmp_path: Path) -> None:
    """A source whose job never ran is UNASSIGNED and has no splits."""
    status = shown(tmp_path)

    assert (Observed.UNASSIGNED, []) == (status.state, list(status.splits))


def test_a_state_without_sources_says_what_to_define(tmp_path: Path) -> None:
    """SHOW STATUS has no rows then, and warns with the statements that define something."""
    with contextlib.closing(open_notes(tmp_path / "state.db")) as notes:
        service = ControlService(notes)
        warned = []
        for text in ("SHOW STATUS", "CREATE DATA_SINK k WITH 'null://'; SHOW STATUS"):
            answers = [service.execute(parsed.statement) for parsed in parse_script(text)]
            warned.append([warning.hint[:18] for warning in answers[-1].warnings])

    assert [["CREATE DATA_SINK n", "CREATE DATA_SOURCE"], ["CREATE DATA_SOURCE"]] == warned

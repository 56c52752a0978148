"""The pipeline when something fails: nothing is lost, and unaffected splits continue (I8)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from headrace.connector.stores import Commit, StoreUnavailableError
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    CloseReason,
    Delivery,
    EncodedPosition,
    EncodedRecords,
    FatalError,
    HeadraceError,
    NumberPosition,
    RetriableError,
    Settle,
)
from headrace.plugins.testing.doubles import ChaosResult as Fate
from headrace.plugins.testing.doubles import ChaosWriter
from helpers.jobs.rig import COMMIT_MS, TICK_MS, Rig, expected


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state is."""
    return tmp_path / "state.db"


@pytest.fixture
def rig(path: Path) -> Iterator[Rig]:
    """Return a rig with the usual limits."""
    rig = Rig(path)
    yield rig
    rig.store.close()


def test_retriable_failure_is_sent_again_in_order(rig: Rig) -> None:
    """K05: the split continues from the first failure, and nothing overtakes it (I4)."""
    rig.open({"a": 25})
    rig.script.extend([Fate.RETRY_LAST])
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    values = expected(25)
    assert [*values[:9], *values[9:]] == rig.written()
    assert 100 <= rig.clock.monotonic_ms() - 1_000


@pytest.mark.parametrize("wrong", [Fate.MISCOUNT, Fate.CONFUSE])
def test_a_delivery_with_an_invalid_result_is_sent_again(rig: Rig, wrong: Fate) -> None:
    """What leaves a record out repeats the batch (R6); a second result changes nothing."""
    rig.open({"a": 10})
    rig.script.extend([wrong, Fate.TWICE])
    rig.gain()
    rig.until(lambda: 10 == rig.committed())

    assert [*expected(10), *expected(10)] == rig.written()
    assert 10 == rig.store.states()[0].counters["shop.orders"].delivered


def test_a_resend_that_drops_a_record_ends_the_split(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink delivers all that it gets, and nothing is committed; the error has the numbers."""
    real = EncodedRecords.chosen
    monkeypatch.setattr(EncodedRecords, "chosen", lambda rows, indexes: real(rows, indexes[:-1]))
    rig = Rig(path, retry_ms_max=3_000)
    rig.open({"a": 10})
    rig.script.append(Fate.RETRY_LAST)
    rig.gain()
    rig.until(lambda: bool(rig.closed()))
    (closed,) = rig.closed()

    assert "1 missing (first: 0)" in str(closed.error)
    assert (0, expected(9)) == (rig.committed(), rig.written())
    rig.store.close()


def test_rejected_record_is_kept(rig: Rig) -> None:
    """A record rejected permanently is stored with the commit, and the split continues (I8)."""
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    rig.gain()
    rig.until(lambda: 10 == rig.committed())

    assert expected(10, 1) == rig.written()
    assert [("dead_letter", expected(1)[0], "chaos")] == [
        (kept.loss.kind, kept.loss.content, kept.loss.code) for kept in rig.store.losses()
    ]


@pytest.mark.parametrize(
    "fate", [Fate.FATAL_FIRST, Fate.BREAK], ids=["settled as fatal", "raised in submit"]
)
def test_fatal_failure_stops_one_split(rig: Rig, fate: Fate) -> None:
    """The split that failed gives its lease back with the reason; the other continues (I8)."""
    rig.open({"a": 5, "b": 5})
    rig.script.append(fate)
    rig.gain()
    rig.until(lambda: 5 == rig.committed("b"))
    (closed,) = rig.closed()

    assert "a" == closed.split
    assert isinstance(closed.error, FatalError)
    assert [("a", CloseReason.FAILED)] == rig.source.closed
    row = rig.store.leases()[0]
    assert None is row.owner
    assert "as the script says" in row.problem
    assert 0 == rig.committed("a")


def test_refusing_sink_is_asked_again_within_the_budget(path: Path) -> None:
    """A sink that takes nothing is asked again after longer and longer pauses, then given up."""
    rig = Rig(path, retry_ms_max=3_000)
    rig.open({"a": 5})
    rig.script.extend([Fate.REFUSE] * 100)
    rig.gain()
    rig.until(lambda: bool(rig.closed()))
    (closed,) = rig.closed()

    assert closed.error is not None
    assert "retries_exhausted" == closed.error.code
    assert 3_000 <= rig.clock.monotonic_ms() - 1_000 <= 10_000
    assert 93 < len(rig.script)
    rig.store.close()


@pytest.mark.parametrize(
    "faults", [[RetriableError("busy")], [ZeroDivisionError("bug")], [None, ZeroDivisionError()]]
)
def test_failing_read_is_repeated(rig: Rig, faults: list[Exception | None]) -> None:
    """After an error nothing is skipped; after one without a name the reader is opened again."""
    rig.faults.extend(faults)
    rig.open({"a": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    assert set(expected(25)) == set(rig.written())
    counts = rig.store.states()[0].counters["shop.orders"]
    assert (25, 25) == (counts.cut, counts.delivered)


def test_crashing_sink_loses_nothing(rig: Rig) -> None:
    """A submit that raises an unexpected error restarts the split from the committed state."""
    rig.open({"a": 25})
    rig.script.extend([Fate.DELIVER, Fate.CRASH])
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    assert set(expected(25)) == set(rig.written())
    assert 25 == rig.store.states()[0].counters["shop.orders"].delivered


def test_position_that_cannot_be_encoded_now_is_committed_later(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while a commit is made forgets nothing of what is settled."""
    rig.open({"a": 25})
    rig.gain()
    rig.passes(3)
    errors = iter([RetriableError("busy"), ZeroDivisionError("bug")])
    real = NumberPosition.encode

    def reluctant(self: NumberPosition) -> EncodedPosition:
        for error in errors:
            raise error
        return real(self)

    monkeypatch.setattr(NumberPosition, "encode", reluctant)
    rig.until(lambda: 25 == rig.committed())

    counts = rig.store.states()[0].counters["shop.orders"]
    assert (25, 25) == (counts.cut, counts.delivered)


def test_late_verdict_of_a_former_life_is_void(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart, a result for the old batch of the same number settles nothing."""
    rig.open({"a": 10})
    late: list[Settle] = []
    real = ChaosWriter.submit

    def crash_once(self: ChaosWriter, delivery: Delivery, settle: Settle) -> None:
        if not late:
            late.append(settle)
            raise ZeroDivisionError
        real(self, delivery, settle)

    monkeypatch.setattr(ChaosWriter, "submit", crash_once)
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.until(lambda: bool(rig.sink.held))
    late[0](range(10))
    rig.passes(COMMIT_MS // TICK_MS + 2)
    assert 0 == rig.committed()
    rig.sink.let_go()
    rig.until(lambda: 10 == rig.committed())


def test_store_that_cannot_write_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was not made is made later, the same; the splits continue meanwhile."""
    rig.open({"a": 25})
    rig.gain()
    offered: list[Sequence[Commit]] = []
    real = SqliteStore.commit

    def full(store: SqliteStore, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        offered.append(commits)
        if len(offered) < 4:
            raise StoreUnavailableError("disk full")
        return real(store, commits)

    monkeypatch.setattr(SqliteStore, "commit", full)
    rig.until(lambda: 25 == rig.committed())

    assert offered[0] == offered[1] == offered[2] == offered[3]
    assert expected(25) == rig.written()


def test_plugin_that_stays_broken_stops_its_split(path: Path) -> None:
    """The budget bounds how often a broken reader is opened."""
    rig = Rig(path, retry_ms_max=3_000)
    rig.faults.extend([ZeroDivisionError("a value")] * 1_000)
    rig.open({"a": 1})
    rig.gain()
    rig.until(lambda: bool(rig.closed()))
    (closed,) = rig.closed()

    assert closed.error is not None
    assert "ZeroDivisionError" in str(closed.error)
    assert "a value" not in str(closed.error)  # It might be part of a row.
    rig.store.close()

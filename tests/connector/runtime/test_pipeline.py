"""The pipeline when all goes well: pace, bounds, order, leases."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.connector.runtime import pipeline
from headrace.connector.runtime.messages import Closed, HandOver, Idled, Lose, Pause, Stop
from headrace.connector.runtime.pipeline import ENDS_BYTES_MAX, POSITIONS_MS, REST_MS
from headrace.connector.stores import Commit, StoreUnavailableError
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    Batch,
    CloseReason,
    Delivery,
    Demand,
    Done,
    EncodedPosition,
    FatalError,
    HeadraceError,
    Idle,
    News,
    NumberPosition,
    Position,
    RecordBatch,
    RetriableError,
    Settle,
    SharedReading,
    Split,
)
from headrace.plugins.testing.doubles import ChaosResult as Fate
from headrace.plugins.testing.doubles import (
    ChaosWriter,
    MemoryConfig,
    MemoryReader,
    MemorySource,
    context,
    sample_records,
)
from helpers.jobs.rig import COMMIT_MS, LEASE_MS, RECORD_BYTES, TICK_MS, Rig, expected
from helpers.settings.filled import filled

if TYPE_CHECKING:
    from headrace.connector.runtime.splits.watch import Pulse


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


def test_delivers_and_commits_everything(rig: Rig) -> None:
    """All records arrive in order, the state says so, and the source may forget them."""
    rig.open({"a": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    assert expected(25) == rig.written()
    assert [25] == rig.source.released["a"]
    state = rig.store.states()[0]
    assert 25 == state.counters["shop.orders"].cut == state.counters["shop.orders"].delivered


def test_a_delivery_has_schemas_that_another_split_announced(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source announces each once, and the split that did it may be sent later, or never."""
    found: list[tuple[str, set[bytes]]] = []
    schemas, submit = RecordBatch.schemas, ChaosWriter.submit
    monkeypatch.setattr(
        RecordBatch, "schemas", lambda batch: schemas(batch) if batch.split == "a" else ()
    )

    def noted(writer: ChaosWriter, delivery: Delivery, settle: Settle) -> None:
        found.append((delivery.batch.split, set(delivery.schemas)))
        submit(writer, delivery, settle)

    monkeypatch.setattr(ChaosWriter, "submit", noted)
    rig.open({"a": 5, "b": 5})
    rig.gain()
    rig.until(lambda: 5 == rig.committed() == rig.committed("b"))

    assert {"a", "b"} == {split for split, _ in found}
    assert {record.schema.schema_id for record in sample_records(1)} == set.union(
        *(known for _, known in found)
    )
    assert all(known for _, known in found)


def test_what_is_stored_is_not_held(rig: Rig) -> None:
    """When a position is durable, its bytes are the store's alone: they may be many."""

    def held() -> int:
        gc.collect()
        return sum(isinstance(each, EncodedPosition) for each in gc.get_objects())

    before = held()
    rig.open({"a": 25, "b": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed() == rig.committed("b"))

    assert before == held()


def test_more_goes_on_at_once(rig: Rig) -> None:
    """A pass in which some batch said that there is more does not wait; the last one does."""
    rig.open({"a": 25, "b": 0})
    rig.gain()
    rig.passes(2)
    assert [] == rig.wake.waits
    rig.passes(1)
    assert [TICK_MS] == rig.wake.waits
    rig.passes(3)
    assert [TICK_MS] * 4 == rig.wake.waits


def test_all_splits_begin_before_one_reads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits that share a log are all opened when the first one reads, so that it is read once."""
    calls: list[str] = []
    opened, read = MemorySource.open, MemoryReader.read

    def open_(self: MemorySource, split: Split, resume: Position | None) -> MemoryReader:
        calls.append("open")
        return opened(self, split, resume)

    def read_(self: MemoryReader, demand: Demand) -> Batch | Idle | Done:
        calls.append("read")
        return read(self, demand)

    monkeypatch.setattr(MemorySource, "open", open_)
    monkeypatch.setattr(MemoryReader, "read", read_)
    rig.open({"a": 1, "b": 1, "c": 1})
    rig.gain()
    rig.passes(1)

    assert ["open"] * 3 + ["read"] * 3 == calls


def test_tick_counts_from_the_start_of_the_pass(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that took part of the tick waits for the rest only."""
    rig.open({"a": 0})
    rig.gain()
    rig.passes(1)
    monkeypatch.setattr(rig.pipeline, "_release", lambda: rig.clock.advance(30))
    rig.passes(1)

    assert [TICK_MS, TICK_MS - 30] == rig.wake.waits


def test_commits_at_most_every_commit_max_seconds(rig: Rig) -> None:
    """What is settled waits for the next commit; a commit that says nothing new is not made."""
    rig.open({"a": 1})
    rig.gain()
    rig.passes((COMMIT_MS - POSITIONS_MS) // TICK_MS)
    assert 0 == rig.committed()
    rig.passes(1)
    assert 1 == rig.committed()
    rig.passes(50)
    assert 1 == rig.pipeline.stats.commits


@pytest.mark.parametrize(("size_bytes", "together"), [(ENDS_BYTES_MAX // 3, 4), (1 << 10, 6)])
def test_large_ends_are_committed_before_the_pass_is_over(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, size_bytes: int, together: int
) -> None:
    """More than a MiB of them does not wait for the other splits; small ones share a commit.

    What is left at the end of the pass goes then: the next commit is due after all of them.
    """
    monkeypatch.setattr(NumberPosition, "size_bytes", size_bytes, raising=False)
    seen: list[list[str]] = []
    stored = SqliteStore.commit

    def commit(store: SqliteStore, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        seen.append([commit.split for commit in commits])
        refused = stored(store, commits)
        assert not any(rig.source.released.get(commit.split) for commit in commits)
        return refused

    monkeypatch.setattr(SqliteStore, "commit", commit)
    splits = list("abcdef")
    rig.open(dict.fromkeys(splits, 5))
    rig.gain()
    rig.passes((COMMIT_MS - POSITIONS_MS) // TICK_MS)
    assert [] == seen
    rig.passes(1)

    assert [splits[:together], splits[together:]] == (seen if together < 6 else [*seen, []])
    assert {split: [5] for split in splits} == rig.source.released


def test_large_ends_wait_for_a_store_that_failed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot commit is left in peace for a while, however much waits."""
    monkeypatch.setattr(NumberPosition, "size_bytes", 2 * ENDS_BYTES_MAX, raising=False)
    tried = 0
    stored = SqliteStore.commit

    def commit(store: SqliteStore, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise StoreUnavailableError("disk full")
        return stored(store, commits)

    monkeypatch.setattr(SqliteStore, "commit", commit)
    rig.open(dict.fromkeys("abc", 5))
    rig.gain()
    rig.passes((COMMIT_MS - POSITIONS_MS) // TICK_MS + 1)
    assert 1 == tried
    rig.until(lambda: [5] * 3 == [rig.committed(split) for split in "abc"])

    assert 3 * [expected(5)[0]] == [v for v in rig.written() if v == expected(5)[0]]


@pytest.mark.parametrize("until_idle", [False, True])
def test_ends_are_asked_for_when_a_commit_is_near(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, *, until_idle: bool
) -> None:
    """While there is more, a batch has an end only shortly before a commit: it may be dear."""
    ends: list[tuple[int, bool]] = []
    read = MemoryReader.read

    def read_(self: MemoryReader, demand: Demand) -> Batch | Idle | Done:
        found = read(self, demand)
        if isinstance(found, Batch):
            ends.append((rig.clock.monotonic_ms(), found.has_end))
            rig.clock.advance(TICK_MS)
        return found

    monkeypatch.setattr(MemoryReader, "read", read_)
    rig.open({"a": 200}, until_idle=until_idle)
    begun_ms = rig.clock.monotonic_ms()
    rig.gain()
    rig.passes(12)

    assert {begun_ms + COMMIT_MS - POSITIONS_MS} == {now_ms for now_ms, has_end in ends if has_end}
    assert 100 == rig.committed()
    rig.until(lambda: 200 == rig.committed())


def test_hand_over_asks_for_an_end(rig: Rig) -> None:
    """What is delivered when a split is handed over is committed, also if its end was not made."""
    rig.open({"a": 100})
    rig.gain()
    rig.passes(3)
    rig.pipeline.command(HandOver("a"))
    rig.until(lambda: bool(rig.closed()), passes_max=3)

    assert 30 == rig.committed() == len(rig.written())


def test_full_window_asks_for_an_end(path: Path) -> None:
    """What may be uncommitted being full of batches without an end does not stop a split (I7)."""
    rig = Rig(path, commit_bytes_max=10 * RECORD_BYTES, commit_ms_max=1 << 30)
    rig.open({"a": 100})
    rig.gain()
    rig.until(lambda: 100 == rig.committed(), passes_max=50)

    assert expected(100) == rig.written()
    rig.store.close()


def test_several_splits_share_a_commit(rig: Rig) -> None:
    """One transaction commits all splits."""
    rig.open({"a": 3, "b": 4, "c": 5})
    rig.gain()
    rig.until(lambda: 5 == rig.committed("c"))

    assert (3, 4, 1) == (rig.committed("a"), rig.committed("b"), rig.pipeline.stats.commits)


def test_nothing_is_released_before_it_is_durable(rig: Rig) -> None:
    """Release follows the commit, and is repeated until it returns (R1, R2)."""
    rig.open({"a": 1})
    rig.gain()
    refusals = iter([RetriableError("busy")] * 3)
    reader_class = rig.source.reader_class
    real = reader_class.release

    def reluctant(self: object, position: object) -> None:
        assert 1 == rig.committed()
        for refusal in refusals:
            raise refusal
        real(self, position)  # type: ignore[arg-type]  # The same as it was given.

    rig.source.reader_class.release = reluctant  # type: ignore[method-assign]  # A fault.
    try:
        rig.until(lambda: [1] == rig.source.released["a"])
    finally:
        reader_class.release = real  # type: ignore[method-assign]  # As it was.


def test_outstanding_bytes_are_bounded(path: Path) -> None:
    """While the sink settles nothing, no more than the bound and one mutation is read."""
    bound = 10 * RECORD_BYTES
    rig = Rig(path, outstanding_bytes_max=bound)
    rig.open({"a": 40, "b": 40})
    rig.script.extend([Fate.HOLD] * 100)
    rig.gain()
    rig.passes(50)
    held = sum(len(d.encoded) for d, _ in rig.sink.held)

    assert 10 <= held <= 11
    while rig.sink.held:
        rig.sink.let_go()
        rig.passes(20)
    rig.until(lambda: (40, 40) == (rig.committed("a"), rig.committed("b")))
    rig.store.close()


def test_outstanding_records_are_bounded(path: Path) -> None:
    """Those of all splits count, also when results come while a pass asks one after another."""
    rig = Rig(path, outstanding_records_max=10, batch_records_max=3)
    rig.open({"a": 40, "b": 40})
    rig.script.extend([Fate.HOLD] * 100)
    rig.gain()
    rig.passes(50)

    assert 10 == sum(len(d.encoded) for d, _ in rig.sink.held)
    while rig.sink.held:
        rig.sink.let_go()
        rig.passes(1)
        runs = rig.pipeline.runs
        kept = rig.pipeline._held_records, rig.pipeline._held_bytes  # noqa: SLF001 (kept within a pass)
        assert kept[0] == sum(run.ledger.outstanding_records for run in runs)
        assert kept[1] == sum(run.ledger.outstanding_bytes for run in runs)
    rig.until(lambda: (40, 40) == (rig.committed("a"), rig.committed("b")))
    rig.store.close()


def test_uncommitted_bytes_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be committed, at most one window per split is delivered (I7)."""
    rig = Rig(path, commit_bytes_max=10 * RECORD_BYTES, batch_records_max=1)
    rig.open({"a": 40})
    rig.gain()
    monkeypatch.setattr(rig.pipeline, "_commit", lambda _runs: None)
    rig.passes(100)
    assert 10 <= len(rig.written()) <= 11
    monkeypatch.undo()
    rig.until(lambda: 40 == rig.committed())

    assert expected(40) == rig.written()
    rig.store.close()


def test_past_the_deadline_nothing_is_submitted(rig: Rig) -> None:
    """An owner that was paused past its lease submits nothing, until it is renewed (I2)."""
    rig.open({"a": 5})
    lease = rig.gain()["a"]
    rig.clock.advance(LEASE_MS)
    rig.passes(5)
    assert [] == rig.written()
    lease.deadline_ms = rig.clock.monotonic_ms() + LEASE_MS
    rig.passes(1)

    assert expected(5) == rig.written()


def test_replaced_owner_commits_nothing(rig: Rig) -> None:
    """After a take-over the old token's commit is refused and the split is dropped (I2)."""
    rig.open({"a": 5})
    rig.gain()
    rig.passes(1)
    rig.store.claim("w2", rig.store.leases(), LEASE_MS)
    rig.until(lambda: bool(rig.closed()))

    assert [Closed("a", 1, None)] == rig.closed()
    assert [("a", CloseReason.LEASE_LOST)] == rig.source.closed
    assert 0 == rig.committed()
    assert "w2" == rig.store.leases()[0].owner


def test_a_lost_split_does_not_fail(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of its source after the loss gives nothing back: another worker owns it (I2)."""
    rig.errors = replace(rig.errors, pause_ms_max=1)
    said: list[HeadraceError] = []

    def release(reader: MemoryReader, position: Position) -> None:
        del reader, position
        (run,) = rig.pipeline.runs
        lost = run.closing is CloseReason.LEASE_LOST
        said.append(FatalError("too late") if lost else RetriableError("later"))
        raise said[-1]

    monkeypatch.setattr(MemoryReader, "release", release)
    rig.open({"a": 5})
    rig.gain()
    rig.until(lambda: 5 == rig.committed())
    rig.splits["a"] += [[record] for record in sample_records(5, first=5)]
    rig.store.claim("w2", rig.store.leases(), LEASE_MS)
    rig.until(lambda: bool(rig.closed()))

    assert isinstance(said[-1], FatalError)
    assert [("a", CloseReason.LEASE_LOST)] == rig.source.closed
    assert ("w2", "") == (rig.store.leases()[0].owner, rig.store.leases()[0].problem)


def test_hand_over_drains_commits_and_gives_back(rig: Rig) -> None:
    """A split that is handed over waits for its results, then is free at its last position."""
    rig.open({"a": 5, "b": 5})
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.passes(1)
    rig.pipeline.command(HandOver("a"))
    rig.passes(3)
    assert [] == rig.closed()
    rig.sink.let_go()
    rig.until(lambda: bool(rig.closed()), passes_max=2)

    assert [Closed("a", 1, None)] == rig.closed()
    assert [("a", CloseReason.HANDED_OVER)] == rig.source.closed
    assert 5 == rig.committed("a")
    assert [None, "w1"] == [row.owner for row in rig.store.leases()]


def test_hand_over_of_a_stuck_split_ends(rig: Rig) -> None:
    """A sink that never settles does not hold up a stop beyond its bound; nothing is committed."""
    rig.open({"a": 5})
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.passes(1)
    before_ms = rig.clock.monotonic_ms()
    rig.pipeline.command(Stop())
    rig.until(lambda: bool(rig.closed()))

    assert 5_000 <= rig.clock.monotonic_ms() - before_ms <= 5_200
    assert 0 == rig.committed()


def test_lost_split_is_dropped_at_once(rig: Rig) -> None:
    """TP04: a split that another owns is closed without a commit, and can be gained again."""
    rig.open({"a": 5})
    rig.gain()
    rig.passes(1)
    rig.pipeline.command(Lose("a"))
    rig.gain()
    rig.until(lambda: 5 == rig.committed())

    assert [("a", CloseReason.LEASE_LOST)] == rig.source.closed
    assert [*expected(5), *expected(5)] == rig.written()


def test_until_idle_ends_when_all_is_committed(path: Path) -> None:
    """The pipeline says that it is idle once everything is read, settled and committed."""
    rig = Rig(path)
    rig.open({"a": 25, "b": 0}, until_idle=True)
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.passes(10)
    assert [] == rig.reported
    rig.sink.let_go()
    rig.until(lambda: bool(rig.reported))

    assert [Idled(2, for_ever=False)] == rig.reported
    assert 25 == rig.committed("a")
    rig.splits["b"].append(sample_records(1))
    rig.until(lambda: 1 == rig.committed("b"))
    rig.store.close()


def test_is_idle_only_after_a_second_look(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one split's read brought for a split that was asked before it is not left behind."""
    rig = Rig(path)
    rig.open({"a": 0, "b": 0}, until_idle=True)
    real = MemoryReader.read
    records = iter(sample_records(1))

    def read(self: MemoryReader, demand: Demand) -> Batch | Idle | Done:
        answer = real(self, demand)
        if self._split == "b":
            rig.splits["a"] += [[record] for record in records]
        return answer

    monkeypatch.setattr(MemoryReader, "read", read)
    rig.gain()
    rig.until(lambda: bool(rig.reported))

    assert 1 == rig.committed("a")
    rig.store.close()


def test_resumes_where_it_was(rig: Rig) -> None:
    """K01: a new owner continues after the committed position, under the next token."""
    rig.open({"a": 10})
    rig.gain()
    rig.until(lambda: 10 == rig.committed())
    rig.pipeline.command(Stop())
    rig.until(lambda: bool(rig.closed()))
    again = Rig(rig.path)
    again.open({"a": 15})
    assert 2 == again.gain()["a"].token
    again.until(lambda: 15 == again.committed())

    assert expected(15, 10) == again.written()
    again.store.close()


class WatchedSource(MemorySource, SharedReading):
    """A memory source that says which splits have more; its calls are in `calls`."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        """Hold two splits without records."""
        rig.splits |= {"a": [], "b": []}
        config = MemoryConfig(splits=rig.splits, faults=rig.faults)
        super().__init__(config, context(rig.clock))
        self.calls: list[str] = []
        self.is_still: Callable[[], bool] | None = None
        self.readable: int | None = None
        self.news: list[str | Exception] = []
        read = MemoryReader.read

        def noted(reader: MemoryReader, demand: Demand) -> Batch | Idle | Done:
            self.calls.append(f"read {reader._split}")  # noqa: SLF001 (which one it is)
            return read(reader, demand)

        monkeypatch.setattr(MemoryReader, "read", noted)

    def look(self, demand: Demand) -> News:
        """Return or raise the next of `news`, the letters of splits; without one, none."""
        assert demand.records_max > 0
        self.calls.append("look")
        found = self.news.pop(0) if self.news else ""
        if isinstance(found, Exception):
            raise found
        return News(found, is_still=self.is_still, readable=lambda: self.readable)

    def seen(self) -> list[str]:
        """Return the calls since the last time."""
        calls, self.calls = self.calls, []
        return calls


BOTH = ["read a", "read b"]
DESCRIPTOR = 7  # Of nothing: the wake is driven.


@pytest.fixture
def watched(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> WatchedSource:
    """Return a source whose splits have just returned that there is nothing."""
    source = WatchedSource(rig, monkeypatch)
    source.news = ["ab"]
    rig.open({"a": 0, "b": 0}, source=source)
    rig.gain()
    rig.passes(1)
    assert ["look", *BOTH] == source.seen()
    return source


def test_only_splits_with_news_are_asked(rig: Rig, watched: WatchedSource) -> None:
    """A tick costs one look; the others are asked once before a commit, for their positions."""
    rig.passes(3)
    assert ["look"] * 3 == watched.seen()
    assert [Idled(2, for_ever=False)] == [
        reported for reported in rig.reported if isinstance(reported, Idled)
    ]

    watched.news = ["", "b"]
    rig.splits["b"] += [[record] for record in sample_records(3)]
    rig.passes(2)
    assert ["look", "look", "read b"] == watched.seen()
    rig.until(lambda: 3 == rig.committed("b"))
    assert expected(3) == rig.written()

    watched.seen()
    rig.passes(2 * COMMIT_MS // TICK_MS)
    calls = Counter(watched.seen())
    assert {"read a": 2, "read b": 2, "look": 2 * COMMIT_MS // TICK_MS} == calls


def test_what_was_read_is_committed_in_time(rig: Rig, watched: WatchedSource) -> None:
    """Its position is asked for before the commit, also if nothing comes after it."""
    rig.splits["b"] += [[record] for record in sample_records(3)]
    watched.news = ["b"]
    rig.passes(COMMIT_MS // TICK_MS)

    assert 3 == rig.committed("b")


@pytest.mark.usefixtures("watched")
def test_more_is_read_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that says so is followed by the next, although no split has news."""
    monkeypatch.setattr(WatchedSource, "look", lambda *_: News((), more=True))
    before = rig.clock.monotonic_ms()
    rig.passes(4)

    assert before == rig.clock.monotonic_ms()


def test_only_some_splits_without_news_are_asked(
    rig: Rig, watched: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each commit it is the turn of others; those that had changes are always asked."""
    monkeypatch.setattr(pipeline, "POSITIONS_MAX", 1)
    asked = []
    for _ in range(4):
        rig.passes(COMMIT_MS // TICK_MS)
        asked.append([call for call in watched.seen() if call != "look"])
    assert [["read a"], ["read b"], ["read a"], ["read b"]] == asked

    rig.splits["a"] += [[record] for record in sample_records(3)]
    watched.news = ["a"]
    rig.passes(COMMIT_MS // TICK_MS)  # It is the turn of the other one twice, with this one's.
    rig.splits["b"] += [[record] for record in sample_records(3)]
    watched.news = ["b"]
    rig.passes(COMMIT_MS // TICK_MS)
    assert [3, 3] == [rig.committed("a"), rig.committed("b")]


def test_a_split_that_is_handed_over_is_asked_for_its_position(
    rig: Rig, watched: WatchedSource
) -> None:
    """Also if it is idle: it may have moved without changes."""
    rig.splits["b"] += [[record] for record in sample_records(3)]
    rig.pipeline.command(HandOver("b"))
    rig.until(lambda: bool(rig.closed()))

    assert 1 == watched.seen().count("read b")


def test_each_tick_takes_its_time_while_splits_are_idle(rig: Rig, watched: WatchedSource) -> None:
    """A look waits for the end of the tick as any pass does."""
    before = rig.clock.monotonic_ms()
    rig.passes(4)

    assert ["look"] * 4 == watched.seen()
    assert 4 * TICK_MS == rig.clock.monotonic_ms() - before


def test_an_error_of_a_look_pauses_a_split(rig: Rig, watched: WatchedSource) -> None:
    """The first one that does not pause, and the others are asked."""
    watched.news = [RetriableError("the log cannot be listed")] * 2
    rig.passes(1)
    assert ["look", "read b"] == watched.seen()
    first, second = rig.pipeline.runs
    assert ("a", 0) == (first.split, second.not_before_ms)
    assert first.not_before_ms > 0

    rig.passes(1)  # The pause is over: it is the first again.
    assert ["look", "read b"] == watched.seen()
    rig.passes(1)
    assert ["look"] == watched.seen()


def test_splits_do_not_rest_before_the_source_may_forget(
    rig: Rig, watched: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that failed is repeated when its pause is over, not with the next commit (R1)."""
    release = MemoryReader.release
    failed: list[Position] = []

    def once(reader: MemoryReader, position: Position) -> None:
        if not failed:
            failed.append(position)
            raise RetriableError("the notes cannot be written")
        release(reader, position)

    monkeypatch.setattr(MemoryReader, "release", once)
    watched.news = ["b"]
    rig.splits["b"] += [[record] for record in sample_records(3)]
    rig.until(lambda: bool(failed))
    committed_ms = rig.clock.monotonic_ms()
    rig.until(lambda: [3] == watched.released["b"])

    assert rig.clock.monotonic_ms() - committed_ms < COMMIT_MS // 2


def test_a_still_source_is_looked_at_seldom(rig: Rig, watched: WatchedSource) -> None:
    """While it says that it is still only time ends the rest; every tick it is asked that."""

    def said() -> bool:
        watched.calls.append("still?")
        return True

    watched.is_still = said
    began_ms = rig.clock.monotonic_ms()
    rig.passes(1)

    assert REST_MS <= rig.clock.monotonic_ms() - began_ms < REST_MS + TICK_MS
    assert ["look"] + ["still?"] * (REST_MS // TICK_MS - 1) == watched.seen()


def commit(rig: Rig, watched: WatchedSource) -> None:
    """Let a quiet source come to its next commit."""
    rig.until(lambda: BOTH[0] in watched.calls)
    watched.seen()


def test_a_still_source_that_tells_is_waited_for(
    rig: Rig, watched: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it is quiet no tick asks it anything; what it tells is looked at when the tick ends."""

    def said() -> bool:
        watched.calls.append("still?")
        return not reported

    def tell(timeout_ms: int, readable: int | None = None) -> None:
        if readable is not None:
            assert DESCRIPTOR == readable
            timeout_ms = TICK_MS + 1
            reported.append(timeout_ms)
        rig.clock.advance(timeout_ms)

    reported: list[int] = []
    watched.is_still, watched.readable = said, DESCRIPTOR
    rig.passes(1)
    assert ["look"] + ["still?"] * (REST_MS // TICK_MS - 1) == watched.seen()

    commit(rig, watched)
    began_ms = rig.clock.monotonic_ms()
    rig.passes(1)
    assert ["look", "still?"] == watched.seen()
    assert COMMIT_MS - POSITIONS_MS - REST_MS == rig.clock.monotonic_ms() - began_ms

    commit(rig, watched)
    monkeypatch.setattr(rig.wake, "wait", tell)
    began_ms = rig.clock.monotonic_ms()
    rig.passes(1)
    assert ["look", "still?", "still?"] == watched.seen()
    assert 3 * TICK_MS == rig.clock.monotonic_ms() - began_ms


def test_nothing_lags_while_a_source_that_tells_is_still(
    rig: Rig, watched: WatchedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long ago it was asked: an event would have come."""

    def see(timeout_ms: int, readable: int | None = None) -> None:
        rig.clock.advance(timeout_ms)
        if readable is not None:
            lags.extend(rig.pipeline.lag_ms(run) for run in rig.pipeline.runs)

    lags: list[float | None] = []
    monkeypatch.setattr(rig.wake, "wait", see)
    watched.is_still, watched.readable = lambda: True, DESCRIPTOR
    commit(rig, watched)
    rig.passes(1)

    assert [0, 0] == lags[-2:]


@pytest.mark.parametrize("answer", [False, OSError("it is gone")])
def test_a_source_that_is_not_still_is_looked_at(
    rig: Rig, watched: WatchedSource, *, answer: bool | OSError
) -> None:
    """So it is, if it cannot say it."""

    def said() -> bool:
        watched.calls.append("still?")
        if isinstance(answer, OSError):
            raise answer
        return answer

    watched.is_still = said
    rig.passes(2)

    assert ["look", "still?"] * 2 == watched.seen()


def test_a_rest_ends_before_a_commit(rig: Rig, watched: WatchedSource) -> None:
    """Positions are asked for in time."""
    watched.is_still = lambda: True
    asked_ms = []
    for _ in range(12):
        rig.passes(1)
        if BOTH[0] in watched.seen():
            asked_ms.append(rig.clock.monotonic_ms())

    assert all(COMMIT_MS - POSITIONS_MS == b - a for a, b in pairwise(filled(asked_ms)))


def test_a_command_ends_the_rest_of_a_still_source(rig: Rig, watched: WatchedSource) -> None:
    """It is carried out at the next tick."""

    def said() -> bool:
        rig.pipeline.command(HandOver("a"))
        return True

    watched.is_still = said
    began_ms = rig.clock.monotonic_ms()
    rig.passes(1)
    assert rig.clock.monotonic_ms() - began_ms <= 2 * TICK_MS
    rig.passes(1)

    assert ["a"] == [reported.split for reported in rig.closed()]


def test_a_command_ends_the_rest(rig: Rig, watched: WatchedSource) -> None:
    """A split that is handed over is closed."""
    rig.pipeline.command(HandOver("a"))
    rig.passes(1)

    assert ["look", "read a"] == watched.seen()
    assert ["a"] == [reported.split for reported in rig.closed()]


def test_idle_splits_count_as_moving(rig: Rig, watched: WatchedSource) -> None:
    """A split that rests is not stuck: its time in the pulse is new."""
    pulses: list[Pulse] = []
    rig.pipeline._pulse = pulses.append  # noqa: SLF001 (a worker's)
    rig.passes(9)

    assert watched.seen()
    now_ms, last = rig.clock.monotonic_ms(), pulses[-1]
    assert last.looked_ms is not None
    assert {} == last.moved_ms
    assert now_ms - last.looked_ms <= 5 * TICK_MS
    assert all(now_ms - rig.pipeline.moved_ms(r) <= 5 * TICK_MS for r in filled(rig.pipeline.runs))


def test_splits_that_were_not_asked_are_in_the_pulse(rig: Rig, watched: WatchedSource) -> None:
    """While a job is paused its source is not asked, so each split says when it moved."""
    pulses: list[Pulse] = []
    rig.pipeline.command(Pause(paused=True))
    rig.passes(1)
    watched.seen()
    rig.pipeline._pulse = pulses.append  # noqa: SLF001 (a worker's)
    rig.passes(9)

    assert [] == watched.seen()
    splits = {run.split for run in filled(rig.pipeline.runs)}
    assert (None, splits) == (pulses[-1].looked_ms, set(pulses[-1].moved_ms))

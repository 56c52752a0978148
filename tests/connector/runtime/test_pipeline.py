"""The pipeline: what reaches the sink and the store, by a driven clock, pass by pass."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from headrace.connector.runtime.leases import Lease
from headrace.connector.runtime.pipeline import (
    Closed,
    Gain,
    HandOver,
    Idled,
    Limits,
    Lose,
    Pipeline,
    Stop,
)
from headrace.connector.runtime.splitrun import Surroundings, Verdict
from headrace.connector.stores import Commit, StoreUnavailableError
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins import (
    Batch,
    CloseReason,
    Demand,
    EncodedPosition,
    FatalError,
    HeadraceError,
    NumberPosition,
    RetriableError,
)
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    DocumentCodec,
    DrivenClock,
    MemoryConfig,
    MemorySource,
    Mutation,
    context,
    sample_records,
)
from headrace.plugins.testing.doubles import Verdict as Fate

TICK_MS = 100
COMMIT_MS = 1_000
LEASE_MS = 60_000
RECORD_BYTES = len(
    b'{"table":"shop.orders","op":"UPDATE","key":{"id":0},"timestamp":1700000000000000,"n":0}'
)


class DrivenWake:
    """Waiting moves the clock; what is posted meanwhile is seen afterwards."""

    def __init__(self, clock: DrivenClock) -> None:
        """Remember all waits."""
        self.clock = clock
        self.waits: list[int] = []

    def set(self) -> None:
        """Nothing sleeps here."""

    def wait(self, timeout_ms: int) -> None:
        """Let the time pass."""
        self.waits.append(timeout_ms)
        self.clock.advance(timeout_ms)


class Rig:
    """A pipeline over a memory source, a chaos sink and a real store."""

    def __init__(self, path: Path, **limits: int) -> None:
        """Take *limits* over the defaults."""
        self.path = path
        self.clock = DrivenClock()
        self.wake = DrivenWake(self.clock)
        self.splits: dict[str, list[Mutation]] = {}
        self.faults: deque[Exception | None] = deque()
        self.script: deque[Fate] = deque()
        self.told: list[Closed | Idled] = []
        self.store = SqliteStore.open(path, "job")
        self.limits = Limits(
            **{
                "tick_ms": TICK_MS,
                "commit_ms_max": COMMIT_MS,
                "commit_bytes_max": 1 << 20,
                "outstanding_bytes_max": 1 << 20,
                "outstanding_records_max": 1_000,
                "batch_bytes_max": 1 << 20,
                "batch_records_max": 10,
                "retry_ms_max": 60_000,
                "stop_ms_max": 5_000,
            }
            | limits
        )
        self.source: MemorySource
        self.sink: ChaosSink
        self.pipeline: Pipeline

    def open(self, counts: dict[str, int], *, until_idle: bool = False) -> None:
        """Begin with splits of so many mutations, one record each."""
        for split, count in counts.items():
            self.splits[split] = [[record] for record in sample_records(count)]
        config = MemoryConfig(splits=self.splits, faults=self.faults)
        self.source = MemorySource(config, context(self.clock))
        self.sink = ChaosSink(ChaosConfig(script=self.script), context(self.clock))
        self.store.register(list(counts))
        self.pipeline = Pipeline(
            self._around, self.limits, self.wake, self.told.append, until_idle=until_idle
        )
        self.pipeline.open()

    def gain(self, worker: str = "w1") -> dict[str, Lease]:
        """Claim all splits and give them to the pipeline."""
        tokens = self.store.claim(worker, self.store.leases(), LEASE_MS)
        deadline_ms = self.clock.monotonic_ms() + LEASE_MS
        leases = {
            split: Lease(split, token, deadline_ms=deadline_ms, margin_ms=1_000)
            for split, token in tokens.items()
        }
        for lease in leases.values():
            self.pipeline.command(Gain(lease))
        return leases

    def passes(self, count: int) -> None:
        """Run so many passes."""
        for _ in range(count):
            self.pipeline.run_pass()

    def until(self, condition: Callable[[], bool], *, passes_max: int = 1_000) -> None:
        """Run passes until *condition* holds."""
        for _ in range(passes_max):
            if condition():
                return
            self.pipeline.run_pass()
        raise AssertionError("it never came to that")

    def committed(self, split: str = "a") -> int:
        """Return the committed position of a split."""
        state = next(s for s in self.store.states() if s.split == split)
        return int(state.position.head) if state.position else 0

    def closed(self) -> list[Closed]:
        """Return the splits that ended."""
        return [told for told in self.told if isinstance(told, Closed)]

    def written(self) -> list[bytes]:
        """Return the values that reached the sink."""
        return [value for _, value in self.sink.written]

    def _around(self, post: Callable[[Verdict], None]) -> Surroundings:
        return Surroundings(
            source=self.source,
            writer=self.sink.open(),
            encoding="json",
            codec=DocumentCodec(),
            store=SqliteStore.open(self.path, "job"),
            clock=self.clock,
            log=context().log,
            worker="w1",
            retry_ms_max=self.limits.retry_ms_max,
            settle_ms_max=300_000,
            tick_ms=TICK_MS,
            post=post,
        )


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


def expected(count: int, first: int = 0) -> Sequence[bytes]:
    """Return the values of so many sample records."""
    source = MemorySource(MemoryConfig(splits={"x": [sample_records(count)]}), context())
    batch = source.open(source.plan()[0], None).read(_everything())
    assert isinstance(batch, Batch)
    return DocumentCodec().encode(batch).values[first:]


def _everything() -> Demand:
    return Demand(records_max=1 << 30, bytes_max=1 << 30)


def test_delivers_and_commits_everything(rig: Rig) -> None:
    """All records arrive in order, the state says so, and the source may forget them."""
    rig.open({"a": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    assert expected(25) == rig.written()
    assert [25] == rig.source.released["a"]
    state = rig.store.states()[0]
    assert 25 == state.counters["shop.orders"].cut == state.counters["shop.orders"].delivered


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
    rig.passes(COMMIT_MS // TICK_MS)
    assert 0 == rig.committed()
    rig.passes(1)
    assert 1 == rig.committed()
    rig.passes(50)
    assert 1 == rig.pipeline.stats.commits


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


def test_uncommitted_bytes_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing can be committed, at most one window per split is delivered (I7)."""
    rig = Rig(path, commit_bytes_max=10 * RECORD_BYTES, batch_records_max=1)
    rig.open({"a": 40})
    rig.gain()
    monkeypatch.setattr(rig.pipeline, "_commit", lambda: None)
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


def test_retriable_failure_is_sent_again_in_order(rig: Rig) -> None:
    """After a pause the split goes on from the first failure, and nothing overtakes it (I4)."""
    rig.open({"a": 25})
    rig.script.extend([Fate.RETRY_LAST])
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    values = expected(25)
    assert [*values[:9], *values[9:]] == rig.written()
    assert 100 <= rig.clock.monotonic_ms() - 1_000


def test_miscounted_delivery_is_sent_again(rig: Rig) -> None:
    """A verdict that does not add up repeats the batch (R6); a second verdict changes nothing."""
    rig.open({"a": 10})
    rig.script.extend([Fate.MISCOUNT, Fate.TWICE])
    rig.gain()
    rig.until(lambda: 10 == rig.committed())

    assert [*expected(10), *expected(10)] == rig.written()
    assert 10 == rig.store.states()[0].counters["shop.orders"].delivered


def test_rejected_record_is_kept(rig: Rig) -> None:
    """A record rejected for good is put away with the commit, and the split goes on (I8)."""
    rig.open({"a": 10})
    rig.script.append(Fate.REJECT_FIRST)
    rig.gain()
    rig.until(lambda: 10 == rig.committed())

    assert expected(10, 1) == rig.written()
    assert [("dead_letter", expected(1)[0], "chaos")] == [
        (loss.kind, loss.content, loss.code) for loss in rig.store.losses()
    ]


@pytest.mark.parametrize(
    "fate", [Fate.FATAL_FIRST, Fate.BREAK], ids=["settled as fatal", "raised in submit"]
)
def test_fatal_failure_stops_one_split(rig: Rig, fate: Fate) -> None:
    """The split that failed gives its lease back with the reason; the other goes on (I8)."""
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
    """After an error nothing is left out; after one without a name the reader is opened anew."""
    rig.faults.extend(faults)
    rig.open({"a": 25})
    rig.gain()
    rig.until(lambda: 25 == rig.committed())

    assert set(expected(25)) == set(rig.written())
    counts = rig.store.states()[0].counters["shop.orders"]
    assert (25, 25) == (counts.cut, counts.delivered)


def test_crashing_sink_loses_nothing(rig: Rig) -> None:
    """A submit that raises what no plugin should begins again from the committed state."""
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


def test_late_verdict_of_a_former_life_is_void(rig: Rig) -> None:
    """After a run began again a verdict on the old batch of the same number settles nothing."""
    rig.open({"a": 10})
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.passes(1)
    ((delivery, settle),) = rig.sink.held
    rig.pipeline.command(Lose("a"))
    rig.passes(1)
    rig.sink.held.clear()
    rig.script.extend([Fate.HOLD])
    rig.gain()
    rig.passes(1)
    settle(len(delivery.encoded))
    rig.passes(COMMIT_MS // TICK_MS + 1)
    assert 0 == rig.committed()
    rig.sink.let_go()
    rig.until(lambda: 10 == rig.committed())


def test_store_that_cannot_write_is_asked_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that was not made is made later, the same; the splits go on meanwhile."""
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
    rig.faults.extend([ZeroDivisionError("bug")] * 1_000)
    rig.open({"a": 1})
    rig.gain()
    rig.until(lambda: bool(rig.closed()))
    (closed,) = rig.closed()

    assert closed.error is not None
    assert "bug" in str(closed.error)
    rig.store.close()


def test_hand_over_drains_commits_and_gives_back(rig: Rig) -> None:
    """A split that is handed over waits for its verdicts, then is free at its last position."""
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
    """A split that another owns is closed without a commit, and can be gained anew."""
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
    assert [] == rig.told
    rig.sink.let_go()
    rig.until(lambda: bool(rig.told))

    assert [Idled(2, for_ever=False)] == rig.told
    assert 25 == rig.committed("a")
    rig.splits["b"].append(sample_records(1))
    rig.until(lambda: 1 == rig.committed("b"))
    rig.store.close()


def test_resumes_where_it_was(rig: Rig) -> None:
    """A new owner goes on after the committed position, under the next token."""
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

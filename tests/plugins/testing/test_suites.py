"""The suites pass what obeys the contract and fail what breaks it, rule by rule."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from headrace.plugins import (
    Batch,
    CloseReason,
    Demand,
    Done,
    Idle,
    NumberPosition,
    Position,
    Record,
    RecordBatch,
    Sink,
)
from headrace.plugins.testing import (
    SinkDriver,
    SinkSuite,
    SourceDriver,
    SourceSuite,
    TransactionalDriver,
    TransactionalSuite,
    leftovers,
)
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosResult,
    ChaosSink,
    MemoryConfig,
    MemoryReader,
    MemorySource,
    Mutation,
    context,
    sample_records,
)
from helpers.jobs.transactions import MemoryTransactions, TransactionalSink

SECONDS_MAX = 60


class MemoryDriver(SourceDriver):
    """Two splits in memory; mutations of one to three records."""

    def __init__(self, kind: type[MemorySource] = MemorySource) -> None:
        """Give the suite sources of *kind*."""
        records = sample_records(24)
        mutations: list[Mutation] = [records[n : n + 3] for n in range(0, 12, 3)]
        mutations += [[record] for record in records[12:]]
        self.config = MemoryConfig(splits={"a": mutations[::2], "b": mutations[1::2]})
        self.kind = kind

    def source(self) -> MemorySource:
        """Return a source over the shared lists."""
        return self.kind(self.config, context())

    def grow(self) -> int:
        """Append one mutation of two records."""
        self.config.splits["b"].append(sample_records(2, first=100))
        return 2

    def mutation(self, record: Record) -> int:
        """Return the number of the mutation that *record* is part of."""
        number = int(record.value["n"])
        return number // 3 if number < 12 else number


class TransactionsDriver(TransactionalDriver):
    """One split of a sink in memory."""

    def __init__(self) -> None:
        """Begin empty."""
        self._sink = TransactionalSink(ChaosConfig(), context())

    def writer(self) -> MemoryTransactions:
        """Return a writer of the shared sink."""
        return self._sink.open_split("split")

    def seen(self) -> Sequence[bytes]:
        """Return what is committed."""
        return [value for _, value in self._sink.seen]

    def deadline_ms(self) -> int:
        """Return any moment: nothing here waits."""
        return 0


class ChaosDriver(SinkDriver):
    """A sink in memory, with a script."""

    def __init__(self, *script: ChaosResult, shuffled: bool = False) -> None:
        """Start every sink object with *script*; a *shuffled* sink writes the last record first."""
        self.script = script
        self.shuffled = shuffled
        self.sinks: list[ChaosSink] = []

    def sink(self) -> Sink:
        """Return a sink; what earlier ones wrote remains."""
        self.sinks.append(ChaosSink(ChaosConfig(script=deque(self.script)), context()))
        return self.sinks[-1]

    def written(self) -> Sequence[tuple[bytes | None, bytes]]:
        """Return what all the sinks wrote."""
        pairs = [pair for sink in self.sinks for pair in sink.written]
        return pairs[::-1] if self.shuffled else pairs


class TestMemorySource(SourceSuite):
    """The source that other tests rely on obeys the contract itself."""

    @pytest.fixture
    def driver(self) -> SourceDriver:
        """Return a source in memory."""
        return MemoryDriver()


class TestTransactionalSink(TransactionalSuite):
    """The double that the framework's tests use obeys it."""

    @pytest.fixture
    def driver(self) -> TransactionsDriver:
        """Return a driver of its own."""
        return TransactionsDriver()


class TestChaosSink(SinkSuite):
    """Without a script the sink that other tests rely on obeys the contract."""

    @pytest.fixture
    def driver(self) -> SinkDriver:
        """Return a sink in memory."""
        return ChaosDriver()


class Wrong(MemoryReader):
    """Reads, and lets a subclass spoil what was read."""

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return the batch as `spoil` leaves it."""
        found = super().read(demand)
        return self.spoil(found) if isinstance(found, RecordBatch) else found

    def spoil(self, batch: RecordBatch) -> Batch:
        """Leave *batch* as it is."""
        return batch


class Greedy(Wrong):
    """Takes no notice of the bounds."""

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return everything."""
        del demand
        return super().read(Demand())


class Skipping(Wrong):
    """Ends each batch one mutation too late."""

    def spoil(self, batch: RecordBatch) -> Batch:
        """Point behind the next mutation."""
        assert isinstance(batch.end, NumberPosition)
        batch.end = NumberPosition(batch.end.number + 1)
        return batch


class Forgetful(Wrong):
    """Announces no schema."""

    def spoil(self, batch: RecordBatch) -> Batch:
        """Drop the schemas."""
        batch.announced = ()
        return batch


class Restless(Wrong):
    """Never says that there is nothing."""

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return an empty batch rather than Idle."""
        found = super().read(demand)
        if isinstance(found, Batch):
            return found
        return RecordBatch("a", NumberPosition(10), 0, (), (), more=True)


class Talkative(Wrong):
    """Writes to standard output."""

    def spoil(self, batch: RecordBatch) -> Batch:
        """Print."""
        print(batch.split)  # noqa: T201 (the fault that the suite must find)
        return batch


class Impatient(Wrong):
    """Cannot be closed again, nor asked again to release."""

    closed = False
    last = -1

    def close(self, reason: CloseReason) -> None:
        """Fail the second time."""
        assert not self.closed, reason
        self.closed = True

    def release(self, position: Position) -> None:
        """Fail unless *position* is new."""
        assert isinstance(position, NumberPosition)
        assert position.number > self.last
        self.last = position.number


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Greedy, SourceSuite.test_honours_bounds),
        (Skipping, SourceSuite.test_resumes_without_gap),
        (Forgetful, SourceSuite.test_schemas_come_first),
        (Impatient, SourceSuite.test_release_is_idempotent),
    ],
)
def test_source_suite_finds(
    kind: type[MemoryReader], test: Callable[[SourceSuite, SourceDriver], None]
) -> None:
    """A reader that breaks a rule fails the test of that rule."""
    with pytest.raises(AssertionError):
        test(SourceSuite(), _driver_of(kind))


def test_source_suite_finds_a_second_close() -> None:
    """A reader that cannot be closed twice fails."""
    with pytest.raises(AssertionError):
        SourceSuite().test_closes_twice(_driver_of(Impatient), CloseReason.FINISHED)


def test_source_suite_finds_unrest() -> None:
    """A reader that never comes to rest fails, and in bounded time."""
    with pytest.raises(pytest.fail.Exception, match="still reading"):
        SourceSuite().test_comes_to_rest(_driver_of(Restless))


def test_source_suite_finds_output(capfd: pytest.CaptureFixture[str]) -> None:
    """A reader that prints fails."""
    with pytest.raises(AssertionError):
        SourceSuite().test_is_silent(_driver_of(Talkative), capfd)


@pytest.mark.parametrize(
    ("driver", "test"),
    [
        (ChaosDriver(ChaosResult.TWICE), SinkSuite.test_settles_once_and_adds_up),
        (ChaosDriver(ChaosResult.HOLD), SinkSuite.test_settles_once_and_adds_up),
        (ChaosDriver(ChaosResult.MISCOUNT), SinkSuite.test_settles_once_and_adds_up),
        (ChaosDriver(ChaosResult.CONFUSE), SinkSuite.test_settles_once_and_adds_up),
        (ChaosDriver(ChaosResult.DROP), SinkSuite.test_reports_what_it_wrote),
        (ChaosDriver(ChaosResult.RETRY_LAST), SinkSuite.test_writes_everything_in_order),
        (ChaosDriver(shuffled=True), SinkSuite.test_writes_everything_in_order),
        (ChaosDriver(ChaosResult.FATAL_FIRST), SinkSuite.test_rejects_an_oversize_record),
        (ChaosDriver(ChaosResult.REJECT_FIRST), SinkSuite.test_resumes_after_torn_output),
    ],
)
def test_sink_suite_finds(
    driver: ChaosDriver, test: Callable[[SinkSuite, SinkDriver], None]
) -> None:
    """A writer that breaks a rule fails the test of that rule."""
    with pytest.raises(AssertionError):
        test(SinkSuite(), driver)


@pytest.mark.parametrize("leak", ["thread 'poller'", "file "])
def test_suites_find_what_is_left_open(
    leak: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A thread that a closed plugin did not end fails, and so does a file that is still open."""
    monkeypatch.setattr(leftovers, "SETTLE_SECONDS_MAX", 0.1)
    over, files = threading.Event(), list[BinaryIO]()

    def leave() -> None:
        if leak == "file ":
            files.append((tmp_path / "left").open("wb"))
        else:
            threading.Thread(target=over.wait, args=[SECONDS_MAX], name="poller").start()

    class Reader(MemoryReader):
        def close(self, reason: CloseReason) -> None:
            leave()
            super().close(reason)

    class Driver(ChaosDriver):
        def sink(self) -> Sink:
            leave()
            return super().sink()

    try:
        with pytest.raises(AssertionError, match=leak):
            SourceSuite().test_leaves_nothing_open(_driver_of(Reader))
        with pytest.raises(AssertionError, match=leak):
            SinkSuite().test_leaves_nothing_open(Driver())
    finally:
        over.set()
        for file in files:
            file.close()


def _driver_of(kind: type[MemoryReader]) -> MemoryDriver:
    class Source(MemorySource):
        reader_class = kind

    return MemoryDriver(Source)

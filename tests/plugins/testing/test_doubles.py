"""The doubles do what is scripted, and only that."""

import pytest

from headrace.plugins import (
    Delivery,
    Demand,
    Disposition,
    Done,
    FatalError,
    Idle,
    RecordBatch,
    RetriableError,
    Split,
)
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosResult,
    ChaosSink,
    DocumentCodec,
    DrivenClock,
    MemoryConfig,
    MemorySource,
    context,
    sample_records,
)
from headrace.plugins.testing.sink_suite import Results

SPLIT = Split("a")


def delivery() -> Delivery:
    """Return two records, as a writer gets them."""
    source = MemorySource(MemoryConfig(splits={"a": [sample_records(2)]}), context())
    batch = source.open(SPLIT, None).read(Demand())
    assert isinstance(batch, RecordBatch)
    return Delivery(batch, DocumentCodec().encode(batch))


def test_clock_is_driven() -> None:
    """Time passes when the test says so."""
    clock = DrivenClock(5)
    clock.advance(7)

    assert 12 == clock.monotonic_ms()
    assert 1_700_000_000_012 == clock.wall_ms()


def test_source_fails_on_demand() -> None:
    """A read raises the next fault, loses nothing, and continues."""
    config = MemoryConfig(splits={"a": [sample_records(1)]})
    config.faults.extend([RetriableError("busy"), None])
    reader = MemorySource(config, context()).open(SPLIT, None)
    with pytest.raises(RetriableError):
        reader.read(Demand())

    assert isinstance(reader.read(Demand()), RecordBatch)


@pytest.mark.parametrize(("bounded", "expected"), [(False, Idle()), (True, Done())])
def test_source_ends(bounded: bool, expected: Idle | Done) -> None:  # noqa: FBT001 (a case)
    """A bounded source is done where another one idles."""
    source = MemorySource(MemoryConfig(splits={"a": []}, bounded=bounded), context())

    assert expected == source.open(SPLIT, None).read(Demand())


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (ChaosResult.REFUSE, RetriableError),
        (ChaosResult.BREAK, FatalError),
        (ChaosResult.CRASH, ZeroDivisionError),
    ],
)
def test_sink_raises(result: ChaosResult, error: type[Exception]) -> None:
    """A refused delivery leaves nothing behind."""
    sink = ChaosSink(ChaosConfig(), context())
    sink.config.script.append(result)
    with pytest.raises(error):
        sink.open().submit(delivery(), Results())

    assert [] == sink.written


@pytest.mark.parametrize(
    ("result", "index", "disposition"),
    [
        (ChaosResult.RETRY_LAST, 1, Disposition.RETRY),
        (ChaosResult.REJECT_FIRST, 0, Disposition.REJECT),
        (ChaosResult.FATAL_FIRST, 0, Disposition.FATAL),
    ],
)
def test_sink_fails_one(result: ChaosResult, index: int, disposition: Disposition) -> None:
    """One record fails with its index and disposition, the other is written."""
    sink = ChaosSink(ChaosConfig(), context())
    sink.config.script.append(result)
    results = Results()
    sink.open().submit(delivery(), results)
    delivered, (failure,) = results.wait()

    assert ([1 - index], index, disposition) == (delivered, failure.index, failure.disposition)
    assert [delivery().encoded.values[1 - index]] == [value for _, value in sink.written]


@pytest.mark.parametrize(
    ("result", "reported", "count"),
    [
        (ChaosResult.MISCOUNT, [0], 2),
        (ChaosResult.CONFUSE, [0, 0], 2),
        (ChaosResult.DROP, [0, 1], 1),
    ],
)
def test_sink_reports_what_is_not_so(result: ChaosResult, reported: list[int], count: int) -> None:
    """The last record is in no result, or another is twice for it, or it was not written."""
    sink = ChaosSink(ChaosConfig(), context())
    sink.config.script.append(result)
    results = Results()
    sink.open().submit(delivery(), results)

    assert (reported, ()) == results.wait()
    assert list(delivery().encoded.values[:count]) == [value for _, value in sink.written]


def test_sink_holds() -> None:
    """What is held is neither written nor settled until the test lets go."""
    sink = ChaosSink(ChaosConfig(), context())
    sink.config.script.append(ChaosResult.HOLD)
    writer, results = sink.open(), Results()
    writer.submit(delivery(), results)

    assert ([], []) == (sink.written, results.calls)
    assert not writer.drain(0)
    sink.let_go()
    assert ([0, 1], ()) == results.wait()
    assert writer.drain(0)


def test_writers_are_counted() -> None:
    """A writer that is closed twice was open once."""
    sink = ChaosSink(ChaosConfig(), context())
    writer = sink.open()
    writer.close()
    writer.close()

    assert 0 == sink.writers_open

"""The requirements of every sink. Version 3: not complete; a later version only adds tests."""

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Final

import msgspec
import pytest

from headrace.plugins.check_results import CheckResult, Failure
from headrace.plugins.config.options import declared_options
from headrace.plugins.config.sink_options import SinkOptions
from headrace.plugins.contract import Demand, Sink, Writer
from headrace.plugins.errors import ConfigError, Disposition
from headrace.plugins.records.batches import Batch, Delivery
from headrace.plugins.records.encoded import EncodedRecords
from headrace.plugins.records.record import Record, RecordSchema
from headrace.plugins.testing.doubles import (
    DocumentCodec,
    MemoryConfig,
    MemorySource,
    context,
    sample_records,
)
from headrace.plugins.testing.leftovers import leftovers

DRAIN_MS: Final = 30_000
Pair = tuple[bytes | None, bytes]


class SinkDriver(ABC):
    """The suite's interface to a sink."""

    @abstractmethod
    def sink(self) -> Sink:
        """Return a new sink object that writes to the same place, as a restarted process would."""

    @abstractmethod
    def written(self) -> Sequence[Pair]:
        """Return the written keys and values in order; a key that is not kept may be None."""

    def encode(self, batch: Batch) -> EncodedRecords:
        """Return *batch* as the bytes that the sink requests; here JSON documents."""
        return DocumentCodec().encode(batch)

    def schemas(self) -> Mapping[bytes, RecordSchema]:
        """Return the schemas that the headers in the result of `encode` refer to."""
        return {}

    def oversize(self) -> bytes | None:
        """Return a value that is too large to be written, or None without a limit."""
        return None

    def tear(self) -> None:
        """Leave the remains of a process that died while writing, if possible."""


class Results:
    """The settle calls of one delivery."""

    def __init__(self) -> None:
        """Expect one call."""
        self.calls: list[tuple[list[int], tuple[Failure, ...]]] = []
        self._settled = threading.Event()

    def __call__(self, delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        """Record the result."""
        self.calls.append((sorted(delivered), tuple(failures)))
        self._settled.set()

    def wait(self) -> tuple[list[int], tuple[Failure, ...]]:
        """Return the only result; the indexes of delivered records are sorted."""
        assert self._settled.wait(DRAIN_MS / 1000), "never settled"
        assert 1 == len(self.calls), "settled more than once"
        return self.calls[0]


class SinkSuite:
    """Subclass it, and give it a fixture `driver` that returns a `SinkDriver`."""

    version: ClassVar[int] = 3

    @pytest.fixture
    def driver(self) -> SinkDriver:
        """Return the driver of the sink."""
        raise NotImplementedError("a subclass of SinkSuite has a fixture named driver")

    def test_settles_once_and_adds_up(self, driver: SinkDriver) -> None:
        """Every delivery is settled exactly once, and the result accounts for all of it (R6)."""
        sizes = (7, 1, 0, 100)
        writer = driver.sink().open()
        results = [_submit(driver, writer, sample_records(size)) for size in sizes]
        assert writer.drain(DRAIN_MS)
        writer.close()

        expected = [(list(range(size)), ()) for size in sizes]
        assert expected == [result.wait() for result in results]

    def test_reports_what_it_wrote(self, driver: SinkDriver) -> None:
        """Each record that a result reports as delivered was written, also beside one that failed.

        A failed record may have been written too.
        """
        writer = driver.sink().open()
        deliveries = [_delivery(driver, sample_records(9, first=first)) for first in (0, 9, 18)]
        large = driver.oversize()
        if large is not None:
            encoded = deliveries[1].encoded
            values = [*encoded.values[:4], large, *encoded.values[5:]]
            deliveries[1] = Delivery(
                deliveries[1].batch, msgspec.structs.replace(encoded, values=values)
            )
        results = [Results() for _ in deliveries]
        for delivery, result in zip(deliveries, results, strict=True):
            writer.submit(delivery, result)
        assert writer.drain(DRAIN_MS)
        writer.close()
        reported = Counter(
            delivery.encoded.values[index]
            for delivery, result in zip(deliveries, results, strict=True)
            for index in result.wait()[0]
        )

        assert not reported - Counter(value for _, value in driver.written())

    def test_writes_everything_in_order(self, driver: SinkDriver) -> None:
        """The records of a key are written in the order of submission."""
        records = sample_records(200, keys=7)
        writer = driver.sink().open()
        for start in range(0, len(records), 20):
            _submit(driver, writer, records[start : start + 20])
        assert writer.drain(DRAIN_MS)
        writer.close()
        encoded = _delivery(driver, records).encoded
        position = {value: index for index, value in enumerate(encoded.values)}
        found = [position[value] for _, value in driver.written()]

        assert sorted(found) == list(range(len(records)))
        for key in range(7):
            of_key = [index for index in found if index % 7 == key]
            assert sorted(of_key) == of_key

    def test_a_check_writes_nothing(self, driver: SinkDriver) -> None:
        """A check finds no problem where a writer can write, and leaves nothing there."""
        sink = driver.sink()
        sink.open().close()
        findings = sink.check()

        assert findings
        assert CheckResult.FAILED not in {finding.result for finding in findings}
        assert not driver.written()

    def test_drains_nothing(self, driver: SinkDriver) -> None:
        """A writer without deliveries has nothing unsettled."""
        writer = driver.sink().open()

        assert writer.drain(DRAIN_MS)
        writer.close()

    def test_closes_twice(self, driver: SinkDriver) -> None:
        """A writer may be closed again, and closed with work unsettled."""
        writer = driver.sink().open()
        _submit(driver, writer, sample_records(1))
        writer.close()
        writer.close()

    def test_leaves_nothing_open(self, driver: SinkDriver) -> None:
        """A closed writer has ended its threads and closed its files: jobs are opened again."""

        def use() -> Writer:
            writer = driver.sink().open()
            _submit(driver, writer, sample_records(1))
            assert writer.drain(DRAIN_MS)
            writer.close()
            return writer

        left = leftovers(use)
        assert not left, f"close() of the writer leaves {left}"

    def test_tolerates_a_duplicate(self, driver: SinkDriver) -> None:
        """A batch that is delivered again, as after a crash, is settled like any other."""
        records = sample_records(5)
        for _ in range(2):
            writer = driver.sink().open()
            result = _submit(driver, writer, records)
            assert writer.drain(DRAIN_MS)
            writer.close()
            assert ([0, 1, 2, 3, 4], ()) == result.wait()
        values = _delivery(driver, records).encoded.values

        assert set(values) == {value for _, value in driver.written()}

    def test_rejects_an_oversize_record(self, driver: SinkDriver) -> None:
        """One record that is too large is rejected, and its neighbours are delivered (I8)."""
        value = driver.oversize()
        delivery = _delivery(driver, sample_records(3))
        expected = list(delivery.encoded.values)
        writer = driver.sink().open()
        result = Results()
        if value is not None:
            values = [expected[0], value, expected.pop()]
            encoded = delivery.encoded
            encoded = EncodedRecords(encoded.keys, values, encoded.headers, encoded.tables)
            delivery = Delivery(delivery.batch, encoded)
            expected = [values[0], values[2]]
        writer.submit(delivery, result)
        assert writer.drain(DRAIN_MS)
        writer.close()
        delivered, failures = result.wait()

        rejected = [] if value is None else [(1, Disposition.REJECT)]
        assert rejected == [(failure.index, failure.disposition) for failure in failures]
        assert expected == [delivery.encoded.values[index] for index in delivered]
        assert Counter(expected) == Counter(value for _, value in driver.written())

    def test_resumes_after_torn_output(self, driver: SinkDriver) -> None:
        """The partial output of a dead process is not a record, and damages none (I7)."""
        before, after = sample_records(3), sample_records(3, first=3)
        for records in (before, after):
            writer = driver.sink().open()
            _submit(driver, writer, records)
            assert writer.drain(DRAIN_MS)
            writer.close()
            if records is before:
                driver.tear()
        expected = _delivery(driver, before + after).encoded.values

        assert Counter(expected) == Counter(value for _, value in driver.written())

    def test_declares_itself(self, driver: SinkDriver) -> None:
        """Every option has a documentation text, and the encoding has a name."""
        sink = driver.sink()
        documented = [declared.doc for _, declared in declared_options(sink.config_class).values()]

        assert all(documented)
        assert sink.encoding()

    def test_refuses_what_every_sink_refuses(self, driver: SinkDriver) -> None:
        """Its own `__post_init__` has not replaced that of `SinkOptions`."""
        config = driver.sink().config
        if isinstance(config, SinkOptions):
            with pytest.raises(ConfigError, match=r"schema\.framing: needs a schema store"):
                replace(config, schema_store=None, schema_framing="confluent")

    def test_is_silent(self, driver: SinkDriver, capfd: pytest.CaptureFixture[str]) -> None:
        """Nothing is written to standard output, which belongs to the command."""
        writer = driver.sink().open()
        _submit(driver, writer, sample_records(3))
        assert writer.drain(DRAIN_MS)
        writer.close()

        assert "" == capfd.readouterr().out


def _submit(driver: SinkDriver, writer: Writer, records: Sequence[Record]) -> Results:
    result = Results()
    writer.submit(_delivery(driver, records), result)
    return result


def _delivery(driver: SinkDriver, records: Sequence[Record]) -> Delivery:
    """Return *records* as the framework would deliver them."""
    source = MemorySource(MemoryConfig(splits={"a": [records]}), context())
    batch = source.open(source.plan()[0], None).read(Demand())
    assert isinstance(batch, Batch)
    return Delivery(batch, driver.encode(batch), driver.schemas())

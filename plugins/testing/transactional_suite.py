"""The requirements of a sink with exactly-once delivery. Version 1: not complete."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import pytest

from headrace.plugins.contract import TransactionalWriter
from headrace.plugins.errors import HeadraceError
from headrace.plugins.positions import NumberPosition
from headrace.plugins.records.batches import Delivery, RecordBatch
from headrace.plugins.records.encoded import EncodedRecords
from headrace.plugins.testing.sink_suite import Results

CALL_MS: Final = 60_000
BEGINNINGS_MAX: Final = 600
PAUSE_SECONDS: Final = 0.1


class TransactionalDriver(ABC):
    """The suite's interface to a sink."""

    @abstractmethod
    def writer(self) -> TransactionalWriter:
        """Return a new writer of the one split, as another process would have it."""

    @abstractmethod
    def seen(self) -> Sequence[bytes]:
        """Return the values that a consumer of committed records sees, in any order."""

    @abstractmethod
    def deadline_ms(self) -> int:
        """Return a time on the writers' clock by which everything should be done."""

    def delivery(self, values: Sequence[bytes]) -> Delivery:
        """Return a delivery of records that `seen` shows as *values*.

        A driver of a sink that reads its records overrides it.
        """
        count = len(values)
        encoded = EncodedRecords([b"key"] * count, list(values), [()] * count, ["t"] * count)
        return Delivery(RecordBatch("split", NumberPosition(0), 0, made=()), encoded)


class TransactionalSuite:
    """Subclass it, and give it a fixture `driver` that returns a `TransactionalDriver`."""

    version: ClassVar[int] = 1

    @pytest.fixture
    def driver(self) -> TransactionalDriver:
        """Return the driver of the sink."""
        raise NotImplementedError("a subclass has a fixture named driver")

    def test_a_commit_shows_records_and_entries(self, driver: TransactionalDriver) -> None:
        """No record is seen before it, and all after it; the entries are found later."""
        writer = driver.writer()
        assert {} == begun(driver, writer)
        submit(driver, writer, b"1", b"2")
        before = driver.seen()
        commit(driver, writer, {"head": b"2", "chunk": b"x"})

        assert ([], [b"1", b"2"]) == (list(before), sorted(driver.seen()))
        writer.close()
        later = driver.writer()
        assert {"head": b"2", "chunk": b"x"} == begun(driver, later)
        later.close()

    def test_a_commit_replaces_and_removes(self, driver: TransactionalDriver) -> None:
        """Entries that are not given stay, None removes one; records are not required."""
        writer = driver.writer()
        begun(driver, writer)
        commit(driver, writer, {"a": b"1", "b": b"1", "c": b"1"})
        commit(driver, writer, {"a": b"2", "b": None})

        assert {"a": b"2", "c": b"1"} == begun(driver, writer)
        writer.close()

    def test_to_begin_again_drops_what_is_uncommitted(self, driver: TransactionalDriver) -> None:
        """They are never seen, and the writer continues."""
        writer = driver.writer()
        begun(driver, writer)
        submit(driver, writer, b"1")
        commit(driver, writer, {"head": b"1"})
        submit(driver, writer, b"dropped")

        assert {"head": b"1"} == begun(driver, writer)
        submit(driver, writer, b"2")
        commit(driver, writer, {"head": b"2"})
        assert [b"1", b"2"] == sorted(driver.seen())
        writer.close()

    def test_a_later_writer_keeps_out_an_earlier_one(self, driver: TransactionalDriver) -> None:
        """Records that the earlier one submitted, or submits and commits later, are never seen."""
        earlier, later = driver.writer(), driver.writer()
        begun(driver, earlier)
        submit(driver, earlier, b"1")
        commit(driver, earlier, {"head": b"1"})
        submit(driver, earlier, b"late")

        assert {"head": b"1"} == begun(driver, later)
        with pytest.raises(HeadraceError) as refused:
            commit(driver, earlier, {"head": b"late"})
        assert "fenced" == refused.value.code
        submit(driver, later, b"2")
        commit(driver, later, {"head": b"2"})
        with pytest.raises(HeadraceError):
            begun(driver, earlier)
        assert [b"1", b"2"] == sorted(driver.seen())
        earlier.close()
        later.close()


def begun(driver: TransactionalDriver, writer: TransactionalWriter) -> Mapping[str, bytes]:
    """Begin, repeatedly until it succeeds, and return the entries."""
    for _ in range(BEGINNINGS_MAX):
        entries = writer.begin(driver.deadline_ms())
        if entries is not None:
            return entries
        time.sleep(PAUSE_SECONDS)  # The other program runs in real time.
    raise AssertionError("not read in time")


def submit(driver: TransactionalDriver, writer: TransactionalWriter, *values: bytes) -> None:
    """Submit records and wait until they are settled as delivered."""
    results = Results()
    writer.submit(driver.delivery(values), results)
    assert writer.drain(driver.deadline_ms())
    assert (list(range(len(values))), ()) == results.wait()


def commit(
    driver: TransactionalDriver, writer: TransactionalWriter, entries: Mapping[str, bytes | None]
) -> None:
    """Commit, and wait for the outcome."""
    assert writer.commit(entries, driver.deadline_ms()), "not decided in time"

"""The requirements of every source. Version 4: incomplete; a later version only adds tests."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest

from headrace.plugins.contract import CloseReason, Demand, Done, Idle, Reader, Source
from headrace.plugins.origin import CHANGE_FIELDS
from headrace.plugins.records.batches import Batch
from headrace.plugins.records.encoded import EncodedRecords
from headrace.plugins.records.record import Record, RecordSchema
from headrace.plugins.testing.leftovers import leftovers

if TYPE_CHECKING:
    from headrace.plugins.positions import Position

ROUNDS_MAX: Final = 10_000  # A source that is still busy after this many never becomes idle.
IDLE_READS: Final = 20
RESUMES_MAX: Final = 12  # Boundaries tested per split, spread evenly.
END_ONLY: Final = Demand(records_max=0, bytes_max=0)
FEW: Final = Demand(records_max=2)
SMALL: Final = Demand(records_max=1)
ENDLESS: Final = Demand(records_max=1, commit_due=False, position_due=False)
LARGE: Final = Demand(records_max=1_000_000, bytes_max=1 << 30)


class SourceDriver(ABC):
    """The suite's interface to a source.

    The input has at least three mutations in some split. `ordered`: a reader that resumes returns
    records in the order of the first reader; `counts_records`: a reader knows how many records it
    returns, so that it is not limited by their bytes alone.
    """

    ordered: ClassVar[bool] = True
    counts_records: ClassVar[bool] = True

    @abstractmethod
    def source(self) -> Source:
        """Return a new source object over the same input, as a restarted process would."""

    @abstractmethod
    def grow(self) -> int:
        """Append to the input; return the number of new records, 0 if it cannot grow."""

    def identity(self, record: Record) -> Hashable:
        """Return an identity of *record* that differs from all others and stays the same."""
        return json.dumps(record.document(), sort_keys=True, default=repr)

    def mutation(self, record: Record) -> Hashable:
        """Return a value common to all records of one mutation; here each is alone."""
        return self.identity(record)

    def other_splits(self) -> Sequence[str]:
        """Return other splits that the source can have; only called if it offers `Resplitting`."""
        raise NotImplementedError(type(self).__name__)

    def options(self) -> Mapping[str, Any]:  # Any: as in a job file.
        """Return the options of the source; only called if it offers to change them."""
        raise NotImplementedError(type(self).__name__)

    def encoded(self, encoding: str, batch: Batch) -> EncodedRecords:
        """Return the framework's encoding of the records; only called if batches encode it."""
        raise NotImplementedError(encoding)


class CapabilitySuite:
    """A part of the suite for sources with `capability`: inherit it besides `SourceSuite`."""

    capability: ClassVar[type]


class SourceSuite:
    """Subclass it, and give it a fixture `driver` that returns a `SourceDriver`."""

    version: ClassVar[int] = 4

    @pytest.fixture
    def driver(self) -> SourceDriver:
        """Return the driver of the source."""
        raise NotImplementedError("a subclass of SourceSuite has a fixture named driver")

    def test_every_capability_is_tested(self, driver: SourceDriver) -> None:
        """The test class of a source inherits the parts for all capabilities that it offers."""
        source, parts = driver.source(), CapabilitySuite.__subclasses__()
        wanted = {part.__name__ for part in parts if isinstance(source, part.capability)}

        assert wanted == {part.__name__ for part in parts if isinstance(self, part)}

    def test_plan_is_deterministic(self, driver: SourceDriver) -> None:
        """Two processes with one configuration plan the same splits, each id once."""
        first, second = driver.source().plan(), driver.source().plan()

        assert first == second
        assert len(first) == len({split.split_id for split in first})

    def test_honours_bounds(self, driver: SourceDriver) -> None:
        """A batch exceeds a limit by at most its last mutation, and loses nothing by it."""
        expected = Counter(identities(driver, read_all(driver, LARGE)))
        few, small = read_all(driver, FEW), read_all(driver, Demand(bytes_max=1))
        if driver.counts_records:
            assert all(sum(_mutations(driver, b)[:-1]) < FEW.records_max for b in few)

        assert all(len(_mutations(driver, batch)) <= 1 for batch in small)
        assert expected == Counter(identities(driver, few))
        assert expected == Counter(identities(driver, small))

    def test_ends_on_mutation_boundary(self, driver: SourceDriver) -> None:
        """All records of a mutation that a split has are in one batch (R5)."""
        seen: set[tuple[str, Hashable]] = set()
        for batch in read_all(driver, SMALL):
            found = {(batch.split, driver.mutation(record)) for record in batch.records()}
            assert not seen & found
            seen |= found

    def test_records_can_be_made_again(self, driver: SourceDriver) -> None:
        """A batch makes the same records each time, and knows its split."""
        batches = read_all(driver, LARGE)

        assert {b.split for b in batches} <= {s.split_id for s in driver.source().plan()}
        assert identities(driver, batches) == identities(driver, batches)

    def test_schemas_come_first(self, driver: SourceDriver) -> None:
        """A schema is announced before or with its first record; its id is the MD5 of its text."""
        announced: dict[bytes, RecordSchema] = {}
        for batch in read_all(driver, SMALL):
            announced |= {schema.schema_id: schema for schema in batch.schemas()}
            for record in batch.records():
                text = record.schema.text.encode()
                digest = hashlib.md5(text, usedforsecurity=False).digest()
                assert digest == record.schema.schema_id
                assert record.schema == announced.get(digest)

    def test_fields_of_its_own_are_declared(self, driver: SourceDriver) -> None:
        """The additional fields of its changes are in its `Origin`, with their types."""
        declared = list(driver.source().origin.fields.items())
        for batch in read_all(driver, LARGE):
            for schema in batch.schemas():
                fields = {each["name"]: each["type"] for each in schema.value.get("fields", ())}
                if "payload" in fields:
                    own = [(n, kind) for n, kind in fields.items() if n not in CHANGE_FIELDS]
                    assert declared == own

    def test_positions_round_trip(self, driver: SourceDriver) -> None:
        """A position that was stored equals the issued one."""
        source = driver.source()
        for batch in read_all(driver, SMALL):
            decoded = source.decode_position(batch.end.encode())
            assert batch.end.encode() == decoded.encode()
            assert list(batch.end.describe()) == list(decoded.describe())
            assert dict(batch.end.books()) == dict(decoded.books())

    def test_backlog_ends_with_the_log(self, driver: SourceDriver) -> None:
        """After the last position nothing is left to read, as far as the source knows."""
        source = driver.source()
        ends = {batch.split: batch.end for batch in read_all(driver, LARGE)}
        for split in source.plan():
            if split.split_id in ends:
                left = source.backlog(split, ends[split.split_id])
                assert not any(part.size_bytes for part in left)

    def test_resumes_without_gap(self, driver: SourceDriver) -> None:
        """A reader that resumes at a batch's end reads all that follows it, and nothing before."""
        for split in driver.source().plan():
            batches = [batch for batch in read_all(driver, SMALL) if split.split_id == batch.split]
            for index in range(0, len(batches), max(1, len(batches) // RESUMES_MAX)):
                source = driver.source()
                resume = source.decode_position(batches[index].end.encode())
                expected = identities(driver, batches[index + 1 :])
                found = identities(driver, exhaust([source.open(split, resume)], LARGE))
                assert Counter(expected) == Counter(found), f"{split}, batch {index}"
                assert not driver.ordered or expected == found, f"{split}, batch {index}"

    def test_gives_ends_when_they_are_due(self, driver: SourceDriver) -> None:
        """A batch without an end has more after it; a requested end covers everything read."""
        expected = Counter(identities(driver, read_all(driver, LARGE)))
        source = driver.source()
        for split in source.plan():
            reader, read = source.open(split, None), list[Batch]()
            while isinstance(batch := reader.read(ENDLESS), Batch):
                read.append(batch)
                assert batch.has_end or batch.more
            assert not read or read[-1].has_end
            expected.subtract(identities(driver, read))
        assert not any(expected.values())

        source = driver.source()
        for split in source.plan():
            whole = exhaust([driver.source().open(split, None)], LARGE)
            reader = source.open(split, None)
            read = [each for each in (reader.read(ENDLESS),) if isinstance(each, Batch)]
            if read and not read[0].has_end:
                asked = reader.read(END_ONLY)
                assert isinstance(asked, Batch)
                read.append(asked)
            if read:
                resume = driver.source().decode_position(read[-1].end.encode())
                read += exhaust([driver.source().open(split, resume)], LARGE)
            assert Counter(identities(driver, whole)) == Counter(identities(driver, read))

    def test_comes_to_rest(self, driver: SourceDriver) -> None:
        """After the last batch a reader is idle at every read."""
        readers = _readers(driver)
        exhaust(readers, LARGE)
        answers = [reader.read(LARGE) for _ in range(IDLE_READS) for reader in readers]

        assert all(isinstance(answer, Idle | Done) for answer in answers)

    def test_follows_growth(self, driver: SourceDriver) -> None:
        """Appended data is read, once, by the readers that were idle."""
        readers = _readers(driver)
        exhaust(readers, LARGE)
        grown = driver.grow()

        assert grown == len(identities(driver, exhaust(readers, SMALL)))

    def test_release_is_idempotent(self, driver: SourceDriver) -> None:
        """Releasing twice, or less than before, disturbs neither this reader nor the next."""
        expected = Counter(identities(driver, read_all(driver, SMALL)))
        readers = _readers(driver)
        ends: dict[int, Position] = {}
        found: list[Hashable] = []
        for reader, batch in _rounds(readers, SMALL):
            found += identities(driver, [batch])
            first = ends.setdefault(id(reader), batch.end)
            for position in (batch.end, batch.end, first):
                reader.release(position)

        assert expected == Counter(found)

    @pytest.mark.parametrize("reason", CloseReason)
    def test_closes_twice(self, driver: SourceDriver, reason: CloseReason) -> None:
        """A reader and its source may be closed again, for any reason."""
        source = driver.source()
        for split in source.plan():
            reader = source.open(split, None)
            reader.read(SMALL)
            reader.close(reason)
            reader.close(reason)
        source.close()
        source.close()

    def test_leaves_nothing_open(self, driver: SourceDriver) -> None:
        """Closed readers and a closed source have ended their threads and closed their files."""

        def use() -> list[Reader]:
            source = driver.source()
            readers = [source.open(split, None) for split in source.plan()]
            for reader in readers:
                reader.read(FEW)  # In the middle: its files are open.
            for reader in readers:
                reader.close(CloseReason.FINISHED)
            source.close()
            return readers

        left = leftovers(use)
        assert not left, f"close() of the readers and the source leaves {left}"

    def test_fast_encoding_is_the_frameworks(self, driver: SourceDriver) -> None:
        """A batch that encodes itself has the same bytes as the framework (capability)."""
        for batch in read_all(driver, LARGE):
            for encoding in sorted(batch.encodings):
                fast, slow = batch.encode(encoding), driver.encoded(encoding, batch)
                assert list(slow.keys) == list(fast.keys), encoding
                assert list(slow.values) == list(fast.values), encoding
                assert list(slow.headers) == list(fast.headers), encoding
                assert list(slow.tables) == list(fast.tables), encoding

    def test_is_silent(self, driver: SourceDriver, capfd: pytest.CaptureFixture[str]) -> None:
        """Nothing is written to standard output, which belongs to the command."""
        read_all(driver, LARGE)

        assert "" == capfd.readouterr().out


def _readers(driver: SourceDriver) -> list[Reader]:
    source = driver.source()
    return [source.open(split, None) for split in source.plan()]


def read_all(driver: SourceDriver, demand: Demand) -> list[Batch]:
    """Return everything, as a new source reads it."""
    return exhaust(_readers(driver), demand)


def exhaust(readers: Sequence[Reader], demand: Demand) -> list[Batch]:
    """Return the batches of *readers* until none has more."""
    return [batch for _, batch in _rounds(readers, demand)]


def _rounds(readers: Sequence[Reader], demand: Demand) -> Iterator[tuple[Reader, Batch]]:
    """Read from all readers in turn, as the framework does, until none has a batch."""
    for _ in range(ROUNDS_MAX):
        answers = ((reader, reader.read(demand)) for reader in readers)
        found = [(reader, answer) for reader, answer in answers if isinstance(answer, Batch)]
        if not found:
            return
        yield from found
    pytest.fail(f"still reading after {ROUNDS_MAX} rounds")


def identities(driver: SourceDriver, batches: Sequence[Batch]) -> list[Hashable]:
    """Return the identities of the records of *batches*."""
    return [driver.identity(record) for batch in batches for record in batch.records()]


def _mutations(driver: SourceDriver, batch: Batch) -> list[int]:
    """Return the number of records of each mutation in *batch*."""
    return list(Counter(driver.mutation(record) for record in batch.records()).values())

"""The requirements of a source with a capability: a part of the suite for each."""

from collections import Counter
from collections.abc import Hashable
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Final

import pytest

from headrace.plugins.capabilities import (
    BulkReading,
    JobTraces,
    Locality,
    LogArchive,
    LogFraming,
    LogSearch,
    LogSpaces,
    MicroBatches,
    PartialReading,
    Relocation,
    Resplitting,
    ServiceSettings,
    SidecarService,
    TableChecks,
    Tables,
    TokenRanges,
    TypedColumns,
)
from headrace.plugins.config.options import parse_config
from headrace.plugins.contract import CloseReason, Demand, Source
from headrace.plugins.errors import ConfigError
from headrace.plugins.positions import Position
from headrace.plugins.records.batches import Batch
from headrace.plugins.testing.source_suite import (
    LARGE,
    ROUNDS_MAX,
    CapabilitySuite,
    SourceDriver,
    exhaust,
    identities,
    read_all,
)

ALL_BYTES: Final = 1 << 62
PARTS: Final = 5
STRETCH_BYTES: Final = 16 * 1024


class RelocationSuite(CapabilitySuite):
    """Positions of the source can be moved."""

    capability: ClassVar[type] = Relocation

    def test_earliest_is_the_beginning(self, driver: SourceDriver) -> None:
        """A split that was moved to `earliest` is read like a new one."""
        for split in driver.source().plan():
            new, moved = driver.source(), driver.source()
            at = _stored(moved, Relocation.of(moved).locate(split, None, "earliest"))
            expected = identities(driver, exhaust([new.open(split, None)], LARGE))
            assert Counter(expected) == Counter(
                identities(driver, exhaust([moved.open(split, at)], LARGE))
            )

    def test_behind_latest_is_nothing(self, driver: SourceDriver) -> None:
        """A split that was moved to `latest` has nothing to read."""
        for split in driver.source().plan():
            source = driver.source()
            at = _stored(source, Relocation.of(source).locate(split, None, "latest"))
            assert [] == identities(driver, exhaust([source.open(split, at)], LARGE))

    def test_an_unknown_place_is_refused(self, driver: SourceDriver) -> None:
        """The problem is that of the option `position`."""
        source = driver.source()
        with pytest.raises(ConfigError) as caught:
            Relocation.of(source).locate(source.plan()[0], None, "an unknown place")

        assert ["position"] == [problem.key for problem in caught.value.problems]


class TokenRangesSuite(CapabilitySuite):
    """The splits are ranges of tokens."""

    capability: ClassVar[type] = TokenRanges

    def test_no_token_is_of_two_splits(self, driver: SourceDriver) -> None:
        """The ranges of all splits have different numbers and do not overlap."""
        source = driver.source()
        splits = [split.split_id for split in source.plan()]
        found = [TokenRanges.of(source).token_range(split) for split in splits]
        ranges = sorted((each.first, each.behind, each.number) for each in found if each)

        assert len(splits) == len({number for _, _, number in ranges})
        assert all(first < behind for first, behind, _ in ranges)
        assert all(one[1] <= other[0] for one, other in pairwise(ranges))


class ResplittingSuite(CapabilitySuite):
    """The splits can be replaced by others."""

    capability: ClassVar[type] = Resplitting

    def test_its_own_splits_can_be_replaced(self, driver: SourceDriver) -> None:
        """The positions of its own splits have the start of each."""
        source = driver.source()
        splits = [split.split_id for split in source.plan()]

        assert set(splits) == set(Resplitting.of(source).resplit(dict.fromkeys(splits)) or ())

    def test_it_follows_splits_of_its_own(self, driver: SourceDriver) -> None:
        """It uses splits that others planned; names that are not its splits change nothing."""
        source, others = driver.source(), list(driver.other_splits())
        before = source.plan()
        Resplitting.of(source).follow(["no split of this source"])
        assert before == source.plan()
        Resplitting.of(source).follow(others)
        assert sorted(others) == sorted(split.split_id for split in source.plan())

    def test_other_splits_go_on(self, driver: SourceDriver) -> None:
        """The new splits return what the old ones did not read, and nothing twice."""
        expected = Counter(identities(driver, read_all(driver, LARGE)))
        old, states = driver.source(), dict[str, Position | None]()
        found = Counter[Hashable]()
        for split in old.plan():
            batch = old.open(split, None).read(Demand(records_max=2))
            states[split.split_id] = batch.end if isinstance(batch, Batch) else None
            found.update(identities(driver, [batch] if isinstance(batch, Batch) else []))
        new = driver.source()
        Resplitting.of(new).follow(driver.other_splits())
        begun = Resplitting.of(new).resplit({n: _stored(new, at) for n, at in states.items()})
        assert begun is not None
        readers = [new.open(split, begun[split.split_id]) for split in new.plan()]
        found.update(identities(driver, exhaust(readers, LARGE)))

        assert expected == found


class LocalitySuite(CapabilitySuite):
    """The source reports which parts are near."""

    capability: ClassVar[type] = Locality

    def test_shares_are_of_its_splits(self, driver: SourceDriver) -> None:
        """Each share is of a split that is planned, and from 0 to 1."""
        source = driver.source()
        splits = {split.split_id for split in source.plan()}
        shares = Locality.of(source).nearness().shares

        assert shares.keys() <= splits
        assert all(0 <= part <= 1 for places in shares.values() for part in places.values())


class JobTracesSuite(CapabilitySuite):
    """Jobs leave notes beside the data they read."""

    capability: ClassVar[type] = JobTraces

    def test_notes_are_of_the_job_until_they_are_forgotten(self, driver: SourceDriver) -> None:
        """A job that has read finds its own notes; they are gone once they are forgotten."""
        source = driver.source()
        for split in source.plan():
            reader = source.open(split, None)
            for batch in exhaust([reader], LARGE):
                reader.release(batch.end)
            reader.close(CloseReason.FINISHED)
        found = JobTraces.of(source).traces()
        assert found
        assert {source.context.job} == {trace.job for trace in found}
        assert all(trace.mine for trace in found)
        JobTraces.of(source).forget(found)
        assert [] == list(JobTraces.of(source).traces())

    def test_splits_that_have_not_run_can_be_reserved(self, driver: SourceDriver) -> None:
        """Each gets a note without reading; a second call changes nothing."""
        source = driver.source()
        splits = [split.split_id for split in source.plan()]
        JobTraces.of(source).forget(JobTraces.of(source).traces())
        JobTraces.of(source).reserve(splits)
        found = JobTraces.of(source).traces()
        assert found
        assert all(trace.mine for trace in found)
        JobTraces.of(source).reserve(splits)
        assert len(found) == len(JobTraces.of(source).traces())


class TablesSuite(CapabilitySuite):
    """The source knows its tables."""

    capability: ClassVar[type] = Tables

    def test_changes_are_of_its_tables(self, driver: SourceDriver) -> None:
        """It names the table of each change, each once, and waits for none that it has read."""
        found = {r.schema.table for b in read_all(driver, LARGE) for r in b.records()}
        source = driver.source()
        source.plan()
        tables = list(Tables.of(source).tables())

        assert found <= set(tables)
        assert len(tables) == len(set(tables))
        assert not found & Tables.of(source).missing_tables().keys()


class TableChecksSuite(CapabilitySuite):
    """The source can report which changes of a table it will not deliver."""

    capability: ClassVar[type] = TableChecks

    def test_a_table_that_does_not_exist_has_a_warning(self, driver: SourceDriver) -> None:
        """The warning names the table, which may be misspelt."""
        (warning,) = TableChecks.of(driver.source()).check_tables(["no_such.table"])

        assert "no_such.table" in warning.message
        assert warning.code


class PartialReadingSuite(CapabilitySuite):
    """The source continues while parts of it cannot be read."""

    capability: ClassVar[type] = PartialReading

    def test_nothing_is_unreadable_that_was_read(self, driver: SourceDriver) -> None:
        """While everything can be read, no part is reported as unreadable."""
        source = driver.source()
        exhaust([source.open(split, None) for split in source.plan()], LARGE)

        assert {} == PartialReading.of(source).unreadable()
        assert [] == list(PartialReading.of(source).unread())


class LogSpacesSuite(CapabilitySuite):
    """The source knows the disk space of its logs."""

    capability: ClassVar[type] = LogSpaces

    def test_spaces_are_of_its_logs(self, driver: SourceDriver) -> None:
        """Each is of a log in `backlog`, once, and is at least as large as its unread part."""
        source = driver.source()
        (split, *_) = source.plan()
        left = {str(part.partition): part.size_bytes for part in source.backlog(split, None)}
        spaces = LogSpaces.of(source).log_spaces()
        used = {str(space.partition): space.used_bytes for space in spaces}

        assert len(used) == len(spaces)
        assert used.keys() <= left.keys()
        assert all(left[partition] <= size for partition, size in used.items())


class BulkReadingSuite(CapabilitySuite):
    """The source can be read in part."""

    capability: ClassVar[type] = BulkReading

    def test_parts_are_the_whole(self, driver: SourceDriver) -> None:
        """After `cut`, it has the requested number of splits, and the same records."""
        expected = Counter(identities(driver, read_all(driver, LARGE)))
        source = driver.source()
        BulkReading.of(source).cut(PARTS)
        splits = source.plan()
        found = exhaust([source.open(split, None) for split in splits], LARGE)

        assert len(splits) == PARTS
        assert expected == Counter(identities(driver, found))


class MicroBatchesSuite(CapabilitySuite):
    """The source can be read step by step."""

    capability: ClassVar[type] = MicroBatches

    def test_nothing_comes_from_behind_the_end(self, driver: SourceDriver) -> None:
        """Changes logged after `ahead` was called are not read by a source with that end."""
        expected = Counter(identities(driver, read_all(driver, LARGE)))
        end = MicroBatches.of(driver.source()).ahead(None, ALL_BYTES)
        assert driver.grow()
        source = driver.source()
        MicroBatches.of(source).limit(until=_stored(source, end))
        found = exhaust([source.open(split, None) for split in source.plan()], LARGE)

        assert expected == Counter(identities(driver, found))

    def test_a_step_has_an_end(self, driver: SourceDriver) -> None:
        """Steps of any size reach the end of one large step, and then end."""
        source = driver.source()
        steps = MicroBatches.of(source)
        last, at = steps.ahead(None, ALL_BYTES), steps.ahead(None, 1)
        for _ in range(ROUNDS_MAX):
            before, at = at, steps.ahead(at, 1)
            if at.describe() == before.describe():
                break
        assert last.describe() == at.describe()

    def test_parts_of_a_split_become_one(self, driver: SourceDriver) -> None:
        """Parts return the same as the split; it continues at their ends, with its books."""
        end = MicroBatches.of(driver.source()).ahead(None, ALL_BYTES)
        splits = driver.source().plan()
        for split in splits:
            whole = exhaust([driver.source().open(split, None)], LARGE)
            steps = MicroBatches.of(driver.source())
            begun, ended = steps.divide(split, None, 2), dict[str, Position]()
            found = Counter[Hashable]()
            for name, position in begun.items():
                part = driver.source()
                MicroBatches.of(part).cut(len(splits) * len(begun))
                MicroBatches.of(part).limit(until=_stored(part, end))
                (mine,) = (each for each in part.plan() if each.split_id == name)
                read = exhaust([part.open(mine, position)], LARGE)
                found.update(identities(driver, read))
                ended[name] = read[-1].end
            reunited = steps.reunite(split, None, begun, ended)
            source = driver.source()
            left = exhaust([source.open(split, _stored(source, reunited))], LARGE)

            assert Counter(identities(driver, whole)) == found
            assert dict(whole[-1].end.books()) == dict(reunited.books())
            assert [] == identities(driver, left)


class LogSearchSuite(CapabilitySuite):
    """The source can find which parts of its logs are not needed."""

    capability: ClassVar[type] = LogSearch

    def test_nothing_wanted_is_skipped(self, driver: SourceDriver) -> None:
        """All changes of the selected tables are returned, even if flaws were found."""
        expected, tables = Counter[Hashable](), set[str]()
        for record in (r for batch in read_all(driver, LARGE) for r in batch.records()):
            tables = tables or {record.schema.table}
            if record.schema.table in tables:
                expected[driver.identity(record)] += 1
        source = driver.source()
        LogSearch.of(source).search()
        LogSearch.of(source).spare(tables, None, None)
        found = exhaust([source.open(split, None) for split in source.plan()], LARGE)

        assert expected == Counter(
            driver.identity(record)
            for batch in found
            for record in batch.records()
            if record.schema.table in tables
        )


class LogFramingSuite(CapabilitySuite):
    """The logs can be read once for many splits."""

    capability: ClassVar[type] = LogFraming

    def test_framed_splits_are_the_same(self, driver: SourceDriver, tmp_path: Path) -> None:
        """Splits read from blocks, in any order, equal those of the logs; one after another."""

        def source() -> Source:
            made = driver.source()
            LogFraming.of(made).cut(PARTS)
            return made

        once, splits = LogFraming.of(source()), [split.split_id for split in source().plan()]
        blocks = list(once.frame(once.log_parts([None], STRETCH_BYTES), splits))
        framed = source()
        for split in framed.plan():
            file = tmp_path / split.split_id
            own = [block for name, block in blocks if name == split.split_id]
            file.write_bytes(b"".join(reversed(own)))
            alone = exhaust([source().open(split, None)], LARGE)
            LogFraming.of(framed).read_framed(file)
            reader = framed.open(split, None)
            found = exhaust([reader], LARGE)
            reader.close(CloseReason.FINISHED)

            assert identities(driver, alone) == identities(driver, found)
            assert dict(alone[-1].end.books()) == dict(found[-1].end.books())
            assert alone[-1].end.describe() == found[-1].end.describe()


class TypedColumnsSuite(CapabilitySuite):
    """The changes can be rows with typed columns."""

    capability: ClassVar[type] = TypedColumns

    def test_each_change_is_a_row(self, driver: SourceDriver) -> None:
        """A batch has a typed row for each of its changes of the table."""
        source, count = driver.source(), 0
        for batch in read_all(driver, LARGE):
            tables = [record.schema.table for record in batch.records()]
            for table in sorted(set(tables)):
                target = TypedColumns.of(source).table_type(table)
                typed = batch.typed(target, with_messages=False)
                assert tables.count(table) == len(typed)
                count += len(typed)
        assert count

    def test_an_unknown_table_is_refused(self, driver: SourceDriver) -> None:
        """The problem is that of the option `table`."""
        with pytest.raises(ConfigError) as caught:
            TypedColumns.of(driver.source()).table_type("no_such.table")

        assert ["table"] == [problem.key for problem in caught.value.problems]


class LogArchiveSuite(CapabilitySuite):
    """The source reads archived logs."""

    capability: ClassVar[type] = LogArchive

    def test_options_can_be_changed(self, driver: SourceDriver) -> None:
        """The changed options of a job are valid options of this source."""
        source, given = driver.source(), driver.options()
        kind = LogArchive.of_class(type(source))
        made = [*kind.log_by_log(given), kind.any_copy(given), kind.past_gaps(given)]

        assert 3 <= len(made)
        assert all(parse_config(source.config_class, options) for options in made)

    def test_stretches_of_a_log_are_the_log(self, driver: SourceDriver) -> None:
        """Read one by one, they have the content of the log."""
        source = driver.source()
        (first, *_) = LogArchive.of_class(type(source)).log_by_log(driver.options())

        def opened(until: Position | None) -> Source:
            made = type(source)(parse_config(source.config_class, first), source.context)
            BulkReading.of(made).cut(1)
            BulkReading.of(made).limit(until=until)
            return made

        whole = opened(None)
        (split,) = whole.plan()
        expected = Counter(identities(driver, exhaust([whole.open(split, None)], LARGE)))
        cut = LogArchive.of(opened(None)).stretches(None, STRETCH_BYTES)
        found = Counter[Hashable]()
        for begin, end in cut:
            found.update(identities(driver, exhaust([opened(end).open(split, begin)], LARGE)))

        assert len(cut) > 1
        assert expected == found


class SidecarServiceSuite(CapabilitySuite):
    """The source can be configured by services."""

    capability: ClassVar[type] = SidecarService

    def test_options_can_be_changed(self, driver: SourceDriver) -> None:
        """The settings of a service become options of this source."""
        source = driver.source()
        settings = ServiceSettings(
            watermark_seconds=60, max_commit_logs=2, max_watermarker_size=5_000, datacenter=None
        )
        made = SidecarService.of_class(type(source)).of_service(driver.options(), settings)

        assert made != driver.options()
        assert parse_config(source.config_class, made)


def _stored(source: Source, position: Position | None) -> Position | None:
    """Return a position as a store returns it."""
    return None if position is None else source.decode_position(position.encode())

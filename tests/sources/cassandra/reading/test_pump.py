"""Reading all logs: gaps, damage and growth, seen through the source's readers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from select import select

import msgspec
import pytest

from headrace.connector.runtime.pipeline import REST_MS
from headrace.plugins import Batch, CloseReason, Demand, Idle, Position, Reader
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.errors import UnsupportedSegmentError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment, write_segment
from headrace.sources.cassandra.reading.cursor import LogCursor
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from headrace.sources.cassandra.state.gaps import LogGapError
from helpers.jobs.rig import TICK_MS, Rig
from helpers.logs.forged import header, insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.settings.filled import filled

DEMAND = Demand(linger_ms=1 << 30)
LATER = msgspec.structs.replace(DEMAND, commit_due=False, position_due=False, end_may_wait=True)
NODES = ("node1", "node2", "node3")
WHOLE = "1\nCOMPLETED"
READS_MAX = 9


def published(found: Batch) -> list[str]:
    """Return the values of the inserted rows."""
    return [record.document()["columns"]["v"]["value"] for record in found.records()]


def all_of(readers: Mapping[str, Reader]) -> list[str]:
    """Return the values of all that can be read now, in any order."""
    return sorted(value for found in batches(readers.values()) for value in published(found))


def rows(first: int, count: int) -> list[bytes]:
    """Return mutations of as many rows, whose values are their numbers."""
    return [insert(b"k%d" % n, b"%c" % n) for n in range(first, first + count)]


def values(first: int, count: int) -> list[str]:
    """Return the values of such rows as they are published."""
    return [f"0x{n:02x}" for n in range(first, first + count)]


def options_of(folder: Path, **more: object) -> dict[str, object]:
    """Return the options of three empty nodes, two of which must agree, in two splits."""
    for node in NODES:
        (folder / node).mkdir()
    return forged_nodes(folder, {}) | {
        "nodes": {node: str(folder / node) for node in NODES},
        "splits": 2,
        **more,
    }


def write(folder: Path, node: str, number: int, numbers: range, index: str = WHOLE) -> Path:
    """Write segment *number* of a node with some rows."""
    made = segment([rows(numbers.start, len(numbers))], segment_id=SEGMENT_ID + number)
    return write_segment(folder / node, made.content, segment_id=SEGMENT_ID + number, index=index)


def positions(readers: Mapping[str, Reader]) -> dict[str, Position]:
    """Return where each split is after all that can be read."""
    at: dict[str, Position] = {}
    for found in batches(readers.values()):
        at[found.split] = found.end
    return at


def test_what_is_not_durable_is_not_published(tmp_path: Path) -> None:
    """A live segment is read up to its limit only, and on when that rises (I6)."""
    options = options_of(tmp_path)
    sections = [rows(0, 3), rows(3, 4)]
    made = segment(sections)
    paths = [write_segment(tmp_path / node, made.content, index="0") for node in NODES[:2]]
    readers = open_all(source(options))

    assert [] == all_of(readers)
    for path in paths:
        limit = str(made.section_ends[0])
        path.with_name(f"{path.stem}_cdc.idx").write_text(limit)
    assert values(0, 3) == all_of(readers)
    for path in paths:
        path.with_name(f"{path.stem}_cdc.idx").write_text("1\nCOMPLETED")
    assert values(3, 4) == all_of(readers)


@pytest.mark.parametrize("read_before", [True, False])
def test_a_segment_that_vanished_unread_is_a_gap(tmp_path: Path, read_before: bool) -> None:  # noqa: FBT001 (a parameter)
    """Listed, or started by an earlier run, it must be read to its end before it goes (I10)."""
    options = options_of(tmp_path)
    first = write(tmp_path, "node1", 0, range(3), "9999")
    readers = open_all(source(options))
    at = positions(readers)
    first.unlink()
    if not read_before:
        readers = open_all(source(options), at)

    with pytest.raises(LogGapError, match=f"segment {SEGMENT_ID} vanished") as caught:
        all_of(readers)

    assert f"node node1: segment {SEGMENT_ID}" == caught.value.place


def test_each_split_meets_a_gap_where_it_stands(tmp_path: Path) -> None:
    """A split that read part of what is lost reports the rest, however far back others go."""
    options = options_of(tmp_path, gaps="expire")
    first = write(tmp_path, "node1", 0, range(3))
    behind = positions(open_all(source(options)))
    second = write(tmp_path, "node1", 1, range(3, 6), "70")
    ahead = positions(open_all(source(options), behind))
    for path in (first, second):
        path.unlink()
    write(tmp_path, "node1", 2, range(6, 9))
    readers = open_all(source(options), {"1-of-2": behind["1-of-2"], "2-of-2": ahead["2-of-2"]})
    ends = {found.split: found.end for found in batches(readers.values())}

    begun = {}
    for split, end in ends.items():
        assert isinstance(end, CdcState)
        begun[split] = [gap.begin for gap in end.met_gaps]
    assert begun == {
        split: [at.markers["node1"]]
        for split, at in (("1-of-2", behind["1-of-2"]), ("2-of-2", ahead["2-of-2"]))
        if isinstance(at, CdcState)
    }
    assert begun["1-of-2"] < begun["2-of-2"]


def test_a_gap_is_met_once(tmp_path: Path) -> None:
    """A split that stands at its end does not meet it again when another split gets there."""
    options = options_of(tmp_path, gaps="expire")
    paths = [write(tmp_path, "node1", 0, range(3))]
    behind = positions(open_all(source(options)))
    paths.append(write(tmp_path, "node1", 1, range(3, 6), "70"))
    ahead = positions(open_all(source(options), behind))
    for path in paths:
        path.unlink()
    passed = positions(open_all(source(options), ahead))
    write(tmp_path, "node1", 2, range(6, 9))
    readers = open_all(source(options), {"1-of-2": behind["1-of-2"], "2-of-2": passed["2-of-2"]})

    ends = positions(readers)
    assert ["1-of-2", "2-of-2"] == sorted(ends)
    for end in ends.values():
        assert isinstance(end, CdcState)
        assert ["node1"] == [gap.node for gap in end.met_gaps]


def test_a_segment_that_was_read_to_its_end_may_go(tmp_path: Path) -> None:
    """Disposing of it takes nothing from any split."""
    options = options_of(tmp_path)
    paths = [write(tmp_path, node, 0, range(3)) for node in NODES]
    at = positions(open_all(source(options)))
    for path in paths:
        path.unlink()
    for node in NODES:
        write(tmp_path, node, 1, range(3, 5))

    assert values(3, 2) == all_of(open_all(source(options), at))


def test_a_segment_held_open_is_read_to_its_end(tmp_path: Path) -> None:
    """Its name may go once a later one is there: the open file still has all bytes."""
    options = options_of(tmp_path)
    sections = [rows(0, 3), rows(3, 4)]
    made = segment(sections)
    first = str(made.section_ends[0])
    paths = [write_segment(tmp_path / node, made.content, index=first) for node in NODES]
    readers = open_all(source(options))
    assert values(0, 3) == all_of(readers)

    for node, path in zip(NODES, paths, strict=True):
        path.unlink()
        write(tmp_path, node, 1, range(7, 8), "0")

    assert values(3, 4) == all_of(readers)


@pytest.mark.parametrize("open_one_goes", [True, False])
def test_what_went_unseen_behind_an_open_segment_may_be_a_gap(
    tmp_path: Path,
    open_one_goes: bool,  # noqa: FBT001 (a parameter)
) -> None:
    """If the segment that is read was deleted, later ids can be gone too.

    While it keeps its name nothing behind it was removed: an id that is missing had no CDC data.
    """
    options = options_of(tmp_path, consistency="ONE", splits=1)
    made = segment([rows(0, 3), rows(3, 4)])
    path = write_segment(tmp_path / "node1", made.content, index=str(made.section_ends[0]))
    readers = open_all(source(options))
    assert values(0, 3) == all_of(readers)

    write(tmp_path, "node1", 2, range(8, 9))
    if open_one_goes:
        for each in (path, path.with_name(f"{path.stem}_cdc.idx")):
            each.unlink()
        with pytest.raises(LogGapError, match=f"segments from {SEGMENT_ID + 1} on are missing"):
            all_of(readers)
    else:
        assert values(3, 4) + values(8, 1) == all_of(readers)


def test_no_split_reads_on_in_a_version_it_cannot_read(tmp_path: Path) -> None:
    """Each split gets the error, each time; none passes over the entries that it cannot see."""
    options = options_of(tmp_path)
    made = segment([rows(0, 9)])
    write_segment(tmp_path / "node1", header(6) + made.content[20:])
    write_segment(tmp_path / "node2", made.content)
    readers = open_all(source(options))

    ends: list[Position] = []
    for reader in (*readers.values(), *readers.values()):
        with pytest.raises(UnsupportedSegmentError):
            read_on(reader, ends)
    for end in filled(ends):
        reported = {at["node"]: offset for at, offset in end.describe()}
        assert 0 == reported["node1"]["position"]


def last_position(reader: Reader) -> Position:
    """Return the position of a reader that has read everything, with the time."""
    assert isinstance(reader.read(DEMAND), Idle)
    found = reader.read(msgspec.structs.replace(DEMAND, records_max=0, bytes_max=0))
    assert isinstance(found, Batch)
    return found.end


def read_on(reader: Reader, ends: list[Position]) -> None:
    """Read some times and add where the batches end."""
    for _ in range(READS_MAX):
        found = reader.read(DEMAND)
        if isinstance(found, Batch):
            ends.append(found.end)


def test_splits_join_and_leave(tmp_path: Path) -> None:
    """One that is opened later reads from its own position; the others see nothing twice."""
    options = options_of(tmp_path)
    for node in NODES:
        write(tmp_path, node, 0, range(30))
    made = source(options)
    first, second = made.plan()
    early = made.open(first, None)
    seen = all_of({"0": early})

    late = made.open(second, None)
    seen += all_of({"0": early, "1": late})
    early.close(CloseReason.HANDED_OVER)
    for node in NODES:
        write(tmp_path, node, 1, range(30, 60))
    rest = all_of({"1": late})
    assert set(rest) < set(values(30, 30))
    assert isinstance(late.read(DEMAND), Idle)

    assert values(0, 30) == sorted(seen)


def test_time_passes_only_while_all_is_read(tmp_path: Path) -> None:
    """A mutation with one copy expires by split time; a late copy is published all the same."""
    clock = DrivenClock()
    options = options_of(tmp_path, expiry_seconds=60, dedup_window_seconds=60, splits=1)
    write(tmp_path, "node1", 0, range(1))
    readers = open_all(source(options, clock))
    (reader,) = readers.values()
    for _ in range(80):
        reader.read(DEMAND)
        clock.advance(1_000)
    write(tmp_path, "node2", 0, range(1))

    assert values(0, 1) == all_of(readers)


def test_time_alone_is_reported_when_a_commit_is_due(tmp_path: Path) -> None:
    """Line 32: a state in which only split time has grown is made for a commit, each 30 s."""
    clock = DrivenClock()
    (reader,) = open_all(source(options_of(tmp_path, splits=1), clock)).values()
    taus = []
    for turn in range(120):
        found = reader.read(msgspec.structs.replace(DEMAND, commit_due=turn % 4 == 1))
        if isinstance(found, Batch):
            assert isinstance(found.end, CdcState)
            taus.append(found.end.split_time_ms)
        clock.advance(700)

    assert [0, 31_500, 62_300] == taus


def test_the_last_position_has_the_time(tmp_path: Path) -> None:
    """Line 32: a split that is asked for an end alone has it, however little time has passed."""
    clock = DrivenClock()
    (reader,) = open_all(source(options_of(tmp_path, splits=1), clock)).values()
    assert isinstance(reader.read(DEMAND), Batch)
    clock.advance(300)
    assert isinstance(reader.read(DEMAND), Idle)

    found = reader.read(msgspec.structs.replace(DEMAND, records_max=0, bytes_max=0))
    assert isinstance(found, Batch)
    assert isinstance(found.end, CdcState)
    assert 300 == found.end.split_time_ms


@pytest.mark.parametrize("seconds", [1, 5])
def test_split_time_is_committed_with_every_commit(tmp_path: Path, seconds: int) -> None:
    """Line 32: without new data the state on disk is 30 s and a commit old, and no older."""
    rig = Rig(tmp_path / "state.db", commit_ms_max=1_000 * seconds)
    quiet = source(options_of(tmp_path, splits=2), rig.clock)
    rig.open({split.split_id: 0 for split in quiet.plan()}, source=quiet)
    rig.gain()
    began_ms = rig.clock.monotonic_ms()
    behind_ms = []
    while rig.clock.monotonic_ms() < began_ms + 120_000:
        rig.passes(1)
        states = (quiet.decode_position(s.position) for s in rig.store.states() if s.position)
        taus = [state.split_time_ms for state in states if isinstance(state, CdcState)] or [0]
        behind_ms.append(rig.clock.monotonic_ms() - began_ms - min(taus))

    assert 30_000 <= max(behind_ms) <= 30_000 + 1_000 * seconds + REST_MS + 2 * TICK_MS
    assert rig.pipeline.stats.commits in {3, 4}


def test_of_a_sleep_ten_seconds_count(tmp_path: Path) -> None:
    """While the machine slept the logs were not read, so nothing is said about late copies."""
    clock = DrivenClock()
    options = options_of(tmp_path, expiry_seconds=60, dedup_window_seconds=60, splits=1)
    write(tmp_path, "node1", 0, range(1))
    readers = open_all(source(options, clock))
    before = positions(readers)["1-of-1"]
    clock.advance(4 * 3_600_000)
    after = last_position(readers["1-of-1"])
    assert isinstance(before, CdcState)
    assert isinstance(after, CdcState)

    assert before.split_time_ms + 10_000 == after.split_time_ms
    assert 0 == after.books()["mutations.expired"]


def test_time_that_another_owner_has_counted_is_not_counted_again(tmp_path: Path) -> None:
    """Of a split that is taken over, it continues from its state when the logs are read again."""
    clock = DrivenClock()
    made = source(options_of(tmp_path), clock)
    write(tmp_path, "node1", 0, range(9))
    readers = open_all(made)
    before = positions(readers)
    *_, split = made.plan()
    readers[split.split_id].close(CloseReason.LEASE_LOST)
    clock.advance(8_000)
    again = made.open(split, before[split.split_id])
    write(tmp_path, "node1", 1, range(9))
    after = positions({split.split_id: again})[split.split_id]
    assert isinstance(after, CdcState)

    assert 0 == after.split_time_ms


def test_what_waits_keeps_its_segment_over_a_restart(tmp_path: Path) -> None:
    """Another split may release at once; the copy that a restored record waits with stays (I5)."""
    options = options_of(tmp_path, disposal="delete")
    waiting = write(tmp_path, "node1", 0, range(1))
    for number in (1, 2):
        for node in NODES:
            write(tmp_path, node, number, range(9 * number, 9 * number + 9))
    readers = open_all(source(options))
    at = positions(readers)
    stored = {split: position.encode() for split, position in at.items()}
    for split, position in at.items():
        readers[split].release(position)
    assert waiting.exists()

    loaded = {split: CdcState.decode(encoded) for split, encoded in stored.items()}
    again = open_all(source(options), loaded)
    for split, position in loaded.items():
        again[split].release(position)
        assert waiting.exists(), split


class SlowClock(DrivenClock):
    """The clock of a machine on which nothing is done within a pass's time."""

    def monotonic_ms(self) -> int:
        """Let a second pass with each look."""
        self.advance(1_000)
        return super().monotonic_ms()


def test_a_slow_look_at_the_logs_is_no_end_of_them(tmp_path: Path) -> None:
    """A pass whose time is over when all are listed still reads: idle means nothing is left."""
    options = forged_nodes(tmp_path, dict.fromkeys(NODES, rows(0, 40)))
    readers = open_all(source(options, SlowClock()))
    found = list(batches(readers.values(), Demand(linger_ms=1)))

    assert values(0, 40) == sorted(v for each in found for v in published(each))


@pytest.mark.parametrize("most", range(1, 7))
def test_so_many_segments_are_begun_in_a_pass(tmp_path: Path, most: int) -> None:
    """A pass ends with the first piece of one more; what is behind that comes with the next."""
    options = options_of(tmp_path, splits=1, segments_per_batch_max=most, consistency="ONE")
    for number in range(1, 6):
        write(tmp_path, "node1", number, range(number, number + 1))
    (reader,) = open_all(source(options)).values()
    found = [len(published(batch)) for batch in batches([reader])]

    first = min(most + 1, 5)
    assert (first, 5) == (found[0], sum(found))
    assert most + 1 >= max(found)


@pytest.mark.parametrize("index", ["1\nCOMPLETED", "whole"])
@pytest.mark.parametrize("count", range(1, 6))
def test_reading_ends_amid_a_section(tmp_path: Path, count: int, index: str) -> None:
    """All up to a place is read, wherever that is, and what is behind it comes afterwards.

    So it is in bulk, in a live segment, too.
    """
    made = segment([rows(0, 2), rows(2, 3)])
    index = index.replace("whole", str(made.section_ends[-1]))
    write_segment(tmp_path / "node1", made.content, index=index)
    options = forged_nodes(tmp_path, {}) | {
        "nodes": {"node1": str(tmp_path / "node1")},
        "consistency": "ONE",
        "splits": 1,
    }
    place = Marker(SEGMENT_ID, made.ends[count - 1])
    bounded = source(options)
    until = CdcState(0, 0, ("node1",), (), {"node1": place}, {})
    bounded.limit(until=until)
    (reader,) = open_all(bounded).values()
    found = list(batches([reader]))
    assert values(0, count) == sorted(v for each in found for v in published(each))
    end = found[-1].end
    assert isinstance(end, CdcState)
    assert place == end.markers["node1"]
    bounded.close()

    further = source(options)
    rest = all_of(open_all(further, {"1-of-1": end}))
    assert values(count, 5 - count) == rest
    further.close()


def test_damage_before_the_place_where_reading_ends_is_booked_once(tmp_path: Path) -> None:
    """The rest of the segment is lost up to that place, and what is behind it afterwards."""
    made = segment([rows(0, 2), rows(2, 3)])
    spoilt = made.content[: made.section_ends[0]]
    write_segment(tmp_path / "node1", spoilt, index=f"{made.durable}\nCOMPLETED")
    options = forged_nodes(tmp_path, {}) | {
        "nodes": {"node1": str(tmp_path / "node1")},
        "consistency": "ONE",
        "splits": 1,
        "gaps": "expire",
    }
    place = Marker(SEGMENT_ID, made.ends[3])
    bounded = source(options)
    until = CdcState(0, 0, ("node1",), (), {"node1": place}, {})
    bounded.limit(until=until)
    (reader,) = open_all(bounded).values()
    found = [*batches([reader]), *batches([reader])]
    bounded.close()

    end = found[-1].end
    assert isinstance(end, CdcState)
    assert place == end.markers["node1"]
    assert 1 == Counter(end.books())["entries.node1.damaged"]
    assert values(0, 2) == sorted(v for each in found for v in published(each))


def test_an_error_without_a_name_lets_all_splits_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke off the reading may have taken any split's mutation along: all stop."""
    made = source(forged_nodes(tmp_path, {"node1": rows(0, 9)}) | {"consistency": "ONE"})
    readers = open_all(made)
    first, *others = readers.values()

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(LogCursor, "advance", broken)
        with pytest.raises(ZeroDivisionError):
            first.read(DEMAND)
    for reader in (first, *others):
        with pytest.raises(ZeroDivisionError):
            reader.read(DEMAND)
        reader.close(CloseReason.FAILED)

    assert values(0, 9) == all_of(open_all(made))
    made.close()


@pytest.mark.parametrize("at", [b"k7", b"\x07"])
def test_damage_is_reported_once_by_whoever_reads_which_split(tmp_path: Path, at: bytes) -> None:
    """Each split read for itself, one reports a damaged entry, and no other publishes it."""
    options = forged_nodes(tmp_path, {"node1": rows(0, 40)})
    options |= {"consistency": "ONE", "gaps": "expire"}
    (log,) = (tmp_path / "node1").glob("*.log")
    content = bytearray(log.read_bytes())
    entry = content.index(rows(7, 1)[0])
    content[content.index(at, entry)] ^= 1
    log.write_bytes(content)

    lost, found = 0, []
    for split in range(4):
        made = source(options | {"splits": 4})
        (reader,) = [made.open(made.plan()[split], None)]
        for batch in batches([reader]):
            lost += len(batch.quarantined())
            found += published(batch)
        made.close()

    assert 1 == lost
    assert sorted({*values(0, 40)} - {*values(7, 1)}) == sorted(found)


def all_idle(readers: Mapping[str, Reader]) -> bool:
    """Ask each reader again; return whether all have nothing."""
    found = [
        reader.read(msgspec.structs.replace(DEMAND, commit_due=False))
        for reader in readers.values()
    ]
    return all(isinstance(each, Idle) for each in found)


def looked(made: CassandraSource) -> Sequence[str]:
    """Return the splits that a look has news of."""
    return sorted(made.look(LATER).splits)


def test_a_look_says_which_splits_have_something(tmp_path: Path) -> None:
    """None while the logs rest; those of what was read until they returned it."""
    made = source(options_of(tmp_path), DrivenClock())
    readers = open_all(made)
    write(tmp_path, "node1", 0, range(1))
    assert [] == all_of(readers)
    assert sorted(readers) == looked(made)
    assert all_idle(readers)
    assert [[], []] == [looked(made) for _ in range(2)]

    write(tmp_path, "node2", 0, range(1))
    (split,) = looked(made)
    assert [split] == looked(made)
    passes = made._parts.built().pump.passes  # noqa: SLF001 (how often the logs are read)
    found = readers[split].read(LATER)
    assert isinstance(found, Batch)
    assert (False, values(0, 1)) == (found.has_end, published(found))
    assert passes == made._parts.built().pump.passes  # noqa: SLF001
    assert [] == looked(made)


def test_logs_that_changed_are_not_still(tmp_path: Path) -> None:
    """Neither are they while a split has something, nor where one of them is away.

    A file descriptor tells that they changed.
    """
    made = source(options_of(tmp_path), DrivenClock())
    readers = open_all(made)
    for node in NODES:
        write(tmp_path, node, 0, range(1))

    def is_still() -> bool:
        found = made.look(LATER)
        while found.splits:
            assert found.is_still is not None
            assert not found.is_still()
            for split in found.splits:
                readers[split].read(LATER)
            found = made.look(LATER)
        assert found.is_still is not None
        return found.is_still()

    is_still()
    assert is_still()
    descriptor_of = made.look(LATER).readable
    assert descriptor_of is not None
    readable = descriptor_of()
    assert readable is not None
    for node in NODES:
        assert ([], [], []) == select([readable], [], [], 0)
        write(tmp_path, node, 1, range(1, 2))
        assert ([readable], [], []) == select([readable], [], [], 0)
        pump = made._parts.built().pump  # noqa: SLF001 (without a look)
        assert not pump.is_still()
        is_still()
        assert is_still()
    (tmp_path / NODES[0]).rename(tmp_path / "away")
    assert ([readable], [], []) == select([readable], [], [], 0)
    assert not is_still()


def test_while_a_log_is_away_splits_are_asked_once_a_minute(tmp_path: Path) -> None:
    """Also when it is given up; the time that it was away is whole in each position."""
    clock = DrivenClock()
    made = source(options_of(tmp_path, absent_after_seconds=90), clock)
    readers = open_all(made)
    assert [] == all_of(readers)
    (tmp_path / NODES[2]).rename(tmp_path / "away")
    pump = made._parts.built().pump  # noqa: SLF001 (what becomes part of the positions)
    asked_s, began_ms = [], clock.monotonic_ms()
    for _ in range(200):
        clock.advance(1_000)
        found = looked(made)
        pump.absences(0)  # As one that has something is asked before the others.
        if found:
            assert sorted(readers) == found
            for reader in readers.values():
                reader.read(LATER)
            asked_s.append((clock.monotonic_ms() - began_ms) // 1_000)
    away_ms = [clock.monotonic_ms() - began_ms] * len(readers)

    assert [60, 90, 120, 180] == [each for each in asked_s if each > 2]
    assert away_ms == [pump.absences(n)[NODES[2]].unread_ms for n in range(len(readers))]


def test_an_end_that_may_wait_comes_when_it_is_due(tmp_path: Path) -> None:
    """Of a split that had changes, and of one whose position moved without any."""
    made = source(options_of(tmp_path), DrivenClock())
    readers = open_all(made)
    assert [] == all_of(readers)
    assert sorted(readers) == looked(made)
    assert all_idle(readers)
    for node in NODES[:2]:
        write(tmp_path, node, 0, range(1))
    (split,) = looked(made)
    assert isinstance(readers[split].read(LATER), Batch)
    later = [reader.read(LATER) for reader in readers.values()]
    due = [reader.read(DEMAND) for reader in readers.values()]

    assert [True, True] == [isinstance(each, Idle) for each in later]
    assert [True, True] == [isinstance(each, Batch) and each.has_end for each in due]


def test_a_look_says_that_there_is_more(tmp_path: Path) -> None:
    """While what it read is not all there is, and it could read on."""
    made = source(options_of(tmp_path), DrivenClock())
    readers = open_all(made)
    assert [] == all_of(readers)
    for node in NODES[:2]:
        write(tmp_path, node, 0, range(9))
    demand = msgspec.structs.replace(LATER, records_max=1)

    full = made.look(demand)
    held = made.look(demand)
    assert (True, False) == (full.more, held.more)
    assert full.splits
    assert values(0, 9) == all_of(readers)
    assert not made.look(demand).more


def test_a_look_has_news_when_a_record_is_due(tmp_path: Path) -> None:
    """Nothing is read: a pending record expires. Until then no split is asked for its sake."""
    clock = DrivenClock()
    ages = {"expiry_seconds": 60, "dedup_window_seconds": 60}
    made = source(options_of(tmp_path, expired="publish", **ages), clock)
    readers = open_all(made)
    write(tmp_path, "node1", 0, range(1))
    assert [] == all_of(readers)
    assert sorted(readers) == looked(made)
    assert all_idle(readers)

    looks, seen = [], []
    for _ in range(55):
        clock.advance(1_100)
        looks.append(looked(made))
        for split in looks[-1]:
            found = readers[split].read(LATER)
            seen += published(found) if isinstance(found, Batch) else []
    assert [54] == [number for number, splits in enumerate(looks) if splits]
    assert values(0, 1) == seen


def test_a_look_has_news_for_a_split_that_is_new(tmp_path: Path) -> None:
    """One that has just been opened, and those that share its logs."""
    made = source(options_of(tmp_path), DrivenClock())
    first, second = made.plan()
    readers = {first.split_id: made.open(first, None)}
    assert [] == all_of(readers)
    assert all_idle(readers)
    assert [first.split_id] == looked(made)
    assert all_idle(readers)
    assert [] == looked(made)

    readers[second.split_id] = made.open(second, None)
    assert sorted(readers) == looked(made)
    assert [] == all_of(readers)
    assert all_idle(readers)
    assert [] == looked(made)


def test_a_look_has_news_when_the_ring_changes(tmp_path: Path) -> None:
    """Also if nothing is read."""
    made = source(options_of(tmp_path), DrivenClock())
    readers = open_all(made)
    assert [] == all_of(readers)
    assert sorted(readers) == looked(made)
    assert all_idle(readers)
    assert [] == looked(made)

    replicas = made._parts.replicas  # noqa: SLF001 (what a watch of the ring changes)
    replicas.current = replace(replicas.current)
    assert sorted(readers) == looked(made)

"""Copies are found again where they lie, in each segment, and never other bytes for them."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from headrace.plugins import RetriableError
from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.errors import LogUnreadableError
from headrace.sources.cassandra.forge.segments import (
    SEGMENT_ID,
    Forged,
    SegmentWriter,
    write_segment,
)
from headrace.sources.cassandra.forge.wrapping import PLAIN, Wrapping, compression, encryption
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import LogDirectory, SegmentFile, SegmentInfo
from headrace.sources.cassandra.logs.reread import Copies, Copy, Location
from headrace.sources.cassandra.logs.rescued_copies import Rescued
from helpers.settings.filled import filled

JOB_KEY: Final = bytes(range(16))
AES_KEY: Final = bytes(range(16, 32))
SECTIONS: Final = 5
EACH: Final = 20  # Mutations in a section.
WRAPPINGS: Final = {
    "plain": PLAIN,
    "LZ4": compression("LZ4Compressor"),
    "Zstd": compression("ZstdCompressor"),
    "AES": encryption(AES_KEY, "testing:1", bytes(16)),
}


class WatchedLog(LogDirectory):
    """A directory that counts how often it is asked, listed and its segments are opened."""

    def __init__(self, path: Path) -> None:
        """Begin with nothing counted and nothing wrong."""
        super().__init__(path)
        self.listings = self.asked = 0
        self.opened: list[SegmentFile] = []
        self.is_broken = False

    def segments(self) -> Sequence[SegmentInfo]:
        """Count a listing."""
        self.listings += 1
        return super().segments()

    def fetch(self, segment_id: int, position: int, length: int) -> Rescued | None:
        """Count a question for a rescued copy."""
        self.asked += 1
        return super().fetch(segment_id, position, length)

    def open(self, segment: SegmentInfo) -> SegmentFile:
        """Count an opening, or fail like a disk."""
        if self.is_broken:
            raise LogUnreadableError("cannot be read: Input/output error", place=segment.name)
        self.opened.append(super().open(segment))
        return self.opened[-1]

    @property
    def left_open(self) -> int:
        """How many of the segments opened are not closed."""
        return sum(file._descriptor is not None for file in self.opened)  # noqa: SLF001 (no other way)


def mutations(number: int = 0) -> list[bytes]:
    """Return the mutations of a segment, none like another, nor those of another number."""
    return [f"mutation {number} {i} ".encode() * (1 + i % 7) for i in range(SECTIONS * EACH)]


def forge(
    folder: Path, number: int = 0, *, wrapping: Wrapping = PLAIN, version: int = 7
) -> list[Location]:
    """Write a segment of five sections; return where its mutations lie, as host 0 has them."""
    made = forged(number, wrapping, version)
    write_segment(folder, made.content, version=version, segment_id=SEGMENT_ID + number)
    sizes = map(len, mutations(number))
    return [(0, SEGMENT_ID + number, end, n) for end, n in zip(made.ends, sizes, strict=True)]


def forged(number: int, wrapping: Wrapping, version: int) -> Forged:
    """Return that segment."""
    writer = SegmentWriter(version=version, segment_id=SEGMENT_ID + number, wrapping=wrapping)
    for i, mutation in enumerate(mutations(number), start=1):
        writer.add(mutation)
        if i % EACH == 0:
            writer.sync()
    return writer.forged()


def copies(*logs: LogDirectory, segments_open_max: int = 2, key: bytes = AES_KEY) -> Copies:
    """Return what reads *logs*."""
    keys = Keys(KeyOptions(raw_key=key.hex()))
    named = {str(host): log for host, log in enumerate(logs)}
    return Copies(named, JOB_KEY, keys, segments_open_max=segments_open_max)


def find(made: Copies, mutation: bytes, *locations: Location) -> Copy | None:
    """Look for *mutation* at *locations*."""
    wanted = digest(mutation, JOB_KEY)
    d0, d1 = (int.from_bytes(half, "little") for half in (wanted[:8], wanted[8:]))
    return made.find([(d0, d1)], locations, "0123456789")


ORDERS: Final[dict[str, Callable[[list[int]], list[int]]]] = {
    "forwards": lambda order: order,
    "backwards": lambda order: order[::-1],
    "to and fro": lambda order: [i for pair in zip(order, order[::-1], strict=True) for i in pair],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_every_copy_is_read_again(tmp_path: Path, wrapping: str, order: str) -> None:
    """In any order, from plain, compressed and encrypted segments; its messaging is with it.

    What was rescued of a segment is not looked for while the segment is open.
    """
    log = WatchedLog(tmp_path)
    places = forge(tmp_path, wrapping=WRAPPINGS[wrapping], version=8)
    made = copies(log)

    for i in filled(ORDERS[order](list(range(len(places))))):
        host, segment, position, _ = places[i]
        expected = Copy(mutations()[i], host, segment, position, 13)
        assert expected == find(made, mutations()[i], places[i])

    assert (1, 1, 1) == (log.asked, log.listings, log.left_open)
    made.close()
    assert 0 == log.left_open


def test_few_segments_stay_open(tmp_path: Path) -> None:
    """Those that were used last; another one is opened again without another listing."""
    places = [forge(tmp_path, number) for number in range(4)]
    log = WatchedLog(tmp_path)
    made = copies(log, segments_open_max=2)

    for number in (0, 1, 0, 2, 0, 3, 0, 1):
        assert find(made, mutations(number)[3], places[number][3]) is not None
        assert log.left_open <= 2

    assert [0, 1, 2, 3, 1] == [
        int(Path(os.fsdecode(file._path)).stem[-1])  # noqa: SLF001 (which it is)
        for file in log.opened
    ]
    assert 1 == log.listings


def test_the_next_copy_is_taken_when_one_is_gone_or_another(tmp_path: Path) -> None:
    """A vanished segment, an overwritten one, a place beyond the end: None but of the last."""
    folders = [tmp_path / name for name in ("gone", "other", "short", "good")]
    logs = [WatchedLog(folder) for folder in folders]
    folders[0].mkdir()
    forge(folders[1], 1)
    for path in folders[1].iterdir():
        path.rename(str(path).replace(str(SEGMENT_ID + 1), str(SEGMENT_ID)))
    forge(folders[2])
    at = forge(folders[3])[50]
    os.truncate(folders[2] / f"CommitLog-7-{SEGMENT_ID}.log", at[2] - 10)
    made = copies(*logs)

    places = [(host, *at[1:]) for host in range(4)]

    assert find(made, mutations()[50], *places[:3]) is None
    found = find(made, mutations()[50], *places)
    assert found is not None
    assert 3 == found.host
    assert find(made, b"never logged", *places) is None


def test_what_is_gone_is_looked_for_once(tmp_path: Path) -> None:
    """One listing for a segment that does not exist, however many copies lay in it, until close."""
    log = WatchedLog(tmp_path)
    made = copies(log)
    for position in range(100, 200):
        assert find(made, b"x", (0, 5, position, 50)) is None
    assert 1 == log.listings

    places = forge(tmp_path)
    made.close()

    assert find(made, mutations()[0], places[0]) is not None


def test_a_segment_stays_readable_after_its_name_is_gone(tmp_path: Path) -> None:
    """While it is open; after close it is gone."""
    places = forge(tmp_path)
    made = copies(LogDirectory(tmp_path))
    assert find(made, mutations()[0], places[0]) is not None
    for path in tmp_path.iterdir():
        path.unlink()

    assert find(made, mutations()[99], places[99]) is not None
    made.close()
    assert find(made, mutations()[99], places[99]) is None


def test_a_live_segment_is_read_where_it_grew(tmp_path: Path) -> None:
    """A segment that was opened before an entry was in it is not opened again for it."""
    places = forge(tmp_path)
    path = tmp_path / f"CommitLog-7-{SEGMENT_ID}.log"
    whole = path.read_bytes()
    os.truncate(path, places[40][2])
    made = copies(log := WatchedLog(tmp_path))
    assert find(made, mutations()[40], places[40]) is not None
    assert find(made, mutations()[41], places[41]) is None

    path.write_bytes(whole)

    assert find(made, mutations()[41], places[41]) is not None
    assert 1 == len(log.opened)


def test_a_log_that_cannot_be_read_now_is_an_error_when_no_other_has_it(tmp_path: Path) -> None:
    """It may have the copy: try again after close; another node's copy is as good (line 17)."""
    logs = [WatchedLog(tmp_path / node) for node in ("a", "b")]
    at, _ = [forge(log.path)[0] for log in logs]
    made = copies(*logs)
    logs[0].is_broken = True

    for _ in range(3):
        with pytest.raises(RetriableError, match="Input/output error"):
            find(made, mutations()[0], at)
    assert 1 == logs[0].listings
    assert find(made, mutations()[0], at, (1, *at[1:])) is not None

    logs[0].is_broken = False
    made.close()
    found = find(made, mutations()[0], at, (1, *at[1:]))
    assert found is not None
    assert 0 == found.host


def test_a_directory_that_is_away_is_an_error_that_may_pass(tmp_path: Path) -> None:
    """As when a disk is not mounted: the copies may come back with it."""
    made = copies(LogDirectory(tmp_path / "away"))

    with pytest.raises(RetriableError, match=os.strerror(errno.ENOENT)):
        find(made, b"x", (0, 5, 100, 50))


@pytest.mark.parametrize("wrapping", ["LZ4", "AES"])
def test_a_damaged_section_costs_its_own_copies(tmp_path: Path, wrapping: str) -> None:
    """Before and behind it everything is found."""
    places = forge(tmp_path, wrapping=WRAPPINGS[wrapping])
    path = tmp_path / f"CommitLog-7-{SEGMENT_ID}.log"
    ends = forged(0, WRAPPINGS[wrapping], 7).file_ends
    content = bytearray(path.read_bytes())
    content[ends[0] + 12 : ends[1]] = bytes(len(content[ends[0] + 12 : ends[1]]))
    path.write_bytes(content)
    made = copies(log := WatchedLog(tmp_path))

    found = [find(made, m, place) for m, place in zip(mutations(), places, strict=True)]

    lost = [i for i, copy in enumerate(found) if copy is None]
    assert list(range(EACH, 2 * EACH)) == lost
    assert 1 == log.left_open


def test_an_encrypted_copy_without_its_key_is_none(tmp_path: Path) -> None:
    """A wrong key opens nothing, and nothing stays open."""
    places = forge(tmp_path, wrapping=WRAPPINGS["AES"])
    made = copies(log := WatchedLog(tmp_path), key=bytes(16))

    assert find(made, mutations()[0], places[0]) is None
    assert 0 == log.left_open

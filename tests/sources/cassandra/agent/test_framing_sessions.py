"""A segment that comes by its entries is the segment, but for what no one asked for."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.sources.cassandra.agent import framing_sessions
from headrace.sources.cassandra.agent.digest_exchange import Exchange
from headrace.sources.cassandra.agent.entry_columns import ReceivedEntries
from headrace.sources.cassandra.agent.framing_sessions import STRETCH_BYTES, FramingSessions, Wanted
from headrace.sources.cassandra.agent.remade_entries import RemadeEntries
from headrace.sources.cassandra.agent.rooms import Rooms
from headrace.sources.cassandra.agent.stretches import Gathering
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.heads import partition_key
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.errors import UnsupportedSegmentError
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, Forged, segment
from headrace.sources.cassandra.forge.wrapping import compression
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.logs.directory import NO_LIMIT, SegmentInfo
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.native.ops import token
from headrace.sources.cassandra.schema.tables import system_table_id
from helpers.logs.forged import OTHER, insert, mutation, update
from helpers.settings.filled import filled
from helpers.settings.leftovers import open_files

pytestmark = pytest.mark.hot

LOCAL = system_table_id("system", "local")
TABLES = system_table_id("system_schema", "tables")
ROWS = [insert(b"k%02d" % n, b"v" * n) for n in range(40)]
OTHERS = [insert(b"o%d" % n, table=OTHER) for n in range(3)]
MADE = segment([ROWS[:15], [*OTHERS, insert(b"s", table=LOCAL)], ROWS[15:]])
FAR = 1 << 30
BYTES_MAX = 1 << 25


class Served:
    """A segment in a file, and a reader of it that knows what it got before."""

    def __init__(self, folder: Path, content: bytes, *, limit: int = NO_LIMIT) -> None:
        """Write the file."""
        path = folder / "segment"
        path.write_bytes(content)
        self.descriptor = os.open(path, os.O_RDONLY)
        self.info = SegmentInfo(SEGMENT_ID, "segment", limit)
        self.sessions = FramingSessions()
        self.exchange = Exchange()
        self.asked_for = 0  # Mutations, by their places.
        self.is_end = False  # What was said of the last stretch.

    def sent(self, begin: int, end: int, **wanted: object) -> bytes:
        """Return what is sent of a stretch."""
        asked = Wanted(self.exchange.key, **wanted)  # type: ignore[arg-type]  # Of any field.
        content, self.is_end = self.sessions.entries(
            self.info, "mark", self.descriptor, begin=begin, end=end, wanted=asked
        )
        return content

    def read(self, begin: int, end: int, *, messaging: int = 12, **wanted: object) -> bytes:
        """Return the bytes of a stretch as a reader makes them again."""
        remade = RemadeEntries(self.exchange)
        remade.start(ReceivedEntries(self.sent(begin, end, **wanted), begin, FAR), messaging)
        while places := remade.places():
            gathering = Gathering(places, BYTES_MAX, Rooms().take)
            assert self.sessions.mutations("mark", self.descriptor, gathering)
            self.asked_for += gathering.count
            remade.coming_in(len(gathering.content))[:] = gathering.content
            remade.take()
        end = remade.begin + remade.size
        assert end == remade.fill(begin, end)
        return bytes(remade.content())

    def close(self) -> None:
        """Close the files."""
        self.sessions.close()
        os.close(self.descriptor)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Provide MADE."""
    made = Served(tmp_path, MADE.content)
    yield made
    made.close()


@pytest.mark.parametrize("full", [True, False])
def test_what_is_wanted_comes_byte_by_byte(served: Served, *, full: bool) -> None:
    """From every place that a reader can be at, to every other one."""
    places = [MADE.header_bytes, *MADE.ends]
    for begin, end in itertools.combinations([*places[::7], MADE.durable], 2):
        came = served.read(begin, end, full=full)

        assert MADE.content[begin : begin + len(came)] == came
        assert end <= begin + len(came)


@pytest.mark.parametrize("full", [True, False])
def test_a_stretch_may_begin_anywhere(served: Served, *, full: bool) -> None:
    """Amid a sync marker or an entry: what is left of it comes as it is."""
    for begin in range(MADE.header_bytes, MADE.ends[2] + 1):
        assert MADE.content[begin : MADE.durable] == served.read(begin, FAR, full=full)


def test_a_mutation_is_asked_for_once(served: Served) -> None:
    """What the reader has already comes as a digest; without digests nothing is asked for."""
    first = served.read(MADE.header_bytes, FAR)
    assert len(ROWS) + len(OTHERS) + 1 == served.asked_for

    assert first == served.read(MADE.header_bytes, FAR)
    assert first == served.read(MADE.header_bytes, FAR, full=True)
    assert len(ROWS) + len(OTHERS) + 1 == served.asked_for


def test_a_digest_takes_eighteen_bytes(served: Served) -> None:
    """So does each mutation of a stretch of any length, but for sync markers and a head."""
    sent = served.sent(MADE.header_bytes, FAR)

    assert 16 + 18 * (len(ROWS) + 4) + 3 * (2 + 8) == len(sent)


def entries_in(content: bytes) -> Iterator[bytes]:
    """Yield the mutations of a segment."""
    framer = Framer()

    def read_into(offset: int, room: memoryview) -> int:
        piece = content[offset : offset + len(room)]
        room[: len(piece)] = piece
        return len(piece)

    keys = Keys(KeyOptions())
    open_segment(framer, read_into, keys=keys, place="x", segment_id=SEGMENT_ID)
    while framer.next_entry() == constants.ENTRY:
        yield framer.entry()


def test_what_nobody_asked_for_costs_its_length(served: Served) -> None:
    """A run of other tables' entries is one number, and all else stays at its place."""
    begin = MADE.header_bytes
    whole, narrow = (
        served.sent(begin, FAR),
        served.sent(begin, FAR, passed={OTHER.bytes}, kept=set()),
    )
    assert 4 * 18 - 2 == len(whole) - len(narrow)

    came = served.read(begin, FAR, passed={OTHER.bytes}, kept=set())

    assert MADE.durable - begin == len(came)
    found = [raw for raw in entries_in(MADE.content[:begin] + came) if raw in ROWS]
    assert ROWS == found


@pytest.mark.parametrize("messaging", [12, 14])
@pytest.mark.parametrize("value", [0, 1, 32 * 1024 - 87, 32 * 1024, 33 * 1024, 100 * 1024])
def test_whole_entries_take_the_place_of_others(tmp_path: Path, value: int, messaging: int) -> None:
    """Of any length: each is whole, of a system table, and not longer than a window."""
    version = 9 if messaging == 14 else 7
    raws = [insert(b"k", bytes(value), table=OTHER, messaging=messaging), insert(b"last")]
    made = segment([raws], version=version)
    served = Served(tmp_path, made.content)

    came = served.read(made.header_bytes, FAR, messaging=messaging, passed={OTHER.bytes})
    served.close()

    *fillers, last = entries_in(made.content[: made.header_bytes] + came)
    assert raws[1] == last
    assert len(raws[0]) + 12 == sum(len(raw) + 12 for raw in filled(fillers))
    at = 2 if messaging == 14 else 1
    assert all(0x30 == raw[at + 6] and len(raw) <= 32 * 1024 for raw in fillers)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (insert(b"k"), True),
        (insert(b"k", table=OTHER), False),
        (mutation(update(b"k", table=OTHER), update(b"k")), True),
        (insert(b"k", table=LOCAL), False),
        (insert(b"k", table=TABLES), True),
        (insert(b"k", messaging=14), True),
        (insert(b"k", table=OTHER, messaging=14), False),
    ],
)
def test_who_may_need_an_entry_gets_it(tmp_path: Path, raw: bytes, *, wanted: bool) -> None:
    """Passed over is only what is of one update, and of a table that someone named."""
    messaging = 14 if raw[0] == 0 else 12

    assert wanted is is_sent(tmp_path, raw, messaging, passed={OTHER.bytes}, kept={TABLES.bytes})
    assert is_sent(tmp_path, raw, messaging)


def is_sent(folder: Path, raw: bytes, messaging: int, **wanted: object) -> bool:
    """Say whether the one entry of a segment is sent."""
    made = segment([[raw]], version=9 if messaging == 14 else 7)
    served = Served(folder, made.content)
    came = served.read(made.header_bytes, FAR, messaging=messaging, **wanted)
    served.close()
    return came == made.content[made.header_bytes : made.durable]


def test_tokens_are_those_of_the_ranges(tmp_path: Path) -> None:
    """Both ends count; without ranges all do, and what reports tables comes in any case."""
    key = partition_key(ROWS[3], 12)
    at = token(key, 0, len(key))
    for ranges, wanted in (
        ([], True),
        ([(at, at)], True),
        ([(at + 1, 1 << 62)], False),
        ([(-(1 << 63), at - 1)], False),
        ([(-(1 << 63), at - 9), (at - 3, at)], True),
        ([(-(1 << 63), at - 9), (at + 1, (1 << 63) - 1)], False),
    ):
        assert wanted is is_sent(tmp_path, ROWS[3], 12, ranges=ranges)
    both = mutation(update(b"k03", table=OTHER), update(b"k03"))
    assert not is_sent(tmp_path, both, 12, ranges=[(at + 1, at + 1)])
    assert is_sent(tmp_path, insert(b"k", table=TABLES), 12, ranges=[(at + 1, at + 1)])


@pytest.mark.parametrize(
    "content", [b"\1" + bytes(9), b"\1" + b"i" * 20, b"\1" + b"i" * 16 + b"\xff"]
)
def test_an_entry_that_is_cut_short_is_for_the_reader(tmp_path: Path, content: bytes) -> None:
    """One without a whole table id or partition key is sent, with each question."""
    assert is_sent(tmp_path, content.ljust(40, b"\xff"), 12, ranges=[(5, 5)])
    assert is_sent(tmp_path, content, 12, ranges=[(5, 5)])


def test_damage_comes_as_it_is(tmp_path: Path) -> None:
    """The reader finds of it what it would find on the node; what follows comes by entries."""
    content = bytearray(MADE.content)
    content[MADE.ends[20] - 6] ^= 1
    served = Served(tmp_path, bytes(content))

    came = served.read(MADE.header_bytes, FAR)
    served.close()

    assert bytes(content)[MADE.header_bytes :] == came


def large() -> Forged:
    """Return a segment of several stretches, one entry of which is longer than two of them."""
    rows = [insert(b"%05d" % n, bytes(1_000)) for n in range(3_000)]
    rows[1_000] = insert(b"long", bytes(2 * STRETCH_BYTES + 500))
    return segment([rows[:700], rows[700:2_000], rows[2_000:]])


@pytest.mark.long
def test_all_readers_share_what_was_framed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch is read and framed once, though readers ask from other places for other tokens."""
    read, really, really_into = [0], os.pread, os.preadv

    def counting(descriptor: int, count: int, offset: int) -> bytes:
        found = really(descriptor, count, offset)
        read[0] += len(found)
        return found

    def counting_into(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        read[0] += (came := really_into(descriptor, buffers, offset))
        return came

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.setattr(os, "preadv", counting_into)
    made = large()
    served = Served(tmp_path, made.content)
    whole = served.read(made.header_bytes, FAR)
    once = read[0]
    assert made.content[made.header_bytes : made.durable] == whole
    assert once <= len(made.content) + 2 * STRETCH_BYTES

    for begin in (made.header_bytes, made.ends[99], made.ends[1_500]):
        for half in ([(-(1 << 63), 0)], [(1, (1 << 63) - 1)]):
            served.read(begin, FAR, ranges=half)
    served.close()

    assert once == read[0]


@pytest.mark.long
def test_stretches_are_bounded(tmp_path: Path) -> None:
    """Beyond the bound the one that was used least recently goes, and is framed again."""
    made = large()
    served = Served(tmp_path, made.content)
    served.sessions = FramingSessions(bytes_max=STRETCH_BYTES)
    for _ in range(2):
        assert made.content[made.header_bytes : made.durable] == served.read(made.header_bytes, FAR)
        kept = served.sessions.kept_bytes
        assert 0 < kept < 3 * STRETCH_BYTES
    served.close()
    assert 0 == served.sessions.kept_bytes


@pytest.mark.long
def test_memory_of_stretches_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a log is: what is framed goes where a stretch was that is kept no longer."""
    taken = []

    def block(code: str, count: int) -> Block:
        taken.append(count)
        return Block(code, count)

    monkeypatch.setattr(framing_sessions, "Block", block)
    made = large()
    served = Served(tmp_path, made.content)
    served.sessions = FramingSessions(bytes_max=STRETCH_BYTES)
    for _ in range(4):
        assert made.content[made.header_bytes : made.durable] == served.read(made.header_bytes, FAR)
    served.close()

    assert 1 <= len(taken) <= 3


def test_a_live_segment_is_sent_to_its_limit(tmp_path: Path) -> None:
    """I6: what is durable later comes later, from there on."""
    limit = MADE.section_ends[0]
    served = Served(tmp_path, MADE.content, limit=limit)
    begin = MADE.header_bytes
    assert MADE.content[begin:limit] == served.read(begin, FAR)
    assert b"" == served.read(limit, FAR)
    assert not served.is_end

    served.info = SegmentInfo(SEGMENT_ID, "segment", MADE.section_ends[1])
    assert MADE.content[limit : MADE.section_ends[1]] == served.read(limit, FAR)
    served.info = SegmentInfo(SEGMENT_ID, "segment", NO_LIMIT)
    assert MADE.content[limit : MADE.section_ends[1]] == served.read(limit, MADE.section_ends[1])
    assert not served.is_end
    for _ in range(2):
        assert MADE.content[limit : MADE.durable] == served.read(limit, FAR)
        assert served.is_end
    assert b"" == served.read(MADE.durable, FAR)
    served.close()


def test_packed_segments_are_refused(tmp_path: Path) -> None:
    """Their bytes are asked for as they are; no file stays open."""
    served = Served(tmp_path, segment([ROWS], wrapping=compression("LZ4Compressor")).content)
    before = open_files(tmp_path)
    with pytest.raises(UnsupportedSegmentError, match="packed"):
        served.sent(30, FAR)

    assert before == open_files(tmp_path)
    served.close()


def test_a_place_that_the_file_does_not_have_is_reported(served: Served) -> None:
    """As when the file was cut short."""
    end = len(MADE.content) + 90
    places = end.to_bytes(4, "little") + (50).to_bytes(4, "little")

    gathering = Gathering(places, BYTES_MAX, Rooms().take)
    assert not served.sessions.mutations("mark", served.descriptor, gathering)


@pytest.mark.parametrize(
    ("places", "said"),
    [
        (b"1234567", "7 bytes of places"),
        ((9).to_bytes(4, "little") + (6).to_bytes(4, "little"), "before the beginning"),
        ((99).to_bytes(4, "little") + (51).to_bytes(4, "little"), "at most 50 bytes, 51"),
    ],
)
def test_what_are_no_places_is_reported(places: bytes, said: str) -> None:
    """Half a place, one before the file, and more bytes than are sent at once."""
    with pytest.raises(ValueError, match=said):
        Gathering(places, 50, Rooms().take)

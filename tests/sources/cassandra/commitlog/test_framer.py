"""Framing: what is valid comes out, in every way of reading; what is damaged never does."""

import struct
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.commitlog.framer import WINDOW_BYTES, Framer, ReadInto, digest
from headrace.sources.cassandra.errors import CorruptSegmentError, LogUnreadableError, SegmentError
from headrace.sources.cassandra.forge.mutations import MESSAGING
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, Forged, segment
from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.logs.directory import SegmentFile
from headrace.sources.cassandra.native import constants, ops
from helpers.logs.forged import insert, marker

pytestmark = pytest.mark.hot

raw_mutations = st.binary(min_size=10, max_size=300)
ENTRIES_MAX = 1_000


class Bytes:
    """Segment bytes in memory, given *piece* at a time; they may be replaced meanwhile."""

    def __init__(self, content: bytes, piece: int = 1 << 30) -> None:
        """Begin with *content*."""
        self.content = content
        self.piece = piece

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Give what there is from *offset*."""
        part = self.content[offset : offset + min(len(buffer), self.piece)]
        buffer[: len(part)] = part
        return len(part)


def framer(
    read_into: ReadInto, *, header_bytes: int = 20, resume: int = 0, window_bytes: int = 1 << 12
) -> Framer:
    """Return a framer at the start of a version 7 segment."""
    made = Framer(window_bytes)
    made.open(
        read_into,
        segment_id=SEGMENT_ID,
        header_bytes=header_bytes,
        messaging=MESSAGING[7],
        resume=resume,
        place="node1: segment",
    )
    return made


def found(source: Framer) -> Iterator[tuple[int, bytes]]:
    """Yield the entries until the framer finds none, as (position, mutation)."""
    for _ in range(ENTRIES_MAX):
        if source.next_entry() != constants.ENTRY:
            return
        yield source.at, source.entry()
    raise AssertionError("it goes on for ever")


def sample() -> tuple[Forged, list[bytes]]:
    """Return a small segment of several sections, and its mutations."""
    sections = [[insert(b"a", b"1"), insert(b"bb", b"22")], [], [insert(b"c" * 40, b"3" * 90)]]
    return segment(sections, zeros=24), [raw for section in sections for raw in section]


@given(
    sections=st.lists(st.lists(raw_mutations, max_size=5), max_size=5),
    begins=st.lists(st.integers(0, 3_000), max_size=3).map(sorted),
    read=st.integers(0, 3),
)
def test_sections_are_passed_by_their_markers(
    sections: list[list[bytes]], begins: list[int], read: int
) -> None:
    """The next entry is the first of a section that begins behind a place, read on or not."""
    made = segment(sections)
    source, at = framer(Bytes(made.content).read_into), 0
    for begin in begins:
        first = [made.header_bytes, *made.section_ends]
        behind = min((place for place in first if place >= max(begin, at)), default=None)
        is_there = source.pass_sections(begin) == constants.ENTRY
        assert is_there is (behind is not None)
        if behind is None:
            return
        assert behind == source.at
        entries = [end for end in made.ends if end > behind]
        for end in entries[:read]:
            assert constants.ENTRY == source.next_entry()
            assert end == source.at
        at = source.section_end if read and entries else behind


@given(sections=st.lists(st.lists(raw_mutations, max_size=5), max_size=5))
def test_all_entries_come_out_in_order(sections: list[list[bytes]]) -> None:
    """Any bytes between zlib's checksums are found, at the end of their entry."""
    made = segment(sections)

    assert [*zip(made.ends, (raw for section in sections for raw in section), strict=True)] == list(
        found(framer(Bytes(made.content).read_into))
    )


@given(
    raws=st.lists(st.binary(min_size=10, max_size=2_000), max_size=6),
    window_bytes=st.integers(8, 64),
    piece=st.integers(1, 700),
)
def test_entries_may_be_larger_than_the_window(
    raws: list[bytes], window_bytes: int, piece: int
) -> None:
    """The size of the window, and how bytes arrive, change nothing."""
    made = segment([raws, raws])
    source = framer(Bytes(made.content, piece).read_into, window_bytes=window_bytes)

    assert raws + raws == [raw for _, raw in found(source)]


def test_a_large_entry_is_given_back() -> None:
    """After an entry larger than the window, the window is as small as before."""
    raws = [bytes(10), bytes(3 * WINDOW_BYTES), *[bytes([i]) * 1_000 for i in range(255)]]
    source = framer(Bytes(segment([raws]).content).read_into, window_bytes=WINDOW_BYTES)

    assert raws == [raw for _, raw in found(source)]


@given(sections=st.lists(st.lists(raw_mutations, max_size=4), max_size=4))
def test_resuming_after_any_entry_gives_the_rest(sections: list[list[bytes]]) -> None:
    """Entries that end at or before the position are passed over, none after it is."""
    made = segment(sections)
    everything = list(found(framer(Bytes(made.content).read_into)))

    for resume in {0, made.header_bytes, *made.ends, *made.section_ends}:
        source = framer(Bytes(made.content).read_into, resume=resume)
        assert [each for each in everything if each[0] > resume] == list(found(source))


def test_resuming_reads_little_of_what_is_behind() -> None:
    """Of a section that was read before, the marker is read again, and nothing else."""
    sections = [[bytes([i]) * 500 for i in range(20)] for _ in range(10)]
    made = segment(sections, zeros=0)
    read = 0

    def read_into(offset: int, buffer: memoryview) -> int:
        nonlocal read
        came = Bytes(made.content).read_into(offset, buffer)
        read += came
        return came

    list(found(framer(read_into, resume=made.section_ends[-2])))

    assert read <= made.section_ends[-1] - made.section_ends[-2] + 9 * 8


def across(content: bytes) -> tuple[list[tuple[int, bytes]], list[SegmentError]]:
    """Read a whole segment, header and all, continuing behind damage; return entries and errors."""
    came: list[tuple[int, bytes]] = []
    errors: list[SegmentError] = []
    try:
        entries = LogEntries(BytesIO(content), place="segment")
    except SegmentError as error:
        return came, [error]
    for _ in range(ENTRIES_MAX):
        try:
            for raw in entries:
                came.append((entries.position, raw))  # noqa: PERF401 (kept when it raises)
        except CorruptSegmentError as error:
            errors.append(error)
            entries.go_on(error)
        else:
            return came, errors
    raise AssertionError("it goes on for ever")


def check_across(content: bytes, made: Forged, raws: Sequence[bytes]) -> list[SegmentError]:
    """Check that all comes out but for what a named error says is lost; return the errors."""
    came, errors = across(content)
    whole = list(zip(made.ends, raws, strict=True))
    assert [each for each in whole if each in came] == came
    for at, _ in set(whole) - set(came):
        ranges = [(e.begin, e.end) for e in errors if isinstance(e, CorruptSegmentError)]
        assert any(begin < at <= end for begin, end in ranges) or at > len(content)
    return errors


def test_every_truncation_gives_a_prefix() -> None:
    """A segment cut off anywhere gives its first entries, then ends or names what is missing."""
    made, raws = sample()

    for length in range(len(made.content)):
        errors = check_across(made.content[:length], made, raws)
        between = length in {made.header_bytes, *made.section_ends}
        room = any(0 <= length - end < 8 for end in (made.header_bytes, *made.section_ends))
        assert errors or between or room or length > made.section_ends[-1]


def test_every_flipped_bit_hides_no_more_than_it_says() -> None:
    """One wrong bit anywhere gives no wrong byte; what it hides is named, what follows is read."""
    made, raws = sample()

    for bit in range(8 * len(made.content)):
        damaged = bytearray(made.content)
        damaged[bit // 8] ^= 1 << bit % 8
        errors = check_across(bytes(damaged), made, raws)
        assert errors or bit // 8 >= made.section_ends[-1], f"bit {bit} hides without a word"


@pytest.mark.parametrize("signed", [True, False], ids=["right sum", "wrong sum"])
@pytest.mark.parametrize("change", [0, 9, -1, -(2**31), 2**31 - 1, "less", "more", "section"])
def test_every_wrong_length_costs_its_section_at_most(change: int | str, *, signed: bool) -> None:
    """Also with a checksum that fits it; the next section is read."""
    made, raws = sample()
    at = made.header_bytes + 8
    size = len(raws[0])
    changed = {"less": size - 1, "more": size + 1, "section": made.section_ends[0] - at}
    wrong = struct.pack(">i", changed[change] if isinstance(change, str) else change)
    crc = struct.pack(">I", zlib.crc32(wrong)) if signed else made.content[at + 4 : at + 8]

    damaged = made.content[:at] + wrong + crc + made.content[at + 8 :]

    assert check_across(damaged, made, raws)
    assert (made.ends[-1], raws[-1]) == across(damaged)[0][-1]


def test_a_wrong_body_costs_its_entry_only() -> None:
    """The size is known to be right, so the next entry is where it says."""
    made, raws = sample()
    damaged = bytearray(made.content)
    damaged[made.ends[0] - 5] ^= 1

    came, (error,) = across(bytes(damaged))

    assert raws[1:] == [raw for _, raw in came]
    assert isinstance(error, CorruptSegmentError)
    assert (made.header_bytes + 8, made.ends[0]) == (error.begin, error.end)


def test_zeros_amid_a_section_are_damage() -> None:
    """A lost disk block does not end the segment: nothing of 4.0 or later writes a size of 0."""
    made, raws = sample()
    at = made.header_bytes + 8
    damaged = made.content[:at] + bytes(made.section_ends[0] - at)

    came, (error,) = across(damaged + made.content[made.section_ends[0] :])

    assert raws[2:] == [raw for _, raw in came]
    assert "size is wrong" in error.message


def test_damage_is_found_again_until_it_is_left() -> None:
    """A caller that could not store it asks again and gets the same."""
    made, raws = sample()
    damaged = bytearray(made.content)
    damaged[made.ends[0] - 5] ^= 1
    source = framer(Bytes(bytes(damaged)).read_into)

    for _ in range(2):
        with pytest.raises(CorruptSegmentError) as caught:
            source.next_entry()
    source.go_on(caught.value)

    assert raws[1:] == [raw for _, raw in found(source)]


def test_an_error_of_reading_loses_nothing() -> None:
    """An entry that could not be read now is found by the next call."""
    made, raws = sample()
    fails = 0

    def read_into(offset: int, buffer: memoryview) -> int:
        nonlocal fails
        fails += 1
        if fails % 2:
            raise LogUnreadableError("the disk says no")
        return Bytes(made.content, 7).read_into(offset, buffer)

    source = framer(read_into, window_bytes=16)
    came: list[bytes] = []
    for _ in range(ENTRIES_MAX):
        with suppress(LogUnreadableError):
            for _, raw in found(source):
                came.append(raw)
            break

    assert raws == came


@pytest.mark.parametrize("length", range(29, 90))
def test_bytes_that_come_after_their_index_are_waited_for(length: int) -> None:
    """A live segment shorter than its index says is not damaged: the rest is on its way."""
    made, raws = sample()
    log = Bytes(made.content[:length])
    source = framer(log.read_into)
    source.allow(made.section_ends[-1])
    came = list(found(source))

    log.content = made.content

    assert raws == [raw for _, raw in (*came, *found(source))]


def test_a_marker_that_was_durable_cannot_be_zero() -> None:
    """In a final segment that looks like the end; what the index said before tells otherwise."""
    made, _ = sample()
    log = Bytes(made.content[:20] + bytes(8) + made.content[28:])
    source = framer(log.read_into)
    source.allow(made.section_ends[0])
    assert constants.LIMIT == source.next_entry()

    source.allow(-1)

    with pytest.raises(CorruptSegmentError, match="sync marker"):
        source.next_entry()


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda c, m: c[: m.header_bytes] + marker(20, 12) + c[28:], "byte 20: a sync marker po"),
        (lambda c, m: c[:20] + marker(21, m.section_ends[0]) + c[28:], "byte 20: the checksum of"),
        (lambda c, _: c[:28] + b"\0\0\0\x09" + c[32:], "byte 28: the checksum of an entry's size"),
        (lambda c, m: c[: m.ends[0] - 1] + b"?" + c[m.ends[0] :], "byte 28: the checksum of the e"),
        (lambda c, _: c[:20] + marker(20, 31) + c[28:], "byte 28: 3 bytes are left of a section"),
        (lambda c, _: c[:20] + marker(20, 70) + c[28:], "in a section with 42 left"),
        (lambda c, _: c[:60], "then the file ends"),
    ],
    ids=["pointer back", "marker", "size", "body", "short section", "long entry", "end of file"],
)
def test_damage_is_reported_with_its_place(damage: object, expected: str) -> None:
    """The message says which byte, and what is wrong there."""
    made, _ = sample()
    assert callable(damage)
    source = framer(Bytes(damage(made.content, made)).read_into)

    with pytest.raises(CorruptSegmentError, match=expected) as caught:
        list(found(source))

    assert caught.value.place.startswith("node1: segment: byte ")
    assert caught.value.hint


def test_a_limit_is_never_passed() -> None:
    """Below each limit come exactly the entries of the sections that end there or before (I6)."""
    made, _ = sample()

    for limit in range(len(made.content)):
        source = framer(Bytes(made.content).read_into)
        source.allow(limit)
        whole = max([end for end in made.section_ends if end <= limit], default=0)
        assert [end for end in made.ends if end <= whole] == [at for at, _ in found(source)]


def test_bytes_beyond_a_limit_are_not_read() -> None:
    """G04: what is not durable may be anything: it is not even looked at."""
    made, _ = sample()
    limit = made.section_ends[0]
    source = framer(Bytes(made.content[:limit] + b"\xff" * 900).read_into)
    source.allow(limit)

    assert list(made.ends[:2]) == [at for at, _ in found(source)]
    assert constants.LIMIT == source.next_entry()


def test_a_part_of_a_segment_is_read_alone() -> None:
    """Up to each place come the entries that end there, and little behind it is read."""
    made, _ = sample()
    content = Bytes(made.content)

    for until in range(made.header_bytes, len(made.content)):
        reads: list[int] = []

        def read_into(offset: int, buffer: memoryview, reads: list[int] = reads) -> int:
            reads.append(offset + len(buffer))
            return content.read_into(offset, buffer)

        source = framer(read_into)
        source.allow(-1, until)
        assert [end for end in made.ends if end <= until] == [at for at, _ in found(source)]
        assert max(reads, default=0) <= until + 16  # A marker, and how large the next entry is.


def test_following_a_growing_segment_reads_each_byte_once(tmp_path: Path) -> None:
    """However often the limit rises, what was read is not read again."""
    sections = [[bytes([i, j]) * 100 for j in range(7)] for i in range(40)]
    made = segment(sections, zeros=0)
    path = tmp_path / "CommitLog-7-1.log"
    path.touch()
    file = SegmentFile(path)
    source = framer(file.read_into)
    came: list[bytes] = []

    for begin, end in pairwise((0, *made.section_ends)):
        with path.open("ab") as growing:
            growing.write(made.content[begin:end])
        source.allow(end)
        came += [raw for _, raw in found(source)]
        assert constants.LIMIT == source.next_entry()
    file.close()

    assert came == [raw for section in sections for raw in section]
    assert file.bytes_read == len(made.content) - made.header_bytes


@pytest.mark.parametrize("so_far", [bytes(8), b"\0\0\0\x50" + bytes(4)], ids=["none", "half"])
def test_a_marker_that_is_not_written_yet_is_waited_for(so_far: bytes) -> None:
    """Pointer and checksum come one after the other; until both are there nothing is decided."""
    made, raws = sample()
    log = Bytes(made.content[:20] + so_far + made.content[28:])
    source = framer(log.read_into)
    source.allow(made.section_ends[-1])
    assert [] == list(found(source))

    log.content = made.content

    assert raws == [raw for _, raw in found(source)]


def test_a_half_written_marker_in_a_final_segment_is_damage() -> None:
    """No one will write the checksum any more."""
    made, _ = sample()
    log = Bytes(made.content[:24] + bytes(4) + made.content[28:])

    with pytest.raises(CorruptSegmentError, match="sync marker"):
        list(found(framer(log.read_into)))


def test_a_chain_of_markers_ends_where_there_is_no_room_for_one() -> None:
    """A file that ends within eight bytes after its last section is whole."""
    made, raws = sample()

    for length in range(8):
        content = made.content[: made.section_ends[-1]] + bytes(length)
        assert raws == [raw for _, raw in found(framer(Bytes(content).read_into))]


def test_a_framer_is_opened_again_for_the_next_segment() -> None:
    """Nothing of one segment is left when the next begins."""
    made, raws = sample()
    source = framer(Bytes(made.content).read_into)
    source.allow(made.section_ends[0])
    list(found(source))

    source.open(
        Bytes(made.content).read_into,
        segment_id=SEGMENT_ID,
        header_bytes=made.header_bytes,
        messaging=MESSAGING[7],
        resume=0,
        place="again",
    )

    assert raws == [raw for _, raw in found(source)]


def test_nothing_is_read_ahead_of_a_section() -> None:
    """By section, every read lies within one sync marker or one section's content."""
    made, raws = sample()
    content = Bytes(made.content)
    reads = []

    def read_into(offset: int, buffer: memoryview) -> int:
        reads.append((offset, offset + len(buffer)))
        return content.read_into(offset, buffer)

    source = framer(read_into)
    source.open(
        read_into,
        segment_id=SEGMENT_ID,
        header_bytes=made.header_bytes,
        messaging=MESSAGING[7],
        resume=0,
        place="sections",
        by_section=True,
    )
    first, second, third = made.section_ends

    assert raws == [raw for _, raw in found(source)]
    assert reads == [
        (20, 28),
        (28, first),
        (first, second),
        (second, second + 8),
        (second + 8, third),
        (third, third + 8),
    ]


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
    ],
)
def test_the_digest_is_siphash(length: int, expected: str) -> None:
    """It gives the published vectors of SipHash-2-4-128."""
    assert bytes.fromhex(expected) == digest(bytes(range(length)), bytes(range(16)))


@given(
    sections=st.lists(st.lists(raw_mutations, max_size=5), max_size=5),
    window_bytes=st.integers(8, 600),
    data=st.data(),
)
def test_what_is_given_is_framed_where_it_lies(
    sections: list[list[bytes]], window_bytes: int, data: st.DataObject
) -> None:
    """It is not read; an entry or a marker that goes beyond is."""
    made = segment(sections)
    everything = list(found(framer(Bytes(made.content).read_into)))
    until = data.draw(st.integers(made.header_bytes, len(made.content)))
    whole = [made.header_bytes, *made.ends, *made.section_ends]
    content = bytearray(made.content)
    gone = max(end for end in whole if end <= until)
    content[:gone] = bytes(gone)
    source = framer(Bytes(bytes(content)).read_into, window_bytes=window_bytes)
    source.give(made.header_bytes, memoryview(bytearray(made.content[made.header_bytes : until])))

    assert everything == list(found(source))


@given(
    sections=st.lists(st.lists(raw_mutations, max_size=5), max_size=5),
    window_bytes=st.integers(8, 600),
    data=st.data(),
)
def test_bytes_are_given_at_any_time(
    sections: list[list[bytes]], window_bytes: int, data: st.DataObject
) -> None:
    """Also in place of others, of other parts of the file, or none."""
    made = segment(sections)
    everything = list(found(framer(Bytes(made.content).read_into)))
    source, came = framer(Bytes(made.content).read_into, window_bytes=window_bytes), []
    for _ in range(ENTRIES_MAX):
        begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(made.content))] * 2)))
        source.give(begin, memoryview(bytearray(made.content[begin:end])))
        if source.next_entry() != constants.ENTRY:
            break
        came.append((source.at, source.entry()))

    assert everything == came


@given(content=st.binary(max_size=100), key=st.binary(min_size=16, max_size=16))
def test_both_implementations_of_the_digest_agree(content: bytes, key: bytes) -> None:
    """Machine code and Python give the same bytes for any content and key."""
    out = memoryview(bytearray(16)).cast("Q")
    halves = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    ops.siphash128(content, 0, len(content), *halves, out)

    assert bytes(out) == digest(content, key)


class Room:
    """Mutations that a framer takes as they are; *begun* bytes were written before them."""

    BYTES = 8192

    def __init__(self, begun: int) -> None:
        """Have none yet."""
        self.content = memoryview(bytearray(self.BYTES))
        self.written = memoryview(array("Q", [begun]))
        self.asked: list[int] = []
        self.given: bytes | None = None  # File bytes that are given with what is known.

    def put(self, raw: bytes) -> int:
        """Keep a mutation; return where it begins among all bytes that were written."""
        at = self.written[0] % self.BYTES
        if at + len(raw) > self.BYTES:
            self.written[0] += self.BYTES - at
            at = 0
        self.content[at : at + len(raw)] = raw
        self.written[0] += len(raw)
        return self.written[0] - len(raw)

    def give(self, source: Framer, places: Sequence[tuple[int, int, int]], span: int) -> None:
        """Let *source* ask for (end, length, start) of mutations, of *span* bytes at a time."""

        def supply(asking: Framer, at: int) -> None:
            self.asked.append(at)
            until = min([end for end, *_ in places if end >= at + span], default=1 << 30)
            here = [place for place in places if at < place[0] <= until]
            ends, lengths, starts = (memoryview(array("q", [p[i] for p in here])) for i in range(3))
            if self.given is not None:
                asking.give(at, memoryview(bytearray(self.given[at:until])))
            asking.know(at, until, ends, lengths, starts, self.content, self.BYTES, self.written)

        source.supply_from(supply)


@given(
    sections=st.lists(st.lists(st.tuples(raw_mutations, st.booleans()), max_size=5), max_size=5),
    begun=st.integers(0, 3 * Room.BYTES),
    span=st.integers(1, 2_000),
    is_given=st.booleans(),
    data=st.data(),
)
def test_what_is_known_is_not_framed(
    sections: list[list[tuple[bytes, bool]]],
    begun: int,
    span: int,
    is_given: bool,  # noqa: FBT001 (by Hypothesis)
    data: st.DataObject,
) -> None:
    """Of entries in a room no byte is read; the others, and sync markers, are framed."""
    made = segment([[raw for raw, _ in section] for section in sections])
    everything = list(found(framer(Bytes(made.content).read_into)))
    room, content, places = Room(begun), bytearray(made.content), []
    for (end, raw), (_, is_known) in zip(everything, chain.from_iterable(sections), strict=True):
        if is_known:
            content[end - len(raw) - constants.ENTRY_OVERHEAD : end] = bytes(len(raw) + 12)
            places.append((end, len(raw), room.put(raw)))
    resume = data.draw(st.sampled_from([0, *made.ends]))
    room.given = bytes(content) if is_given else None
    source = framer(Bytes(bytes(content)).read_into, resume=resume)
    room.give(source, places, span)

    assert [each for each in everything if each[0] > resume] == list(found(source))


@pytest.mark.parametrize("is_given", [False, True])
def test_what_is_written_over_is_asked_for_again_and_then_framed(*, is_given: bool) -> None:
    """Once: what is forgotten again at once is read as bytes, which no one gave."""
    made, raws = sample()
    room = Room(0)
    if is_given:  # Of sync markers alone.
        content = bytearray(made.content)
        for end, raw in zip(made.ends, raws, strict=True):
            content[end - len(raw) - constants.ENTRY_OVERHEAD : end] = bytes(len(raw) + 12)
        room.given = bytes(content)
    places = [(end, len(raw), room.put(raw)) for end, raw in zip(made.ends, raws, strict=True)]
    source = framer(Bytes(made.content).read_into)
    room.give(source, places, 1 << 20)
    assert constants.ENTRY == source.next_entry()
    assert source.is_apart
    assert [made.header_bytes] == room.asked

    room.written[0] += Room.BYTES
    assert raws[1:] == [raw for _, raw in found(source)]
    assert not source.is_apart
    assert made.ends[0] == room.asked[1]


def test_what_was_known_is_not_used_after_an_error() -> None:
    """The log that could not say more may have changed it."""
    made, raws = sample()
    room = Room(0)
    places = [(end, len(raw), room.put(raw)) for end, raw in zip(made.ends, raws, strict=True)]
    source = framer(Bytes(made.content).read_into)
    room.give(source, places, 1 << 20)
    assert constants.ENTRY == source.next_entry()
    source.supply_from(failing)
    room.written[0] += Room.BYTES
    with pytest.raises(ConnectionError):
        source.next_entry()

    room.written[0] -= Room.BYTES
    room.give(source, places, 1 << 20)
    assert raws[1:] == [raw for _, raw in found(source)]
    assert [made.header_bytes, made.ends[0]] == room.asked


def failing(_framer: Framer, _at: int) -> None:
    """Fail as a log does that cannot be reached."""
    raise ConnectionError


def test_a_place_behind_the_room_is_never_written_over() -> None:
    """It has what stands for entries that were not asked for: of any length, from two places on."""
    made, _ = sample()
    room = Room(7 * Room.BYTES)
    behind = bytes(range(256))
    room.content = memoryview(bytearray(Room.BYTES) + behind)
    lengths = [len(raw) for _, raw in found(framer(Bytes(made.content).read_into))]
    starts = [-2, -3, -2]
    source = framer(Bytes(made.content).read_into)
    room.give(source, list(zip(made.ends, lengths, starts, strict=True)), 1 << 20)

    expected = [behind[-2 - start :][:n] for n, start in zip(lengths, starts, strict=True)]
    assert expected == [raw for _, raw in found(source)]


def test_what_is_said_to_be_beyond_a_section_is_framed() -> None:
    """A known entry that no section has is none: the bytes decide."""
    made, raws = sample()
    room = Room(0)
    end = made.ends[0]
    source = framer(Bytes(made.content).read_into)
    room.give(source, [(end + 400, len(raws[0]) + 400, room.put(bytes(len(raws[0]) + 400)))], 1)

    assert raws == [raw for _, raw in found(source)]

"""Compressed and encrypted segments: the same mutations come out, or a named error."""

import resource
from collections.abc import Iterator, Sequence

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.commitlog.unwrap import SECTION_BYTES_MAX
from headrace.sources.cassandra.errors import (
    END_OFFSET,
    BadBlockError,
    BadLengthError,
    CorruptSegmentError,
    DamagedSectionError,
    UnsupportedSegmentError,
)
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from helpers.logs.sample_log import MUTATIONS
from helpers.logs.wrapped_log import KEY, PACKERS, entry, packed_log, parameters_of, wrapped_log
from helpers.settings.filled import filled
from helpers.settings.seeds import is_soak

RAWS = list(MUTATIONS.values())
CONTENTS = [entry(RAWS[0]) + entry(RAWS[1]), b"", entry(RAWS[2]), entry(RAWS[3])]
FIRST, LAST = RAWS[:2], RAWS[2:4]
COMPRESSORS = [name for name in PACKERS if name != "AES"]
MIB = 1024 * 1024
ZSTD = parameters_of("ZstdCompressor")


class Growing:
    """A file that grows."""

    def __init__(self, content: bytes) -> None:
        """Begin with *content*."""
        self.content = content

    def read_into(self, offset: int, room: memoryview) -> int:
        """Give what there is."""
        part = self.content[offset : offset + len(room)]
        room[: len(part)] = part
        return len(part)


def opened(content: bytes | Growing, *, resume: int = 0, limit: int = -1) -> Framer:
    """Return a framer at the start of a segment."""
    file = content if isinstance(content, Growing) else Growing(content)
    framer = Framer()
    keys = Keys(KeyOptions(raw_key=KEY.hex()))
    open_segment(framer, file.read_into, keys=keys, place="n1: log", resume=resume)
    framer.allow(limit)
    return framer


def found(framer: Framer) -> Iterator[tuple[int, bytes]]:
    """Yield position and mutation of the entries until there is none."""
    while framer.next_entry() == constants.ENTRY:
        yield framer.at, framer.entry()


def salvaged(content: bytes) -> tuple[list[bytes], list[CorruptSegmentError]]:
    """Return all mutations that can be had, and what was said of the others."""
    raws: list[bytes] = []
    errors: list[CorruptSegmentError] = []
    try:
        framer = opened(content)
        while len(errors) < 20:
            try:
                raws.extend(raw for _, raw in found(framer))
            except CorruptSegmentError as error:
                errors.append(error)
                framer.go_on(error)
            else:
                break
    except CorruptSegmentError as error:  # Of the header.
        errors.append(error)
    return raws, errors


@pytest.mark.parametrize("packer", PACKERS)
@given(sections=st.lists(st.lists(st.binary(min_size=10, max_size=300), max_size=4), max_size=4))
def test_what_was_wrapped_comes_out(packer: str, sections: list[list[bytes]]) -> None:
    """Any entries, in any sections, empty ones among them."""
    contents = [b"".join(map(entry, section)) for section in sections]
    made = packed_log(packer, contents)

    assert [raw for section in sections for raw in section] == [
        raw for _, raw in found(opened(made))
    ]


def test_positions_are_logical() -> None:
    """They are those of an uncompressed segment with the same header, for each wrapping."""
    at = len(packed_log("LZ4Compressor", []))
    ends = []
    for content in CONTENTS:
        at += 8 + len(content)
        ends.append(at)

    positions = [position for position, _ in found(opened(packed_log("LZ4Compressor", CONTENTS)))]
    assert [ends[0], ends[2], ends[3]] == positions[1:]


@pytest.mark.parametrize("packer", PACKERS)
def test_reading_resumes_at_any_entry(packer: str) -> None:
    """Behind each entry the same follows as in a full read."""
    made = packed_log(packer, CONTENTS)
    whole = list(found(opened(made)))

    for done, (position, _) in enumerate(filled(whole), start=1):
        assert whole[done:] == list(found(opened(made, resume=position)))


@pytest.mark.parametrize("packer", ["LZ4Compressor", "AES"])
def test_what_is_passed_over_is_not_unpacked(packer: str) -> None:
    """Below the position to resume at, content and length may be anything."""
    good = packed_log(packer, CONTENTS)
    first, *rest = [(len(c), PACKERS[packer](c)) for c in CONTENTS]
    end = next(at for at, raw in found(opened(good)) if raw == FIRST[1])
    garbage = wrapped_log(parameters_of(packer), [(first[0], b"\xff" * len(first[1])), *rest])

    assert LAST == [raw for _, raw in found(opened(garbage, resume=end))]


@pytest.mark.parametrize("packer", PACKERS)
def test_a_growing_segment_gives_what_a_whole_one_does(packer: str) -> None:
    """With one byte more each time, and the index ahead of the bytes or behind them."""
    made = packed_log(packer, CONTENTS)
    all_of_it = opened(made)
    whole = list(found(all_of_it))
    for limit in (whole[1][0], all_of_it.section_end):
        header = len(packed_log(packer, []))
        file = Growing(made[:header])
        framer = opened(file, limit=limit)
        came: list[tuple[int, bytes]] = []
        for size in range(header, len(made) + 1):
            file.content = made[:size]
            came += found(framer)
        framer.allow(-1)
        came += found(framer)

        assert whole == came


@pytest.mark.parametrize("packer", ["LZ4Compressor", "AES"])
def test_nothing_beyond_the_index_is_read(packer: str) -> None:
    """The offset is logical: sections that end behind it wait (I6)."""
    made = packed_log(packer, CONTENTS)
    (_, _), (second, _), (third, _), _ = found(opened(made))

    assert FIRST == [raw for _, raw in found(opened(made, limit=second))]
    assert FIRST == [raw for _, raw in found(opened(made, limit=third - 1))]
    assert [*FIRST, LAST[0]] == [raw for _, raw in found(opened(made, limit=third))]


@pytest.mark.parametrize("packer", PACKERS)
def test_every_truncation_is_named_or_harmless(packer: str) -> None:
    """A segment cut anywhere gives its first mutations, and at most one error."""
    made = packed_log(packer, CONTENTS)
    for size in range(len(made)):
        raws, errors = salvaged(made[:size])
        assert [*FIRST, *LAST][: len(raws)] == raws
        assert 1 >= len(errors)


@pytest.mark.soak
@pytest.mark.parametrize("packer", PACKERS)
def test_every_flipped_bit_is_named_or_harmless(packer: str) -> None:
    """It costs the entries of a section, or what is behind a marker; nothing false comes out."""
    made = packed_log(packer, CONTENTS)
    expected = [*FIRST, *LAST]
    # Odd: in each byte some bits, and all of them in turn.
    for bit in range(0, 8 * len(made), 1 if is_soak() else 3):
        flipped = bytearray(made)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            raws, errors = salvaged(bytes(flipped))
        except HeadraceError:
            continue
        assert expected == raws or errors
        assert [raw for raw in expected if raw in raws] == raws


def damaged(packer: str, sections: Sequence[tuple[int, bytes]]) -> DamagedSectionError:
    """Return what is said of the second of *sections*; what is around it is read."""
    pack = PACKERS[packer]
    around = [
        (len(CONTENTS[0]), pack(CONTENTS[0])),
        *sections,
        (len(CONTENTS[3]), pack(CONTENTS[3])),
    ]
    made = wrapped_log(parameters_of(packer), around)
    raws, (error,) = salvaged(made)
    begin = len(wrapped_log(parameters_of(packer), around[:1]))

    assert [*FIRST, RAWS[3]] == raws
    assert isinstance(error, DamagedSectionError)
    assert (begin, begin + 12 + len(sections[0][1])) == error.raw
    assert error.place.startswith("n1: log: byte ")
    return error


@pytest.mark.parametrize("packer", COMPRESSORS)
@pytest.mark.parametrize("length", [-(2**31), -1, 2**31 - 1, SECTION_BYTES_MAX + 1, 40_000_000])
def test_a_length_that_cannot_be_true(packer: str, length: int) -> None:
    """It is refused before memory is given to it; positions continue as if it were right, or 0."""
    packed = PACKERS[packer](CONTENTS[2])
    error = damaged(packer, [(length, packed)])

    counted = length if 0 <= length <= SECTION_BYTES_MAX else 0
    assert counted + 8 == error.end - error.begin
    assert isinstance(error, BadBlockError | BadLengthError)


@pytest.mark.parametrize("packer", PACKERS)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_length_that_is_off_by_one(packer: str, off: int) -> None:
    """More or less than what comes out is an error; no decompressor writes beyond it."""
    content = CONTENTS[2]
    error = damaged(packer, [(len(content) + off, PACKERS[packer](content))])

    assert isinstance(error, BadBlockError | BadLengthError)
    assert len(content) + off + 8 == error.end - error.begin


@pytest.mark.parametrize("packer", COMPRESSORS)
def test_a_bomb_takes_no_more_than_it_says(packer: str) -> None:
    """Of 32 MiB in a section that says to have one, at most that one is written."""
    bomb = (MIB, PACKERS[packer](bytes(32 * MIB)))
    made = wrapped_log(parameters_of(packer), [bomb])

    assert 8 * MIB > taken_by(made)


def test_a_window_that_a_frame_claims_is_not_taken() -> None:
    """A Zstd frame may ask for more memory than the section has: what it writes is what counts."""
    content = CONTENTS[2] * 40
    frame = bytes(cramjam.zstd.compress(content))
    claims = frame[:4] + b"\x00\x88" + frame[6:]  # A window of 128 MiB, no size.

    assert 8 * MIB > taken_by(wrapped_log(ZSTD, [(len(content), claims)]))


def taken_by(made: bytes) -> int:
    """Return how many bytes the process grew beyond its largest size, reading *made*."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _, errors = salvaged(made)
    assert errors
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def test_positions_end_where_numbers_do() -> None:
    """Sections that lead beyond the last position that can be written break the chain."""
    length = SECTION_BYTES_MAX
    packed = bytes(cramjam.zstd.compress(bytes(MIB)))
    made = wrapped_log(ZSTD, [(length, packed)] * 9)
    _, errors = salvaged(made)

    assert END_OFFSET == errors[-1].end
    assert "would end at position" in errors[-1].message


def test_a_broken_chain_loses_the_rest() -> None:
    """A wrong marker says from which byte on nothing can be found."""
    made = bytearray(packed_log("LZ4Compressor", CONTENTS))
    at = len(packed_log("LZ4Compressor", CONTENTS[:2]))
    made[at + 5] ^= 1
    raws, (error,) = salvaged(bytes(made))

    assert FIRST == raws
    assert (END_OFFSET, (at, END_OFFSET)) == (error.end, error.raw)
    assert f"n1: log: byte {at}" == error.place


@pytest.mark.parametrize("packer", PACKERS)
def test_a_zero_marker_before_a_section_is_no_end(packer: str) -> None:
    """For any index: the length behind a marker is written together with it."""
    made = packed_log(packer, CONTENTS)
    at = len(packed_log(packer, CONTENTS[:2]))  # Behind an empty section.
    raws, errors = salvaged(made[:at] + bytes(8) + made[at + 8 :])

    assert FIRST == raws
    (error,) = errors
    assert f"n1: log: byte {at}" == error.place
    assert (at, END_OFFSET) == error.raw


def test_inside_of_a_section_places_are_logical() -> None:
    """What is wrong with an entry is reported at its position, and what follows is read."""
    content = bytearray(CONTENTS[0])
    content[20] ^= 1
    made = packed_log("LZ4Compressor", [bytes(content), CONTENTS[2]])
    raws, (error,) = salvaged(made)
    begin = len(packed_log("LZ4Compressor", [])) + 8

    assert [RAWS[1], RAWS[2]] == raws
    assert (f"n1: log, unpacked: byte {begin}", begin) == (error.place, error.begin)
    assert error.raw is None


@pytest.mark.parametrize(
    "name", ["ZstdDictCompressor", "com.example.Own", "org.apache.cassandra.io.compress.Own"]
)
def test_unknown_compressors_are_named(name: str) -> None:
    """A class that Cassandra does not bring is refused, with the place in the header."""
    with pytest.raises(UnsupportedSegmentError, match=name) as refused:
        opened(wrapped_log({"compressionClass": name}, []))

    assert "n1: log: byte 14" == refused.value.place


def test_a_class_name_may_have_its_package() -> None:
    """Both forms mean the same."""
    name = "org.apache.cassandra.io.compress.LZ4Compressor"
    content = CONTENTS[0]
    made = wrapped_log(
        {"compressionClass": name}, [(len(content), PACKERS["LZ4Compressor"](content))]
    )

    assert FIRST == [raw for _, raw in found(opened(made))]

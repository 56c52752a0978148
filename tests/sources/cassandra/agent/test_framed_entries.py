"""A segment that comes by its entries is the segment, but for what no one asked for."""

import itertools
from collections.abc import Iterator, Sequence

import pytest

from headrace.sources.cassandra.agent.framed_entries import (
    BYTES,
    DIGEST,
    FILLER_BYTES_MAX,
    FULL,
    PASSED,
    Wanted,
    entry,
    filler,
    parts,
    received,
)
from headrace.sources.cassandra.commitlog.framer import Framer, digest
from headrace.sources.cassandra.commitlog.heads import partition_key
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, Forged, segment
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.ops import token
from headrace.sources.cassandra.schema.tables import system_table_id
from helpers.logs.forged import OTHER, insert, mutation, update

KEY = bytes(range(16))
LOCAL = system_table_id("system", "local")
TABLES = system_table_id("system_schema", "tables")
ROWS = [insert(b"k%02d" % n, b"v" * n) for n in range(40)]
OTHERS = [insert(b"o%d" % n, table=OTHER) for n in range(3)]
MADE = segment([ROWS[:15], [*OTHERS, insert(b"s", table=LOCAL)], ROWS[15:]])


def framer_of(made: Forged, begin: int, content: bytes | None = None) -> tuple[Framer, bytes]:
    """Return a framer that continues at *begin*, and the bytes that it reads."""
    framer, content = Framer(), made.content if content is None else content
    open_segment(
        framer,
        lambda offset, room: _read(content, offset, room),
        keys=Keys(KeyOptions()),
        place="x",
        resume=begin,
        segment_id=SEGMENT_ID,
    )
    return framer, content


def _read(content: bytes, offset: int, room: memoryview) -> int:
    piece = content[offset : offset + len(room)]
    room[: len(piece)] = piece
    return len(piece)


def sent(made: Forged, wanted: Wanted, begin: int, end: int, content: bytes | None = None) -> bytes:
    """Return what is sent of a stretch of a segment."""
    framer, content = framer_of(made, begin, content)
    read_into = lambda offset, room: _read(content, offset, room)  # noqa: E731 (its bytes)
    return b"".join(part.sent for part in parts(framer, read_into, begin, end, wanted))


def rebuilt(content: bytes, begin: int, known: Sequence[bytes]) -> bytes:
    """Return the bytes of a segment that *content* stands for."""
    by_digest = {digest(raw, KEY): raw for raw in known}
    made = b""
    for part in received(content, begin):
        if part.kind == PASSED:
            made += b"".join(filler(part.length, 12))
        elif part.kind == BYTES:
            made += part.content
        else:
            made += entry(part.content if part.kind == FULL else by_digest[part.content])
        assert begin + len(made) == part.end
    return made


@pytest.mark.parametrize("full", [True, False])
def test_what_is_wanted_comes_byte_by_byte(*, full: bool) -> None:
    """From every place that a reader can be at, to every other one."""
    known = [*ROWS, *OTHERS, insert(b"s", table=LOCAL)]
    places = [MADE.header_bytes, *MADE.ends]
    for begin, end in itertools.combinations([*places[::7], MADE.durable], 2):
        came = rebuilt(sent(MADE, Wanted(KEY, full=full), begin, end), begin, known)

        assert MADE.content[begin : begin + len(came)] == came
        assert end <= begin + len(came)


def test_a_digest_is_sent_for_a_mutation() -> None:
    """Nineteen bytes for each but for the longest."""
    kinds = [part.kind for part in received(sent(MADE, Wanted(KEY), MADE.header_bytes, 1 << 30), 0)]

    assert len(ROWS) + len(OTHERS) + 1 == kinds.count(DIGEST)
    assert 3 == kinds.count(BYTES)
    most = 19 * (len(ROWS) + 4) + 3 * 11
    assert most >= len(sent(MADE, Wanted(KEY), MADE.header_bytes, 1 << 30))


def entries_in(content: bytes, begin: int, made: Forged) -> Iterator[tuple[int, bytes]]:
    """Yield where each entry ends, and its mutation."""
    framer, _ = framer_of(made, begin, made.content[:begin] + content)
    while framer.next_entry() == constants.ENTRY:
        yield framer.at, framer.entry()


def test_what_nobody_asked_for_costs_its_length() -> None:
    """A run of other tables' entries is one number, and all else stays at its place."""
    wanted = Wanted(KEY, passed={OTHER.bytes}, kept=set())
    begin = MADE.header_bytes
    content = sent(MADE, wanted, begin, 1 << 30)
    assert 1 == [part.kind for part in received(content, begin)].count(PASSED)

    came = rebuilt(content, begin, ROWS)

    found = [
        [each for each in entries_in(content, begin, MADE) if each[1] in ROWS]
        for content in (MADE.content[begin:], came)
    ]
    assert found[0] == found[1]
    assert len(ROWS) == len(found[0])
    assert len(MADE.content[begin : MADE.durable]) == len(came)


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
def test_who_may_need_an_entry_gets_it(raw: bytes, *, wanted: bool) -> None:
    """Passed over is only what is of one update, and of a table that someone named."""
    messaging = 14 if raw[0] == 0 else 12
    asked = Wanted(KEY, passed={OTHER.bytes}, kept={TABLES.bytes})

    assert wanted is asked.wants(raw, messaging)
    assert Wanted(KEY).wants(raw, messaging)


def test_tokens_are_those_of_the_ranges() -> None:
    """Both ends count; without ranges all do, and what reports tables comes in any case."""
    key = partition_key(ROWS[3], 12)
    at = token(key, 0, len(key))
    for ranges, wanted in (
        ([(at, at)], True),
        ([(at + 1, 1 << 62)], False),
        ([(-(1 << 63), at - 1)], False),
        ([(-(1 << 63), at - 9), (at - 3, at)], True),
    ):
        assert wanted is Wanted(KEY, ranges=ranges).wants(ROWS[3], 12)
    assert Wanted(KEY, ranges=[(at + 1, at + 1)]).wants(insert(b"k", table=TABLES), 12)


def test_damage_comes_as_it_is() -> None:
    """The reader finds of it what it would find on the node."""
    content = bytearray(MADE.content)
    content[MADE.ends[20] - 6] ^= 1
    begin = MADE.header_bytes

    came = rebuilt(
        sent(MADE, Wanted(KEY), begin, 1 << 30, bytes(content)),
        begin,
        [*ROWS, *OTHERS, insert(b"s", table=LOCAL)],
    )

    assert bytes(content)[begin:] == came


@pytest.mark.parametrize("messaging", [12, 14])
@pytest.mark.parametrize("count", [32, 33, FILLER_BYTES_MAX, 3 * FILLER_BYTES_MAX + 5])
def test_a_filler_has_the_length_of_what_it_stands_for(count: int, messaging: int) -> None:
    """Its entries are whole, of a system table, and none is longer than a window."""
    made = b"".join(filler(count, messaging))
    raw = made[8:-4] if count <= FILLER_BYTES_MAX else b""

    assert count == len(made)
    assert not raw or not Wanted(KEY, kept=()).wants(raw, messaging)


@pytest.mark.parametrize(
    "content", [b"\x04\x01x", b"\x01\x05abc", b"\x02\x05abc", b"\x00\xff\xff\xff\xff\xff"]
)
def test_what_are_no_parts_is_told(content: bytes) -> None:
    """An unknown kind, too little of one, and a length without end."""
    with pytest.raises(ValueError, match=r"part|length"):
        list(received(content, 0))

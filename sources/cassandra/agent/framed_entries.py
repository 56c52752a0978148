"""What an agent sends of a segment: its entries, by what a reader wants of each.

The reader makes of it the bytes of the segment again, at their places, so that framing
is unchanged: an entry that another replica sent already comes as a digest, and an unwanted one as
its length. Only plain segments are sent so. Pure but for `read_into`.

A part is a kind (1 byte), a length (LEB128), and what is said of its kind below.
"""

import zlib
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from headrace.sources.cassandra.commitlog.framer import Framer, ReadInto, digest
from headrace.sources.cassandra.commitlog.heads import first_table_id, partition_key
from headrace.sources.cassandra.errors import CorruptSegmentError
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.schema.system_table_ids import is_system_table

BYTES, FULL, DIGEST, PASSED = range(4)
# BYTES: as many, as they are. FULL: a mutation of that length. DIGEST: 16 bytes for one. PASSED:
# nothing; entries of this length were not asked for.
_ENTRIES: Final = (FULL, DIGEST)
DIGEST_BYTES: Final = 16
FILLER_BYTES_MAX: Final = 32 * 1024
_FILLER_BYTES_MIN: Final = 32
_NAME_BASED_ID: Final = bytes(6) + b"\x30" + bytes(9)  # Of a system table that there is not.
_VINT_BYTES_MAX: Final = 5
_LOW7, _MORE = 0x7F, 0x80


@dataclass(frozen=True)
class Wanted:
    """What a reader wants of entries.

    Those of single updates are passed over when their table is among `passed`, or is a system table
    and not among `kept` (None: all are); and all whose token is in none of `ranges` (inclusive,
    ascending; none at all: everywhere). The others come `full`, or as digests by `key`.
    """

    key: bytes
    full: bool = False
    ranges: Sequence[tuple[int, int]] = ()
    passed: Collection[bytes] = field(default_factory=frozenset)
    kept: Collection[bytes] | None = None

    def wants(self, raw: bytes, messaging: int) -> bool:
        """Say whether a mutation is wanted."""
        updates = raw[1 if messaging >= constants.MESSAGING_60 else 0]
        table_id = first_table_id(raw, messaging)
        is_system = is_system_table(table_id)
        if updates == 1 and table_id in self.passed:
            return False
        if updates == 1 and is_system and self.kept is not None:
            return table_id in self.kept
        if not self.ranges or is_system:
            return True
        key = partition_key(raw, messaging)
        token = ops.token(key, 0, len(key))
        at = bisect_right(self.ranges, (token, 1 << 63)) - 1
        return at >= 0 and self.ranges[at][0] <= token <= self.ranges[at][1]


class Part(NamedTuple):
    """A part of a segment as it is sent, and where it ends in the file."""

    end: int
    sent: bytes


def parts(
    framer: Framer, read_into: ReadInto, begin: int, end: int, wanted: Wanted
) -> Iterator[Part]:
    """Yield what is wanted of a segment from *begin* to about *end*, or to what is durable.

    *framer* continues at *begin*. What cannot be framed comes as it is.
    """
    at, passed = begin, 0
    while at < end:
        try:
            found = framer.next_entry()
        except CorruptSegmentError:
            yield from _passed(at, passed)
            yield from _as_it_is(read_into, at, end)
            return
        if found != constants.ENTRY:
            break
        raw = framer.entry()
        length = len(raw) + constants.ENTRY_OVERHEAD
        first = framer.at - length
        is_passed = length >= _FILLER_BYTES_MIN and not wanted.wants(raw, framer.messaging)
        if passed and not (is_passed and first == at and passed < FILLER_BYTES_MAX):
            yield from _passed(at, passed)
            passed = 0
        if first > at:  # A sync marker.
            yield from _as_it_is(read_into, at, first)
        if first < at:  # An entry that *begin* is amid.
            yield from _as_it_is(read_into, at, framer.at)
        elif is_passed:
            passed += length
        elif wanted.full:
            yield Part(framer.at, _head(FULL, len(raw)) + raw)
        else:
            yield Part(framer.at, _head(DIGEST, len(raw)) + digest(raw, wanted.key))
        at = framer.at
    yield from _passed(at, passed)
    if framer.at > at:  # The markers of sections without entries.
        yield from _as_it_is(read_into, at, framer.at)


def _passed(end: int, count: int) -> Iterator[Part]:
    if count:
        yield Part(end, _head(PASSED, count))


def _as_it_is(read_into: ReadInto, begin: int, end: int) -> Iterator[Part]:
    while begin < end:
        room = bytearray(min(end - begin, FILLER_BYTES_MAX))
        came = read_into(begin, memoryview(room))
        if came == 0:
            return
        begin += came
        yield Part(begin, _head(BYTES, came) + room[:came])


def _head(kind: int, length: int) -> bytes:
    made = bytearray([kind])
    while length > _LOW7:
        made.append(length & _LOW7 | _MORE)
        length >>= 7
    made.append(length)
    return bytes(made)


class Received(NamedTuple):
    """A part as it came: where it ends in the file, and how long it or its mutation is."""

    kind: int
    end: int
    length: int
    content: bytes


def received(content: bytes, begin: int) -> Iterator[Received]:
    """Yield the parts in *content*, which begin at *begin* in the file.

    Raises:
        ValueError: they are none.

    """
    at, end = 0, begin
    while at < len(content):
        kind = content[at]
        length, at = _length(content, at + 1)
        size = length if kind <= FULL else DIGEST_BYTES if kind == DIGEST else 0
        if kind > PASSED or at + size > len(content):
            raise ValueError(f"part {kind} of {length} bytes")
        end += length + constants.ENTRY_OVERHEAD if kind in _ENTRIES else length
        yield Received(kind, end, length, content[at : at + size])
        at += size


def _length(content: bytes, at: int) -> tuple[int, int]:
    if at < len(content) and content[at] <= _LOW7:
        return content[at], at + 1
    found = 0
    for i, byte in enumerate(content[at : at + _VINT_BYTES_MAX]):
        found |= (byte & _LOW7) << 7 * i
        if byte <= _LOW7:
            return found, at + i + 1
    raise ValueError("a length that does not end")


def entry(raw: bytes) -> bytes:
    """Return the entry of a mutation as it is in a segment (3.2 of docs/commit-log.md)."""
    head, crc = _entry_head(len(raw))
    return head + raw + zlib.crc32(raw, crc).to_bytes(4, "big")


@lru_cache(maxsize=4096)
def _entry_head(length: int) -> tuple[bytes, int]:
    size = length.to_bytes(4, "big")
    crc = zlib.crc32(size)
    return size + crc.to_bytes(4, "big"), crc


def filler(count: int, messaging: int) -> Iterator[bytes]:
    """Yield entries of *count* bytes together, of a system table, for what was passed over."""
    flags = b"\0" if messaging >= constants.MESSAGING_60 else b""
    head = flags + b"\1" + _NAME_BASED_ID
    while count:
        size = count if count < FILLER_BYTES_MAX else FILLER_BYTES_MAX - _FILLER_BYTES_MIN
        yield entry(head.ljust(size - constants.ENTRY_OVERHEAD, b"\0"))
        count -= size

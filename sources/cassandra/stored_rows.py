"""The rows of stored records as lists, for states that are cut, merged and joined. No hot path.

A row is the words of a record, and of the places of its copies; see `record_rows`. Pure.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.chunks import Chunk
from headrace.sources.cassandra.record_rows import PIECE_WORDS

Row: TypeAlias = list[int]
Name: TypeAlias = tuple[int, int]  # A digest.

LOCATED: Final = (codes.PENDING, codes.EXPIRED_DROPPED)  # The kinds that say where copies lie.
_BORN_IN_TIME: Final = (*LOCATED, codes.CONTENT_KNOWN)
_PUBLISHED: Final = (codes.PUBLISHED, codes.EXPIRED_PUBLISHED)
_KIND_BITS: Final = 0xFF
_KEYSPACE_SHIFT, _KEYSPACE_BITS = 32, 0xFFFF
_HOST_SHIFT, _HOST_BITS = 48, 0x3F
_SIGN: Final = 1 << 63
_HALF: Final = 32


class Terms(NamedTuple):
    """How rows of one state are written in another: its numbers, and what is added to its times.

    None instead of numbers: they stay the same.
    """

    hosts: Sequence[int] | None
    keyspaces: Sequence[int] | None
    shift_ms: int
    number: int = 0  # Added to the records' numbers.


def numbers_in(names: Sequence[str], all_names: Sequence[str]) -> Sequence[int] | None:
    """Return the numbers that *names* have among *all_names*; None if each has its own.

    What has no name has no number that matters.
    """
    numbers = [all_names.index(name) if name else at for at, name in enumerate(names)]
    return None if numbers == list(range(len(names))) else numbers


def latest_rows(chunks: Iterable[Chunk]) -> dict[Name, Row]:
    """Return the rows of all records as they are after the last of the chunks."""
    found: dict[Name, Row] = {}
    for chunk in chunks:
        for row in rows_of(chunk.words):
            if row[codes.META] & _KIND_BITS == codes.FREE:
                found.pop((row[codes.D0], row[codes.D1]), None)
            else:
                found[row[codes.D0], row[codes.D1]] = row
    return found


def rows_of(words: memoryview) -> Iterator[Row]:
    """Yield the rows in a chunk's words."""
    numbers: Row = words.tolist()
    at = 0
    while at < len(numbers):
        end = at + codes.RECORD_WORDS
        if numbers[at + codes.META] & _KIND_BITS in LOCATED:
            end += numbers[at + codes.LOCATIONS] * (codes.LOCATION_WORDS - 1)
        yield numbers[at:end]
        at = end


def rewritten(row: Row, terms: Terms) -> Row:
    """Return a row in other terms."""
    made = list(row)
    kind = row[codes.META] & _KIND_BITS
    made[codes.NUMBER] += terms.number
    made[codes.SINCE] += terms.shift_ms
    made[codes.LAST] += terms.shift_ms
    if kind in _BORN_IN_TIME:
        made[codes.BORN] += terms.shift_ms
    if terms.keyspaces is not None:
        made[codes.META] &= ~(_KEYSPACE_BITS << _KEYSPACE_SHIFT)
        made[codes.META] |= terms.keyspaces[keyspace_of(row)] << _KEYSPACE_SHIFT
    if terms.hosts is not None:
        _renumber(made, kind, terms.hosts)
    return made


def _renumber(row: Row, kind: int, hosts: Sequence[int]) -> None:
    """Give the hosts in a row other numbers, in its place."""
    if kind in _PUBLISHED:
        host = hosts[row[codes.META] >> _HOST_SHIFT & _HOST_BITS]
        row[codes.META] = row[codes.META] & ~(_HOST_BITS << _HOST_SHIFT) | host << _HOST_SHIFT
    seen = row[codes.SEEN]
    row[codes.SEEN] = sum(1 << ours for old, ours in enumerate(hosts) if seen >> old & 1)
    for at in range(codes.RECORD_WORDS, len(row), codes.LOCATION_WORDS - 1):
        row[at] = hosts[row[at]]


def places_in(row: Row) -> list[Row]:
    """Return where the copies lie of a record that says so."""
    width = codes.LOCATION_WORDS - 1
    return [row[at : at + width] for at in range(codes.RECORD_WORDS, len(row), width)]


def chunks_of(rows: Iterable[Row]) -> tuple[Chunk, ...]:
    """Return chunks that hold *rows*."""
    return tuple(map(Chunk, _pieces(rows)))


def _pieces(rows: Iterable[Row]) -> Iterator[bytes]:
    piece = array("Q")
    for row in rows:
        if piece and len(piece) + len(row) > PIECE_WORDS:
            yield piece.tobytes()
            piece = array("Q")
        piece.extend(row)
    if piece:
        yield piece.tobytes()


def seen_in(chunks: Iterable[Chunk]) -> int:
    """Return which hosts any record has seen, as a mask."""
    found = 0
    for row in latest_rows(chunks).values():
        found |= row[codes.SEEN]
    return found


def kind_of(row: Row) -> int:
    """Return a record's kind."""
    return row[codes.META] & _KIND_BITS


def is_pending(row: Row) -> bool:
    """Say whether a record waits."""
    return kind_of(row) == codes.PENDING


def keyspace_of(row: Row) -> int:
    """Return the number of a record's keyspace."""
    return row[codes.META] >> _KEYSPACE_SHIFT & _KEYSPACE_BITS


def place_on_ring(row: Row) -> int:
    """Return where on the ring a record is, as in `splits`."""
    return (row[codes.TOKEN] ^ _SIGN) >> _HALF

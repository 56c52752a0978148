"""The rows of stored records as lists, for states that are cut, merged and joined. Not a hot path.

A row is the words of a record, and of the places of its copies; see `rules`. Pure.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from headrace.sources.cassandra.agreement.rules import PIECE_WORDS
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.chunks import Chunk

Row: TypeAlias = list[int]
Name: TypeAlias = tuple[int, int]  # A digest.

LOCATED: Final = (
    constants.PENDING,
    constants.EXPIRED_DROPPED,
)  # The kinds with places of copies.
_BORN_IN_TIME: Final = (*LOCATED, constants.CONTENT_KNOWN)
_PUBLISHED: Final = (constants.PUBLISHED, constants.EXPIRED_PUBLISHED)
_SIGN: Final = 1 << 63
_HALF: Final = 32


class Terms(NamedTuple):
    """How to rewrite rows of one state for another: its numbers, and the shift of its times.

    None instead of numbers means that they stay the same.
    """

    hosts: Sequence[int] | None
    keyspaces: Sequence[int] | None
    shift_ms: int


def numbers_in(names: Sequence[str], all_names: Sequence[str]) -> Sequence[int] | None:
    """Return the numbers that *names* have among *all_names*; None if each has its own.

    An empty name has no number.
    """
    numbers = [all_names.index(name) if name else at for at, name in enumerate(names)]
    return None if numbers == list(range(len(names))) else numbers


def latest_rows(chunks: Iterable[Chunk]) -> dict[Name, Row]:
    """Return the rows of all records as of the last chunk."""
    found: dict[Name, Row] = {}
    for chunk in chunks:
        for row in rows_of(chunk.words):
            if row[constants.META] & constants.KIND_BITS == constants.FREE:
                found.pop((row[constants.D0], row[constants.D1]), None)
            else:
                found[row[constants.D0], row[constants.D1]] = row
    return found


def rows_of(words: memoryview) -> Iterator[Row]:
    """Yield the rows in the words of a chunk."""
    numbers: Row = words.tolist()
    at = 0
    while at < len(numbers):
        end = at + constants.RECORD_WORDS
        if numbers[at + constants.META] & constants.KIND_BITS in LOCATED:
            end += numbers[at + constants.LOCATIONS] * (constants.LOCATION_WORDS - 1)
        yield numbers[at:end]
        at = end


def rewritten(row: Row, terms: Terms) -> Row:
    """Return a row with the numbers and times of *terms*."""
    made = list(row)
    kind = row[constants.META] & constants.KIND_BITS
    made[constants.SINCE] += terms.shift_ms
    made[constants.LAST] += terms.shift_ms
    if kind in _BORN_IN_TIME:
        made[constants.BORN] += terms.shift_ms
    if terms.keyspaces is not None:
        made[constants.META] &= ~(constants.KEYSPACE_BITS << constants.KEYSPACE_SHIFT)
        made[constants.META] |= terms.keyspaces[keyspace_of(row)] << constants.KEYSPACE_SHIFT
    if terms.hosts is not None:
        _renumber(made, kind, terms.hosts)
    return made


def _renumber(row: Row, kind: int, hosts: Sequence[int]) -> None:
    """Renumber the hosts in a row, in place."""
    if kind in _PUBLISHED:
        host = hosts[row[constants.META] >> constants.HOST_SHIFT & constants.HOST_BITS]
        row[constants.META] &= ~(constants.HOST_BITS << constants.HOST_SHIFT)
        row[constants.META] |= host << constants.HOST_SHIFT
    seen = row[constants.SEEN]
    row[constants.SEEN] = sum(1 << ours for old, ours in enumerate(hosts) if seen >> old & 1)
    for at in range(constants.RECORD_WORDS, len(row), constants.LOCATION_WORDS - 1):
        row[at] = hosts[row[at]]


def places_in(row: Row) -> list[Row]:
    """Return the places of a record's copies."""
    width = constants.LOCATION_WORDS - 1
    return [row[at : at + width] for at in range(constants.RECORD_WORDS, len(row), width)]


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
    """Return the hosts that any record has seen, as a mask."""
    found = 0
    for row in latest_rows(chunks).values():
        found |= row[constants.SEEN]
    return found


def kind_of(row: Row) -> int:
    """Return a record's kind."""
    return row[constants.META] & constants.KIND_BITS


def is_pending(row: Row) -> bool:
    """Return whether a record is pending."""
    return kind_of(row) == constants.PENDING


def keyspace_of(row: Row) -> int:
    """Return the number of a record's keyspace."""
    return row[constants.META] >> constants.KEYSPACE_SHIFT & constants.KEYSPACE_BITS


def place_on_ring(row: Row) -> int:
    """Return the place of a record on the ring, as in `splits`."""
    return (row[constants.TOKEN] ^ _SIGN) >> _HALF

"""States of jobs that part, that lose tables, and that become one again. Pure; no hot path."""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.chunks import Chunk
from headrace.sources.cassandra.record_rows import PIECE_WORDS
from headrace.sources.cassandra.state import CdcState, StoredVersion

_Row = list[int]  # The words of a record, and of the places of its copies.
_Name = tuple[int, int]  # A digest.

_KIND_BITS: Final = 0xFF
_KEYSPACE_SHIFT, _KEYSPACE_BITS = 32, 0xFFFF
_LOCATED: Final = (codes.PENDING, codes.EXPIRED_DROPPED)
_BORN_IN_TIME: Final = (*_LOCATED, codes.CONTENT_KNOWN)
_PENDING: Final = "mutations.pending"


def opened(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the books of a job that goes its own way: they open with what is pending (I3)."""
    pending = counters.get(_PENDING, 0)
    return {"mutations.opening": pending, _PENDING: pending}


def without_keyspaces(words: memoryview, gone: Collection[int]) -> memoryview:
    """Return rows of records without those of the keyspaces numbered *gone*.

    Nobody knows their replicas any more, so nothing can be said of their mutations.
    """
    kept = array("Q")
    for row in _rows(words):
        keyspace = row[codes.META] >> _KEYSPACE_SHIFT & _KEYSPACE_BITS
        if _kind(row) == codes.FREE or keyspace not in gone:
            kept.extend(row)
    return memoryview(kept.tobytes()).cast("Q")


def joined(base: CdcState, other: CdcState) -> CdcState | None:
    """Return the state of two jobs that have become one, as of the place that both stand at.

    None while they stand at different places, or know a mutation that both know differently: one
    has published it and the other let it expire, say. Time shows: each forgets it.
    """
    if base.markers != other.markers or base.hosts != other.hosts:
        return None
    keyspaces = [*base.keyspaces, *(k for k in other.keyspaces if k not in base.keyspaces)]
    tau = max(base.tau, other.tau)
    rows = _records(base, keyspaces, shift=tau - base.tau, number=0)
    pending = _pending(rows.values())
    twice = 0
    for name, row in _records(other, keyspaces, tau - other.tau, base.number).items():
        pending += _is_pending(row)
        made = _together(rows[name], row) if name in rows else row
        if made is None:
            return None
        twice += name in rows and _is_pending(row) and _is_pending(rows[name])
        rows[name] = made
    return replace(
        base,
        tau=tau,
        number=base.number + other.number,
        keyspaces=tuple(keyspaces),
        counters=_books(base, other, twice=twice, pending=pending - twice),
        chunks=tuple(map(Chunk, _pieces(rows.values()))),
        needs={},
        schemas=_schemas(base, other),
        met_gaps=(*base.met_gaps, *(g for g in other.met_gaps if g.name not in _gap_names(base))),
        tables=_tables(base.tables, other.tables),
    )


def _pieces(rows: Iterable[_Row]) -> Iterator[bytes]:
    piece = array("Q")
    for row in rows:
        if piece and len(piece) + len(row) > PIECE_WORDS:
            yield piece.tobytes()
            piece = array("Q")
        piece.extend(row)
    if piece:
        yield piece.tobytes()


def _records(state: CdcState, keyspaces: list[str], shift: int, number: int) -> dict[_Name, _Row]:
    """Return the rows of all records by digest, with the numbers and times of the joined state."""
    found: dict[_Name, _Row] = {}
    numbers = [keyspaces.index(keyspace) for keyspace in state.keyspaces]
    for chunk in state.chunks:
        for row in _rows(chunk.words):
            if _kind(row) == codes.FREE:
                found.pop((row[codes.D0], row[codes.D1]), None)
            else:
                found[row[codes.D0], row[codes.D1]] = row
    for row in found.values():
        keyspace = numbers[row[codes.META] >> _KEYSPACE_SHIFT & _KEYSPACE_BITS]
        row[codes.META] &= ~(_KEYSPACE_BITS << _KEYSPACE_SHIFT)
        row[codes.META] |= keyspace << _KEYSPACE_SHIFT
        row[codes.NUMBER] += number
        row[codes.SINCE] += shift
        row[codes.LAST] += shift
        if _kind(row) in _BORN_IN_TIME:
            row[codes.BORN] += shift
    return found


def _rows(words: memoryview) -> Iterator[_Row]:
    at = 0
    while at < len(words):
        end = at + codes.RECORD_WORDS
        if words[at + codes.META] & _KIND_BITS in _LOCATED:
            end += words[at + codes.LOCATIONS] * (codes.LOCATION_WORDS - 1)
        yield words[at:end].tolist()
        at = end


def _together(mine: _Row, other: _Row) -> _Row | None:
    """Return what two records of one mutation become; None if they contradict each other.

    What only one of the jobs passes over is for the other to say.
    """
    seen, last = mine[codes.SEEN] | other[codes.SEEN], max(mine[codes.LAST], other[codes.LAST])
    if _kind(mine) != _kind(other):
        if codes.CONTENT_KNOWN not in (_kind(mine), _kind(other)):
            return None
        mine, other = (other, mine) if _kind(mine) == codes.CONTENT_KNOWN else (mine, other)
    made = list(mine)
    made[codes.SEEN], made[codes.LAST] = seen, last
    if _kind(mine) in _LOCATED and _kind(other) in _LOCATED:
        known = {tuple(place) for place in _places(mine)}
        more = [place for place in _places(other) if tuple(place) not in known]
        made += [word for place in more for word in place]
        made[codes.LOCATIONS] += len(more)
    return made


def _places(row: _Row) -> list[_Row]:
    width = codes.LOCATION_WORDS - 1
    return [row[at : at + width] for at in range(codes.RECORD_WORDS, len(row), width)]


def _books(base: CdcState, other: CdcState, *, twice: int, pending: int) -> dict[str, int]:
    """Return the sum of both books (I3); what waited in both, *twice*, waits once from now on."""
    more = opened(other.counters) if other.job == base.job else other.counters
    made = {
        name: base.counters.get(name, 0) + more.get(name, 0) for name in {*base.counters, *more}
    }
    made["mutations.reencoded"] = made.get("mutations.reencoded", 0) + twice
    made[_PENDING] = pending
    return made


def _schemas(base: CdcState, other: CdcState) -> dict[str, tuple[StoredVersion, ...]]:
    made = {}
    for node in {*base.schemas, *other.schemas}:
        versions = (*other.schemas.get(node, ()), *base.schemas.get(node, ()))
        by_place = {version.since: version for version in versions}
        made[node] = tuple(by_place[since] for since in sorted(by_place))
    return made


def _tables(*given: tuple[str, ...] | None) -> tuple[str, ...] | None:
    known = [tables for tables in given if tables is not None]
    if len(known) < len(given):
        return None
    return tuple(sorted({t for tables in known for t in tables})) if all(known) else ()


def _gap_names(state: CdcState) -> set[str]:
    return {gap.name for gap in state.met_gaps}


def _pending(rows: Iterable[_Row]) -> int:
    return sum(map(_is_pending, rows))


def _is_pending(row: _Row) -> bool:
    return _kind(row) == codes.PENDING


def _kind(row: _Row) -> int:
    return row[codes.META] & _KIND_BITS

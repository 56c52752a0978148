"""States of jobs that part, that lose tables, and that become one again. Pure; no hot path."""

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from headrace.sources.cassandra import codes
from headrace.sources.cassandra.absence import together
from headrace.sources.cassandra.manifest import Manifest, Stored
from headrace.sources.cassandra.state import CdcState, Marker, StoredTopology, StoredVersion
from headrace.sources.cassandra.stored_rows import (
    LOCATED,
    Name,
    Row,
    Terms,
    chunks_of,
    is_pending,
    keyspace_of,
    kind_of,
    latest_rows,
    numbers_in,
    places_in,
    rewritten,
    rows_of,
)

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
    for row in rows_of(words):
        if kind_of(row) == codes.FREE or keyspace_of(row) not in gone:
            kept.extend(row)
    return memoryview(kept.tobytes()).cast("Q")


def joined(base: CdcState, other: CdcState) -> CdcState | None:
    """Return the state of two jobs that have become one, as of the place that both stand at.

    None while they stand at different places, or know a mutation that both know differently: one
    has published it and the other let it expire, say. Time shows: each forgets it.
    """
    is_there = base.markers == other.markers and set(base.nodes) == set(other.nodes)
    if not is_there or base.ahead or other.ahead:
        return None
    keyspaces = [*base.keyspaces, *(k for k in other.keyspaces if k not in base.keyspaces)]
    tau = max(base.tau, other.tau)
    rows = _records(base, base.hosts, keyspaces, tau - base.tau, number=0)
    pending = pending_of(rows.values())
    twice = 0
    for name, row in _records(other, base.hosts, keyspaces, tau - other.tau, base.number).items():
        pending += is_pending(row)
        made = _together(rows[name], row) if name in rows else row
        if made is None:
            return None
        twice += name in rows and is_pending(row) and is_pending(rows[name])
        rows[name] = made
    return replace(
        base,
        tau=tau,
        number=base.number + other.number,
        keyspaces=tuple(keyspaces),
        counters=_books(base, other, twice=twice, pending=pending - twice),
        chunks=chunks_of(rows.values()),
        needs={},
        schemas=all_schemas([base, other]),
        met_gaps=(*base.met_gaps, *(g for g in other.met_gaps if g.name not in _gap_names(base))),
        tables=all_tables([base.tables, other.tables]),
        topologies=all_topologies([base, other], tau),
        manifests=all_manifests([base, other]),
        absences=together([(each.absences, tau - each.tau) for each in (base, other)]),
    )


def _records(
    state: CdcState, hosts: Sequence[str], keyspaces: list[str], shift: int, number: int
) -> dict[Name, Row]:
    """Return the rows of all records by digest, with the numbers and times of the joined state."""
    known = numbers_in(state.hosts, hosts), numbers_in(state.keyspaces, keyspaces)
    terms = Terms(*known, shift, number)
    return {name: rewritten(row, terms) for name, row in latest_rows(state.chunks).items()}


def _together(mine: Row, other: Row) -> Row | None:
    """Return what two records of one mutation become; None if they contradict each other.

    What only one of the jobs passes over is for the other to say.
    """
    seen, last = mine[codes.SEEN] | other[codes.SEEN], max(mine[codes.LAST], other[codes.LAST])
    if kind_of(mine) != kind_of(other):
        if codes.CONTENT_KNOWN not in (kind_of(mine), kind_of(other)):
            return None
        mine, other = (other, mine) if kind_of(mine) == codes.CONTENT_KNOWN else (mine, other)
    made = list(mine)
    made[codes.SEEN], made[codes.LAST] = seen, last
    if kind_of(mine) in LOCATED and kind_of(other) in LOCATED:
        known = {tuple(place) for place in places_in(mine)}
        more = [place for place in places_in(other) if tuple(place) not in known]
        made += [word for place in more for word in place]
        made[codes.LOCATIONS] += len(more)
    return made


def _books(base: CdcState, other: CdcState, *, twice: int, pending: int) -> dict[str, int]:
    """Return the sum of both books (I3); what waited in both, *twice*, waits once from now on."""
    more = opened(other.counters) if other.job == base.job else other.counters
    made = {
        name: base.counters.get(name, 0) + more.get(name, 0) for name in {*base.counters, *more}
    }
    made["mutations.reencoded"] = made.get("mutations.reencoded", 0) + twice
    made[_PENDING] = pending
    return made


def all_schemas(states: Sequence[CdcState]) -> dict[str, tuple[StoredVersion, ...]]:
    """Return the versions that any state knows, of each log; the first has the last word."""
    made: dict[str, dict[Marker, StoredVersion]] = {}
    for state in reversed(states):
        for node, versions in state.schemas.items():
            made.setdefault(node, {}).update((version.since, version) for version in versions)
    return {
        node: tuple(version for _, version in sorted(by_place.items()))
        for node, by_place in made.items()
    }


def all_manifests(states: Sequence[CdcState]) -> dict[str, Stored]:
    """Return what any of the states knows of each log."""
    made: dict[str, Manifest] = {}
    for state in states:
        for node, stored in state.manifests.items():
            made.setdefault(node, Manifest()).learn(stored)
    return {node: manifest.stored() for node, manifest in sorted(made.items())}


def all_tables(given: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the tables that what is pending in any of the states is of; none are all."""
    known = [tables for tables in given if tables is not None]
    if len(known) < len(given):
        return None
    return tuple(sorted({t for tables in known for t in tables})) if all(known) else ()


def all_topologies(states: Sequence[CdcState], tau: int) -> tuple[StoredTopology, ...]:
    """Return the versions that any of the states goes by, for as long as the last of them does.

    *tau* is split time from now on. One that is in force for any of them has been superseded for
    none: of what was seen of the topology, the least counts.
    """
    found: dict[str, StoredTopology] = {}
    for state in states:
        for each in state.topologies:
            known = found.get(each.chunk.name)
            since = each.superseded
            if known is not None and (since is None or known.superseded is None):
                since = None
            elif since is not None:
                since += tau - state.tau
                since = max(since, known.superseded or since) if known else since
            found[each.chunk.name] = StoredTopology(each.chunk, since)
    return tuple(found[name] for name in sorted(found))


def _gap_names(state: CdcState) -> set[str]:
    return {gap.name for gap in state.met_gaps}


def pending_of(rows: Iterable[Row]) -> int:
    """Return how many of the records wait."""
    return sum(map(is_pending, rows))

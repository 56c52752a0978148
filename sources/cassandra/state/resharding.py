"""States of other splits of the ring: cut by range, and merged (line 33). Pure; not a hot path.

For each place on the ring one state counts, the latest; fields of several states are never mixed.
What belongs to a whole split (split time, the schemas of the logs) is merged so that nothing is
forgotten too early or read too far.
"""

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final

import msgspec

from headrace.plugins.positions import ACCEPTED, OPEN, PASSED
from headrace.sources.cassandra.commitlog.manifest import Manifest, Stored
from headrace.sources.cassandra.errors import SplitTooWideError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.ring.log_slots import FREE_SLOT, LOG_SLOTS_MAX
from headrace.sources.cassandra.ring.splits import Arc, arc_of, covered
from headrace.sources.cassandra.state.cdc_state import (
    Ahead,
    CdcState,
    Marker,
    StoredGap,
    StoredTopology,
    StoredVersion,
)
from headrace.sources.cassandra.state.forking import opened
from headrace.sources.cassandra.state.gaps import COVERED, MENDED, is_assumed
from headrace.sources.cassandra.state.rows import (
    Row,
    Terms,
    chunks_of,
    is_pending,
    latest_rows,
    numbers_in,
    place_on_ring,
    rewritten,
)
from headrace.sources.cassandra.state.unavailable_logs import together

_Read = tuple[Marker | None, ...]

_GAPS: Final = "gaps."
_START: Final = Marker(0, 0)
_DIGEST: Final = itemgetter(constants.D0)
_NUMBER: Final = itemgetter(constants.NUMBER)
_PROGRESS: Final = (OPEN, ACCEPTED, PASSED, MENDED, COVERED)  # The states of a gap, in order.


class Share(msgspec.Struct, frozen=True):
    """A state for a part of the ring; where shares overlap, the higher rank counts.

    A rank is a plan generation, a fencing token and a commit's number. A `state` of None means that
    nothing was read yet.
    """

    arc: Arc
    rank: tuple[int, ...]
    state: CdcState | None


def latest(shares: Iterable[Share]) -> tuple[Share, ...]:
    """Return the shares that count, without overlap, in the order of the ring."""
    given = list(shares)
    bounds = sorted({bound for share in given for bound in share.arc})
    found: list[Share] = []
    for first, behind in pairwise(bounds):
        there = [each for each in given if each.arc.first <= first < each.arc.behind]
        if not there:
            continue
        best = max(there, key=lambda share: share.rank)
        before = found[-1] if found else None
        if before and before.arc.behind == first and _is_same(before, best):
            found[-1] = msgspec.structs.replace(before, arc=Arc(before.arc.first, behind))
        else:
            found.append(msgspec.structs.replace(best, arc=Arc(first, behind)))
    return tuple(found)


def _is_same(one: Share, other: Share) -> bool:
    return one.rank == other.rank and one.state is other.state


def resplit(shares: Iterable[Share], splits: Iterable[str]) -> dict[str, CdcState | None]:
    """Return the initial state of each of *splits*; None if none of it was read yet."""
    return _merged_each(latest(shares), {name: _arc(name) for name in splits})


def merged(shares: Iterable[Share], arc: Arc | None = None) -> CdcState | None:
    """Return one state of all shares, or of their parts in *arc*."""
    return _merged_each(latest(shares), {"": arc or Arc()})[""]


def reunited(whole: Share, begun: Sequence[Share], ended: Sequence[Share]) -> CdcState:
    """Return the state of *whole* after its parts were read, from *begun* to *ended*.

    The increments in the books of the parts are added to those of the whole. A gap that several
    parts met counts once.
    """
    if len(ended) == 1 and ended[0].state is not None:
        return ended[0].state
    made = merged(ended, whole.arc)
    assert made is not None  # noqa: S101 (all of it was read)
    counters = dict(whole.state.counters) if whole.state else {}
    more = [_grown(old.state, new.state) for old, new in zip(begun, ended, strict=True)]
    for name in {name for each in more for name in each}:
        grown = [each.get(name, 0) for each in more]
        counters[name] = counters.get(name, 0) + (
            max(grown) if name.startswith(_GAPS) else sum(grown)
        )
    starts = whole.state.starts if whole.state else {}
    job = next((each.state.job for each in ended if each.state), "")
    return dataclasses.replace(made, counters=counters, starts=starts, job=job)


def _grown(old: CdcState | None, new: CdcState | None) -> Mapping[str, int]:
    """Return how much the counters of a part have grown."""
    before, after = old.counters if old else {}, new.counters if new else {}
    return {name: count - before.get(name, 0) for name, count in after.items()}


def _arc(name: str) -> Arc:
    arc = arc_of(name)
    assert arc is not None  # noqa: S101 (a name of ours)
    return arc


def _merged_each(shares: Sequence[Share], arcs: Mapping[str, Arc]) -> dict[str, CdcState | None]:
    """Merge the shares of each arc; the records of each state are read once for all arcs."""
    records = _Records()
    found: dict[str, CdcState | None] = {}
    for name, arc in arcs.items():
        inside = []
        for share in shares:
            first, behind = max(share.arc.first, arc.first), min(share.arc.behind, arc.behind)
            if first < behind:
                inside.append(msgspec.structs.replace(share, arc=Arc(first, behind)))
        found[name] = _merge(inside, records)
    return found


def _merge(shares: Sequence[Share], records: "_Records") -> CdcState | None:
    states = list({id(s.state): s.state for s in shares if s.state is not None}.values())
    if not states:
        return None
    hosts = _names([state.hosts for state in states])
    if len(hosts) > LOG_SLOTS_MAX and any(state.chunks for state in states):
        raise SplitTooWideError(
            f"the merged split would read {len(hosts)} logs, and a split can read at most "
            f"{LOG_SLOTS_MAX}",
            place="CDC state",
            hint="more splits are narrower: give a larger `splits`, or leave it out",
        )
    keyspaces = _names([state.keyspaces for state in states])
    split_time_ms = max(state.split_time_ms for state in states)
    rows: list[Row] = []
    for share in shares:
        if share.state is not None:
            terms = Terms(
                numbers_in(share.state.hosts, hosts),
                numbers_in(share.state.keyspaces, keyspaces),
                split_time_ms - share.state.split_time_ms,
            )
            rows += (rewritten(row, terms) for row in records.of(share))
    nodes = [node for node in hosts if node]
    low, ahead = _markers([p for share in shares for p in _parts(share, nodes)], nodes)
    low = _left_behind(states, nodes) | low
    return CdcState(
        split_time_ms=split_time_ms,
        number=max(state.number for state in states),
        hosts=hosts,
        keyspaces=keyspaces,
        markers=low,
        counters=opened({"mutations.pending": sum(map(is_pending, rows))}),
        chunks=chunks_of(sorted(sorted(rows, key=_DIGEST), key=_NUMBER)),
        schemas=all_schemas(states),
        met_gaps=_gaps(shares, split_time_ms),
        unread=_unread(states),
        starts=low,
        tables=all_tables([state.tables for state in states]),
        topologies=all_topologies(states, split_time_ms),
        ahead=ahead,
        manifests=all_manifests(states),
        absences=together(
            [(state.absences, split_time_ms - state.split_time_ms) for state in states]
        ),
    )


def _left_behind(states: Sequence[CdcState], nodes: Sequence[str]) -> dict[str, Marker]:
    """Return the markers of logs that are no longer read in any of the states."""
    left = sorted({node for state in states for node in state.markers}.difference(nodes))
    return {n: min(s.markers[n] for s in states if n in s.markers) for n in left}


class _Records:
    """The records of states, by their place on the ring; those of a state are read once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[list[int], list[Row]]] = {}

    def of(self, share: Share) -> Sequence[Row]:
        """Return the rows of *share*."""
        assert share.state is not None  # noqa: S101 (the callers check)
        if id(share.state) not in self._found:
            rows = sorted(latest_rows(share.state.chunks).values(), key=place_on_ring)
            self._found[id(share.state)] = [place_on_ring(row) for row in rows], rows
        places, rows = self._found[id(share.state)]
        return rows[bisect_left(places, share.arc.first) : bisect_left(places, share.arc.behind)]


def _names(given: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return all names, in the given order if it is the same in all."""
    if len(set(given)) == 1:
        return given[0]
    return tuple(sorted({name for names in given for name in names} - {FREE_SLOT}))


def _parts(share: Share, nodes: Sequence[str]) -> Iterator[tuple[Arc, _Read]]:
    """Yield the parts of a share that were read equally far, and how far, by node."""
    state = share.state
    ahead = state.ahead if state else ()
    inside = range(share.arc.first + 1, share.arc.behind)
    cuts = sorted({bound for each in ahead for bound in each.arc if bound in inside})
    for first, behind in pairwise([share.arc.first, *cuts, share.arc.behind]):
        yield Arc(first, behind), tuple(_read_at(state, node, first) for node in nodes)


def _read_at(state: CdcState | None, node: str, place: int) -> Marker | None:
    """Return how far a log was read; None if the split does not read it."""
    reads = state is None or node in state.hosts
    return marker_at(state, node, place) if reads else None


def marker_at(state: CdcState | None, node: str, place: int) -> Marker:
    """Return how far a log was read for the tokens at *place*."""
    if state is None:
        return _START
    found = state.markers.get(node, _START)
    for each in state.ahead:
        if each.arc.has(place):
            found = max(found, each.markers.get(node, _START))
    return found


def _markers(
    parts: Sequence[tuple[Arc, _Read]], nodes: Sequence[str]
) -> tuple[dict[str, Marker], tuple[Ahead, ...]]:
    """Return how far everything was read, and the places where more was read."""
    low = tuple(map(_least, zip(*(markers for _, markers in parts), strict=True)))
    joined: list[tuple[Arc, _Read]] = []
    for arc, markers in parts:
        if joined and joined[-1][1] == markers and joined[-1][0].behind == arc.first:
            joined[-1] = Arc(joined[-1][0].first, arc.behind), markers
        else:
            joined.append((arc, markers))
    more = (
        Ahead(
            arc,
            {
                n: m
                for n, m, at in zip(nodes, markers, low, strict=True)
                if m is not None and m > at
            },
        )
        for arc, markers in joined
    )
    lowest = {node: marker for node, marker in zip(nodes, low, strict=True) if marker != _START}
    return lowest, tuple(each for each in more if each.markers)


def _least(markers: Iterable[Marker | None]) -> Marker:
    return min((marker for marker in markers if marker is not None), default=_START)


def _gaps(shares: Sequence[Share], split_time_ms: int) -> tuple[StoredGap, ...]:
    """Return the gaps that any state has met; if several have a gap, the least advanced one.

    Assumed parts are kept separately. Each gap applies to the tokens of the states with it.
    """
    met: dict[StoredGap, list[Arc]] = {}
    for share in shares:
        state = share.state
        for gap in state.met_gaps if state else ():
            assert state is not None  # noqa: S101 (it has gaps)
            here = msgspec.structs.replace(
                gap, split_time_ms=gap.split_time_ms + split_time_ms - state.split_time_ms, arcs=()
            )
            met.setdefault(here, []).extend(map(share.arc.common, gap.arcs or (share.arc,)))
    most: dict[tuple[str, Marker], StoredGap] = {}
    for gap in met:
        key = gap.node, gap.begin
        most[key] = min(gap, most.get(key, gap), key=_what_is_left)
    everywhere = covered(share.arc for share in shares)
    found = []
    for gap, parts in met.items():
        arcs = covered(parts)
        if most[gap.node, gap.begin] is gap or (is_assumed(gap) and arcs):
            arcs = () if arcs == everywhere else arcs
            found.append(msgspec.structs.replace(gap, arcs=arcs))
    return tuple(sorted(found, key=_order))


def _order(gap: StoredGap) -> tuple[object, ...]:
    return gap.split_time_ms, gap.node, gap.begin, gap.state, gap.end, gap.arcs, gap.noticed_ms


def _what_is_left(gap: StoredGap) -> tuple[int, int, Marker, str, str, int]:
    return (
        _PROGRESS.index(gap.state) if gap.state in _PROGRESS else 0,
        -gap.split_time_ms,
        gap.end,
        gap.kind,
        gap.policy,
        gap.noticed_ms,
    )


def _unread(states: Sequence[CdcState]) -> dict[str, tuple[int, ...]]:
    found: dict[str, set[int]] = {}
    for state in states:
        for node, segments in state.unread.items():
            found.setdefault(node, set()).update(segments)
    return {node: tuple(sorted(segments)) for node, segments in sorted(found.items())}


def all_schemas(states: Sequence[CdcState]) -> dict[str, tuple[StoredVersion, ...]]:
    """Return the schema versions of each log in any state; the first state takes precedence."""
    made: dict[str, dict[Marker, StoredVersion]] = {}
    for state in reversed(states):
        for node, versions in state.schemas.items():
            made.setdefault(node, {}).update((version.since, version) for version in versions)
    return {
        node: tuple(version for _, version in sorted(by_place.items()))
        for node, by_place in made.items()
    }


def all_manifests(states: Sequence[CdcState]) -> dict[str, Stored]:
    """Return the combined manifest of each log in all states."""
    made: dict[str, Manifest] = {}
    for state in states:
        for node, stored in state.manifests.items():
            made.setdefault(node, Manifest()).learn(stored)
    return {node: manifest.stored for node, manifest in sorted(made.items())}


def all_tables(given: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the tables of the pending mutations in any of the states; none means all."""
    known = [tables for tables in given if tables is not None]
    if len(known) < len(given):
        return None
    return tuple(sorted({t for tables in known for t in tables})) if all(known) else ()


def all_topologies(states: Sequence[CdcState], split_time_ms: int) -> tuple[StoredTopology, ...]:
    """Return the versions that any of the states uses, for as long as the last of them does.

    *split_time_ms* is split time from now on. A version that is in force in any state is in force
    in the merged one: the state that has seen the least of the topology counts.
    """
    found: dict[str, StoredTopology] = {}
    for state in states:
        for each in state.topologies:
            known = found.get(each.chunk.name)
            since = each.superseded
            if known is not None and (since is None or known.superseded is None):
                since = None
            elif since is not None:
                since += split_time_ms - state.split_time_ms
                since = max(since, known.superseded or since) if known else since
            found[each.chunk.name] = StoredTopology(each.chunk, since)
    return tuple(found[name] for name in sorted(found))

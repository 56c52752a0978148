"""A split that the pump feeds from logs that it may share with others. For one thread."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.plugins.positions import OPEN
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.reading.cursor import LogCursor
from headrace.sources.cassandra.ring.log_slots import LogSlots
from headrace.sources.cassandra.ring.splits import arc_of, name_of, place_of, without
from headrace.sources.cassandra.state.cdc_state import (
    Ahead,
    Marker,
    StoredGap,
    StoredVersion,
    left_ahead,
)
from headrace.sources.cassandra.state.gaps import START, is_beside, joined
from headrace.sources.cassandra.state.unavailable_logs import Absences

# Returns the state of damage for a split, given its gaps so far and those not yet taken.
Judge = Callable[[StoredGap, Sequence[StoredGap]], str]
# Returns the split time at which a split may have something new; None means now.
Due = Callable[[], int | None]


class OwnedSplit(msgspec.Struct):
    """A split that the pump feeds, and its resume positions."""

    number: int
    agreement: Agreement
    resumed: dict[str, Marker]
    schemas: dict[str, tuple[StoredVersion, ...]]  # At the resume position.
    absences: Absences
    log_slots: LogSlots
    judge: Judge
    due_ms: Due
    grown_ms: int = 0  # The growth of the common split time that it has already received.
    # By log, for how long it was unreadable and not counted for all splits.
    counted_ms: dict[str, int] = msgspec.field(default_factory=dict)
    logs: set[str] = msgspec.field(default_factory=set)  # The logs that are read for the split.
    gaps: list[StoredGap] = msgspec.field(default_factory=list)  # Reached and not yet taken.
    ahead: tuple[Ahead, ...] = ()  # Tokens read further than `resumed`.

    def resumed_at(self, node: str, place: int) -> Marker:
        """Return how far a log was read before, for the tokens at a place on the ring."""
        ahead = [e.markers.get(node, START) for e in self.ahead if e.arc.has(place)]
        return max([self.resumed.get(node, START), *ahead])

    def catch_up(self, markers: Mapping[str, Marker]) -> bool:
        """Remove the tokens that *markers* have passed; return whether any are left."""
        self.ahead = left_ahead(self.ahead, markers)
        return bool(self.ahead)

    def marker(self, cursor: LogCursor) -> Marker:
        """Return how far the split has seen a log that it reads (line 12)."""
        return max(cursor.marker, self.resumed.get(cursor.node, START))

    def met(self, gap: StoredGap, cursor: LogCursor, splits: int) -> StoredGap:
        """Return the part of *gap* that concerns this split of *splits*; it may have read more."""
        gap = msgspec.structs.replace(gap, begin=max(gap.begin, self.marker(cursor)))
        spared = [e.arc for e in self.ahead if e.markers.get(gap.node, START) >= gap.end]
        arc = arc_of(name_of(self.number, splits))
        if not spared or arc is None:
            return gap
        return msgspec.structs.replace(gap, arcs=without(arc, spared))

    def take_damage(self, gap: StoredGap) -> None:
        """Record damage that the split passes."""
        last = self.gaps[-1] if self.gaps else gap
        if last is not gap and last.state == gap.state and is_beside(last, gap):
            self.gaps[-1] = joined(last, gap)
        else:
            self.gaps.append(gap)

    def stops_before(self, gap: StoredGap) -> bool:
        """Return whether the split stops before damage (line 21)."""
        return self.judge(gap, self.gaps) == OPEN

    def versions(
        self, cursor: LogCursor, needed: Marker | None = None
    ) -> tuple[StoredVersion, ...]:
        """Return a log's schema versions in force from *needed* or the split's marker."""
        resumed = self.resumed.get(cursor.node, START)
        if resumed > cursor.marker and cursor.node in self.schemas:
            return self.schemas[cursor.node]
        return cursor.tables.versions(needed or cursor.marker)


class FurtherRead:
    """How far a split had read ahead for some tokens, in the form that the intake needs."""

    def __init__(self, ahead: Sequence[Ahead], nodes: Sequence[str]) -> None:
        """Keep *ahead*; *nodes* are the nodes of all logs, by number."""
        self._parts = [
            (each.arc, [pair_of(each.markers.get(node, START)) for node in nodes]) for each in ahead
        ]

    def has_seen(self, host: int, token: int, segment: int, position: int) -> int:
        """Return whether a mutation was seen, as described for `protocols.FurtherRead`."""
        place = place_of(token)
        return int(
            any(arc.has(place) and (segment, position) <= at[host] for arc, at in self._parts)
        )


def pair_of(marker: Marker) -> tuple[int, int]:
    """Return a marker as two numbers."""
    return marker.segment_id, marker.offset

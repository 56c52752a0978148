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

# Returns the state of damage that a split meets, by its gaps so far and those not taken yet.
Judge = Callable[[StoredGap, Sequence[StoredGap]], str]
# Returns the split time from which time alone may bring a split something; None: it has now.
Due = Callable[[], int | None]


class OwnedSplit(msgspec.Struct):
    """A split that the pump feeds, and where it resumed."""

    number: int
    agreement: Agreement
    resumed: dict[str, Marker]
    schemas: dict[str, tuple[StoredVersion, ...]]  # As of the resume position.
    absences: Absences
    log_slots: LogSlots
    judge: Judge
    due_ms: Due
    grown_ms: int = 0  # By how much the split time of all had grown when it got the time.
    # How long its logs could not be read, by log, of what the pump did not count for all splits.
    counted_ms: dict[str, int] = msgspec.field(default_factory=dict)
    logs: set[str] = msgspec.field(default_factory=set)  # The logs that are read for it.
    gaps: list[StoredGap] = msgspec.field(default_factory=list)  # Met and not yet taken.
    ahead: tuple[Ahead, ...] = ()  # Tokens of which more was read before than `resumed` says.

    def resumed_at(self, node: str, place: int) -> Marker:
        """Return how far a log was read before, for the tokens at a place on the ring."""
        ahead = [e.markers.get(node, START) for e in self.ahead if e.arc.has(place)]
        return max([self.resumed.get(node, START), *ahead])

    def catch_up(self, markers: Mapping[str, Marker]) -> bool:
        """Remove the tokens that *markers* have caught up with; return whether any are left."""
        self.ahead = left_ahead(self.ahead, markers)
        return bool(self.ahead)

    def marker(self, cursor: LogCursor) -> Marker:
        """Return how far the split has seen a log that it reads (line 12)."""
        return max(cursor.marker, self.resumed.get(cursor.node, START))

    def met(self, gap: StoredGap, cursor: LogCursor, splits: int) -> StoredGap:
        """Return *gap* as this split, one of *splits*, meets it: it may have read more."""
        gap = msgspec.structs.replace(gap, begin=max(gap.begin, self.marker(cursor)))
        spared = [e.arc for e in self.ahead if e.markers.get(gap.node, START) >= gap.end]
        arc = arc_of(name_of(self.number, splits))
        if not spared or arc is None:
            return gap
        return msgspec.structs.replace(gap, arcs=without(arc, spared))

    def take_damage(self, gap: StoredGap) -> None:
        """Note damage that the split passes."""
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
        """Return a log's schema versions in force from *needed* on, or from the split's marker."""
        resumed = self.resumed.get(cursor.node, START)
        if resumed > cursor.marker and cursor.node in self.schemas:
            return self.schemas[cursor.node]
        return cursor.tables.versions(needed or cursor.marker)


class FurtherRead:
    """How far a split had read ahead for some tokens, as the intake needs it."""

    def __init__(self, ahead: Sequence[Ahead], nodes: Sequence[str]) -> None:
        """*nodes* are the nodes of all logs, by number."""
        self._parts = [
            (each.arc, [pair_of(each.markers.get(node, START)) for node in nodes]) for each in ahead
        ]

    def has_seen(self, host: int, token: int, segment: int, position: int) -> int:
        """See `asked.FurtherRead`."""
        place = place_of(token)
        return int(
            any(arc.has(place) and (segment, position) <= at[host] for arc, at in self._parts)
        )


def pair_of(marker: Marker) -> tuple[int, int]:
    """Return a marker as two numbers."""
    return marker.segment_id, marker.offset

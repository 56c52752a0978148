"""Reads every node's log once and feeds all the splits a process owns.

The log furthest behind is read next, so that copies of a mutation meet soon and the records that
wait for them stay few. For one thread; blocking file I/O. Rules cite docs/agreement.md by line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from headrace.plugins import Demand, HeadraceError, Quarantined
from headrace.sources.cassandra.absence import Absence, Absences, Patience
from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.cursor import CHUNK_BYTES, LogCursor
from headrace.sources.cassandra.directory import LogReader
from headrace.sources.cassandra.errors import (
    AgentUnavailableError,
    LogGapError,
    LogUnreadableError,
)
from headrace.sources.cassandra.gaps import FAIL, RETURNED, START, error_of
from headrace.sources.cassandra.intake import Intake
from headrace.sources.cassandra.keys import Keys
from headrace.sources.cassandra.log_tables import CHANGES_MAX, LogTables
from headrace.sources.cassandra.splits import arc_of, arcs_of, names, place_of, without
from headrace.sources.cassandra.state import (
    Ahead,
    CdcState,
    Marker,
    StoredGap,
    StoredVersion,
    left_ahead,
)

PASS_BYTES_MAX: Final = 32 * 1024 * 1024  # Read in one pass, whether or not anything agreed.
DAMAGE_MAX: Final = 1_000  # Damaged places that are told of one by one.
FETCHED_MS_MAX: Final = 10_000  # Line 8.
_NO_BOUND: Final = 1 << 31
FIRST: Final = 0  # The split that keeps the books of damage, which belongs to no key.


@dataclass(slots=True)
class OwnedSplit:
    """A split that is being fed, and where it resumed."""

    number: int
    agreement: Agreement
    resumed: dict[str, Marker]
    schemas: dict[str, tuple[StoredVersion, ...]]  # As of there.
    absences: Absences
    gaps: list[StoredGap] = field(default_factory=list)  # Met and not yet taken.
    ahead: tuple[Ahead, ...] = ()  # Of which tokens more was read before than `resumed` says.

    def resumed_at(self, node: str, place: int) -> Marker:
        """Return up to where a log was read before, for the tokens at a place on the ring."""
        ahead = [e.markers.get(node, START) for e in self.ahead if e.arc.has(place)]
        return max([self.resumed.get(node, START), *ahead])


class _FurtherRead:
    """What a split had read further of some tokens, as the intake asks for it."""

    def __init__(self, ahead: Sequence[Ahead], nodes: Sequence[str]) -> None:
        self._parts = [
            (each.arc, [_pair(each.markers.get(node, START)) for node in nodes]) for each in ahead
        ]

    def has_seen(self, host: int, token: int, segment: int, position: int) -> int:
        """See `intake.FurtherRead`."""
        place = place_of(token)
        return int(
            any(arc.has(place) and (segment, position) <= at[host] for arc, at in self._parts)
        )


@dataclass(frozen=True, slots=True)
class Lost:
    """One damaged place in the log of *host*: an entry, a section, or what is left of a segment."""

    host: int
    item: Quarantined


class Pump:
    """All logs, all owned splits. `passes` counts how often the logs were read on.

    `damage` are the damaged places met so far, `unreachable` are logs that cannot be read now: the
    others are, and split time stands still until the log is taken for absent (line 8). Nothing is
    read while there is a `stopped_by`.
    """

    def __init__(  # noqa: PLR0913 (what is read, from where, and how far)
        self,
        intake: Intake,
        logs: Mapping[str, LogReader],
        now_ms: Callable[[], int],
        *,
        keys: Keys,
        tables: Callable[[str], LogTables],
        segments_per_batch_max: int,
        gaps: str,
        patience: Patience,
        bears: type[LogUnreadableError] = LogUnreadableError,
    ) -> None:
        """Read nothing yet; the order of *logs* numbers the hosts. *keys* are of all nodes.

        *tables* gives a node's tables, *gaps* says what is done about gaps, *patience* what about
        logs that cannot be read; those for which that is not of the kind *bears* stop the reading.
        """
        self.intake = intake
        self.cursors = [
            LogCursor(node, reader, partial(self._lose, host), keys, tables(node))
            for host, (node, reader) in enumerate(logs.items())
        ]
        self.damage: dict[str, HeadraceError] = {}
        self.unreachable: dict[str, LogUnreadableError] = {}
        self.passes = 0
        self.read_ms = 0
        """How long the logs were read: framing, digests and agreement are in it."""
        self.more = False
        self.records_max = _NO_BOUND  # Of a split; above it nothing is read on (line 25).
        self.stopped_by: LogGapError | None = None
        self.listed: Callable[[], None] | None = None  # Called when logs were listed.
        self.elapsed_ms: int | None = None  # By how much split time grows instead of by the clock.
        self._is_bounded = False
        self._gap_policy = gaps
        self._patience = patience
        self._bears = bears
        self._now_ms = now_ms
        self._segments_max = segments_per_batch_max
        self._owned: dict[int, OwnedSplit] = {}
        self._caught_up_ms: int | None = None
        self._looked_ms: int | None = None
        self._fresh_until_ms = 0  # Line 8: so long what was listed then says all.
        self._lost: list[Lost] = []
        self._lost_bytes = 0
        self._torn: dict[int, Exception] = {}

    def own(self, number: int, agreement: Agreement, resume: CdcState | None) -> None:
        """Begin feeding split *number* after *resume*; logs not named there from their start."""
        markers = resume.markers if resume else {}
        schemas = resume.schemas if resume else {}
        unread = resume.unread if resume else {}
        ahead = resume.ahead if resume else ()
        current = {n: (self.markers(n), self.schemas(n)) for n in self._owned}
        self.intake.own(number, agreement)
        absences = Absences(self._patience, resume.absences if resume else {})
        self._owned[number] = OwnedSplit(number, agreement, dict(markers), dict(schemas), absences)
        self._torn.pop(number, None)
        # Of the time before, another owner may have counted some.
        self._caught_up_ms = self._looked_ms = None
        for host, cursor in enumerate(self.cursors):
            marker = markers.get(cursor.node, START)
            cursor.expect(unread.get(cursor.node, ()))
            self.intake.resume_at(number, host, marker.segment_id, marker.offset)
            if len(self._owned) > 1 and marker >= cursor.marker:
                self._stop_before_gap(self._owned[number], cursor)
                continue
            # Going back: what the others have already seen is passed over for them (line 11).
            for other, (at, versions) in current.items():
                self._owned[other].resumed[cursor.node] = at[cursor.node]
                self._owned[other].schemas[cursor.node] = versions[cursor.node]
                self.intake.resume_at(other, host, *_pair(at[cursor.node]))
            cursor.seek(marker)
            cursor.tables.restore(schemas.get(cursor.node, ()), marker)
            self.stopped_by = None  # Whether it still is, shows.
        self._owned[number].ahead = ahead
        if ahead:
            nodes = [cursor.node for cursor in self.cursors]
            self.intake.read_further(number, _FurtherRead(ahead, nodes))
        self._narrow()
        self._go_on()

    def _narrow(self) -> None:
        """Tell the logs which tokens are needed."""
        arcs = arcs_of(self._owned, self.intake.splits)
        for cursor in self.cursors:
            cursor.need(arcs)

    def _stop_before_gap(self, owned: OwnedSplit, cursor: LogCursor) -> None:
        """Tell a split that joins of the gap that the others stand before, if it does too."""
        error = self.stopped_by
        if error is None or error.gap.node != cursor.node:
            return
        if self._stands_before(owned.number, error.gap):
            owned.gaps.append(self._met(owned, error.gap))

    def _met(self, owned: OwnedSplit, gap: StoredGap) -> StoredGap:
        """Return *gap* as a split meets it: it may have read more before, or of some tokens."""
        marker = self.markers(owned.number)[gap.node]
        gap = msgspec.structs.replace(gap, begin=max(gap.begin, marker))
        spared = [e.arc for e in owned.ahead if e.markers.get(gap.node, START) >= gap.end]
        arc = arc_of(names(self.intake.splits)[owned.number])
        if not spared or arc is None:
            return gap
        return msgspec.structs.replace(gap, arcs=without(arc, spared))

    def _go_on(self) -> None:
        """Read on when all splits are behind the gap that stopped the reading."""
        if self.stopped_by is None:
            return
        gap = self.stopped_by.gap
        if not any(self._stands_before(number, gap) for number in self._owned):
            self.stopped_by = None
            self._pass_over(gap)

    def _stands_before(self, number: int, gap: StoredGap) -> bool:
        """Say whether split *number* lacks a gap; not all do what a log has that was absent."""
        if self.markers(number)[gap.node] >= gap.end:
            return False
        return gap.kind != RETURNED or self._is_late(self._owned[number], gap.node)

    def _pass_over(self, gap: StoredGap) -> None:
        """Read on behind *gap* if that is where all splits are."""
        if all(self.markers(number)[gap.node] >= gap.end for number in self._owned):
            (cursor,) = (each for each in self.cursors if each.node == gap.node)
            cursor.pass_over(gap)

    def disown(self, number: int) -> None:
        """Stop feeding split *number*."""
        if self._owned.pop(number, None) is not None:
            self.intake.own(number, None)
        self.take_lost(number)
        if self._owned:
            self._narrow()
            self._go_on()
        else:
            self.stopped_by = None
            self.close()

    def markers(self, number: int) -> dict[str, Marker]:
        """Return how far split *number* has seen each log (line 12)."""
        resumed = self._owned[number].resumed
        return {c.node: max(c.marker, resumed.get(c.node, START)) for c in self.cursors}

    def ahead(self, number: int) -> tuple[Ahead, ...]:
        """Return the tokens of which split *number* has read more than its markers say."""
        owned = self._owned[number]
        if owned.ahead:
            owned.ahead = left_ahead(owned.ahead, self.markers(number))
            if not owned.ahead:
                self.intake.read_further(number, None)
        return owned.ahead

    def schemas(
        self, number: int, needed: Mapping[str, Marker] | None = None
    ) -> dict[str, tuple[StoredVersion, ...]]:
        """Return the versions of the schema that split *number* needs of each log.

        They are those in force from *needed* on, or from where the split stands.
        """
        owned = self._owned[number]
        found = {}
        for cursor in self.cursors:
            resumed = owned.resumed.get(cursor.node, START)
            ahead = resumed > cursor.marker and cursor.node in owned.schemas
            oldest = (needed or {}).get(cursor.node, cursor.marker)
            found[cursor.node] = (
                owned.schemas[cursor.node] if ahead else cursor.tables.versions(oldest)
            )
        return found

    def unread(self, number: int) -> dict[str, tuple[int, ...]]:
        """Return the segments that split *number* knows of and has not begun."""
        markers = self.markers(number)
        found = {c.node: c.unread_after(markers[c.node]) for c in self.cursors}
        return {node: ids for node, ids in found.items() if ids}

    def take_gaps(self, number: int) -> Sequence[StoredGap]:
        """Hand over the gaps met since the last call, for split *number*."""
        gaps, self._owned[number].gaps = self._owned[number].gaps, []
        return gaps

    def take_lost(self, number: int) -> Sequence[Lost]:
        """Hand over the damage found since the last call, if split *number* books it."""
        if number != FIRST:
            return ()
        lost, self._lost, self._lost_bytes = self._lost, [], 0
        return lost

    def read_until(self, markers: Mapping[str, Marker]) -> None:
        """Read nothing behind *markers*; split time stands still then."""
        for cursor in self.cursors:
            cursor.until = markers.get(cursor.node)
        self._is_bounded = True

    def check(self, number: int) -> None:
        """Raise what broke off the reading since split *number* is owned: it may lack something."""
        if number in self._torn:
            raise self._torn[number]

    def run_pass(self, demand: Demand) -> None:
        """Read on until *demand* is met, a bound is reached, or all is read that is durable."""
        self.passes += 1
        started_ms = self._now_ms()
        for cursor in self.cursors:
            cursor.segments_begun = cursor.tables.changes = 0
            if cursor.at_end or not cursor.fetched_ms:
                self._refresh(cursor, started_ms)
        if self.listed is not None:
            self.listed()
        budget = PASS_BYTES_MAX
        intake = self.intake
        while (
            budget > 0
            and self.stopped_by is None
            and self._has_room()
            and intake.held + self._lost_bytes < demand.bytes_max
            and intake.fullest < demand.records_max
        ):
            ready = [
                (self.intake.progress[host], host)
                for host, cursor in enumerate(self.cursors)
                if not cursor.at_end
                and cursor.segments_begun <= self._segments_max
                and cursor.tables.changes < CHANGES_MAX
            ]
            if not ready or self._now_ms() - started_ms > demand.linger_ms:
                break
            host = min(ready)[1]
            cursor = self.cursors[host]
            try:
                cursor.advance(self.intake, host, demand)
                self.unreachable.pop(cursor.node, None)
            except LogGapError as error:
                self._meet(cursor, error)
            except self._bears as error:
                self._leave(cursor, error)
            except HeadraceError:
                raise
            except Exception as error:
                # Any split may lack what was at hand just now: all begin again.
                self._torn = dict.fromkeys(self._owned, error)
                raise
            budget -= CHUNK_BYTES
        stopped = self.stopped_by is not None
        self.more = not stopped and not all(cursor.at_end for cursor in self.cursors)
        self.read_ms += self._now_ms() - started_ms
        self._check_any_is_read()
        self._count_absences()
        self._grow_time()

    def _refresh(self, cursor: LogCursor, now_ms: int) -> None:
        try:
            cursor.refresh(now_ms)
        except LogGapError as error:
            self._meet(cursor, error)
        except self._bears as error:
            cursor.seek(cursor.marker)  # If it comes back, its files may be others.
            self._leave(cursor, error)
        else:
            self._meet_again(cursor)

    def _leave(self, cursor: LogCursor, error: LogUnreadableError) -> None:
        """Read nothing of a log before it can be listed again."""
        self.unreachable[cursor.node] = error
        cursor.at_end = True
        cursor.fetched_ms = 0

    def _meet_again(self, cursor: LogCursor) -> None:
        """Tell the splits of a gap that a log was away from for too long (line 8)."""
        for number, owned in self._owned.items():
            gap = StoredGap(cursor.node, self.markers(number)[cursor.node], cursor.end, RETURNED)
            if not self._is_late(owned, cursor.node) or gap.begin >= gap.end:
                continue
            owned.gaps.append(self._met(owned, gap))
            if self._gap_policy == FAIL:
                self.stopped_by = self.stopped_by or error_of(gap)
                continue
            owned.absences.read(cursor.node)
            owned.resumed[cursor.node] = gap.end
            owned.schemas.pop(cursor.node, None)  # They were of where it stood before.
            self.intake.resume_at(number, self.cursors.index(cursor), *_pair(gap.end))
            self._pass_over(gap)

    @staticmethod
    def _is_late(owned: OwnedSplit, node: str) -> bool:
        return owned.absences.is_late(node, owned.agreement.tau)

    def _meet(self, cursor: LogCursor, error: LogGapError) -> None:
        """Tell the splits of a gap; go on behind it, or read nothing more (line 21)."""
        for number, owned in self._owned.items():
            if self.markers(number)[cursor.node] < error.gap.end:
                owned.gaps.append(self._met(owned, error.gap))
        if self._gap_policy == FAIL:
            self.stopped_by = error
        else:
            cursor.pass_over(error.gap)

    def _has_room(self) -> bool:
        """Say whether no split has more records than it may; those that have let some go first."""
        return all(each.agreement.live <= self.records_max for each in self._owned.values())

    def close(self) -> None:
        """Close all files."""
        for cursor in self.cursors:
            cursor.close()

    def _lose(
        self, host: int, marker: Marker, error: HeadraceError, item: Quarantined | None
    ) -> None:
        """Note damage before *marker* in the log of *host*, unless another process books it."""
        if FIRST not in self._owned:
            return
        if marker <= self._owned[FIRST].resumed_at(self.cursors[host].node, 0):
            return
        if len(self.damage) < DAMAGE_MAX:
            self.damage.setdefault(error.place, error)
        if item is not None:
            self._lost.append(Lost(host, item))
            self._lost_bytes += len(item.content)

    def _check_any_is_read(self) -> None:
        """Raise why no log can be read, unless agents will be asked again."""
        errors = list(self.unreachable.values())
        if len(errors) == len(self.cursors) and not any(
            isinstance(error, AgentUnavailableError) for error in errors
        ):
            self._caught_up_ms = None  # Line 8: the time until one can be read does not count.
            raise errors[0]

    def _count_absences(self) -> None:
        """Count how long logs could not be read; of a time in which nobody tried, no more."""
        now_ms = self._now_ms()
        passed_ms = 0 if self._looked_ms is None else min(now_ms - self._looked_ms, FETCHED_MS_MAX)
        self._looked_ms = now_ms
        if not (self.unreachable or any(o.absences.stored for o in self._owned.values())):
            return
        for owned in self._owned.values():
            for cursor in self.cursors:
                if cursor.node in self.unreachable:
                    owned.absences.missed(cursor.node, passed_ms, owned.agreement.tau)
                elif cursor.at_end and self.stopped_by is None and not self._is_bounded:
                    owned.absences.read(cursor.node)
                else:
                    owned.absences.found(cursor.node)

    def is_caught_up(self, number: int) -> bool:
        """Say whether all logs were read to their ends that split *number* does not go without."""
        away, absences = self.unreachable.keys(), self._owned[number].absences
        stands = self.more or self.stopped_by is not None or self._is_bounded
        return not stands and len(away) < len(self.cursors) and all(map(absences.is_absent, away))

    def absences(self, number: int) -> Mapping[str, Absence]:
        """Return the logs that split *number* could not read to their ends."""
        return dict(self._owned[number].absences.stored)

    def absent(self, number: int | None = None) -> frozenset[str]:
        """Return the logs that split *number* goes without, or some split. Any thread may ask."""
        owned = list(self._owned.values()) if number is None else [self._owned[number]]
        away = tuple(self.unreachable)
        return frozenset(n for n in away if any(each.absences.is_absent(n) for each in owned))

    def unread_since(self, number: int, tau: int) -> frozenset[str]:
        """Return the logs that split *number* did not read to their ends after *tau* (line 9)."""
        return self._owned[number].absences.unread_since(tau)

    def _grow_time(self) -> None:
        """Let split time grow by the clock, but only while all logs are read to their end.

        Of a time in which nobody looked, as when the machine slept, the first seconds count. Bulk
        work is told the time: what it reads again gives the same again.
        """
        caught_up = [n for n in self._owned if self.is_caught_up(n)]
        if self.elapsed_ms is not None:
            if caught_up:
                self._grow(self.elapsed_ms, caught_up)
                self.elapsed_ms = 0
            return
        now_ms = self._now_ms()
        listed_ms = [c.fetched_ms for c in self.cursors if c.node not in self.unreachable]
        fresh_until_ms = min(listed_ms, default=0) + FETCHED_MS_MAX
        if not caught_up or now_ms > fresh_until_ms:
            self._caught_up_ms = None
            return
        if self._caught_up_ms is not None:
            self._grow(min(now_ms, self._fresh_until_ms) - self._caught_up_ms, caught_up)
        self._caught_up_ms, self._fresh_until_ms = now_ms, fresh_until_ms

    def _grow(self, grown_ms: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._owned[number].agreement.tau += grown_ms


def _pair(marker: Marker) -> tuple[int, int]:
    return marker.segment_id, marker.offset

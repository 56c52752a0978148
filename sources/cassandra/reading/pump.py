"""Reads every node's log once and feeds all the splits a process owns.

The log that is furthest behind is read next, so that the copies of a mutation arrive at similar
times and few records wait for them. Logs that are ahead by their write times wait; among the others
the newest record that a log met decides. For one thread; blocking file I/O. Rules cite
docs/agreement.md by line.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

import msgspec

from headrace.plugins import Demand, HeadraceError, Quarantined
from headrace.plugins.positions import OPEN
from headrace.sources.cassandra.agreement.intake import Intake
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.errors import AgentUnavailableError, LogUnreadableError
from headrace.sources.cassandra.keystore.keys import Keys
from headrace.sources.cassandra.logs.directory import LogReader
from headrace.sources.cassandra.logs.logged_times import APART_US
from headrace.sources.cassandra.reading.comparison import Comparison
from headrace.sources.cassandra.reading.cursor import CHUNK_BYTES, LogCursor, Spared
from headrace.sources.cassandra.reading.damage import Losses, Lost
from headrace.sources.cassandra.reading.framing_times import FramingTimes
from headrace.sources.cassandra.reading.log_tables import LogTables
from headrace.sources.cassandra.reading.split_feed import (
    Due,
    FurtherRead,
    Judge,
    OwnedSplit,
    pair_of,
)
from headrace.sources.cassandra.ring.log_slots import LogSlots
from headrace.sources.cassandra.ring.splits import arcs_of
from headrace.sources.cassandra.state.cdc_state import (
    DAMAGED,
    Ahead,
    CdcState,
    Marker,
    StoredGap,
    StoredVersion,
)
from headrace.sources.cassandra.state.gaps import FAIL, RETURNED, START, LogGapError, error_of
from headrace.sources.cassandra.state.unavailable_logs import (
    WAITED_MS,
    Absence,
    Absences,
    LogUnavailablePolicy,
)

PASS_BYTES_MAX: Final = 32 * 1024 * 1024  # Read in one pass, with or without agreement.
_TURN_BYTES: Final = 64 * 1024  # The least that a turn counts for, if the log had anything to read.
FETCHED_MS_MAX: Final = 10_000  # Line 8.
_LIVE: Final = attrgetter("live")


def _first_due(ready: Sequence[tuple[int, int]], logs: Sequence[tuple[LogCursor, int]]) -> int:
    """Return which of *ready*, a heap, is read next: the first that is not surely ahead."""
    if logs[ready[0][1]][0].latest.is_any:
        return 0
    latest = [logs[at][0].latest for _, at in ready]
    newest_us = min(each.newest_us for each in latest) + APART_US
    due = [n for n, each in enumerate(latest) if each.oldest_us <= newest_us]
    return min(due, key=ready.__getitem__)


def _put_back(ready: list[tuple[int, int]], number: int, progress: int | None) -> None:
    """Put a log back into *ready* with its progress; drop it if that is None."""
    if progress is None:
        del ready[number]
    else:
        ready[number] = (progress, ready[number][1])
    heapify(ready)


class _Away:
    """How long logs were unreadable, after the last count for all splits.

    `unread_ms` is the time of each log, `uncounted_ms` of any log. It is counted again at
    `count_again_ms`, or when the situation is no longer that of `counted_at`.
    """

    __slots__ = ("count_again_ms", "counted_at", "uncounted_ms", "unread_ms")

    def __init__(self) -> None:
        """Start with all logs readable."""
        self.unread_ms: Counter[str] = Counter()
        self.uncounted_ms = 0
        self.count_again_ms = 0
        self.counted_at: object = None


class Pump:
    """All logs and all owned splits. `passes` counts the passes over the logs.

    `moves` changes when a log was read further. `changes` changes when a split was added, removed
    or reached a gap, and when other logs become readable: then all splits are checked. Otherwise
    `look` says which ones have something new.

    `damage` has the damaged places found so far, `unreachable` the logs that cannot be read now:
    the others are read, and split time stops until the log counts as absent (line 8). Nothing is
    read while `stopped_by` is set.
    """

    def __init__(  # noqa: PLR0913 (what is read, from where, and how far)
        self,
        intake: Intake,
        logs: Mapping[str, LogReader],
        now_ms: Callable[[], int],
        *,
        wall_ms: Callable[[], int],
        keys: Keys,
        tables: Callable[[str], LogTables],
        home: Callable[[str], int],
        segments_per_batch_max: int,
        gaps: str,
        unavailable_policy: LogUnavailablePolicy,
        bears: type[LogUnreadableError],
        records_max: int,
        cursors: dict[str, LogCursor],
        listed: Callable[[str], None],
        elapsed_ms: int | None = None,
        spared: Mapping[str, Spared],
        stride: int = 1,
        records_room: int = 0,
    ) -> None:
        """Read nothing yet; the order of *logs* numbers the hosts. *keys* are for all nodes.

        *tables* gives a node's tables, *home* the token whose split books what belongs to no split
        in its log. *gaps* is the policy for gaps, *unavailable_policy* that for unreadable logs;
        errors other than *bears* stop the reading. While a split has more than *records_max*
        records, nothing is read (line 25). *cursors* contains the cursors in use; *listed* is
        called after a log was listed. Split time advances by *elapsed_ms*, not by the clock.
        *spared* parts are skipped. Turns and passes cover *stride* times the bytes, of which only
        some are read. A pass may exceed *records_max* by *records_room*.
        """
        self.intake = intake
        self._by_node = cursors
        self.hosts = {node: host for host, node in enumerate(logs)}
        self._losses = Losses(home, intake.splits)
        self.damage = self._losses.damage
        self.unreachable: dict[str, LogUnreadableError] = {}
        self.passes = self.changes = self.moves = 0
        self._looked_at = 0  # `changes` at the last look.
        self._awake: set[int] = set()  # Splits with something new that were not yet asked.
        self._due_ms: dict[int, int] = {}  # When time alone may bring a split something new.
        self._dues: list[tuple[int, int]] = []  # The same times as a heap, including outdated ones.
        # The growth of split time, and the part of it that splits receive only when needed.
        self._grown_ms = self._shared_ms = 0
        self._standing: object = None  # What `_note_changes` compared last.
        self._places: object = None
        self.read_ms = 0  # Of reading, including framing, digests and agreement.
        self.framing_times = FramingTimes()
        self.more = self._is_narrowed = False
        self.stopped_by: LogGapError | None = None
        self.spared, self._stride, self._elapsed_ms = spared, stride, elapsed_ms
        self._records_max, self._records_room = records_max, records_room
        self._logs, self._listed = logs, listed
        self._keys, self._tables = keys, tables
        self._gap_policy, self._bears = gaps, bears
        self._unavailable_policy = unavailable_policy
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._segments_max = segments_per_batch_max
        self._owned: dict[int, OwnedSplit] = {}
        self._readers: Counter[str] = Counter()  # How many splits read each log.
        self._caught_up_ms: int | None = None
        self._looked_ms: int | None = None
        self._missed_at = -1  # The value of `changes` for which `_missed` is known.
        self._missed: Collection[str] = ()  # The logs that some split did not read to their ends.
        self._away = _Away()
        self._caught_up: Collection[int] = ()
        self._caught_up_at: object = None  # The situation in which it was determined.
        self._fresh_until_ms = 0  # Line 8: the listing is complete until then.
        self._torn: dict[int, Exception] = {}

    def own(  # noqa: PLR0913, PLR0917 (a split, and what it decides itself)
        self,
        number: int,
        agreement: Agreement,
        resume: CdcState | None,
        log_slots: LogSlots,
        comparer: Comparison,
        judge: Judge,
        due_ms: Due,
    ) -> None:
        """Start to feed split *number* after *resume* from the logs that have *log_slots*.

        *comparer* compares its copies that differ, *judge* decides how the split treats damage,
        *due_ms* when it must be asked although nothing was read.
        """
        if not self._owned:
            self.unreachable.clear()
            self.intake.begin_again()
        self.changes += 1
        self.intake.own(number, agreement)
        self.intake.comparers[number] = comparer
        absences = Absences(self._unavailable_policy, resume.absences if resume else {})
        markers, schemas = (resume.markers, resume.schemas) if resume else ({}, {})
        owned = OwnedSplit(
            number, agreement, dict(markers), dict(schemas), absences, log_slots, judge, due_ms
        )
        owned.grown_ms, owned.counted_ms = self._shared_ms, dict(self._away.unread_ms)
        self._owned[number] = owned
        self._torn.pop(number, None)
        # Another owner may have counted the time before.
        self._caught_up_ms = self._looked_ms = None
        unread = resume.unread if resume else {}
        for node in sorted(log_slots.nodes, key=self.hosts.__getitem__):
            is_new = resume is not None and node not in resume.hosts
            self._begin(owned, node, unread.get(node, ()), is_new=is_new)
        owned.ahead = resume.ahead if resume else ()
        if owned.ahead:
            self.intake.read_further(number, FurtherRead(owned.ahead, tuple(self._logs)))
        self._is_narrowed = False
        self._go_on()

    def count_on(self, number: int) -> None:
        """Make new records newer than the restored records of split *number*.

        Otherwise a log that is ahead would seem to be behind, and would be read before the others.
        """
        self.intake.count_on(number)
        if self.intake.sequence != self.framing_times.last:
            self.framing_times = FramingTimes(self.intake.sequence)

    def reassign(self, number: int) -> None:
        """Read the logs that have log slots of split *number*, and stop reading the others."""
        self.bring_time(number)
        self.changes += 1
        owned = self._owned[number]
        here = owned.log_slots.nodes
        for node in owned.logs.difference(here):
            owned.logs.discard(node)
            self._readers[node] -= 1
            self._by_node[node].unread_by.discard(number)
            owned.absences.read(node)
            self.intake.unassign(number, self.hosts[node])
        for node in here:
            if node not in owned.logs:
                self._begin(owned, node, (), is_new=True)
        self._leave_unneeded()
        self._go_on()

    def _begin(self, owned: OwnedSplit, node: str, unread: Sequence[int], *, is_new: bool) -> None:
        """Let a split read a log from its marker in it, if it has one."""
        cursor, host = self._cursor(node), self.hosts[node]
        is_shared = self._readers[node] > 0
        marker = owned.resumed.get(node, START)
        cursor.unread_by.discard(owned.number)
        if is_new:
            cursor.unread_by.add(owned.number)
        self.intake.assign(owned.number, host, owned.log_slots.of(node))
        self.intake.resume_at(owned.number, host, *pair_of(marker))
        cursor.expect(unread)
        others = () if marker >= cursor.marker else self._reading(node)
        owned.logs.add(node)
        self._readers[node] += 1
        if is_shared and marker >= cursor.marker:
            self._stop_before_gap(owned, cursor)
            return
        # The cursor goes back: splits skip what they have already seen (line 11).
        for other in others:
            other.schemas[node] = other.versions(cursor)
            other.resumed[node] = at = other.marker(cursor)
            self.intake.resume_at(other.number, host, *pair_of(at))
        cursor.seek(marker)
        cursor.tables.restore(owned.schemas.get(node, ()), marker)
        self.stopped_by = None  # The next pass sets it again if necessary.

    def _cursor(self, node: str) -> LogCursor:
        """Return the cursor of a log; it needs a window, so only logs that are read have one."""
        if node not in self._by_node:
            tables = self._tables(node)
            self._by_node[node] = LogCursor(
                node,
                self._logs[node],
                self._lose,
                self._keys,
                tables,
                spared=self.spared.get(node),
                chunk_bytes=self._stride * CHUNK_BYTES,
            )
        return self._by_node[node]

    @property
    def cursors(self) -> Sequence[LogCursor]:
        """The cursors of the logs that splits read."""
        return tuple(self._by_node.values())

    def tables_of(self, node: str) -> LogTables:
        """Return the tables of a log that is read, at the current position."""
        return self._by_node[node].tables

    def _leave_unneeded(self) -> None:
        """Close the logs that are not needed by any split."""
        self._is_narrowed = False
        for cursor in self.cursors:
            if not self._readers[cursor.node]:
                cursor.close()
                del self._by_node[cursor.node]
                if self._owned:  # Otherwise unread logs are reported at the end.
                    self.unreachable.pop(cursor.node, None)

    def _reading(self, node: str) -> Sequence[OwnedSplit]:
        return [owned for owned in self._owned.values() if node in owned.logs]

    def _narrow(self) -> None:
        """Tell each log which tokens are needed."""
        for cursor in self.cursors:
            numbers = [owned.number for owned in self._reading(cursor.node)]
            cursor.need(arcs_of(numbers, self.intake.splits))
            self.intake.keep_books(self.hosts[cursor.node], *self._losses.booking(cursor.node))
        self._is_narrowed = True

    def _stop_before_gap(self, owned: OwnedSplit, cursor: LogCursor) -> None:
        """Report the gap at which the other splits wait to a new split that also has it."""
        error = self.stopped_by
        if error is None or error.gap.node != cursor.node:
            return
        if self._stands_before(owned.number, error.gap):
            owned.gaps.append(owned.met(error.gap, cursor, self.intake.splits))

    def _go_on(self) -> None:
        """Continue reading when all splits are past the gap that stopped it."""
        if self.stopped_by is None:
            return
        gap = self.stopped_by.gap
        if not any(self._stands_before(each.number, gap) for each in self._reading(gap.node)):
            self.stopped_by = None
            self._pass_over(gap)

    def _stands_before(self, number: int, gap: StoredGap) -> bool:
        """Return whether *gap* is ahead of a split; an absent log's gap is not for all splits."""
        if self.markers(number)[gap.node] >= gap.end:
            return False
        if gap.kind == DAMAGED:
            return self._owned[number].stops_before(gap)
        return gap.kind != RETURNED or self._is_late(self._owned[number], gap.node)

    def _pass_over(self, gap: StoredGap) -> None:
        """Continue after *gap* if all splits are past it."""
        cursor = self._cursor(gap.node)
        if all(each.marker(cursor) >= gap.end for each in self._reading(gap.node)):
            cursor.pass_over(gap)

    def disown(self, number: int) -> None:
        """Stop feeding split *number*."""
        self.changes += 1
        self._awake.discard(number)
        self._due_ms.pop(number, None)
        owned = self._owned.pop(number, None)
        if owned is not None:
            self.intake.own(number, None)
            self._readers.subtract(owned.logs)
        self.take_lost(number)
        if not self._owned:
            self.stopped_by = None
        self._go_on()
        self._leave_unneeded()

    def markers(self, number: int) -> dict[str, Marker]:
        """Return how far split *number* has seen each log of its own, past or present (line 12)."""
        owned = self._owned[number]
        markers = {n: at for n, at in owned.resumed.items() if n in self.hosts}
        for cursor in self._cursors(owned):
            markers[cursor.node] = owned.marker(cursor)
        return markers

    def _cursors(self, owned: OwnedSplit) -> Sequence[LogCursor]:
        return [cursor for node, cursor in self._by_node.items() if node in owned.logs]

    def ahead(self, number: int) -> tuple[Ahead, ...]:
        """Return the tokens for which split *number* has read beyond its markers."""
        owned = self._owned[number]
        if owned.ahead and not owned.catch_up(self.markers(number)):
            self.intake.read_further(number, None)
        return owned.ahead

    def schemas(
        self, number: int, needed: Mapping[str, Marker] | None = None
    ) -> dict[str, tuple[StoredVersion, ...]]:
        """Return the schema versions of each log that split *number* needs.

        They are those in force from *needed* on, or from the split's marker.
        """
        owned, needed = self._owned[number], needed or {}
        return {
            cursor.node: owned.versions(cursor, needed.get(cursor.node))
            for cursor in self._cursors(owned)
        }

    def unread(self, number: int, markers: Mapping[str, Marker]) -> dict[str, tuple[int, ...]]:
        """Return the segments that split *number*, at *markers*, has listed but not started."""
        here = self._cursors(self._owned[number])
        found = {c.node: c.unread_after(markers[c.node]) for c in here}
        return {node: ids for node, ids in found.items() if ids}

    def take_gaps(self, number: int) -> Sequence[StoredGap]:
        """Return the gaps that split *number* reached after the previous call."""
        gaps, self._owned[number].gaps = self._owned[number].gaps, []
        return gaps

    def take_lost(self, number: int) -> Sequence[Lost]:
        """Return losses, as described for `Losses.take`."""
        return self._losses.take(number)

    def books_of(self, number: int) -> Sequence[str]:
        """Return the logs in which split *number* books what belongs to no split."""
        here = self._owned[number].logs
        return [n for n in self.hosts if n in here and self._losses.booking(n)[0] == number]

    def check(self, number: int) -> None:
        """Raise an error that interrupted reading for split *number*: copies may be missing."""
        if number in self._torn:
            raise self._torn[number]

    def note_read(self, number: int, changes: int) -> None:
        """Note that split *number* took everything available at *changes*."""
        if changes == self.changes:
            self._awake.discard(number)
        self._schedule(number)

    def note_taken(self, number: int) -> None:
        """Note that split *number* took the agreed mutations, and that the rest is unchanged."""
        self._awake.discard(number)

    def _schedule(self, number: int) -> None:
        """Schedule the time at which a split must be asked even if nothing was read."""
        owned = self._owned[number]
        due_ms = owned.due_ms()
        if due_ms is None:
            self._awake.add(number)
            return
        at_ms = self._grown_ms + due_ms - owned.agreement.split_time_ms
        if self._due_ms.get(number) != at_ms:
            self._due_ms[number] = at_ms
            heappush(self._dues, (at_ms, number))

    def look(self, demand: Demand) -> Collection[int]:
        """Run a pass; return the splits that may have something new."""
        self.run_pass(demand)
        if self._looked_at != self.changes:
            self._looked_at = self.changes
            self._awake.update(self._owned)
        self._awake |= self.intake.fresh
        while self._dues and self._dues[0][0] <= self._grown_ms:
            at_ms, number = heappop(self._dues)
            if self._due_ms.get(number) == at_ms:
                self.bring_time(number)
                self._schedule(number)
        return self._awake

    def is_still(self) -> bool:
        """Return whether `look` would find nothing new, as far as known without a listing."""
        if self._awake or self.more or self._missed or self.unreachable or self.stopped_by:
            return False
        return all(self._logs[node].is_still() for node in self._by_node)

    def wake_all(self) -> None:
        """Make each split be asked again."""
        self.changes += 1

    def bring_time(self, number: int | None = None) -> None:
        """Add the accumulated split time to split *number*, or to all; done before it is used."""
        splits = self._owned.values() if number is None else (self._owned[number],)
        for owned in splits:
            if owned.grown_ms != self._shared_ms:
                owned.agreement.split_time_ms += self._shared_ms - owned.grown_ms
                owned.grown_ms = self._shared_ms

    def run_pass(self, demand: Demand) -> None:
        """Read until *demand* is met, a limit is reached, or all durable data is read."""
        self.passes += 1
        try:
            self._read_on(demand)
        finally:  # What was read before an error is available, too.
            self._note_changes()

    def _read_on(self, demand: Demand) -> None:
        started_ms = self._now_ms()
        self._look(started_ms, demand.logs)
        # If many splits ask for much, small passes would make small batches.
        whole = max(self._stride * PASS_BYTES_MAX, 2 * demand.bytes_max)
        budget, intake, progress = whole, self.intake, memoryview(self.intake.progress)
        logs = [(cursor, self.hosts[cursor.node]) for cursor in self._read_now(demand.logs)]
        most = self._segments_max
        ready = [(progress[host], at) for at, (c, host) in enumerate(logs) if c.may_go_on(most)]
        heapify(ready)
        since_ms = 0  # What makes the clock's time that since 1970.
        if ready:
            since_ms = self._wall_ms() - started_ms
            self.bring_time()
            agreements = (owned.agreement for owned in self._owned.values())
            intake.liveliest = max(map(_LIVE, agreements), default=0)
        live_max = self._live_max(intake.liveliest)
        while (
            ready
            and budget > 0
            and self.stopped_by is None
            and intake.liveliest <= live_max
            and intake.held + self._losses.bytes < demand.bytes_max
            and intake.fullest < demand.records_max
        ):
            now_ms = self._now_ms()
            late = now_ms - started_ms > demand.linger_ms
            if late and budget < whole:  # Every pass reads something.
                break
            intake.now_ms = now_ms + since_ms
            first = _first_due(ready, logs)
            cursor, host = logs[ready[first][1]]
            before = cursor.read_bytes
            try:
                cursor.advance(intake, host, demand)
                self.unreachable.pop(cursor.node, None)
            except LogGapError as error:
                self._meet(cursor, error)
            except self._bears as error:
                self._leave(cursor, error)
            except HeadraceError:
                raise
            except Exception as error:
                # Any split may have lost data just read: all restart.
                self.changes += 1
                self._torn = dict.fromkeys(self._owned, error)
                raise
            self._note_framed(cursor, since_ms)
            if cursor.read_bytes > before:  # Otherwise the log has nothing new, and uses no budget.
                budget -= max(cursor.read_bytes - before, _TURN_BYTES)
            _put_back(ready, first, progress[host] if cursor.may_go_on(most) else None)
        self.more = self.stopped_by is None and not all(c.at_end for c in self.cursors)
        now_ms = self._now_ms()
        self.read_ms += now_ms - started_ms
        self._check_any_is_read()
        self._count_absences(now_ms)
        self._grow_time(now_ms)

    def _live_max(self, liveliest: int) -> int:
        """Return the number of records above which a split stops the reading."""
        # A split with too many records must first remove some.
        is_full = liveliest > self._records_max
        return self._records_max + (0 if is_full else self._records_room)

    def _note_framed(self, cursor: LogCursor, since_ms: int) -> None:
        """Note the times of the records that a log's turn has made, if there are any."""
        if self.intake.sequence != self.framing_times.last:
            durable_ms = cursor.durable_ms or cursor.fetched_ms + since_ms
            self.framing_times.note(self.intake.sequence, durable_ms, self.intake.now_ms)

    def _note_changes(self) -> None:
        """Increment `moves` if logs were read further, `changes` if anything else changed."""
        places = [(cursor.marker, cursor.read_bytes) for cursor in self.cursors]
        if places != self._places:
            self._places = places
            self.moves += 1
        standing = (self.more, self.stopped_by, [*self.unreachable], self._losses.bytes)
        if standing != self._standing:
            self._standing = standing
            self.changes += 1

    def _read_now(self, nodes: Collection[str] | None) -> Sequence[LogCursor]:
        return [c for c in self._by_node.values() if nodes is None or c.node in nodes]

    def _look(self, now_ms: int, nodes: Collection[str] | None) -> None:
        """List the logs of *nodes*, or all, and narrow them to the needed tokens."""
        if not self._is_narrowed:
            self._narrow()
        if self._missed_at != self.changes:  # These logs change only together with `changes`.
            self._missed_at = self.changes
            stored = [owned.absences.stored for owned in self._owned.values()]
            self._missed = {node for nodes in stored for node in nodes}
        for cursor in self._read_now(nodes):
            cursor.begin_pass()
            if cursor.at_end or not cursor.fetched_ms:
                self._refresh(cursor, now_ms)

    def _refresh(self, cursor: LogCursor, now_ms: int) -> None:
        try:
            is_new = cursor.refresh(now_ms)
        except LogGapError as error:
            self._meet(cursor, error)
        except self._bears as error:
            cursor.seek(cursor.marker)  # When it returns, it may have other files.
            self._leave(cursor, error)
        else:
            if cursor.node in self._missed:
                self._meet_again(cursor)
            if not is_new:
                return
        self._listed(cursor.node)

    def _leave(self, cursor: LogCursor, error: LogUnreadableError) -> None:
        """Stop reading a log until it can be listed again."""
        self.unreachable[cursor.node] = error
        cursor.leave()

    def _meet_again(self, cursor: LogCursor) -> None:
        """Report a gap to the splits: a log was unreadable for too long (line 8)."""
        for owned in self._reading(cursor.node):
            if not owned.absences.stored or not self._is_late(owned, cursor.node):
                continue
            gap = StoredGap(cursor.node, owned.marker(cursor), cursor.end, RETURNED)
            if gap.begin >= gap.end:
                continue
            self.changes += 1
            owned.gaps.append(owned.met(gap, cursor, self.intake.splits))
            if self._gap_policy == FAIL:
                self.stopped_by = self.stopped_by or error_of(gap)
                continue
            owned.absences.read(cursor.node)
            owned.resumed[cursor.node] = gap.end
            owned.schemas.pop(cursor.node, None)  # They are for the earlier position.
            self.intake.resume_at(owned.number, self.hosts[cursor.node], *pair_of(gap.end))
            self._pass_over(gap)

    def _is_late(self, owned: OwnedSplit, node: str) -> bool:
        self.bring_time(owned.number)
        return owned.absences.is_late(node, owned.agreement.split_time_ms)

    def _meet(self, cursor: LogCursor, error: LogGapError) -> None:
        """Report a gap to the splits; continue after it, or stop reading (line 21)."""
        reported = False
        for owned in self._reading(cursor.node):
            if owned.marker(cursor) >= error.gap.end:
                continue
            self.changes += 1
            if error.gap.kind == DAMAGED:
                if owned.stops_before(error.gap):
                    gap = msgspec.structs.replace(error.gap, state=OPEN)
                    owned.gaps.append(owned.met(gap, cursor, self.intake.splits))
                    reported = True
                continue
            if owned.number in cursor.unread_by:  # Deleted before the split needed it: no loss.
                owned.resumed[cursor.node] = error.gap.end
                continue
            owned.gaps.append(owned.met(error.gap, cursor, self.intake.splits))
            reported = True
        if reported and self._gap_policy == FAIL:
            self.stopped_by = error
        else:
            cursor.pass_over(error.gap)

    def _lose(self, gap: StoredGap, error: HeadraceError, item: Quarantined | None) -> None:
        """Record damage as a gap of each split.

        Raises:
            LogGapError: a split stops before it.

        """
        cursor = self._by_node[gap.node]
        reading = [o for o in self._reading(gap.node) if o.marker(cursor) < gap.end and item]
        states = [owned.judge(gap, owned.gaps) for owned in reading]
        if OPEN in states:
            raise error_of(gap)
        for owned, state in zip(reading, states, strict=True):
            self.changes += 1
            met = msgspec.structs.replace(gap, state=state)
            owned.take_damage(owned.met(met, cursor, self.intake.splits))
        self._losses.add(self._owned, gap, error, item)

    def close(self) -> None:
        """Close all files."""
        for cursor in self.cursors:
            cursor.close()

    def _check_any_is_read(self) -> None:
        """Raise an error if no log can be read, unless agents are retried."""
        errors = list(self.unreachable.values())
        if len(errors) == len(self.cursors) and not any(
            isinstance(error, AgentUnavailableError) for error in errors
        ):
            self._caught_up_ms = None  # Line 8: time without any readable log does not count.
            raise errors[0]

    def _count_absences(self, now_ms: int) -> None:
        """Count how long logs were unreadable; time without attempts does not count."""
        passed_ms = 0 if self._looked_ms is None else min(now_ms - self._looked_ms, FETCHED_MS_MAX)
        self._looked_ms = now_ms
        if not (self.unreachable or self._missed):
            return
        self._away.unread_ms.update(dict.fromkeys(self.unreachable, passed_ms))
        self._away.uncounted_ms += passed_ms
        if self._away.counted_at == self._standing_of_logs() and (
            self._away.uncounted_ms < self._away.count_again_ms
        ):
            return
        self.changes += 1
        self._away.count_again_ms = WAITED_MS
        for owned in self._owned.values():
            self._count(owned)
            owned.counted_ms.clear()
            away = owned.logs.intersection(self.unreachable)
            quiet_ms = min(map(owned.absences.quiet_ms, away), default=WAITED_MS)
            self._away.count_again_ms = min(self._away.count_again_ms, quiet_ms)
        self._away.unread_ms.clear()
        self._away.uncounted_ms = 0
        missed = {node for owned in self._owned.values() for node in owned.absences.stored}
        # A log that returned is checked in each pass, until it is read to its end.
        is_all = missed <= self.unreachable.keys()
        self._away.counted_at = self._standing_of_logs() if is_all else None

    def _standing_of_logs(self) -> object:
        return self.changes, [*self.unreachable]

    def _count(self, owned: OwnedSplit) -> None:
        """Count for a split how long each of its logs was unreadable."""
        self.bring_time(owned.number)
        for cursor in self._cursors(owned):
            node = cursor.node
            if node in self.unreachable:
                passed_ms = self._away.unread_ms[node] - owned.counted_ms.get(node, 0)
                owned.counted_ms[node] = self._away.unread_ms[node]
                owned.absences.missed(node, passed_ms, owned.agreement.split_time_ms)
            elif cursor.at_end and self.stopped_by is None:
                owned.absences.read(node)
            else:
                owned.absences.found(node)

    def is_caught_up(self, number: int) -> bool:
        """Return whether split *number* has read all logs that it waits for to their ends."""
        if self.more or self.stopped_by is not None:
            return False
        owned = self._owned[number]
        away = owned.logs.intersection(self.unreachable)
        return len(away) < len(owned.logs) and all(map(owned.absences.is_absent, away))

    def absences(self, number: int) -> Mapping[str, Absence]:
        """Return the logs that split *number* was unable to read to their ends."""
        owned = self._owned[number]
        if self._away.unread_ms:
            self._count(owned)
        return dict(owned.absences.stored)

    def absent(self, number: int | None = None) -> frozenset[str]:
        """Return the logs for which split *number*, or any, does not wait. Safe for any thread."""
        owned = list(self._owned.values()) if number is None else [self._owned[number]]
        away = tuple(self.unreachable)
        return frozenset(
            n for n in away if any(n in each.logs and each.absences.is_absent(n) for each in owned)
        )

    def unread_since(self, number: int, split_time_ms: int) -> frozenset[str]:
        """Return the logs that split *number* did not read to their ends after that (line 9)."""
        return self._owned[number].absences.unread_since(split_time_ms)

    def _grow_time(self, now_ms: int) -> None:
        """Advance split time by the clock, but only while all logs are read to their ends.

        When no passes run, for example because the machine sleeps, only the first seconds count.
        Bulk work sets the time: reading again gives the same result.
        """
        caught_up = self._splits_caught_up()
        if self._elapsed_ms is not None:
            if caught_up:
                self._grow(self._elapsed_ms, caught_up)
                self._elapsed_ms = 0
            return
        listed_ms = [c.fetched_ms for c in self.cursors if c.node not in self.unreachable]
        fresh_until_ms = min(listed_ms, default=0) + FETCHED_MS_MAX
        if not caught_up or now_ms > fresh_until_ms:
            self._caught_up_ms = None
            return
        if self._caught_up_ms is not None:
            self._grow(min(now_ms, self._fresh_until_ms) - self._caught_up_ms, caught_up)
        self._caught_up_ms, self._fresh_until_ms = now_ms, fresh_until_ms

    def _splits_caught_up(self) -> Collection[int]:
        if self.more or self.stopped_by is not None:
            return ()
        if not self.unreachable:
            return self._owned
        if self._caught_up_at != self._standing_of_logs():
            self._caught_up_at = self._standing_of_logs()
            found = [n for n in self._owned if self.is_caught_up(n)]
            self._caught_up = self._owned if len(found) == len(self._owned) else found
        return self._caught_up

    def _grow(self, grown_ms: int, numbers: Collection[int]) -> None:
        self._grown_ms += grown_ms
        if numbers is self._owned:
            self._shared_ms += grown_ms
            return
        for number in numbers:
            self._owned[number].agreement.split_time_ms += grown_ms

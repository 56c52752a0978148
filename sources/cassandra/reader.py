"""One split of the Cassandra source: its agreement, its part of the pump's data, its state."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

from headrace.plugins import (
    MODULUS,
    Batch,
    CloseReason,
    ConfigError,
    Demand,
    Idle,
    Notice,
    Position,
    Problem,
    Quarantined,
    Reader,
    RecordSchema,
    StageTimes,
)
from headrace.sources.cassandra.agreement.intake import SKIP_REASONS, AgreedMutations
from headrace.sources.cassandra.agreement.rules import HOST_FATES, Agreement
from headrace.sources.cassandra.batch import MutationBatch, batch_class
from headrace.sources.cassandra.logs.pins import COPIES_MAX
from headrace.sources.cassandra.logs.reread import Copy
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading.record_expiry import Ages, Memory
from headrace.sources.cassandra.reading.topology_versions import SplitVersions
from headrace.sources.cassandra.resources import Parts
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX
from headrace.sources.cassandra.ring.replica_groups import Groups
from headrace.sources.cassandra.ring.splits import Arc
from headrace.sources.cassandra.schema_versions.epochs import Epoch
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker, StoredGap, StoredVersion
from headrace.sources.cassandra.state.chunks import RecordChunks
from headrace.sources.cassandra.state.forking import opened, without_keyspaces
from headrace.sources.cassandra.state.gaps import GapBook, is_assumed, notice_of
from headrace.sources.cassandra.state.unavailable_logs import WAITED_MS, Absence

_RELEASE_MS: Final = 10_000  # The split time after which `release` checks segments.
_AGED_MS: Final = 30_000  # Line 32: the growth of split time that is committed by itself.
_CHECK_MS: Final = 60_000  # The split time after which a split is always checked.
_NEVER: Final = Absence(0, 0)
_NO_GROUPS: Final = Groups(LOG_SLOTS_MAX)  # Until a split knows its own.
_LEAVE_MS: Final = 60_000  # Between two checks for logs that can be left.
_MS: Final = 1_000  # In a second.
_ALARM_MS: Final = 60_000  # Between two warnings of one kind.
_NODES_KNOWN: Final = 1_024  # Nodes whose names of counters are cached.
_BATCHES_EACH: Final = 32  # Batches between two checks of the schema that pending copies need.


class CassandraReader(Reader):
    """One split: its agreement, and its part of the pump's data."""

    def __init__(self, parts: Parts, number: int, resume: CdcState | None) -> None:
        """Restore the records of *resume* and register with the pump."""
        self._parts = parts
        self._made = parts.built()
        self._pump = self._made.pump
        self._number = number
        self._split = parts.splits[number]
        self._log_slots = parts.replicas.log_slots(number, resume)
        self._agreement = Agreement(_NO_GROUPS)
        self._base = self._opening(resume) if resume else {}
        self._chunks = RecordChunks(resume.chunks if resume else ())
        self._passes = self._pump.passes
        config = parts.config
        self._records_max = parts.split_records_max
        self._expiry_ms = config.expiry_seconds * _MS
        self._memory = self._new_memory()
        self._split_time_ms = resume.split_time_ms if resume else 0
        self._absences = resume.absences if resume else {}
        self._unread_since = partial(self._pump.unread_since, number)
        self._retire_ms = config.max_hint_window_seconds * _MS
        self._damage: Counter[str] = Counter()  # Places, by node.
        self._skips_before = list(self._pump.intake.skipped)
        self._announced = 0
        self._batches_made = 0
        self._handed_out = 0  # The sum of the checksums of all batches.
        self._owes_end = False
        # As of the last read: see `_is_as_read`.
        self._changes, self._ring = -1, parts.replicas.current
        self._moves, self._checked_ms = -1, 0  # As of the last position; of the last whole read.
        self._short, self._alarm_ms = (0, 0), 0
        # Logs that are no longer read, until a state says so.
        self._left = set(resume.markers).difference(resume.hosts) if resume else set()
        self._left.intersection_update(config.nodes)
        self._left_ms = 0
        self._oldest: dict[str, Marker] = {}  # The oldest place still needed in each log.
        self._markers = dict(resume.markers) if resume else {}
        self._starts = dict(resume.starts) if resume else {}
        self._released: CdcState | None = None
        # The schema first: it may have keyspaces of pending records.
        met = resume.met_gaps if resume else ()
        self._gaps = GapBook(config.gaps, met, expiry_ms=self._expiry_ms)
        parts.know(resume)
        compared = self._memory.comparison
        self._pump.own(
            number,
            self._agreement,
            resume,
            self._log_slots,
            compared,
            self._judge,
            self._due_ms,
        )
        stored = resume.topologies if resume else ()
        self._versions = SplitVersions(
            parts.replicas, number, stored, self._split_time_ms, self._log_slots
        )
        self._agreement.regroup(self._versions.groups)
        self._tables = self._made.deliveries.names
        self._stored_tables = resume.tables if resume else self._tables
        if resume:
            self._restore(resume)
        self._reading: Sequence[str] = ()
        self._manifests = resume.manifests if resume else {}
        self._read_assigned()

    def _new_memory(self) -> Memory:
        config = self._parts.config
        return Memory(
            self._agreement,
            self._log_slots,
            self._made.copies,
            Ages(
                self._expiry_ms,
                config.dedup_window_seconds * _MS,
                config.complete_seconds * _MS,
            ),
            self._records_max,
            publish_expired=config.expired == "publish",
            suppress_streamed=config.streamed == "suppress",
            epoch_of=self._epoch_of,
        )

    def read(self, demand: Demand) -> Batch | Idle:
        """Let the pump read if this split has nothing new, and take the agreed mutations.

        Raises:
            LogGapError: an earlier batch reported a gap, and the policy for it must be set.

        """
        if self._gaps.stopped_by is not None:
            raise self._gaps.stopped_by
        pump = self._pump
        pump.check(self._number)
        if self._passes == pump.passes:
            self._parts.follow()
            self._passes = pump.passes + 1  # Also if the pass fails: the next call starts another.
            self._parts.run_pass(demand)
        self._passes = pump.passes
        pump.bring_time(self._number)
        if self._is_as_read():
            is_fresh = self._number in pump.intake.fresh
            if is_fresh and demand.end_may_wait:
                return self._go_on()
            if not is_fresh and self._is_still(demand):
                return self._idle()
        return self._read_all(demand)

    def _read_all(self, demand: Demand) -> Batch | Idle:
        """Check everything that can be new, including by time."""
        pump = self._pump
        changes, moves, ring = pump.changes, pump.moves, self._parts.replicas.current
        self._checked_ms = self._agreement.split_time_ms
        nodes = self._log_slots.names  # Before slots change: agreed mutations have these numbers.
        if self._versions.follow(
            self._agreement.split_time_ms, self._retire_ms, self._unread_since
        ):
            self._agreement.regroup(self._versions.groups)
            self._memory.check_again()
        self._read_assigned()
        settled = self._leave_out()
        taken = pump.intake.take(self._number)
        caught_up = pump.is_caught_up(self._number)
        reencoded = self._agreement.reencoded
        kept = self._memory.keep(
            taken, caught_up=caught_up, any_absent=bool(pump.absent(self._number))
        )
        lost = [*kept, *self._damaged()]
        self._alarm()
        agreed = self._parts.part.keep(taken)
        notices = self._notices()
        aged = self._has_aged(demand)
        settled = settled or self._agreement.reencoded > reencoded
        moved = agreed.count > 0 or pump.markers(self._number) != self._markers
        absences = pump.absences(self._number)
        reported = lost or notices or aged or settled or (absences and self._has_waited(absences))
        self._changes, self._ring = changes, ring
        if not moved:
            self._moves = moves
        may_wait = demand.end_may_wait and not reported
        if not (moved or reported or self._owes_end) or (may_wait and not agreed.count):
            pump.intake.give_back(agreed)
            return self._idle()
        self._split_time_ms, self._absences = self._agreement.split_time_ms, absences
        # Creating a state costs a third of reading.
        is_owed = moved and (pump.more or may_wait) and not (demand.position_due or reported)
        end = None if is_owed else self._state(self._noted_markers())
        batch = self._batch(agreed, end, lost, notices, nodes)
        self._owes_end = is_owed
        if not is_owed:
            self._moves = moves
        self._leave_logs()
        pump.note_read(self._number, changes)
        return batch

    def _go_on(self) -> Batch | Idle:
        """Take the mutations agreed since the last read; nothing else can be new.

        The batch has no end: the next one with an end covers the rest.
        """
        pump = self._pump
        agreed = self._parts.part.keep(pump.intake.take(self._number))
        pump.note_taken(self._number)
        if not agreed.count:
            pump.intake.give_back(agreed)
            return Idle(more=pump.more)
        self._split_time_ms, self._owes_end = self._agreement.split_time_ms, True
        return self._batch(agreed, None, (), (), self._log_slots.names)

    def _idle(self) -> Idle:
        """Return that nothing is new, and note it in the pump."""
        self._pump.note_read(self._number, self._changes)
        return Idle(more=self._pump.more)

    def _due_ms(self) -> int | None:
        """Return when to ask again, as described for `split_feed.Due`."""
        split_time_ms = self._agreement.split_time_ms
        if not self._is_settled() or split_time_ms >= self._checked_ms + _CHECK_MS:
            return None
        if self._memory.is_due():
            return None
        return min(self._memory.due_ms, self._checked_ms + _CHECK_MS)

    def _is_settled(self) -> bool:
        """Return whether records and tables require no further read."""
        return self._agreement.live <= self._records_max and self._stored_tables == self._tables

    def _has_aged(self, demand: Demand) -> bool:
        """Return whether split time has grown enough to be committed (line 32)."""
        # Read for an end alone, it is the last; bulk work sets the time.
        is_last = not demand.records_max or self._parts.elapsed_ms is not None
        least_ms = 1 if is_last else _AGED_MS
        grown_ms = self._agreement.split_time_ms - self._split_time_ms
        return demand.commit_due and grown_ms >= least_ms

    def _is_as_read(self) -> bool:
        """Return whether only agreed mutations, or a position, can be new since the last read.

        Time alone is a reason for more if records are due.
        """
        split_time_ms = self._agreement.split_time_ms
        return (
            self._changes == self._pump.changes
            and self._ring is self._parts.replicas.current
            and split_time_ms < self._memory.due_ms
            and split_time_ms < self._checked_ms + _CHECK_MS
            and self._is_settled()
        )

    def _is_still(self, demand: Demand) -> bool:
        """Return whether there is no new position either, when nothing else is new."""
        if demand.end_may_wait:
            return True
        return not (self._owes_end or self._moves != self._pump.moves or self._has_aged(demand))

    def _read_assigned(self) -> None:
        """Read the logs with log slots and hold their segments; stop reading the others."""
        if self._reading == self._log_slots.names:
            return
        for node in self._log_slots.nodes:
            hold = None if node in self._reading else self._parts.hold_of(node)
            if hold is not None:
                # Pending copies too: another split may release before the next commit (I5).
                pending = self._agreement.unpublished(self._log_slots.of(node), COPIES_MAX + 1)
                marker = self._markers.get(node, Marker(0, 0))
                hold.register(self._split, marker, pending, self._manifests.get(node, ()))
        self._pump.reassign(self._number)
        self._left.difference_update(self._log_slots.nodes)
        self._reading = self._log_slots.names

    def _leave_logs(self) -> None:
        """Free the log slots of nodes that neither the split nor its records need."""
        split_time_ms = self._agreement.split_time_ms
        if split_time_ms < self._left_ms + _LEAVE_MS or not self._log_slots.idle:
            return
        self._left_ms, before = split_time_ms, self._log_slots.names
        counted = {node: self._counters_of(node) for node in self._log_slots.idle}
        log_slots = {node: self._log_slots.of(node) for node in counted}
        for node in self._log_slots.free(self._agreement.referenced()):
            for name, count in counted[node].items():
                self._base[name] = self._base.get(name, 0) + count
            self._agreement.forget_counts(log_slots[node])
            self._base["mutations.first"] = (
                self._base.get("mutations.first", 0) + counted[node][f"entries.{node}.first"]
            )
            del self._damage[node]
            self._left.add(node)
        if before != self._log_slots.names:
            self._assume()  # Another log may get its slot.
            self._read_assigned()

    def _opening(self, resume: CdcState) -> dict[str, int]:
        """Return the books to continue with; a forked job gets new ones (I3)."""
        if resume.job in {"", self._parts.context.job}:
            return dict(resume.counters)
        return opened(resume.counters)

    def _leave_out(self) -> bool:
        """Book pending mutations of tables that left the job as filtered (line 22).

        Returns whether the tables of the state changed.
        """
        stored, tables = self._stored_tables, self._tables
        if stored == tables:
            return False
        fewer = tables and not (stored and set(stored) <= set(tables))
        if not fewer or stored is None or self._memory.leave_out(self._is_wanted):
            self._stored_tables = tables
        return self._stored_tables == tables

    def _is_wanted(self, copy: Copy) -> bool:
        """Return whether a mutation has, or might have, changes of a delivered table."""
        return self._made.deliveries.has_delivered(self._epoch_of(copy).number, copy)

    def _has_waited(self, absences: Mapping[str, Absence]) -> bool:
        """Return whether logs were unreadable for so long that it must be committed."""
        return any(
            each.unread_ms >= self._absences.get(node, _NEVER).unread_ms + WAITED_MS
            for node, each in absences.items()
        )

    def _alarm(self) -> None:
        """Warn, at most once per interval, that records had no room in the memory (24, 25)."""
        agreement, context = self._agreement, self._parts.context
        short = agreement.memory_shortened, agreement.overflowed
        if short == self._short or (now_ms := context.clock.monotonic_ms()) < self._alarm_ms:
            return
        self._short, self._alarm_ms = short, now_ms + _ALARM_MS
        context.log.warning(
            "dedup_window_full",
            split=self._split,
            forgotten=short[0],
            quarantined=short[1],
            pending=agreement.pending,
            hint="a node is down or behind: copies that come later count as new; "
            "a larger records_max keeps more records",
        )

    def _notices(self) -> Sequence[Notice]:
        """Book the gaps that were met, by the policy, and return notices for consumers (I10)."""
        found = self._pump.take_gaps(self._number)
        if not (found or self._gaps.gaps):
            return ()
        before = self._gaps.gaps
        changed = self._gaps.meet(
            found,
            self._pump.markers(self._number),
            split_time_ms=self._agreement.split_time_ms,
            wall_ms=self._parts.context.clock.wall_ms(),
        )
        if self._gaps.gaps is not before:
            self._assume()
        tables = [table.qualified for table in self._parts.tables]
        return [notice_of(gap, self._split, tables) for gap in changed]

    def _judge(self, gap: StoredGap, untaken: Sequence[StoredGap]) -> str:
        """Return the state that damage gets; absent logs cannot show its content (I10)."""
        absent = self._pump.absent(self._number)
        return self._gaps.judge(
            gap,
            untaken,
            lambda holed: self._versions.can_meet(holed | absent),
            split_time_ms=self._agreement.split_time_ms,
        )

    def _assume(self) -> None:
        """Count hosts for copies that the lost parts of their logs could contain (line 21)."""
        self._agreement.assume(
            [
                (self._log_slots.of(gap.node), gap.split_time_ms + self._expiry_ms, *arc)
                for gap in self._gaps.gaps
                if is_assumed(gap) and gap.node in self._log_slots.nodes
                for arc in gap.arcs or (Arc(),)
            ]
        )
        self._memory.check_again()

    def release(self, position: Position) -> None:
        """Release the stored parts of *position*, and segments without copies for it (I5)."""
        assert isinstance(position, CdcState)  # noqa: S101 (we made it)
        self._chunks.stored(position.chunks)
        if self._only_aged(position):
            return
        for node in self._left.difference(position.hosts):
            self._left.discard(node)
            if (hold := self._parts.hold_of(node)) is not None:
                hold.withdraw([self._split])
        for node in self._log_slots.nodes:
            # An unreachable log has no segments to dispose of.
            gone = node in self._pump.unreachable or node not in position.hosts
            hold = None if gone else self._parts.hold_of(node)
            if hold is None:
                continue
            marker = position.markers.get(node, Marker(0, 0))
            pending = position.needs.get(node)
            if pending is None:  # Nothing is disposed of, by other jobs either.
                pending = self._agreement.unpublished(self._log_slots.of(node), COPIES_MAX + 1)
            hold.register(self._split, marker, pending, position.manifests.get(node, ()))
            hold.dispose()
        self._released = position

    def _only_aged(self, position: CdcState) -> bool:
        """Return whether little but time has changed since the last release of segments."""
        last = self._released
        if last is None or position.split_time_ms >= last.split_time_ms + _RELEASE_MS:
            return False
        return (position.markers, position.needs) == (last.markers, last.needs)

    def close(self, reason: CloseReason) -> None:
        """Unregister from the pump; the next owner reads undelivered mutations again."""
        del reason
        self._pump.disown(self._number)
        self._parts.replicas.forget(self._number)

    def _restore(self, resume: CdcState) -> None:
        nodes = self._parts.config.nodes
        missing = self._versions.needed() & set(resume.hosts) - set(nodes)
        if missing:
            said = f"does not list {', '.join(sorted(missing))}, whose copies still count"
            hint = "a node that left the ring is read for max_hint_window_seconds of split time"
            raise ConfigError([Problem("nodes", said, hint)])
        wanted = self._parts.keyspaces_of(resume.keyspaces)
        host_map = [
            number if node in nodes or not node else constants.HOST_GONE
            for number, node in enumerate(resume.hosts)
        ]
        keyspace_map = [wanted.index(k) if k in wanted else 0 for k in resume.keyspaces]
        gone = {n for n, keyspace in enumerate(resume.keyspaces) if keyspace not in wanted}
        for chunk in resume.chunks:
            rows = without_keyspaces(chunk.words, gone) if gone else chunk.words
            self._agreement.restore(rows, host_map, keyspace_map)
        if gone:
            pending = resume.counters.get("mutations.pending", 0)
            self._agreement.filtered += pending - self._agreement.pending
        if gone or any(old != new for of in (host_map, keyspace_map) for old, new in enumerate(of)):
            self._agreement.touch(0, 1)  # Everything is stored again, with the new numbers.
            self._chunks = RecordChunks(())
        self._agreement.split_time_ms = resume.split_time_ms
        self._agreement.number = max(self._agreement.number, resume.number)
        self._pump.count_on(self._number)
        self._assume()

    def _batch(
        self,
        agreed: AgreedMutations,
        end: CdcState | None,
        lost: Sequence[Quarantined],
        notices: Sequence[Notice],
        nodes: Sequence[str],
    ) -> MutationBatch:
        made, emitted = self._made, self._agreement.take_emitted(self._split)
        checksum = agreed.checksum() if self._parts.part.tokens else emitted
        self._handed_out = (self._handed_out + checksum) % MODULUS
        batch = batch_class(agreed)(
            self._split,
            end,
            agreed,
            intake=self._pump.intake,
            more=self._pump.more,
            nodes=nodes,
            deliveries=made.deliveries,
            transcoder=made.transcoder,
            announced=self._announce(),
            lost=lost,
            notices=notices,
            lists=made.lists,
            checksum=checksum,
            checksum_so_far=self._handed_out,
        )
        batch.stage_times = self._stage_times(agreed)
        return batch

    def _stage_times(self, agreed: AgreedMutations) -> Sequence[StageTimes]:
        """Return when the first and the last mutation of a batch reached each stage."""
        samples = [(-1, agreed.last_number, agreed.last_ms)] if agreed.count else []
        if agreed.count > 1:
            samples.insert(0, (0, agreed.first_number, agreed.first_ms))
        framing_times = self._pump.framing_times
        return [
            StageTimes(record, (*framed, agreed_ms))
            for record, number, agreed_ms in samples
            if (framed := framing_times.of(number)) is not None
        ]

    def _epoch_of(self, copy: Copy) -> Epoch:
        tables = self._pump.tables_of(self._log_slots.names[copy.host])
        return tables.epoch_at(Marker(copy.segment, copy.position))

    def _announce(self) -> Sequence[RecordSchema]:
        """Return the schemas of records made since this split's last batch."""
        schemas = self._made.deliveries.schemas
        announced, self._announced = schemas[self._announced :], len(schemas)
        return announced

    def _schemas(self, markers: Mapping[str, Marker]) -> dict[str, tuple[StoredVersion, ...]]:
        """Return the schema versions of pending mutations and of the unread part."""
        # A pass over all records is expensive; the result of some batches ago suffices.
        if self._batches_made % _BATCHES_EACH == 0:
            for node in self._log_slots.nodes:
                pending = self._agreement.unpublished(self._log_slots.of(node), 1)
                oldest = Marker(min(pending), 0) if pending else markers[node]
                self._oldest[node] = min(oldest, markers[node])
        self._batches_made += 1
        return self._pump.schemas(self._number, self._oldest)

    def _noted_markers(self) -> Mapping[str, Marker]:
        """Return how far the logs are read; only mutations after it change the position."""
        self._markers = self._pump.markers(self._number)
        return self._markers

    def _state(self, markers: Mapping[str, Marker]) -> CdcState:
        """Return S_k: everything up to this position and nothing later (line 27)."""
        agreement = self._agreement
        needs = {}
        if self._parts.config.disposal != "keep":
            needs = {
                node: agreement.unpublished(self._log_slots.of(node), COPIES_MAX + 1)
                for node in self._log_slots.nodes
            }
        chunks = self._chunks.take(agreement)
        return CdcState(
            split_time_ms=agreement.split_time_ms,
            number=agreement.number,
            hosts=self._log_slots.names,
            keyspaces=tuple(self._parts.replicas.keyspaces),
            markers=dict(markers),
            counters=self._counters(),
            chunks=chunks,
            needs=needs,
            schemas=self._schemas(markers),
            met_gaps=self._gaps.gaps,
            unread=self._pump.unread(self._number, markers),
            starts=self._starts,
            job=self._parts.context.job,
            tables=self._stored_tables,
            topologies=self._versions.stored(),
            ahead=self._pump.ahead(self._number),
            manifests={node: self._parts.logs[node].manifest.stored for node in markers},
            absences=self._pump.absences(self._number),
            size_bytes=self._chunks.fresh_bytes,
        )

    def _damaged(self) -> Sequence[Quarantined]:
        """Book this split's damage, and return its bytes (I3, I8)."""
        items: list[Quarantined] = []
        for lost in self._pump.take_lost(self._number):
            self._damage[lost.node] += 1
            items.append(lost.item)
        return items

    def _counters_of(self, node: str) -> dict[str, int]:
        """Return the counts of a log since it got its log slot."""
        read = self._pump.intake.read_of(self._number, self._pump.hosts[node])
        damaged = self._damage[node]
        counted = self._agreement.counted(self._log_slots.of(node))
        return dict(zip(_entries_of(node), (read + damaged, damaged, *counted), strict=True))

    def _counters(self) -> dict[str, int]:
        """Return the current books: those restored, plus the counts since (I3)."""
        agreement = self._agreement
        now: dict[str, int] = {}
        for node in self._log_slots.nodes:
            now |= self._counters_of(node)
        for node in self._pump.books_of(self._number):
            at = self._pump.hosts[node] * len(SKIP_REASONS)
            for name in _skips_of(node):
                now[name] = self._pump.intake.skipped[at] - self._skips_before[at]
                at += 1
        now["mutations.first"] = agreement.first_copies()
        now["mutations.agreed"] = agreement.agreed
        now["mutations.reencoded"] = agreement.reencoded
        now["mutations.expired"] = agreement.expired
        now["mutations.expired_published"] = agreement.expired_published
        now["mutations.not_replica"] = agreement.not_replica
        now["mutations.filtered"] = agreement.filtered
        now["mutations.overflow"] = agreement.overflowed
        now["bytes_lost"] = self._memory.bytes_lost
        now["memory_shortened"] = agreement.memory_shortened
        now["repeats.late"] = agreement.forgotten_incomplete
        now["repeats.reencoded"] = self._memory.streamed + self._memory.comparison.unsure
        now.update(self._gaps.counted)
        for name, count in self._base.items():
            now[name] = now.get(name, 0) + count
        now["mutations.pending"] = agreement.pending
        return now


@lru_cache(maxsize=_NODES_KNOWN)
def _entries_of(node: str) -> Sequence[str]:
    """Return the names of the counters of a log's entries."""
    return [f"entries.{node}.{fate}" for fate in ("read", "damaged", *HOST_FATES)]


@lru_cache(maxsize=_NODES_KNOWN)
def _skips_of(node: str) -> Sequence[str]:
    """Return the names of the counters of skipped entries in a log."""
    return [f"skipped.{node}.{reason}" for reason in SKIP_REASONS]

"""One split of the Cassandra source: its agreement, its part of what the pump reads, its state."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from headrace.plugins import (
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
)
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.absence import Absence
from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.batch import MutationBatch, batch_class
from headrace.sources.cassandra.chunks import RecordChunks
from headrace.sources.cassandra.copies import Copy
from headrace.sources.cassandra.epochs import Epoch
from headrace.sources.cassandra.gaps import ASSUME, PASSED, GapBook, notice_of
from headrace.sources.cassandra.groups import Groups
from headrace.sources.cassandra.intake import SKIP_REASONS, Outbox
from headrace.sources.cassandra.lists import ROWS_MAX
from headrace.sources.cassandra.memory import Ages, Memory
from headrace.sources.cassandra.needs import COPIES_MAX
from headrace.sources.cassandra.parting import opened, without_keyspaces
from headrace.sources.cassandra.parts import Parts
from headrace.sources.cassandra.replicas import SplitVersions
from headrace.sources.cassandra.seats import SEATS_MAX
from headrace.sources.cassandra.splits import Arc
from headrace.sources.cassandra.state import CdcState, Marker, StoredVersion

_RELEASE_MS: Final = 10_000  # So much split time alone makes a look worth while at what may go.
_WAITED_MS: Final = 60_000  # So long a log could not be read before it is worth a commit.
_NEVER: Final = Absence(0, 0)
_LEAVE_MS: Final = 60_000  # Between two looks at who may leave.
_MS: Final = 1_000  # In a second.
_ALARM_MS: Final = 60_000  # Between two warnings of one kind.
_HOST_FATES: Final = ("first", "counted", "surplus", "repeat")
_BATCHES_EACH: Final = 32  # Between two looks at what pending copies need of the schema.


class CassandraReader(Reader):
    """One split: its agreement, and its part of what the pump reads."""

    def __init__(self, parts: Parts, number: int, resume: CdcState | None) -> None:
        """Restore the records of *resume* and begin to be fed."""
        self._parts = parts
        self._pump = parts.pump
        self._number = number
        self._split = parts.splits[number]
        self._seats = parts.replicas.seats(number, resume)
        self._agreement = Agreement(Groups(SEATS_MAX))
        self._base = self._opening(resume) if resume else {}
        self._chunks = RecordChunks(resume.chunks if resume else ())
        self._passes = self._pump.passes
        config = parts.config
        self._memory = Memory(
            self._agreement,
            self._seats,
            parts.copies,
            Ages(
                config.expiry_seconds * _MS,
                config.memory_seconds * _MS,
                config.complete_seconds * _MS,
            ),
            parts.split_records_max,
            publish_expired=config.expired == "publish",
            suppress_streamed=config.streamed == "suppress",
            epoch_of=self._epoch_of,
        )
        self._tau = resume.tau if resume else 0
        self._absences = resume.absences if resume else {}
        self._unread_since = partial(self._pump.unread_since, number)
        self._retire_ms = config.max_hint_window_seconds * _MS
        self._damage: Counter[str] = Counter()  # Places, by node.
        self._skips_before = list(self._pump.intake.skipped)
        self._announced = 0
        self._batches_made = 0
        self._owes_end = False
        self._short, self._alarm_ms = (0, 0), 0
        # Logs that are not read any more, till a state says so.
        self._left = set(resume.markers).difference(resume.hosts) if resume else set()
        self._left.intersection_update(config.nodes)
        self._left_ms = 0
        self._oldest: dict[str, Marker] = {}  # What pending copies and the unread need of each log.
        self._markers = dict(resume.markers) if resume else {}
        self._starts = dict(resume.starts) if resume else {}
        self._released: CdcState | None = None
        # First the schema: it may tell of keyspaces that pending records are of.
        self._gaps = GapBook(config.gaps, resume.met_gaps if resume else ())
        parts.know(resume)
        self._pump.own(number, self._agreement, resume, self._seats)
        stored = resume.topologies if resume else ()
        self._versions = SplitVersions(parts.replicas, number, stored, self._tau, self._seats)
        self._agreement.regroup(self._versions.groups)
        self._tables = parts.deliveries.names
        self._stored_tables = resume.tables if resume else self._tables
        if resume:
            self._restore(resume)
        self._pump.intake.judges[number] = self._memory.comparison
        self._reading: Sequence[str] = ()
        self._manifests = resume.manifests if resume else {}
        self._read_seated()

    def read(self, demand: Demand) -> Batch | Idle:
        """Let the pump read on if this split has nothing new, and take what agreed.

        Raises:
            LogGapError: an earlier batch told of a gap, and somebody must say what to do about it.

        """
        if self._gaps.stopped_by is not None:
            raise self._gaps.stopped_by
        pump = self._pump
        pump.check(self._number)
        if self._passes == pump.passes:
            self._parts.follow()
            if self._parts.lists is not None:
                demand = replace(demand, records_max=min(demand.records_max, ROWS_MAX))
            self._passes += 1  # Also of a pass that fails: the next call begins another.
            pump.run_pass(demand)
            self._parts.report()
        self._passes = pump.passes
        nodes = self._seats.names  # What was agreed is told by these.
        if self._versions.follow(self._agreement.tau, self._retire_ms, self._unread_since):
            self._agreement.regroup(self._versions.groups)
            self._memory.judge_again()
        self._read_seated()
        settled = self._leave_out()
        taken = pump.intake.take(self._number)
        caught_up = pump.is_caught_up(self._number)
        kept = self._memory.keep(
            taken, caught_up=caught_up, any_absent=bool(pump.absent(self._number))
        )
        lost = [*kept, *self._damaged()]
        self._alarm()
        outbox = self._parts.part.keep(taken)
        markers = pump.markers(self._number)
        notices = self._notices(markers)
        aged = demand.commit_due and self._agreement.tau > self._tau  # Line 32.
        moved = outbox.count > 0 or markers != self._markers
        absences = pump.absences(self._number)
        told = lost or notices or aged or settled or self._has_waited(absences)
        if not (moved or told or self._owes_end):
            pump.intake.give_back(outbox)
            return Idle(more=pump.more)
        self._markers, self._tau = markers, self._agreement.tau
        self._absences = absences
        # To make a state of it costs as much as a third of the reading.
        self._owes_end = moved and pump.more and not (demand.position_due or told)
        end = None if self._owes_end else self._state(markers)
        batch = self._batch(outbox, end, lost, notices, nodes)
        self._leave_logs()
        return batch

    def _read_seated(self) -> None:
        """Read the logs that have seats, and need what they hold; leave the others."""
        if self._reading == self._seats.names:
            return
        for node in self._seats.nodes:
            hold = None if node in self._reading else self._parts.hold_of(node)
            if hold is not None:
                # Also what waits: another split's release may come before the next commit (I5).
                pending = self._agreement.unpublished(self._seats.of(node), COPIES_MAX + 1)
                marker = self._markers.get(node, Marker(0, 0))
                hold.register(self._split, marker, pending, self._manifests.get(node, ()))
        self._pump.reseat(self._number)
        self._left.difference_update(self._seats.nodes)
        self._reading = self._seats.names

    def _leave_logs(self) -> None:
        """Free the seats of nodes that hold nothing of the split by now, nor did of its records."""
        tau = self._agreement.tau
        if tau < self._left_ms + _LEAVE_MS or not self._seats.idle:
            return
        self._left_ms, before = tau, self._seats.names
        counted = {node: self._counters_of(node) for node in self._seats.idle}
        seats = {node: self._seats.of(node) for node in counted}
        for node in self._seats.free(self._agreement.referenced()):
            for name, count in counted[node].items():
                self._base[name] = self._base.get(name, 0) + count
            first = seats[node] * len(_HOST_FATES)
            for fate in range(len(_HOST_FATES)):
                self._agreement.hosts[first + fate] = 0
            self._base["mutations.first"] = (
                self._base.get("mutations.first", 0) + counted[node][f"entries.{node}.first"]
            )
            del self._damage[node]
            self._left.add(node)
        if before != self._seats.names:
            self._assume()  # Its seat may be another's soon.
            self._read_seated()

    def _opening(self, resume: CdcState) -> dict[str, int]:
        """Return the books to go on with; of a job that parted from another, new ones (I3)."""
        if resume.job in {"", self._parts.context.job}:
            return dict(resume.counters)
        return opened(resume.counters)

    def _leave_out(self) -> bool:
        """Let what is pending of tables that the job has no more become filtered (line 22).

        Returns whether the state is now that of other tables.
        """
        stored, tables = self._stored_tables, self._tables
        if stored == tables:
            return False
        fewer = tables and not (stored and set(stored) <= set(tables))
        if not fewer or stored is None or self._memory.leave_out(self._is_wanted):
            self._stored_tables = tables
        return self._stored_tables == tables

    def _is_wanted(self, copy: Copy) -> bool:
        """Say whether a mutation has changes of a delivered table, or might have."""
        return self._parts.deliveries.has_delivered(self._epoch_of(copy).number, copy)

    def _has_waited(self, absences: Mapping[str, Absence]) -> bool:
        """Say whether it is worth a commit how long logs could not be read."""
        return any(
            each.unread_ms >= self._absences.get(node, _NEVER).unread_ms + _WAITED_MS
            for node, each in absences.items()
        )

    def _alarm(self) -> None:
        """Say now and then that there is not room for all that should be remembered (24, 25)."""
        agreement, context = self._agreement, self._parts.context
        short = agreement.memory_shortened, agreement.overflowed
        if short == self._short or (now_ms := context.clock.monotonic_ms()) < self._alarm_ms:
            return
        self._short, self._alarm_ms = short, now_ms + _ALARM_MS
        context.log.warning(
            "memory_short",
            split=self._split,
            forgotten=short[0],
            set_aside=short[1],
            pending=agreement.pending,
            hint="a node is down or behind: copies that come later count as new; "
            "a larger records_max remembers more",
        )

    def _notices(self, markers: Mapping[str, Marker]) -> Sequence[Notice]:
        """Book the gaps met, as the policy says, and return what consumers are told (I10)."""
        found = self._pump.take_gaps(self._number)
        if not (found or self._gaps.gaps):
            return ()
        changed = self._gaps.meet(
            found,
            markers,
            tau=self._agreement.tau,
            wall_ms=self._parts.context.clock.wall_ms(),
        )
        if changed:
            self._assume()
        tables = [table.qualified for table in self._parts.tables]
        return [notice_of(gap, self._split, tables) for gap in changed]

    def _assume(self) -> None:
        """Count hosts for what the parts of their logs that are gone could have held (line 21)."""
        expiry_ms = self._parts.config.expiry_seconds * _MS
        self._agreement.assume(
            [
                (self._seats.of(gap.node), gap.tau + expiry_ms, *arc)
                for gap in self._gaps.gaps
                if (gap.policy, gap.state) == (ASSUME, PASSED) and gap.node in self._seats.nodes
                for arc in gap.arcs or (Arc(),)
            ]
        )
        self._memory.judge_again()

    def release(self, position: Position) -> None:
        """Let go of what *position* stored, and of segments that no copy in it lies in (I5)."""
        assert isinstance(position, CdcState)  # noqa: S101 (we made it)
        self._chunks.stored(position.chunks)
        if self._only_aged(position):
            return
        for node in self._left.difference(position.hosts):
            self._left.discard(node)
            if (hold := self._parts.hold_of(node)) is not None:
                hold.withdraw([self._split])
        for node in self._seats.nodes:
            # Of what is not there nothing can be disposed of.
            gone = node in self._pump.unreachable or node not in position.hosts
            hold = None if gone else self._parts.hold_of(node)
            if hold is None:
                continue
            marker = position.markers.get(node, Marker(0, 0))
            pending = position.needs.get(node)
            if pending is None:  # We dispose of nothing; other jobs must not either.
                pending = self._agreement.unpublished(self._seats.of(node), COPIES_MAX + 1)
            hold.register(self._split, marker, pending, position.manifests.get(node, ()))
            hold.dispose()
        self._released = position

    def _only_aged(self, position: CdcState) -> bool:
        """Say whether hardly more than time has passed since segments were released last."""
        last = self._released
        if last is None or position.tau >= last.tau + _RELEASE_MS:
            return False
        return (position.markers, position.needs) == (last.markers, last.needs)

    def close(self, reason: CloseReason) -> None:
        """Stop being fed; what was not delivered is read again by the next owner."""
        del reason
        self._pump.disown(self._number)
        self._parts.replicas.forget(self._number)

    def _restore(self, resume: CdcState) -> None:
        nodes = self._parts.config.nodes
        missing = self._versions.needed() & set(resume.hosts) - set(nodes)
        if missing:
            said = f"lacks {', '.join(sorted(missing))}, whose copies still count"
            hint = "a node that left the ring is read for max_hint_window_seconds of split time"
            raise ConfigError([Problem("nodes", said, hint)])
        wanted = self._parts.keyspaces_of(resume.keyspaces)
        host_map = [
            number if node in nodes or not node else codes.HOST_GONE
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
            self._agreement.touch(0, 1)  # All is stored anew, by the numbers of now.
            self._chunks = RecordChunks(())
        self._agreement.tau = resume.tau
        self._agreement.number = max(self._agreement.number, resume.number)
        self._assume()

    def _batch(
        self,
        outbox: Outbox,
        end: CdcState | None,
        lost: Sequence[Quarantined],
        notices: Sequence[Notice],
        nodes: Sequence[str],
    ) -> MutationBatch:
        parts = self._parts
        return batch_class(outbox)(
            self._split,
            end,
            outbox,
            intake=self._pump.intake,
            more=self._pump.more,
            nodes=nodes,
            deliveries=parts.deliveries,
            transcoder=parts.transcoder,
            announced=self._announce(),
            lost=lost,
            notices=notices,
            lists=parts.lists,
        )

    def _epoch_of(self, copy: Copy) -> Epoch:
        tables = self._pump.tables_of(self._seats.names[copy.host])
        return tables.epoch_at(Marker(copy.segment, copy.position))

    def _announce(self) -> Sequence[RecordSchema]:
        """Return the schemas that records have been made of since this split's last batch."""
        schemas = self._parts.deliveries.schemas
        announced, self._announced = schemas[self._announced :], len(schemas)
        return announced

    def _schemas(self, markers: Mapping[str, Marker]) -> dict[str, tuple[StoredVersion, ...]]:
        """Return the versions of the schema that pending mutations and what is unread are of."""
        # Looking at all records costs; what was needed some batches ago is never too little.
        if self._batches_made % _BATCHES_EACH == 0:
            for node in self._seats.nodes:
                pending = self._agreement.unpublished(self._seats.of(node), 1)
                oldest = Marker(min(pending), 0) if pending else markers[node]
                self._oldest[node] = min(oldest, markers[node])
        self._batches_made += 1
        needed = {
            node: self._oldest[node]
            for node in self._seats.nodes
            if node in self._oldest and self._pump.tables_of(node).has_history
        }
        return self._pump.schemas(self._number, needed)

    def _state(self, markers: Mapping[str, Marker]) -> CdcState:
        """Return S_k: everything up to here and nothing later (line 27)."""
        agreement = self._agreement
        needs = {}
        if self._parts.config.disposal != "keep":
            needs = {
                node: agreement.unpublished(self._seats.of(node), COPIES_MAX + 1)
                for node in self._seats.nodes
            }
        chunks = self._chunks.take(agreement)
        return CdcState(
            tau=agreement.tau,
            number=agreement.number,
            hosts=self._seats.names,
            keyspaces=tuple(self._parts.replicas.keyspaces),
            markers=dict(markers),
            counters=self._counters(),
            chunks=chunks,
            needs=needs,
            schemas=self._schemas(markers),
            met_gaps=self._gaps.gaps,
            unread=self._pump.unread(self._number),
            starts=self._starts,
            job=self._parts.context.job,
            tables=self._stored_tables,
            topologies=self._versions.stored(),
            ahead=self._pump.ahead(self._number),
            manifests={node: self._parts.logs[node].manifest.stored() for node in markers},
            absences=self._pump.absences(self._number),
            size_bytes=self._chunks.fresh_bytes,
        )

    def _damaged(self) -> Sequence[Quarantined]:
        """Count the damage that this split books, and return its bytes (I3, I8)."""
        items: list[Quarantined] = []
        for lost in self._pump.take_lost(self._number):
            self._damage[lost.node] += 1
            items.append(lost.item)
        return items

    def _counters_of(self, node: str) -> dict[str, int]:
        """Return what was counted of a log since it has its seat."""
        read = self._pump.intake.read_of(self._number, self._pump.hosts[node])
        damaged = self._damage[node]
        now = {f"entries.{node}.read": read + damaged, f"entries.{node}.damaged": damaged}
        first = self._seats.of(node) * len(_HOST_FATES)
        for i, fate in enumerate(_HOST_FATES):
            now[f"entries.{node}.{fate}"] = self._agreement.hosts[first + i]
        return now

    def _counters(self) -> dict[str, int]:
        """Return the books as of now: what was restored, and what was counted since (I3)."""
        agreement = self._agreement
        now: dict[str, int] = {}
        for node in self._seats.nodes:
            now |= self._counters_of(node)
        for node in self._pump.books_of(self._number):
            for i, reason in enumerate(SKIP_REASONS):
                at = self._pump.hosts[node] * len(SKIP_REASONS) + i
                skipped = self._pump.intake.skipped[at] - self._skips_before[at]
                now[f"skipped.{node}.{reason}"] = skipped
        now["mutations.first"] = sum(agreement.hosts[:: len(_HOST_FATES)])
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
        counters = dict(self._base)
        for name, count in now.items():
            counters[name] = counters.get(name, 0) + count
        counters["mutations.pending"] = agreement.pending
        return counters

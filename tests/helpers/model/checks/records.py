"""Checks the records in a state by those before it: lines 8 to 25 of docs/agreement.md."""

from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import ClassVar, Final

from headrace.sources.cassandra.commitlog.framer import digest
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.model.checks.lines import PUBLISHED, Digest, Known, Line, rows_of
from helpers.model.logs import Copy, Mutation, NodeLog, raw
from helpers.model.ring import Ring, Version

EXPIRY_S: Final = 120
MEMORY_S: Final = 100
COMPLETE_S: Final = 40
COMPARED_MS: Final = 30_000  # Line 19.
_SWEEP_MS: Final = 1_000
FETCHED_MS: Final = 10_000  # Line 8.


class BrokenError(AssertionError):
    """The job broke a rule."""


class RecordChecks:
    """Finds what is wrong with a state's records.

    `heeds` and `error` are for tests of the checks themselves: how the messages start that may be
    raised, and as what.
    `suppressed` are the contents that were dropped because only streams brought them.
    """

    heeds: ClassVar[str] = ""
    error: ClassVar[type[BaseException]] = BrokenError

    def __init__(self, ring: Ring, job_key: bytes, *, suppresses: bool) -> None:
        """*suppresses* is whether contents that only streams bring are dropped."""
        self.ring = ring
        self.wrong: list[str] = []
        self.suppressed: set[frozenset[int]] = set()
        self._suppresses = suppresses
        self._job_key = job_key
        self._digests: dict[Digest, Mutation] = {}
        self._names: dict[Mutation, Digest] = {}
        self._chunks: dict[tuple[str, tuple[str, ...]], list[tuple[Digest, Known]]] = {}

    def check(self, right: object, what: str) -> None:
        """Add the problem *what* unless the condition holds."""
        if not right:
            self.complain(what)

    def complain(self, what: str) -> None:
        """Remember a problem."""
        if what.startswith(self.heeds):
            self.wrong.append(what)

    def check_records(self, line: Line) -> None:
        """Check all records of a new state, and those that it no longer has."""
        lost = self.gone()
        assert line.parent is not None
        before = line.parent.records
        has_room = not (line.gave_way or line.forgot_early)
        for name, record in line.records.items():
            mutation = self.mutation(name)
            covered = line.covered[mutation.content]
            self.check(record.seen <= covered, f"I1: {mutation}: later copies are in the state")
            is_new = name not in before or before[name].kind != record.kind
            if record.kind == constants.PENDING:
                stays = self._meets(record.seen, mutation, _sure(line))
                waits = self._lacks_bytes(
                    line, mutation, record, lost
                ) or self._waits_to_be_compared(line, mutation, record.seen)
                self.check(not stays or waits, f"line 17: {mutation} waits for nothing")
            elif record.kind == constants.EXPIRED_DROPPED:
                self._check_expired(line, record, mutation, is_new=is_new)
            elif record.kind == constants.CONTENT_KNOWN and is_new and has_room:
                self._check_known(line, mutation, record.seen)
        gone = {name: record for name, record in before.items() if name not in line.records}
        self._check_overflow(line, gone)
        for name, record in gone.items():
            if record.kind != constants.PENDING and has_room:
                self._check_dropped(line, name, record)
        for mutation in line.came if has_room else ():
            self.check(self.name(mutation) in line.records, f"I1: {mutation} left no trace")

    def _lacks_bytes(
        self, line: Line, mutation: Mutation, record: Known, lost: set[tuple[str, int]]
    ) -> bool:
        """Return whether bytes could not be read: of a record that agreed, or of its repeat.

        After a log has returned the next sweep tries again.
        """
        late = takewhile(lambda x: line.split_time_ms - x.split_time_ms <= _SWEEP_MS, line.back())
        unreadable = {node for x in late for y in (x, x.parent) if y for node in y.unread}
        if all(place in lost or place[0] in unreadable for place in record.places):
            return True
        beside = (x for n, x in line.records.items() if self.mutation(n).key == mutation.key)
        return any(
            node in unreadable for x in beside if x.kind in PUBLISHED for node, _ in x.places
        )

    def _meets(self, hosts: frozenset[str], mutation: Mutation, versions: set[Version]) -> bool:
        return any(version.is_met(mutation.key, hosts) for version in versions)

    def _check_expired(
        self, line: Line, record: Known, mutation: Mutation, *, is_new: bool
    ) -> None:
        if is_new or mutation in line.came:
            meets = self._meets(record.seen, mutation, _sure(line))
            self.check(not meets, f"line 16: {mutation} is not late")
        if is_new:
            self._check_expiry(line, mutation)

    def _check_expiry(self, line: Line, mutation: Mutation) -> None:
        for node, log in self.ring.nodes.items():
            if node in line.gone_without:
                continue
            for copy in log.copies:
                if copy.mutation == mutation and not line.covers(node, copy) and copy.counts:
                    unread = (copy.durable_ms or 0) < line.made_ms - FETCHED_MS
                    self.check(not unread, f"line 20: {mutation} expired, a copy lies unread")

    # ---- other bytes (lines 17, 19) ----

    def _check_known(self, line: Line, mutation: Mutation, seen: frozenset[str]) -> None:
        """Check that it was published before, or that only unwanted streams brought it."""
        now = (n for n, record in line.records.items() if record.kind in PUBLISHED)
        published = {row for name in now for row in self.mutation(name).rows}
        if mutation.content <= line.rows() | published:
            return
        copies = self._copies_before(line, mutation)
        streamed = all(log.may_be_streamed(copy) for log, copy in copies if log.name in seen)
        self.check(
            self._suppresses and streamed, f"line 19: {mutation} is left out, nobody published it"
        )
        self.suppressed.add(mutation.content)

    def check_streamed(self, line: Line) -> None:
        """Line 17: what only streams brought is emitted when the logs were read, or waited for.

        An unread write may have the same content in other bytes, and would be emitted again.
        """
        for mutation in line.said:
            copies = self._copies_before(line, mutation)
            if not all(log.is_streamed(copy) for log, copy in copies):
                continue
            waited_ms = line.split_time_ms - self._born(line, mutation)
            unread = self._unread(line, mutation) if waited_ms < COMPARED_MS else None
            self.check(
                unread is None, f"line 17: {mutation} of a stream went out, {unread} is unread"
            )

    def _unread(self, line: Line, mutation: Mutation) -> Copy | None:
        """Return a copy of a part of a mutation's content that should have been read by now."""
        until_ms = line.made_ms - FETCHED_MS
        return next(
            (
                copy
                for node, log in self.ring.nodes.items()
                for copy in log.copies
                if copy.mutation.content & mutation.content
                and copy.counts
                and (copy.durable_ms or 0) < until_ms
                and not line.covers(node, copy)
            ),
            None,
        )

    def _waits_to_be_compared(self, line: Line, mutation: Mutation, seen: frozenset[str]) -> bool:
        """Return whether a record that agreed may wait, because all its copies may be a stream's.

        Others may be in a part that a log lost before it was read.
        """
        copies = self._copies_before(line, mutation)
        streamed = all(log.may_be_streamed(copy) for log, copy in copies if log.name in seen)
        return streamed and line.split_time_ms - self._born(line, mutation) < 2 * COMPARED_MS

    def _copies_before(self, line: Line, mutation: Mutation) -> list[tuple[NodeLog, Copy]]:
        """Return the copies of a mutation's bytes before the markers, and their logs."""
        return [
            (log, copy)
            for node, log in self.ring.nodes.items()
            for copy in log.copies
            if copy.mutation == mutation and not copy.damaged and line.covers(node, copy)
        ]

    def _born(self, line: Line, mutation: Mutation) -> int:
        """Return the split time before which a remembered mutation did not arrive."""
        name = self.name(mutation)
        has_it = [(x, s) for x, s in line.past(mutation.key) if name in x.records]
        first, shift = has_it[-1] if has_it else (line, 0)
        return (first.parent.split_time_ms if first.parent else 0) + shift

    # ---- what is dropped (lines 22, 23) ----

    def _check_overflow(self, line: Line, gone: Mapping[Digest, Known]) -> None:
        """Line 25: a pending record is dropped only where there was no room, and is counted.

        It may have been published first, and then dropped early.
        """
        forgotten = [self.mutation(name) for name in gone if gone[name].kind == constants.PENDING]
        for mutation in forgotten[line.gave_way + line.forgot_early :]:
            self.complain(f"line 22: {mutation} was pending and is forgotten")
        if line.gave_way:
            came = [mutation for mutation in line.came if self.name(mutation) not in line.records]
            line.set_aside = {mutation.content for mutation in (*forgotten, *came)}

    def _check_dropped(self, line: Line, name: Digest, record: Known) -> None:
        """Check by times of the states before, which are never too late.

        While it is not certain that a ring counts, what it makes complete is not certain either.
        """
        mutation = self.mutation(name)
        before = list(line.past(mutation.key))[1:]
        ages: list[tuple[int, int]] = []  # Its age, and its required age, in ms.
        if record.kind != constants.EXPIRED_DROPPED and record.seen >= _expected(
            mutation, _sure(line)
        ):
            came = [
                x.parent.split_time_ms + s for x, s in before if x.parent and mutation in x.came
            ]
            ages.append((line.split_time_ms - max(came), 1_000 * COMPLETE_S))
        if not ages or not record.seen >= _expected(mutation, line.possible_versions()):
            same = takewhile(
                lambda x: name in x[0].records and x[0].records[name].kind == record.kind, before
            )
            first, shift = list(same)[-1]
            since = (first.parent.split_time_ms if first.parent else 0) + shift
            ages.append((line.split_time_ms - since, 1_000 * MEMORY_S))
        is_old = any(age_ms >= kept_ms for age_ms, kept_ms in ages)
        self.check(is_old, f"line 23: {mutation} is forgotten after {ages[0][0]} ms")

    def remembered(self, line: Line) -> set[int]:
        """Return the rows that were published and are remembered, with bytes in a log."""
        gone = self.gone()
        return {
            row
            for name, record in (line.parent.records.items() if line.parent else ())
            if record.kind in PUBLISHED and not record.places & gone
            if name in line.records and line.records[name].number == record.number
            for row in self.mutation(name).rows
        }

    def gone(self) -> set[tuple[str, int]]:
        """Return the segments that no longer exist."""
        return {(node, n) for node, log in self.ring.nodes.items() for n in log.gone()}

    # ---- names ----

    def name(self, mutation: Mutation) -> Digest:
        """Return the digest of a mutation."""
        if mutation in self._names:
            return self._names[mutation]
        hashed = digest(raw(mutation), self._job_key)
        self._names[mutation] = name = (
            int.from_bytes(hashed[:8], "little"),
            int.from_bytes(hashed[8:], "little"),
        )
        self._digests[name] = mutation
        return name

    def mutation(self, name: Digest) -> Mutation:
        """Return the mutation that has a digest."""
        if name not in self._digests:
            for log in self.ring.nodes.values():
                for copy in log.copies:
                    self.name(copy.mutation)
        return self._digests[name]

    def records_in(self, state: CdcState) -> dict[Digest, Known]:
        """Return the records of a state."""
        found: dict[Digest, Known] = {}
        for chunk in state.chunks:
            key = chunk.name, state.hosts
            if key not in self._chunks:
                self._chunks[key] = list(rows_of(chunk.rows, state.hosts))
            for name, known in self._chunks[key]:
                found.pop(name, None)
                if known.kind != constants.FREE:
                    found[name] = known
        return found


def _sure(line: Line) -> set[Version]:
    """Return the rings that counted during the whole path to a state."""
    before = line.parent.sure_versions() if line.parent else set()
    return line.sure_versions() & before


def _expected(mutation: Mutation, versions: Collection[Version]) -> set[str]:
    """Return the nodes that may log a mutation (line 4)."""
    return {node for version in versions for node in version.replicas(mutation.key)}

"""Checks two jobs of the same logs by what each table must get: I1 to I3, I5 to I7, lines 33 to 36.

Nothing of the code under test is used but for decoding states. A table must get a row when enough
nodes have logged its mutation before the markers of the table's job.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from headrace.connector.runtime.books.equations import SplitBooks, differences
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from headrace.sources.cassandra.state.cdc_state import CdcState
from helpers.model.checks.lines import NOWHERE, At, Digest, Known, rows_of
from helpers.model.checks.records import BrokenError
from helpers.model.logs import END, Copy, Mutation, NodeLog
from helpers.model.ring import part_of, place_of

LEVELS: Final = {"ONE": 1, "QUORUM": 2, "ALL": 3}
Row = tuple[str, int]  # A table, and the row's number.
States = Mapping[str, CdcState | None]  # By split.


class TablesChecks:
    """Gets every event, and remembers what was wrong, for `verify` to raise."""

    heeds: ClassVar[str] = ""
    error: ClassVar[type[BaseException]] = BrokenError

    def __init__(self, logs: Mapping[str, NodeLog], level: str) -> None:
        """Start before the first event."""
        self._logs = logs
        self._needed = LEVELS[level]
        self.wrong: list[str] = []
        self.tables: dict[tuple[str, str], tuple[str, ...]] = {}
        """Those of a job when it last committed the state of a split."""
        self._said: Counter[Row] = Counter()
        self._ever: set[Row] = set()
        # Of states from before a table was restarted: what was not certain then.
        self._old: dict[tuple[str, str], Mapping[str, set[Mutation]]] = {}
        self._excused: Counter[Row] = Counter()  # They were published before a commit that failed.
        # Of a table that restarts with the remaining logs: mutations with possible other copies.
        self._unsure: dict[str, set[Mutation]] = {}
        self._gone: dict[str, set[int]] = {name: set() for name in logs}

    def check(self, right: object, what: str) -> None:
        """Add the problem *what* unless the condition holds."""
        if not right and what.startswith(self.heeds):
            self.wrong.append(what)

    def committed(self, job: str, split: str, tables: tuple[str, ...]) -> None:
        """Add a commit of a job with these tables."""
        self.tables[job, split] = tables
        self._old.pop((job, split), None)

    def restart(self, table: str) -> None:
        """Expect all of a table that is in the logs now, but nothing of earlier commits."""
        self._old = {at: self._old.get(at, dict(self._unsure)) for at in self.tables}
        for row in [row for row in self._said if row[0] == table]:
            del self._said[row], self._excused[row]
        self._unsure[table] = {
            copy.mutation
            for log in self._logs.values()
            for copy in log.copies
            if copy.segment in log.gone()
        }

    def fork(self, base: str, fork: str) -> None:
        """Take over what *base* committed; what *fork* committed before is gone."""
        old = {at: unsure for at, unsure in self._old.items() if at[0] != fork}
        self._old = old | {(fork, at[1]): unsure for at, unsure in old.items() if at[0] == base}
        self.tables = {at: tables for at, tables in self.tables.items() if at[0] != fork}
        self.tables |= {
            (fork, s): tables for (job, s), tables in self.tables.items() if job == base
        }

    def come_back(self, table: str) -> None:
        """Expect nothing of *table* that is in the logs now: some was emitted, some is lost."""
        self._unsure[table] = {copy.mutation for log in self._logs.values() for copy in log.copies}
        for mutation in self._unsure[table]:
            for row in mutation.rows:
                self._excused[table, row] += 1

    def published(
        self, tables: Collection[str], reported: Sequence[Mapping[str, Any]], *, again: bool
    ) -> None:
        """Add what a job of *tables* published; *again* is whether it may be published again."""
        for change in reported:
            row = change["table"], change["clustering"]["c"]
            place = change["node"], change["segment"], change["position"]
            self.check(row[0] in tables, f"line 33: {row} is of another job's table")
            mutation = self._at(*place)
            is_there = (
                mutation is not None and row[0] in mutation.tables and row[1] in mutation.rows
            )
            self.check(is_there, f"I6: {row} comes from {place}, where nothing durable says so")
            if mutation is not None:
                hosts = self._hosts(mutation)
                self.check(len(hosts) >= self._needed, f"line 3: {row}, but only {hosts} logged it")
            self._said[row] += 1
            self._ever.add(row)
            often = self._said[row] <= 1 + self._excused[row]
            self.check(often, f"line 36: {row} was said before")
            self._excused[row] += again

    def _at(self, node: str, segment: int, end: int) -> Mutation | None:
        there = (copy for copy in self._logs[node].copies if copy.durable_ms is not None)
        return next((c.mutation for c in there if (c.segment, c.end) == (segment, end)), None)

    def _hosts(self, mutation: Mutation) -> set[str]:
        return {node for node, copy in self._copies() if copy.mutation == mutation}

    def _copies(self) -> Iterator[tuple[str, Copy]]:
        for node, log in self._logs.items():
            yield from ((node, copy) for copy in log.copies if copy.durable_ms is not None)

    # ---- states ----

    def verify(self, jobs: Mapping[str, States]) -> None:
        """Check the states of *jobs*, and raise what was found to be wrong."""
        self.check_release(self.gone(), jobs)
        for job, states in jobs.items():
            for split, state in states.items():
                if state is not None:
                    self._check_state(job, split, state)
        if self.wrong:
            raise self.error(self.wrong[0])

    def _check_state(self, job: str, split: str, state: CdcState) -> None:
        """I1: what is before the markers was emitted, or is a record; I3: the books count it."""
        name, tables = f"{job} {split}", self.tables.get((job, split), ())
        said = self._ever if (job, split) in self._old else self._said.keys()
        part, markers = part_of(split), markers_of(state)
        hosts: dict[Mutation, set[str]] = {}
        for node, copy in self._copies():
            mutation = copy.mutation
            is_mine = part.has(place_of(mutation.key)) and {*tables} & {*mutation.tables}
            if is_mine and (copy.segment, copy.end) <= markers.get(node, NOWHERE):
                hosts.setdefault(mutation, set()).add(node)
        doubts = self._old.get((job, split), self._unsure)
        waiting = unsure = 0
        for mutation, seen in hosts.items():
            mine = [table for table in mutation.tables if table in tables]
            if any(mutation in doubts.get(table, ()) for table in mine):
                unsure += 1
            elif len(seen) < self._needed:
                waiting += 1
            else:
                missing = [(t, n) for t in mine for n in mutation.rows if (t, n) not in said]
                self.check(not missing, f"I1: {name} is past {missing}, and nobody said it")
        records = known(state).values()
        pending = sum(record.kind == constants.PENDING for record in records)
        fits = waiting <= pending <= waiting + unsure
        self.check(fits, f"I1: {name} has {pending} that wait, not {waiting} and {unsure} at most")
        self.check(pending == state.books().get("mutations.pending", 0), f"I3: pending of {name}")
        reported = differences(SplitBooks(split, state.books(), {}, BOOKKEEPING))
        self.check(not reported, f"I3: {name}: {reported}")

    def gone(self) -> Sequence[tuple[str, int]]:
        """Return the segments that vanished since the last call."""
        gone = [
            (node, n) for node, log in self._logs.items() for n in log.released() - self._gone[node]
        ]
        for node, segment in gone:
            self._gone[node].add(segment)
        return gone

    def check_release(self, gone: Sequence[tuple[str, int]], jobs: Mapping[str, States]) -> None:
        """I5: a segment that vanished had been read by all jobs."""
        for node, segment in gone:
            for job, states in jobs.items():
                for split, state in states.items():
                    at = NOWHERE if state is None else markers_of(state).get(node, NOWHERE)
                    past = at >= (segment, END)
                    self.check(
                        past, f"I5: {node}'s segment {segment} went, {job} {split} does not have it"
                    )

    # ---- the end (line 35) ----

    def check_end(self) -> None:
        """Check that all that agreed was emitted for each table."""
        for mutation in {copy.mutation for _, copy in self._copies()}:
            for table in mutation.tables:
                if mutation in self._unsure.get(table, ()):
                    continue
                if len(self._hosts(mutation)) >= self._needed:
                    missing = [n for n in mutation.rows if not self._said[table, n]]
                    self.check(not missing, f"line 35: rows {missing} of {table} are lost")
        if self.wrong:
            raise self.error(self.wrong[0])


def markers_of(state: CdcState) -> Mapping[str, At]:
    """Return how far a state has read each log."""
    return {node: (marker.segment_id, marker.offset) for node, marker in state.markers.items()}


def known(state: CdcState) -> Mapping[Digest, Known]:
    """Return the records of a state."""
    found: dict[Digest, Known] = {}
    for chunk in state.chunks:
        for name, record in rows_of(chunk.rows, state.hosts):
            found.pop(name, None)
            if record.kind != constants.FREE:
                found[name] = record
    return found

"""Makes jobs one again that parted, and a job that began elsewhere one with the job it is beside.

Both stop; what lies between where they stand is read by each, up to the same place; then their
states become one in a single transaction. Whatever fails before that leaves two jobs as they were.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import structlog

from headrace.connector.control.offsets import Offsets
from headrace.connector.control.status import live_workers
from headrace.connector.job import Job
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.processes import is_dead, this_process
from headrace.connector.runtime.report import Outcome, Report
from headrace.connector.stores import SplitState, add_counters
from headrace.connector.stores.board import FORK_MARK
from headrace.connector.stores.joins import Joins, Pair
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins import Context, HeadraceError, Position, Source

RunUntil = Callable[[str, Position], Report]


class Joining:
    """Looks after the joins of one job, on the thread of its host."""

    def __init__(
        self,
        state: Path,
        job: str,
        *,
        read: Callable[[str], Job],
        run_until: RunUntil,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """*read* reads a job of a name; *run_until* runs it up to a place."""
        self._state = state
        self._job = job
        self._read = read
        self._run_until = run_until
        self._log = log
        self._worker = this_process()

    def is_due(self, source: type[Source]) -> bool:
        """Say whether the job should stop to become one with another; ask for it, if it is time.

        Any thread may call it.
        """
        with contextlib.closing(connect(self._state)) as connection:
            joins = Joins(connection)
            pair = joins.pair(self._job)
            if pair is None:
                return False
            if not joins.is_asked(pair) and _target(connection, pair, source) is not None:
                joins.ask(pair)
            return joins.is_asked(pair)

    def must_wait(self, source: type[Source]) -> bool:
        """Make the job one with another if it is time; say whether others are still at it."""
        if not self.is_due(source):
            return False
        with contextlib.closing(connect(self._state)) as connection:
            joins = Joins(connection)
            pair = joins.pair(self._job)
            if pair is None:
                return False
            with self._enrolled(connection, pair) as others:
                if not joins.claim(pair, self._worker.worker, others=others):
                    return True
                self._try(connection, joins, pair, source)
        return False

    @contextlib.contextmanager
    def _enrolled(
        self, connection: sqlite3.Connection, pair: Pair
    ) -> Iterator[Callable[[], set[str]]]:
        """Let others see that this process lives; give what tells the workers beside it."""
        place = f"{pair.fork}{FORK_MARK}"  # Of neither job: there it would get splits.
        mine = self._worker.worker
        stores = [SqliteStore(connection, job) for job in (*pair, place)]

        def others() -> set[str]:
            return {w for store in stores for w in live_workers(store, is_dead)} - {mine}

        stores[-1].enroll(self._worker)
        try:
            yield others
        finally:
            stores[-1].dismiss(mine)

    def _try(
        self, connection: sqlite3.Connection, joins: Joins, pair: Pair, source: type[Source]
    ) -> None:
        target = _target(connection, pair, source)
        try:
            united = target is not None and self._unite(connection, pair, target, source)
        except HeadraceError as error:  # Each job will meet it again, and say so.
            self._log.warning("join_failed", job=pair.base, source=pair.fork, error=str(error))
            united = False
        if not united:
            joins.give_up(pair)

    def _unite(
        self, connection: sqlite3.Connection, pair: Pair, target: Position, source: type[Source]
    ) -> bool:
        for job in (pair.base, pair.fork):
            report = self._run_until(job, target)
            if report.failures or report.outcome is not Outcome.ENDED:
                return False
        states = {job: _states(connection, job) for job in pair}
        made = {}
        for split, mine in states[pair.base].items():
            other = states[pair.fork][split]
            both = _position(mine, source).joined(_position(other, source))
            if both is None:
                self._log.info("join_postponed", job=pair.base, source=pair.fork, split=split)
                return False
            made[split] = both.encode(), add_counters(mine.counters, other.counters)
        Joins(connection).unite(pair, made)
        self._retire(pair.fork)
        self._log.info("joined", job=pair.base, source=pair.fork)
        return True

    def _retire(self, name: str) -> None:
        """Let the source forget the job that is no more."""
        job = self._read(self._job)
        store = SqliteStore.open(job.state, job.name)
        context = Context(job=name, clock=SystemClock(), job_key=store.job_key(), log=self._log)
        store.close()
        source: Source = job.source(job.source_config, context)
        source.retire()
        source.close()


def _target(connection: sqlite3.Connection, pair: Pair, source: type[Source]) -> Position | None:
    """Return the place at which the two can meet; None when it is far, or one has not begun."""
    states = [_states(connection, job) for job in pair]
    if not states[0] or states[0].keys() != states[1].keys():
        return None
    each = [state for of in states for state in of.values()]
    if any(state.position is None for state in each):
        return None
    target: Position | None = _position(each[0], source)
    for state in each[1:]:
        target = target and target.meeting(_position(state, source))
    return target


def _position(state: SplitState, source: type[Source]) -> Position:
    assert state.position is not None  # noqa: S101 (looked at before)
    return source.decode_position(state.position)


def _states(connection: sqlite3.Connection, job: str) -> Mapping[str, SplitState]:
    found: Sequence[SplitState] = Offsets(connection).states(job)
    return {state.split: state for state in found}

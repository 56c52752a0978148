"""Makes jobs one again that parted, and a job that began elsewhere one with the job it is beside.

Both stop; what lies between where they stand is read by each, up to the same place. Then both are
frozen, so that nobody changes what they have; one write among the notes decides that they are one;
and what both have becomes what the one has. Until it is decided whoever comes next lets both go
on as they were, and from then on he completes it: the process may die at any step.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.control.offsets import Offsets
from headrace.connector.control.status import live_workers
from headrace.connector.job import Job
from headrace.connector.notes import open_notes
from headrace.connector.runtime import crash
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.making import made_source
from headrace.connector.runtime.processes import is_dead, this_process
from headrace.connector.runtime.report import Outcome, Report
from headrace.connector.stores import (
    Counters,
    Owner,
    SplitState,
    StoreUnavailableError,
    add_counters,
)
from headrace.connector.stores.board import FORK_MARK
from headrace.connector.stores.joins import Joins, Pair
from headrace.connector.stores.notes import job_store
from headrace.plugins import (
    Context,
    EncodedPosition,
    HeadraceError,
    LeaseLostError,
    Position,
    Source,
)

BEAT_SECONDS: Final = 3.0
LEASE_MS: Final = 10_000  # Of what is frozen and thawed, which takes moments.
LOOKS_PART_MAX: Final = 0.1  # Of the time goes into looking at what others do.

RunUntil = Callable[[str, Position], Report]
Tokens = Mapping[str, Mapping[str, int]]


class Joining:
    """Looks after the joins of one job, on the thread of its host. Close it there."""

    def __init__(
        self,
        state: Path,
        job: str,
        *,
        read: Callable[[str], Job],
        run_until: RunUntil,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """*state* has the notes; *read* reads a job; *run_until* runs one up to a place."""
        self._state = state
        self._job = job
        self._read = read
        self._run_until = run_until
        self._log = log
        self._opened: sqlite3.Connection | None = None
        self._next_look = 0.0
        self._next_try = 0.0
        self._mine: set[str] = set()  # The identities of all tries.

    def close(self) -> None:
        """Give back the notes."""
        if self._opened is not None:
            self._opened.close()

    def is_due(self, source: type[Source]) -> bool:
        """Say whether the job should stop to become one with another; ask for it, if it is time."""
        pair = Joins(self._notes).pair(self._job)
        return pair is not None and self._is_asked(pair, source)

    def must_wait(self) -> bool:
        """Make the job one with another if it is time; say whether somebody is still at it."""
        began = time.monotonic()
        if began < self._next_try:
            return True
        pair = Joins(self._notes).pair(self._job)
        if pair is None:
            return False
        source = self._read(pair.base).source
        with contextlib.suppress(StoreUnavailableError):  # Who asks at the same time may be at it.
            if not self._is_asked(pair, source) or self._is_tried(pair, source):
                return False
        ended = time.monotonic()
        self._next_try = ended + (ended - began) / LOOKS_PART_MAX
        return True

    def _is_asked(self, pair: Pair, source: type[Source]) -> bool:
        """Say whether both are to stop; ask for it, if they are close."""
        joins = Joins(self._notes)
        if not joins.is_asked(pair) and self._are_close(pair, source):
            joins.ask(pair)
        return joins.is_asked(pair)

    @property
    def _notes(self) -> sqlite3.Connection:
        if self._opened is None:  # Kept: to open them is to read all of them.
            self._opened = open_notes(self._state)
        return self._opened

    def _is_tried(self, pair: Pair, source: type[Source]) -> bool:
        """Make the two one, or let both go on; False if somebody else is at it, or it failed."""
        with self._alive(pair) as (me, others):
            try:
                if not Joins(self._notes).claim(pair, me.worker, others=others):
                    return False
                _Attempt(self._notes, pair, me, self._log).make(
                    source, self._run_until, lambda: self._retire(pair)
                )
            except HeadraceError as error:  # Whoever claims it next takes it up again.
                self._warn(pair, error)
                return False
        return True

    def _are_close(self, pair: Pair, source: type[Source]) -> bool:
        now = time.monotonic()
        if now < self._next_look:
            return False
        found = _target(self._notes, pair, source) is not None
        after = time.monotonic()
        self._next_look = after + (after - now) / LOOKS_PART_MAX
        return found

    @contextlib.contextmanager
    def _alive(self, pair: Pair) -> Iterator[tuple[Owner, Callable[[], set[str]]]]:
        """Let others see that this process is at it; give what tells the workers beside it."""
        place = f"{pair.fork}{FORK_MARK}"  # Of neither job: there it would get splits.
        me = this_process()
        self._mine.add(me.worker)
        stores = [job_store(self._notes, job) for job in (*pair, place)]
        over, begun = threading.Event(), threading.Event()

        def others() -> set[str]:
            return {w for store in stores for w in live_workers(store, is_dead)} - self._mine

        def beat() -> None:
            try:
                with contextlib.closing(open_notes(self._state)) as mine:
                    store = job_store(mine, place)
                    store.enroll(me)
                    begun.set()
                    while not over.wait(BEAT_SECONDS):
                        with contextlib.suppress(StoreUnavailableError):
                            store.renew(me.worker, {})
                    store.dismiss(me.worker)
            except HeadraceError as error:
                self._warn(pair, error)
            finally:
                begun.set()

        thread = threading.Thread(target=beat, name="joining", daemon=True)
        thread.start()
        begun.wait()
        try:
            yield me, others
        finally:
            over.set()
            thread.join()

    def _retire(self, pair: Pair) -> None:
        """Let the source forget the job that is no more."""
        try:
            job, key = self._read(pair.base), job_store(self._notes, pair.base).job_key()
            os.chdir(job.directory)  # To which its paths are relative.
            context = Context(job=pair.fork, clock=SystemClock(), job_key=key, log=self._log)
            source: Source = made_source(job, context)
            source.retire()
            source.close()
        except HeadraceError as error:
            self._warn(pair, error)

    def _warn(self, pair: Pair, error: HeadraceError) -> None:
        self._log.warning("join_failed", job=pair.base, source=pair.fork, error=str(error))


class _Attempt:
    """One try of one process to make two jobs one, from its claim on."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        pair: Pair,
        me: Owner,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Nobody else is at it; in the notes that is *me*."""
        self._connection = connection
        self._joins = Joins(connection)
        self._pair = pair
        self._me = me
        self._log = log

    def make(self, source: type[Source], run_until: RunUntil, retire: Callable[[], None]) -> None:
        """Make the two one, or let both go on as they are.

        Raises:
            HeadraceError: how far it came is for the next one to find out.

        """
        if self._joins.is_decided(self._pair):
            with self._claimed([self._pair.base]) as tokens:
                self._complete(tokens, source, retire)
            return
        self._give_back()  # What an earlier one had frozen.
        target = _target(self._connection, self._pair, source)
        is_wanted = target is not None and self._joins.want_the_same(self._pair)
        if target is None or not is_wanted or not self._have_come(target, run_until):
            self._joins.give_up(self._pair, self._me.worker)
            return
        with self._claimed(self._pair) as tokens:
            if self._may_be_one(tokens, source) and self._joins.decide(self._pair, self._me.worker):
                crash.reached("join_decided")
                self._complete(tokens, source, retire)
                return
            self._thaw(tokens)
        self._joins.give_up(self._pair, self._me.worker)

    def _have_come(self, target: Position, run_until: RunUntil) -> bool:
        """Run both up to the place where they meet; say whether they came there."""
        try:
            reports = [run_until(job, target) for job in (self._pair.base, self._pair.fork)]
        except HeadraceError as error:  # Each job will meet it again, and say so.
            pair = self._pair
            self._log.warning("join_failed", job=pair.base, source=pair.fork, error=str(error))
            return False
        return not any(r.failures or r.outcome is not Outcome.ENDED for r in reports)

    def _may_be_one(self, tokens: Tokens, source: type[Source]) -> bool:
        """Freeze both, and say whether their states can be one."""
        fork, base = (
            job_store(self._connection, job).freeze(self._me.worker, tokens[job])
            for job in self._pair
        )
        crash.reached("join_frozen")
        if _joined(base, fork, source) is not None:
            return True
        self._log.info("join_postponed", job=self._pair.base, source=self._pair.fork)
        return False

    def _complete(self, tokens: Tokens, source: type[Source], retire: Callable[[], None]) -> None:
        """Let the base go on with what both have, and the other one be gone."""
        base = job_store(self._connection, self._pair.base)
        rest = [state for state in base.states() if state.plan < 0]
        if rest:
            fork = job_store(self._connection, self._pair.fork).states()
            made = _joined(rest, fork, source)
            assert made is not None  # noqa: S101 (it was, and nobody changed either)
            base.thaw(self._me.worker, tokens[self._pair.base], made)
        crash.reached("join_thawed")
        base.inherit(self._pair.fork)
        retire()
        crash.reached("join_inherited")
        self._joins.finish(self._pair)
        self._log.info("joined", job=self._pair.base, source=self._pair.fork)

    def _give_back(self) -> None:
        """Let go on what is frozen, as it was."""
        for job in self._pair:
            if any(state.plan < 0 for state in job_store(self._connection, job).states()):
                with self._claimed([job]) as tokens:
                    self._thaw(tokens)

    def _thaw(self, tokens: Tokens) -> None:
        for job, of_job in tokens.items():
            job_store(self._connection, job).thaw(self._me.worker, of_job, {})

    @contextlib.contextmanager
    def _claimed(self, jobs: Sequence[str]) -> Iterator[Tokens]:
        """Own all splits of *jobs*: who has owned one before writes no more of it."""
        tokens: dict[str, Mapping[str, int]] = {}
        try:
            for job in jobs:
                tokens[job] = {}
                store = job_store(self._connection, job)
                store.enroll(self._me)
                leases = store.leases()
                tokens[job] = store.claim(self._me.worker, leases, LEASE_MS)
                if len(tokens[job]) < len(leases):
                    raise LeaseLostError("somebody claimed it meanwhile", place=f"job {job}")
            yield tokens
        finally:
            for job in tokens:
                job_store(self._connection, job).dismiss(self._me.worker)


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


def _joined(
    base: Sequence[SplitState], fork: Sequence[SplitState], source: type[Source]
) -> Mapping[str, tuple[EncodedPosition, Counters]] | None:
    """Return what both have of each split of *base*; None where that cannot be one."""
    others = {state.split: state for state in fork}
    made = {}
    for mine in base:
        other = others.get(mine.split)  # None where one was cut anew meanwhile.
        if other is None or mine.position is None or other.position is None:
            return None
        both = _position(mine, source).joined(_position(other, source))
        if both is None:
            return None
        made[mine.split] = both.encode(), add_counters(mine.counters, other.counters)
    return made


def _position(state: SplitState, source: type[Source]) -> Position:
    assert state.position is not None  # noqa: S101 (looked at before)
    return source.decode_position(state.position)


def _states(connection: sqlite3.Connection, job: str) -> Mapping[str, SplitState]:
    found: Sequence[SplitState] = Offsets(connection).states(job)
    return {state.split: state for state in found}

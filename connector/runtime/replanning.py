"""Replaces the splits of a job: a worker announces a plan, the one with all leases executes it.

The new splits start from the committed positions of the old ones, whose books are closed. If a
worker dies at any step, the next one resumes; once announced, a plan is always put in force.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.processes import this_process
from headrace.connector.runtime.books.committed import books_of
from headrace.connector.runtime.books.equations import closed, total
from headrace.connector.runtime.failures.hung import returned
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.starting import in_ms, lease_times, planning_store
from headrace.connector.stores import (
    Plan,
    PlanChangedError,
    Plans,
    SplitState,
    StoreUnavailableError,
    Successor,
)
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import FencedError, LeaseLostError, Position, Resplitting, Sink, Source

WAIT_SECONDS: Final = 0.2
SHRINK_FACTOR: Final = 4  # The factor by which there must be too many splits.
SHRINK_WAIT_FACTOR: Final = 20  # The factor by which this must last longer.


class ConfiguredSplits:
    """The configured splits of a process.

    It announces them only when it starts and when they change. Otherwise it follows the plans of
    others: else two workers with different files would replace each other's plan for ever.
    """

    def __init__(self) -> None:
        """Start without splits."""
        self._last: Sequence[str] | None = None

    def is_new(self, splits: Sequence[str]) -> bool:
        """Store the configured splits; return whether they are new."""
        before, self._last = self._last, list(splits)
        return before != self._last


class Replanning:
    """Makes the splits of a source and those of its job equal, before the job runs."""

    def __init__(  # noqa: PLR0913 (what it works with)
        self,
        job: Job,
        source: Source,
        sink: Sink,
        store: Store,
        *,
        stopped: Callable[[float], bool],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Do nothing yet. For the thread of *store* only.

        *stopped* waits for a number of seconds, or until a stop is requested; it returns whether
        one was.
        """
        self._job = job
        self._source = source
        self._sink = sink
        self._store = store
        self._stopped = stopped
        self._log = log
        self.splits: Sequence[str] = ()
        """The splits of the source, once settled: others belong to a plan that it does not know."""
        resplit_ms = in_ms(job.runtime.resplit_seconds)
        self._resplitting = source if isinstance(source, Resplitting) else None
        self._asked = partial(
            returned, where="planning the splits", seconds=job.runtime.call_seconds_max
        )
        self._sizing = Sizing(self._sized, resplit_ms=resplit_ms)

    def settle(self, configured: ConfiguredSplits) -> int:
        """Register the source's splits, and return the number of the plan in force.

        The source's splits replace different registered ones, if this is wanted and possible; else
        the source takes the registered ones, also if its configuration leaves the number open.
        Waits while others still own splits of a plan to replace. Returns 0 if a stop is requested
        meanwhile.

        Raises:
            PlanChangedError: the splits cannot be replaced, and the source does not support them.

        """
        self.splits = planned = self._names()
        plans = self._carried_out()
        is_new = configured.is_new(planned)
        if plans and is_new and self._are_replaced(plans.in_force.splits, planned):
            self._store.announce(planned, after=plans.in_force.number)
            plans = self._carried_out()
        if plans is None:
            return 0
        if set(plans.in_force.splits) - set(self.splits):
            self._follow(plans.in_force.splits)
        splits = self.splits
        number = self._store.register(splits)
        gone = {split for plan in plans.ended for split in plan.splits} | set(planned)
        if (gone := gone - set(splits)) and self._resplitting is not None:
            self._asked(partial(self._resplitting.retire, sorted(gone)))
        return number

    def is_due(
        self, number: int, workers: Sequence[str] = (), me: str = "", *, now_ms: int = 0
    ) -> bool:
        """Return whether a job that runs plan *number* must restart, with other splits.

        The first of the *workers* announces them, if another number suits this count of workers.
        """
        plans = self._store.plans()
        if plans.announced is not None or plans.in_force.number != number:
            return True
        splits = self._sizing.due(plans.in_force.splits, len(workers), now_ms)
        if splits is None or me not in workers[:1]:
            return False
        self._store.announce(splits, after=number)
        self._log.info("plan_announced", splits=len(splits), workers=len(workers))
        return True

    def _are_replaced(self, splits: Sequence[str], planned: Sequence[str]) -> bool:
        """Return whether *planned* can and must replace the registered splits."""
        if not set(splits) - set(planned):
            return False  # A source may have more splits.
        if self._sized(1) is not None:
            return False  # The number is not configured.
        return self._resplit(dict.fromkeys(splits)) is not None

    def _sized(self, workers: int) -> Sequence[str] | None:
        if self._resplitting is None:
            return None
        return self._asked(partial(self._resplitting.sized, workers))

    def _names(self) -> Sequence[str]:
        return [split.split_id for split in self._asked(self._source.plan)]

    def _follow(self, splits: Sequence[str]) -> None:
        """Make the source use these *splits*, if it can."""
        if self._resplitting is not None:
            self._asked(partial(self._resplitting.follow, splits))
            self.splits = self._names()

    def _resplit(
        self, states: Mapping[str, Position | None]
    ) -> Mapping[str, Position | None] | None:
        """Return where the source's splits start; None if they cannot replace those of *states*."""
        if self._resplitting is not None:
            return self._asked(partial(self._resplitting.resplit, states))
        gone = set(states) - set(self.splits)
        if self._asked(lambda: all(self._source.gives_up(split) for split in gone)):
            return {split: states.get(split) for split in self.splits}
        return None

    def _carried_out(self) -> Plans | None:
        """Return the plans once none is announced; None if a stop is requested."""
        plans = self._store.plans()
        while plans.announced is not None:
            self._follow(plans.announced.splits)
            with planning_store(self._job, self._sink, self._store) as store:
                if not self._put_in_force(store, plans.in_force.number, plans.announced):
                    return None
            plans = self._store.plans()
        return plans

    def _put_in_force(self, store: Store, before: int, plan: Plan) -> bool:
        """Put the announced *plan* in force, or wait until a worker has; False: stop requested."""
        owner = this_process()
        store.enroll(owner)
        lease_ms, _ = lease_times(self._job)
        lease_holder = LeaseHolder(store, owner, SystemClock(), lease_ms=lease_ms)
        reported = ""
        try:
            while store.plans().in_force.number == before:
                reason = self._try(store, lease_holder, owner.worker, plan)
                if reason and reason != reported:
                    reported = reason
                    self._log.info("plan_waits", plan=plan.number, reason=reason)
                if reason and self._stopped(WAIT_SECONDS):
                    return False
        finally:
            store.dismiss(owner.worker)
        return True

    def _try(self, store: Store, lease_holder: LeaseHolder, worker: str, plan: Plan) -> str:
        """Put *plan* in force if all splits can be claimed; return why not, or an empty string."""
        try:
            if not lease_holder.take_all():
                return "others own splits"
            tokens = {lease.split: lease.token for lease in lease_holder.held.values()}
            store.replan(worker, tokens, partial(self._successor, plan))
        except (StoreUnavailableError, LeaseLostError, FencedError) as error:
            lease_holder.let_go()
            return str(error)
        self._log.info("plan_changed", plan=plan.number, splits=len(plan.splits))
        return ""

    def _successor(self, plan: Plan, states: Sequence[SplitState]) -> Successor:
        """Return the start positions of *plan*, and the books of the splits that end."""
        positions: dict[str, Position | None] = {}
        for state in states:
            positions[state.split] = (
                None if state.position is None else self._source.decode_position(state.position)
            )
        made = self._resplit(positions)
        if made is None or set(made) != set(plan.splits):
            raise PlanChangedError(
                f"another worker announced splits, {plan.splits[0]!r} among them, that are none of "
                "this source",
                hint="give all workers of the job the same source",
            )
        end = closed(total(books_of(states, self._source)))
        return Successor(
            {
                split: None if position is None else position.encode()
                for split, position in made.items()
            },
            end.books,
            end.counters,
        )


class Sizing:
    """Watches one run of a job. Only lasting changes count: each stops the job for a while."""

    def __init__(
        self,
        sized: Callable[[int], Sequence[str] | None],
        *,
        resplit_ms: int,
    ) -> None:
        """*sized* returns the splits for a number of workers; None: the number is configured."""
        self._sized = sized
        self._resplit_ms = resplit_ms
        self._grows = True
        self._since_ms: int | None = None

    def due(self, in_force: Sequence[str], workers: int, now_ms: int) -> Sequence[str] | None:
        """Return the splits to continue with, if those *in_force* have been unfit for long."""
        sized = self._sized(workers)
        if sized is None:
            return None
        grows = len(sized) > len(in_force)
        if not grows and len(sized) * SHRINK_FACTOR > len(in_force):
            self._since_ms = None
            return None
        if self._since_ms is None or grows is not self._grows:
            self._since_ms, self._grows = now_ms, grows
        resplit_ms = self._resplit_ms * (1 if grows else SHRINK_WAIT_FACTOR)
        return sized if now_ms - self._since_ms >= resplit_ms else None

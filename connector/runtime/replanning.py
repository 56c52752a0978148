"""Lets a job go on with other splits: announced to all, then made by whoever gets all leases.

What the splits of the old plan have committed becomes where those of the new one begin, and their
books are closed. Killed at any step it is taken up again by the next worker; once announced, a plan
is always put in force.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import structlog

from headrace.connector.job import Job
from headrace.connector.runtime.books import closed, total
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.committed import books_of
from headrace.connector.runtime.leases import LeaseKeeper
from headrace.connector.runtime.processes import this_process
from headrace.connector.runtime.sizing import Sizing
from headrace.connector.runtime.starting import in_ms, lease_times, planning_store
from headrace.connector.stores import (
    Plan,
    PlanChangedError,
    Plans,
    SplitState,
    Store,
    StoreUnavailableError,
    Successor,
)
from headrace.plugins import FencedError, LeaseLostError, Position, Sink, Source

WAIT_SECONDS: Final = 0.2


class Wish:
    """Which splits a process wants: what it finds configured when it starts, or changed since.

    Only that is announced. A worker that runs follows what others announced, whatever it has
    configured: else two with different files would take the plan from each other for ever.
    """

    def __init__(self) -> None:
        """Want nothing yet."""
        self._last: Sequence[str] | None = None

    def is_new(self, splits: Sequence[str]) -> bool:
        """Take what is configured; say whether it was not so before."""
        before, self._last = self._last, list(splits)
        return before != self._last


class Replanning:
    """Brings the splits of a source and those of its job together, before the job runs."""

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
        """Do nothing yet; all on the thread of *store*.

        *stopped* waits for so many seconds, or until somebody asks to stop, and says whether.
        """
        self._job = job
        self._source = source
        self._sink = sink
        self._store = store
        self._stopped = stopped
        self._log = log
        self.splits: Sequence[str] = ()
        """Those of the source, once they are settled: others belong to a plan that it lacks."""
        patience_ms = in_ms(job.runtime.resplit_seconds)
        self._sizing = Sizing(source.sized, patience_ms=patience_ms)

    def settle(self, wish: Wish) -> int:
        """Register the source's splits, and return the number of the plan in force.

        Where others are registered, the source's take their place, if this is what is wished and
        can be; else the source follows, also when its configuration leaves the number open. Waits
        while others still own splits of a plan that is to be replaced. Returns 0 when somebody
        asked to stop meanwhile.

        Raises:
            PlanChangedError: neither can the splits be replaced, nor can the source have them.

        """
        planned = _names(self._source)
        plans = self._carried_out()
        is_wished = wish.is_new(planned) and self._source.sized(1) is None
        if plans and is_wished and self._are_replaced(plans.in_force.splits, planned):
            self._store.announce(planned, after=plans.in_force.number)
            plans = self._carried_out()
        if plans is None:
            return 0
        if set(plans.in_force.splits) - set(planned):
            self._source.follow(plans.in_force.splits)
        self.splits = splits = _names(self._source)
        number = self._store.register(splits)
        gone = {split for plan in plans.ended for split in plan.splits} | set(planned)
        if gone := gone - set(splits):
            self._source.retire(sorted(gone))
        return number

    def is_due(
        self, number: int, workers: Sequence[str] = (), me: str = "", *, now_ms: int = 0
    ) -> bool:
        """Say whether a job that runs plan *number* must begin anew, with other splits.

        The first of the *workers* announces them, when another number suits so many.
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
        """Say whether *planned* can and must take the place of registered splits."""
        if not set(splits) - set(planned):
            return False  # A source may have more of them.
        return self._source.resplit(dict.fromkeys(splits)) is not None

    def _carried_out(self) -> Plans | None:
        """Return the plans when nothing is announced any more; None if somebody asked to stop."""
        plans = self._store.plans()
        while plans.announced is not None:
            self._source.follow(plans.announced.splits)
            with planning_store(self._job, self._sink, self._store) as store:
                if not self._put_in_force(store, plans.in_force.number, plans.announced):
                    return None
            plans = self._store.plans()
        return plans

    def _put_in_force(self, store: Store, before: int, plan: Plan) -> bool:
        """Put the announced *plan* in force, or wait until somebody has; False: asked to stop."""
        owner = this_process()
        store.enroll(owner)
        lease_ms, _ = lease_times(self._job)
        keeper = LeaseKeeper(store, owner, SystemClock(), lease_ms=lease_ms)
        told = ""
        try:
            while store.plans().in_force.number == before:
                reason = self._try(store, keeper, owner.worker, plan)
                if reason and reason != told:
                    told = reason
                    self._log.info("plan_waits", plan=plan.number, reason=reason)
                if reason and self._stopped(WAIT_SECONDS):
                    return False
        finally:
            store.dismiss(owner.worker)
        return True

    def _try(self, store: Store, keeper: LeaseKeeper, worker: str, plan: Plan) -> str:
        """Put *plan* in force if all splits can be had; return why not, or nothing."""
        try:
            if not keeper.take_all():
                return "others own splits"
            tokens = {lease.split: lease.token for lease in keeper.held.values()}
            store.replan(worker, tokens, partial(self._successor, plan))
        except (StoreUnavailableError, LeaseLostError, FencedError) as error:
            keeper.let_go()
            return str(error)
        self._log.info("plan_changed", plan=plan.number, splits=len(plan.splits))
        return ""

    def _successor(self, plan: Plan, states: Sequence[SplitState]) -> Successor:
        """Return where the splits of *plan* begin, and the books of those that end."""
        positions: dict[str, Position | None] = {}
        for state in states:
            positions[state.split] = (
                None if state.position is None else self._source.decode_position(state.position)
            )
        made = self._source.resplit(positions)
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


def _names(source: Source) -> Sequence[str]:
    return [split.split_id for split in source.plan()]

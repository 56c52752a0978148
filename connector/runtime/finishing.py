"""Decides when a run ends, and whether a run until idle has delivered everything.

With `--until-idle` a run has finished when each split is held here and was read to its durable end,
settled and committed, or failed here, or belongs to another live process. Any other end is an
error: exit status 0 means that everything has been delivered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from headrace.connector.runtime.books.report import Outcome
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.messages import Idled
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.watch import Pulse, SplitWatch
from headrace.connector.stores import StoreUnavailableError
from headrace.plugins import FatalError, HeadraceError
from headrace.plugins.stores.kept_modes import AskedMode

REASONS: Final = {
    Outcome.ENDED: "it was asked to stop",
    Outcome.STOPPED: "the job is stopped",
    Outcome.CHANGED: "the job's configuration changed",
    Outcome.RESTART: "a restart was asked for",
}


class NotIdleError(FatalError):
    """A run until idle ended before everything was read and delivered."""

    code = "not_idle"


@dataclass(slots=True)
class Course:
    """The state of the control loop. `still` says since when nothing has moved, and why."""

    sent: int = 0
    stopping: bool = False
    finished: bool = False
    idled: Idled | None = None
    outcome: Outcome = Outcome.ENDED
    paused: bool = False
    modes: Mapping[str, AskedMode] = field(default_factory=dict)
    pulsed: bool = False
    replan_ms: int = 0  # When to check next whether other splits are due.
    still: str = ""
    failures: dict[str, HeadraceError] = field(default_factory=dict)


class Finishing:
    """Decides when a run is over. For the control thread."""

    def __init__(  # noqa: PLR0913 (what it judges by)
        self,
        course: Course,
        lease_holder: LeaseHolder,
        watch: SplitWatch,
        log: structlog.stdlib.BoundLogger,
        *,
        until_idle: bool,
        retry_ms_max: int,
        still_ms_max: int,
    ) -> None:
        """Until idle, an unavailable store is retried for *retry_ms_max*.

        A run in which no split moves for *still_ms_max* ends.
        """
        self._course = course
        self._lease_holder = lease_holder
        self._watch = watch
        self._log = log
        self._until_idle = until_idle
        self._retry = Retry(retry_ms_max)
        self._still_ms_max = still_ms_max

    def is_over(self) -> bool:
        """Return whether nothing is left to do. Reads the store only if it seems so."""
        course, watch = self._course, self._watch
        if watch.waiting:
            return False
        if course.failures and not self._lease_holder.held:
            if not self._until_idle:
                return True
        elif not self._has_idled():
            return False
        if course.paused:  # Nothing is read while paused, in this process and in the others.
            return False
        try:
            course.finished = self._lease_holder.is_covered()
        except StoreUnavailableError as error:
            self._log.warning("store_unavailable", error=str(error))
            return False
        return course.finished

    def _has_idled(self) -> bool:
        """Return whether the pipeline has read everything of the splits that it has so far."""
        idled = self._course.idled
        if idled is None or idled.commands != self._course.sent:
            return False
        return self._until_idle or idled.for_ever

    def store_failed(self, error: StoreUnavailableError, now_ms: int) -> None:
        """Count a failure of the store.

        Raises:
            RetriesExhaustedError: until idle, if the store has failed for too long.

        """
        self._log.warning("store_unavailable", error=str(error))
        if self._until_idle:
            self._retry.failed(now_ms, error)

    def store_answered(self) -> None:
        """Reset the failures of the store."""
        self._retry.succeeded()

    def is_stuck(self, pulse: Pulse, now_ms: int) -> bool:
        """Return whether no split has moved for so long that a run until idle must end."""
        if not (self._until_idle and pulse.moved_ms):
            return False
        if pulse.paused:
            self._course.still = "the job is paused"
            return True
        split, moved_ms = max(pulse.moved_ms.items(), key=lambda item: item[1])
        if now_ms - moved_ms < self._still_ms_max:
            return False
        why = pulse.reasons.get(split, "nothing was read")
        still_s = (now_ms - moved_ms) / 1000
        self._course.still = f"nothing has moved for {still_s:.0f} s: split {split}: {why}"
        return True


def unfinished(course: Course, job: str) -> list[HeadraceError]:
    """Return why a run until idle ended too early, if it did."""
    if course.finished:
        return []
    return [not_idle(job, course.still or REASONS[course.outcome])]


def not_idle(job: str, reason: str) -> NotIdleError:
    """Return the error of a run that ended before everything was read and delivered."""
    return NotIdleError(
        f"ended before everything was read and delivered: {reason}",
        place=f"job {job}",
        hint="what was delivered is committed; the next run continues from there",
    )

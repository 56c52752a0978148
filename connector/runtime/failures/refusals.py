"""Stops one data source whose table's schema was refused, while its job continues with the others.

The worker that meets the refusal stores it as a failure of the source. A failed source does not
run, so it gets a forked job, as a stopped source does. It keeps its committed position.
"""

from collections.abc import Callable, Mapping

import structlog

from headrace.connector.foundation import crash
from headrace.connector.foundation.states import Desired
from headrace.connector.serde.schemas.publishing import NOTHING_LOST, SchemaIncompatibleError
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import FORK_MARK, WHOLE_JOB, Failure, Wanted
from headrace.plugins import Clock, FatalError, HeadraceError

# Of a table: for the name of each of its sources, the statement that resumes the source.
Resumes = Callable[[NoteCopy, str], Mapping[str, str]]


def no_sources(_notes: NoteCopy, _table: str) -> Mapping[str, str]:
    """Return no sources: statements did not create the job."""
    return {}


class SourceFailedError(FatalError):
    """A data source was stopped while others continued, so a run until idle did not read it."""

    code = "source_failed"


class Refusals:
    """Stores which sources of one run's job failed. For the control thread."""

    def __init__(  # noqa: PLR0913 (its surroundings)
        self,
        notes: NoteCopy,
        job: str,
        wanted: Wanted,
        *,
        resumes: Resumes,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """*wanted* is the target state of *job* before the run; *notes* is the control store."""
        self._notes = notes
        self._job = job
        self._wanted = wanted
        self._resumes = resumes
        self._clock = clock
        self._log = log
        self._met: dict[str, SchemaIncompatibleError] = {}  # By table.

    @property
    def waiting(self) -> bool:
        """Return whether a refusal is not stored yet."""
        return bool(self._met)

    def take(self, error: HeadraceError) -> None:
        """Keep the error of a split until `note`, if it is a refusal."""
        if isinstance(error, SchemaIncompatibleError):
            self._met.setdefault(error.table, error)

    def note(self) -> None:
        """Store the refusals that stop some, but not all, of the job's sources.

        Raises:
            StoreUnavailableError: nothing was stored: call it again.

        """
        while self._met:
            table, error = next(iter(self._met.items()))
            with self._notes.transaction():
                failed = self._fail(table, error)
            del self._met[table]
            if failed:
                crash.reached("source_failed")
            for source in failed:
                self._log.error(
                    "source_failed", source=source, error_code=error.code, error=str(error)
                )

    def _fail(self, table: str, error: SchemaIncompatibleError) -> list[str]:
        """Store a refusal in the open transaction; return the sources that failed by it.

        Returns none if the target state changed since the run started: then the run restarts, and
        meets the refusal again if it persists.
        """
        board = self._notes.board
        now, before = board.wanted(self._job), self._wanted
        is_same = now.generation == before.generation
        if not is_same or now.restarts.get(WHOLE_JOB) != before.restarts.get(WHOLE_JOB):
            return []
        resumes = self._resumes(self._notes, table)
        routes = board.routes(self._job)
        mine = [r for r in routes if r.source in resumes and r.target[0] is Desired.RUNNING]
        if len(mine) == len(routes) and FORK_MARK not in self._job:
            return []  # The whole job failed; its splits report it.
        for route in mine:
            hint = f"{error.remedy}; then {resumes[route.source]}. {NOTHING_LOST}"
            problem = f"{error.code}: {error.place}: {error.message}"
            board.fail(route.source, Failure(problem, hint, self._clock.wall_ms()))
        return [route.source for route in mine]


def failed_sources(notes: NoteCopy, job: str) -> list[SourceFailedError]:
    """Return the errors of the sources of *job* that failed, also of those forked from it."""
    board = notes.board
    routes = [*board.routes(job), *board.forks(job)]
    return [
        SourceFailedError(
            route.failure.problem, place=f"data source {route.source}", hint=route.failure.hint
        )
        for route in routes
        if route.failure is not None
    ]

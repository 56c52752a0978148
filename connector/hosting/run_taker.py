"""Takes the runs that statements request of one job, in the process of the job.

A shard that the target accepted is not delivered again, and one process at a time takes a run. Live
changes flow meanwhile. The oldest run that is due is taken first.
"""

import contextlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import structlog

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.entries import ONLY
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.replay.errors import RunBusyError, RunHaltedError, ShardFailedError
from headrace.connector.runtime.splits.watch import RestartPolicy, Restarts
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.asked_runs import (
    AskedRun,
    AskedRuns,
    Progress,
    RunKind,
    RunState,
    not_followed,
)
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import HeadraceError
from headrace.plugins.metrics import Measure

if TYPE_CHECKING:
    from headrace.connector.hosting.taking import Taking

LOOK_EVERY_SECONDS: Final = 1.0
END_SECONDS_MAX: Final = 30.0  # A sink that hangs may delay a shard for longer.
_DUE: Final = (RunState.WAITING, RunState.RUNNING)


class RunTaker:
    """See the module. `stop` may be called at any time, on any thread."""

    def __init__(
        self, job: Job, log: structlog.stdlib.BoundLogger, *, master: str | None = None
    ) -> None:
        """Read nothing yet. *master* is Spark's master, for runs on Spark."""
        self._job, self._master = job, master
        self._log = log.bind(job=job.name)
        self._stopped = threading.Event()
        self._taking: Taking | None = None
        policy = RestartPolicy(
            restarts_max=job.runtime.restarts_max,
            pause_ms=round(job.runtime.restart_pause_seconds * 1000),
        )
        self._restarts = Restarts(policy)
        self._not_before_ms: dict[str, int | None] = {}

    def stop(self) -> None:
        """Stop; a read in progress ends after its page."""
        self._stopped.set()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics of the current run. Any thread may call."""
        return () if (taking := self._taking) is None else taking.measures()

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Take runs on a thread of its own while the block runs."""
        thread = threading.Thread(target=self._follow, name="runs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join(END_SECONDS_MAX)

    def finish(self, notes: NoteCopy) -> Sequence[HeadraceError]:
        """Take all runs that are due, each once; return the errors of incomplete ones."""
        failures: list[HeadraceError] = []
        for run, seen in self._due(notes):
            try:
                self._take(notes, run, seen)
            except RunHaltedError:
                break
            except HeadraceError as error:
                failures.append(error)
        return failures

    def _follow(self) -> None:
        with contextlib.closing(open_notes(self._job.notes)) as notes:
            while not self._stopped.wait(LOOK_EVERY_SECONDS):
                with contextlib.suppress(StoreUnavailableError):  # It may respond the next time.
                    self._look(notes)

    def _look(self, notes: NoteCopy) -> None:
        """Take due runs, oldest first; failed ones again after a pause."""
        due = self._due(notes)
        if not due or notes.board.wanted(self._job.name).state is not Desired.RUNNING:
            return
        for run, seen in due:
            if not self._may_take(notes, run):
                continue
            now_ms = SystemClock().monotonic_ms()
            if (self._not_before_ms.get(run.name) or 0) > now_ms:
                continue
            with contextlib.suppress(RunHaltedError, RunBusyError):
                try:
                    self._take(notes, run, seen)
                except (StoreUnavailableError, RunBusyError, RunHaltedError):
                    raise
                except HeadraceError as error:
                    self._failed(notes, run, error)

    def _may_take(self, notes: NoteCopy, run: AskedRun) -> bool:
        """Return whether the job follows the logs, or the run does not need that."""
        name = self._job.name
        if run.order.kind is not RunKind.SNAPSHOT or is_only(notes, name):
            return True
        return not_followed(notes.store(name)) == []

    def _due(self, notes: NoteCopy) -> Sequence[tuple[AskedRun, Progress]]:
        mine = {route.source for route in notes.board.routes(self._job.name)}
        return [
            (each, seen)
            for each, seen in reversed(AskedRuns(notes).all())
            if each.source in mine and each.wanted is Desired.RUNNING and each.state(seen) in _DUE
        ]

    def _failed(self, notes: NoteCopy, run: AskedRun, error: HeadraceError) -> None:
        """Retry after a pause, or show the error and wait until a user resumes the run."""
        # The failure of a range may have any cause; its error is only text.
        cause = None if isinstance(error, ShardFailedError) else error
        name = run.name
        again_ms = self._restarts.failed(name, SystemClock().monotonic_ms(), cause)
        self._not_before_ms[name] = again_ms
        self._log.error("run_failed", run=name, again=again_ms is not None, error=str(error))
        runs = AskedRuns(notes)
        if again_ms is not None and (found := runs.get(name)) is not None:
            runs.report(name, replace(found[1], state=RunState.WAITING))

    def _take(self, notes: NoteCopy, run: AskedRun, seen: Progress) -> None:
        """Do the rest of a run.

        Raises:
            RunHaltedError: the run must stop.
            RunBusyError: another process takes the run.
            HeadraceError: some of it could not be read, or delivered; the rest is done.

        """
        if seen.attempt != run.attempt:
            self._restarts.forget(run.name)
        # Imported here because it is slow to import and seldom needed.
        from headrace.connector.hosting.taking import Taking  # noqa: PLC0415

        self._taking = taking = Taking(
            notes, run, seen, self._job, self._stopped, master=self._master
        )
        try:
            taking.take()
        finally:
            self._taking = None
        self._log.info("run_completed", run=run.name, changes=taking.progress.changes)


def is_only(notes: NoteCopy, job: str) -> bool:
    """Return whether *job* delivers only the rows of tables, and no changes."""
    catalogue = Catalogue(notes)
    names = [route.source for route in catalogue.board.routes(job)]
    found = [source for source in catalogue.sources() if source.name in names]
    return bool(found) and all(source.snapshot == ONLY for source in found)

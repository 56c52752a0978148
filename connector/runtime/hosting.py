"""Runs a job as it is wanted: run by run, for as long as this process lives.

A run ends when the job is to stop, to begin anew, or is configured otherwise; what was read by then
is settled and committed. The next one starts with what the board and the job file say at that time.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from headrace.connector.control.catalogue import adopt_sources
from headrace.connector.control.job_files import note_job_file
from headrace.connector.control.status import live_workers
from headrace.connector.job import FILE_SUFFIXES, Job, read_job, state_of
from headrace.connector.notes import open_notes
from headrace.connector.replay.checkpoint import checkpoint_of
from headrace.connector.runtime.catching_up import catch_up
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.finishing import not_idle
from headrace.connector.runtime.joining import Joining
from headrace.connector.runtime.processes import is_dead
from headrace.connector.runtime.replanning import Wish
from headrace.connector.runtime.report import Outcome, Report
from headrace.connector.runtime.retry import Retry
from headrace.connector.runtime.worker import Worker
from headrace.connector.states import Desired
from headrace.connector.stores import StateLockedError
from headrace.connector.stores.board import FORK_MARK, Board, Wanted
from headrace.connector.stores.notes import behind, job_store
from headrace.connector.stores.parting import separate
from headrace.plugins import ConfigError, HeadraceError, Position, Problem
from headrace.plugins.measures import Measure

LOOK_EVERY_SECONDS: Final = 0.2
LOCK_SECONDS_MAX: Final = 60  # So long a state file is waited for that another process locks.
LOCK_PAUSE_MS_MAX: Final = 1_000
CATCH_UP_PAUSE_SECONDS: Final = 10.0  # Before a sink that could not be asked is asked again.


class Host:
    """Runs the job of one job file. `run` once; `stop` at any time."""

    def __init__(
        self,
        path: Path,
        *,
        log: structlog.stdlib.BoundLogger,
        job: str | None = None,
        new_state: bool = False,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """Take *job* instead of the name in the file, if given; open nothing yet.

        With *new_state* a job that has run with another state begins anew.
        """
        self._new_state = new_state
        self._has_run = False
        self._path = path.absolute()
        self._name = job
        self._log = log
        self._wait = wait
        self._stopped = threading.Event()
        self._worker: Worker | None = None
        self._joining: Joining | None = None
        self._wish = Wish()
        self._next_catch_up = 0.0

    def stop(self) -> None:
        """Ask for a clean stop. Any thread, and a signal handler, may call it at any time."""
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    @property
    def name(self) -> str:
        """The job's name. Raises what reading the job file does."""
        return state_of(self._path, self._name)[1]

    def measures(self) -> Iterable[Measure]:
        """Return what there is to tell of the run at hand. Any thread may ask."""
        return () if self._worker is None else self._worker.measures()

    def run(self, *, until_idle: bool) -> tuple[str, Report | None]:
        """Run until stopped or, with *until_idle*, until all there is was taken.

        Returns the job's name and what all runs came to; None if it was to stop all the time.

        Raises:
            HeadraceError: the job as a whole cannot run. What stops single splits is reported.

        """
        retry = Retry(LOCK_SECONDS_MAX * 1000, pause_ms_max=LOCK_PAUSE_MS_MAX)
        while True:
            try:
                return self._run_all(until_idle=until_idle)
            except StateLockedError as error:
                now_ms = SystemClock().monotonic_ms()
                pause_ms = retry.failed(now_ms, error) - now_ms
                self._log.warning("state_locked", error=str(error))
                if self._wait(self._stopped, pause_ms / 1000):
                    raise

    def _run_all(self, *, until_idle: bool) -> tuple[str, Report | None]:
        state, name = state_of(self._path, self._name)
        with contextlib.ExitStack() as stack:
            if state.suffix in FILE_SUFFIXES:  # Kept, so that to open it again costs nothing.
                stack.enter_context(contextlib.closing(open_notes(state)))
            self._joining = Joining(
                state, name, read=self._read, run_until=self._run_until, log=self._log
            )
            stack.callback(self._joining.close)
            return self._run(state, name, until_idle=until_idle)

    def _run(self, state: Path, name: str, *, until_idle: bool) -> tuple[str, Report | None]:
        whole: Report | None = None
        while True:
            wanted = self._wait_until_wanted(state, name, until_idle=until_idle)
            if wanted is None:
                if until_idle and whole is None and not _is_over(state, name):
                    raise not_idle(name, "it was to stop, or the job is paused or stopped")
                return name, whole
            report = self._run_once(name, wanted, until_idle=until_idle)
            whole = report if whole is None else _together(whole, report)
            if report.outcome is Outcome.ENDED or self._stopped.is_set():
                return name, whole
            self._log.info("run_again", job=name, reason=report.outcome.value)

    def _run_once(self, name: str, wanted: Wanted, *, until_idle: bool) -> Report:
        job = self._read(name)
        if checkpoint_of(job.state, name).spark.exists():
            hint = "run it with --engine spark, or give it another name"
            said = f"{name} runs on Spark, whose checkpoint has its position"
            raise ConfigError([Problem("job", said, hint)])
        # Made once: where it went meanwhile, nobody would find in a new one what was committed.
        with contextlib.closing(open_notes(job.notes, create=not self._has_run)) as connection:
            self._has_run = True
            note_job_file(connection, name, self._path)
        os.chdir(job.directory)
        joining, source = self._joining, job.source
        self._worker = Worker(
            job,
            log=self._log,
            wanted=wanted,
            wish=self._wish,
            yields=lambda: joining is not None and joining.is_due(source),
            new_state=self._new_state,
        )
        if self._stopped.is_set():
            self._worker.stop()
        return self._worker.run(until_idle=until_idle)

    def _run_until(self, name: str, until: Position) -> Report:
        """Run a job up to a place, at which it becomes one with another."""
        job = self._read(name)
        os.chdir(job.directory)
        with contextlib.closing(open_notes(job.notes)) as connection:
            wanted = Board(connection).wanted(name)
        self._worker = Worker(job, log=self._log, wanted=wanted, until=until, wish=self._wish)
        if self._stopped.is_set():
            self._worker.stop()
        return self._worker.run(until_idle=True)

    def _read(self, name: str) -> Job:
        try:
            return read_job(self._path, name)
        except HeadraceError as error:
            _record(self._path, name, error)
            raise

    def _wait_until_wanted(self, state: Path, name: str, *, until_idle: bool) -> Wanted | None:
        """Wait while the job is to stop, or others still run what must be separated first."""
        told = False
        while not self._stopped.is_set():
            is_held = self._joining is not None and state.exists() and self._joining.must_wait()
            wanted = None if is_held else self._separated(state, name, until_idle=until_idle)
            if wanted is not None and _is_over(state, name):
                return None
            if wanted is not None and not _must_rest(wanted, until_idle=until_idle):
                return wanted
            if wanted is not None and until_idle:
                return None
            if not told:
                told = True
                self._log.info("waiting", job=name, wanted=wanted.state if wanted else "")
            self._wait(self._stopped, LOOK_EVERY_SECONDS)
        return None

    def _separated(self, state: Path, name: str, *, until_idle: bool) -> Wanted | None:
        """Return what is wanted of the job, or None while its parts cannot be separated yet."""
        if not state.exists():
            return Wanted()  # There is no file yet: the run makes it.
        with contextlib.closing(open_notes(state)) as connection:
            adopt_sources(connection, name)
            store, wanted = job_store(connection, name), Board(connection).wanted(name)
            busy = live_workers(store, is_dead)
            # A job that runs finds out by itself.
            if (wanted.mixed or wanted.state is Desired.STOPPED) and behind(connection, name):
                is_owned = any(row.owner in busy for row in store.leases())
                if not is_owned and not self._caught_up(name, wanted, until_idle=until_idle):
                    return None
            if not separate(connection, name, busy=busy):
                return None
            return Board(connection).wanted(name)

    def _caught_up(self, name: str, wanted: Wanted, *, until_idle: bool) -> bool:
        """Have the file know what the sink has; a job that is stopped waits for it in peace."""
        if time.monotonic() < self._next_catch_up:
            return False
        try:
            return catch_up(self._read(name), self._log)
        except HeadraceError as error:
            _record(self._path, name, error)
            if wanted.mixed or until_idle:
                raise
            self._log.warning("catch_up_failed", job=name, error=str(error))
            self._next_catch_up = time.monotonic() + CATCH_UP_PAUSE_SECONDS
            return False


def _must_rest(wanted: Wanted, *, until_idle: bool) -> bool:
    """Say whether a job is not to run: one that is paused could not take all there is."""
    return wanted.state is Desired.STOPPED or (until_idle and wanted.state is Desired.PAUSED)


def _is_over(state: Path, name: str) -> bool:
    """Say whether a job that had parted from another is one with it again."""
    if FORK_MARK not in name or not state.exists():
        return False
    with contextlib.closing(open_notes(state)) as connection:
        return not Board(connection).routes(name)


def _record(path: Path, name: str, error: HeadraceError) -> None:
    """Let others see why the job cannot even be read; a courtesy, the error itself is raised."""
    with contextlib.suppress(HeadraceError):
        notes, _ = state_of(path, name)
        with contextlib.closing(open_notes(notes, create=False)) as connection:
            store = job_store(connection, name)
            store.job_key()
            store.report(f"{error.code}: {error}")


def _together(first: Report, second: Report) -> Report:
    return replace(
        second,
        changes=first.changes + second.changes,
        batches=first.batches + second.batches,
        commits=first.commits + second.commits,
        wall_seconds=first.wall_seconds + second.wall_seconds,
        cpu_seconds=first.cpu_seconds + second.cpu_seconds,
    )

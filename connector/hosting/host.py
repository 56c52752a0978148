"""Follows the target state of a job, run by run, for as long as this process lives.

A run ends when the job must stop or restart, or its configuration changed; the records read by then
are settled and committed. The next run starts with the board and the job file of that time.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

import structlog

from headrace.connector.control.catalogue import adopt_sources, resumes_of
from headrace.connector.control.entries import ENGINE_KEY, SPARK, WORKER
from headrace.connector.control.status import live_workers
from headrace.connector.foundation import crash
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.processes import is_dead
from headrace.connector.foundation.states import Desired
from headrace.connector.hosting.opened_job import OpenedJob
from headrace.connector.hosting.run_taker import RunTaker, is_only
from headrace.connector.hosting.signalling import Signalling
from headrace.connector.replay.stream.checkpoint import checkpoint_of, refuse_stream
from headrace.connector.runtime.books.report import Outcome, Report
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.finishing import not_idle
from headrace.connector.runtime.making import made_source
from headrace.connector.runtime.position_recovery import catch_up
from headrace.connector.runtime.replanning import ConfiguredSplits
from headrace.connector.runtime.starting import begin_run
from headrace.connector.runtime.worker import Worker
from headrace.connector.stores import StateLockedError
from headrace.connector.stores.job import Job, state_of
from headrace.connector.stores.job_forks import separate
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import FORK_MARK, Wanted
from headrace.plugins import ConfigError, Context, HeadraceError, JobTraces, Problem
from headrace.plugins.metrics import Measure

LOOK_EVERY_SECONDS: Final = 0.2
LOCK_SECONDS_MAX: Final = 60  # The longest wait for a state file that another process locks.
LOCK_PAUSE_MS_MAX: Final = 1_000
CATCH_UP_PAUSE_SECONDS: Final = 10.0  # Before an unavailable sink is asked again.


class Running(Protocol):
    """One run of a job. `run` once; `stop` at any time."""

    def run(self, notes: NoteCopy, *, until_idle: bool) -> Report:
        """Run the job. Raises HeadraceError: the job as a whole cannot run."""

    def stop(self) -> None:
        """Request a clean stop. Any thread may call it."""

    def measures(self) -> Iterable[Measure]:
        """Return the metrics. Any thread may call."""


Engine = Callable[[Job, Wanted], Running]
"""Makes a run of a job; the target state was read before the job."""


class Host:
    """Runs the job of one job file. `run` once; `stop` at any time."""

    def __init__(  # noqa: PLR0913 (its surroundings, each with a default)
        self,
        path: Path,
        *,
        log: structlog.stdlib.BoundLogger,
        job: str | None = None,
        new_state: bool = False,
        engine: Engine | None = None,
        on_spark: Engine | None = None,
        master: str | None = None,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ) -> None:
        """Take *job* instead of the name in the file, if given; open nothing yet.

        With *new_state* a job that has run with another state starts over. *engine* makes its runs
        if its sources do not name an engine, by default a worker, and *on_spark* if they name
        Spark. *master* is Spark's master for runs that statements request.
        """
        self._master = master
        self._engines = {SPARK: on_spark or self._refuse_spark, WORKER: self._as_worker}
        self._engine = engine or self._as_worker
        self._new_state = new_state
        self._has_run = False
        self._path = path.absolute()
        self._name = job
        self._log = log
        self._wait = wait
        self._stopped = threading.Event()
        self._running: Running | None = None
        self._taker: RunTaker | None = None
        self._signalling: Signalling | None = None
        self._configured = ConfiguredSplits()
        self._next_catch_up = 0.0
        self.state: Path | None = None
        """The place of the notes: see `state_of`. Known once `run` has read the job file."""

    def stop(self) -> None:
        """Request a clean stop. Any thread, and a signal handler, may call it at any time."""
        self._stopped.set()
        for running in (self._signalling, self._taker, self._running):
            if running is not None:
                running.stop()

    @property
    def name(self) -> str:
        """The job's name. Raises as reading the job file does."""
        return state_of(self._path, self._name)[1]

    def measures(self) -> Iterable[Measure]:
        """Return the metrics of the current run. Any thread may call."""
        running = (self._running, self._taker, self._signalling)
        return [measure for each in running if each for measure in each.measures()]

    def run(self, *, until_idle: bool) -> tuple[str, Report | None]:
        """Run until stopped or, with *until_idle*, until everything is delivered.

        Returns the job's name and the report of all runs; None if its target state was always
        STOPPED.

        Raises:
            HeadraceError: the job as a whole cannot run. Errors of single splits are reported.

        """
        retry: Retry | None = None
        while True:
            try:
                return self._run_all(until_idle=until_idle)
            except StateLockedError as error:
                now_ms = SystemClock().monotonic_ms()
                retry = retry or Retry(LOCK_SECONDS_MAX * 1000, pause_ms_max=LOCK_PAUSE_MS_MAX)
                pause_ms = retry.failed(now_ms, error) - now_ms
                self._log.warning("state_locked", error=str(error))
                if self._wait(self._stopped, pause_ms / 1000):
                    raise

    def _run_all(self, *, until_idle: bool) -> tuple[str, Report | None]:
        with contextlib.closing(OpenedJob(self._path, self._name)) as opened:
            self.state = opened.state
            whole = self._run_while_wanted(opened, until_idle=until_idle)
            if not until_idle or opened.is_over():
                return opened.name, whole
            failed = opened.failed_sources()
            if whole is None:
                why = "it was to stop, or the job is paused or stopped"
                raise next(iter(failed), not_idle(opened.name, why))
            return opened.name, replace(whole, failures=[*failed, *whole.failures])

    def _run_while_wanted(self, opened: OpenedJob, *, until_idle: bool) -> Report | None:
        """Run the job until it has ended or must stop; return the report of all runs."""
        whole: Report | None = None
        while True:
            wanted = self._wait_until_wanted(opened, until_idle=until_idle)
            if wanted is None:
                return whole
            report = self._run_once(opened, wanted, until_idle=until_idle)
            whole = report if whole is None else _together(whole, report)
            if report.outcome is Outcome.ENDED or self._stopped.is_set():
                return whole
            self._log.info("run_again", job=opened.name, reason=report.outcome.value)

    def _run_once(self, opened: OpenedJob, wanted: Wanted, *, until_idle: bool) -> Report:
        job = opened.read()
        os.chdir(job.directory)  # Paths in options are relative to it.
        self._has_run = True
        notes = opened.notes()
        for fork in notes.board.forks(job.name):
            self._log.info("forked_job", job=job.name, source=fork.source, forked=fork.job)
            self._reserve(job, fork.job, notes.store(fork.job))
        self._taker = taker = RunTaker(job, self._log, master=self._master)
        if self._stopped.is_set():
            taker.stop()
        if FORK_MARK in job.name and is_only(notes, job.name):
            begin_run(job, notes, notes.store(job.name))
            return self._take_only(notes, job.name, wanted, until_idle=until_idle)
        with contextlib.ExitStack() as stack:
            if job.engine == SPARK:  # Spark may be missing here.
                stack.enter_context(opened.reporting())
            self._running = running = self._engines.get(job.engine, self._engine)(job, wanted)
        if self._stopped.is_set():
            running.stop()
        if not until_idle:
            self._signalling = signalling = Signalling(job, self._log)
            with taker.beside(), signalling.beside(notes):
                return running.run(notes, until_idle=False)
        report = running.run(notes, until_idle=True)
        if report.outcome is not Outcome.ENDED or report.failures:
            return report
        return replace(report, failures=taker.finish(notes))

    @staticmethod
    def _refuse_spark(job: Job, wanted: Wanted) -> Running:
        """Raise: a job for Spark in a process that does not start Spark."""
        del wanted
        said = f"the data sources of job {job.name} are to run on Spark"
        hint = "`headrace worker` and `headrace run` do so"
        raise ConfigError([Problem(ENGINE_KEY, said, hint)])

    def _as_worker(self, job: Job, wanted: Wanted) -> Worker:
        """Return a worker, unless Spark runs the job, or has delivered more than the store has.

        Raises:
            JobBusyError: Spark runs it.
            ConfigError: Spark must continue it.

        """
        refuse_stream(job)
        return Worker(
            job,
            log=self._log,
            wanted=wanted,
            configured=self._configured,
            new_state=self._new_state,
            resumes=resumes_of,
        )

    def _take_only(self, notes: NoteCopy, job: str, wanted: Wanted, *, until_idle: bool) -> Report:
        """Take the runs of a job without live changes, until its target state changes."""
        report, taker = Report([], [], 0, 0, 0, 0, 0.0, 0.0, 0), self._taker
        assert taker is not None  # noqa: S101 (made before)
        if until_idle:
            return replace(report, failures=taker.finish(notes))
        board = notes.board
        with taker.beside():
            while not self._stopped.is_set() and board.wanted(job) == wanted:
                self._wait(self._stopped, LOOK_EVERY_SECONDS)
        is_over = self._stopped.is_set()
        return replace(report, outcome=Outcome.ENDED if is_over else Outcome.CHANGED)

    def _reserve(self, job: Job, fork: str, store: Store) -> None:
        """Reserve a forked job's segments before this job, which read them, disposes of them."""
        context = Context(job=fork, clock=SystemClock(), job_key=store.job_key(), log=self._log)
        with contextlib.closing(made_source(job, context)) as source:
            if isinstance(source, JobTraces):
                source.reserve(store.plans().in_force.splits)

    def _wait_until_wanted(self, opened: OpenedJob, *, until_idle: bool) -> Wanted | None:
        """Wait while the job must stop, or others still run sources that must be forked first."""
        reported = False
        while not self._stopped.is_set():
            wanted = self._separated(opened, until_idle=until_idle)
            if self._has_run and wanted is not None and opened.is_over():
                return None
            if wanted is not None and not _must_rest(wanted, until_idle=until_idle):
                return wanted
            if wanted is not None and until_idle:
                return None
            if not reported:
                reported = True
                state = wanted.state if wanted else ""
                self._log.info("waiting", job=opened.name, wanted=state)
            opened.forget_file()
            self._wait(self._stopped, LOOK_EVERY_SECONDS)
        return None

    def _separated(self, opened: OpenedJob, *, until_idle: bool) -> Wanted | None:
        """Return the target state of the job, or None while its sources cannot be forked yet."""
        notes, name = opened.look(), opened.name
        if notes is None:
            return Wanted()  # No file exists yet: the run makes it.
        wanted = adopt_sources(notes, name)
        if not wanted.mixed and wanted.state is not Desired.STOPPED:
            return wanted
        store = notes.store(name)
        busy = live_workers(store, is_dead)
        if notes.behind(name):  # A running job finds out by itself.
            is_owned = any(row.owner in busy for row in store.leases())
            if not is_owned and not self._caught_up(opened, wanted, until_idle=until_idle):
                return None
        if not separate(notes, name, busy=busy):
            return None
        if wanted.mixed:
            crash.reached("fork_made")
        return notes.board.wanted(name)

    def _caught_up(self, opened: OpenedJob, wanted: Wanted, *, until_idle: bool) -> bool:
        """Copy the sink's commits to the state; a stopped job can wait for the sink."""
        if time.monotonic() < self._next_catch_up:
            return False
        try:
            job = opened.read()
            with opened.reporting():
                if checkpoint_of(job.state, job.name).has_losses():  # Spark must copy them.
                    return False
                return catch_up(job, self._log)
        except HeadraceError as error:
            if wanted.mixed or until_idle:
                raise
            self._log.warning("catch_up_failed", job=opened.name, error=str(error))
            self._next_catch_up = time.monotonic() + CATCH_UP_PAUSE_SECONDS
            return False


def _must_rest(wanted: Wanted, *, until_idle: bool) -> bool:
    """Return whether a job must not run; until idle, also if it is paused."""
    return wanted.state is Desired.STOPPED or (until_idle and wanted.state is Desired.PAUSED)


def _together(first: Report, second: Report) -> Report:
    return replace(
        second,
        changes=first.changes + second.changes,
        dead_lettered=first.dead_lettered + second.dead_lettered,
        batches=first.batches + second.batches,
        commits=first.commits + second.commits,
        wall_seconds=first.wall_seconds + second.wall_seconds,
        cpu_seconds=first.cpu_seconds + second.cpu_seconds,
    )

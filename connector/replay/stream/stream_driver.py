"""Drives the stream of a job: starts it, follows the target state, and restarts it on changes.

It is to Spark what a worker is to a process: `Host` runs it while the target state is RUNNING or
PAUSED. Imports pyspark for its errors only.
"""

import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from pyspark.errors import PySparkException

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.obs.logging import set_threshold
from headrace.connector.replay.errors import JobBusyError
from headrace.connector.replay.stream.batch_lines import BatchLines
from headrace.connector.replay.stream.checkpoint import Checkpoint, checkpoint_of
from headrace.connector.replay.stream.sink_states import SinkStates
from headrace.connector.replay.stream.stream_books import StreamMeasures
from headrace.connector.replay.stream.stream_commits import StreamCommits, refuse_others
from headrace.connector.runtime.books.committed import closing_books
from headrace.connector.runtime.books.report import Outcome, Report
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.making import made_sink, made_source
from headrace.connector.runtime.metrics import in_detail
from headrace.connector.runtime.replanning import ConfiguredSplits, Replanning
from headrace.connector.runtime.splits.watch import Pulse
from headrace.connector.runtime.starting import (
    begin,
    begin_run,
    check_sink,
    check_traces,
    lease_times,
    watch_of,
)
from headrace.connector.runtime.telemetry import sender_of
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import Board, Wanted
from headrace.plugins import (
    ConfigError,
    Context,
    HeadraceError,
    MicroBatches,
    Problem,
    Sink,
    Source,
)
from headrace.plugins.metrics import Measure
from headrace.plugins.telemetry.spans import WorkTrace

if TYPE_CHECKING:
    from headrace.plugins.telemetry.otlp import OtlpSender

LOOK_EVERY_SECONDS: Final = 1.0
_STOP_LOOK_SECONDS: Final = 0.1
# Spark gives a new Python process 10 seconds, which no setting changes: a busy machine needs more.
_LATE: Final = "Python worker failed to connect back"
_LATE_IN_A_ROW_MAX: Final = 5


class Query(Protocol):
    """A running stream: the used part of pyspark's `StreamingQuery`."""

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Return whether it runs."""

    @property
    def status(self) -> Any:  # noqa: ANN401 (Spark's)
        """Return its current activity."""

    @property
    def recentProgress(self) -> Any:  # noqa: ANN401, N802 (Spark's)
        """Return its newest batches."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's)
        """Wait for its end. Raises PySparkException if it failed."""

    def stop(self) -> None:
        """Stop it at once."""


Begin = Callable[[Job, int, Checkpoint], Query]
"""Starts the query of a job in a generation of its configuration."""
Failure = Callable[[str], HeadraceError]
"""Returns our error from Spark's message about a failure."""


@dataclass(slots=True)
class _Batches:
    """The micro-batches of a run that were delivered."""

    newest: int = -1
    count: int = 0
    records: int = 0


@dataclass(slots=True)
class _Run:
    """The objects of a run."""

    board: Board
    commits: StreamCommits
    source: Source
    done: _Batches
    show: Callable[[Desired], None]


class StreamDriver:
    """See the module. `run` once; `stop` at any time."""

    def __init__(  # noqa: PLR0913 (its surroundings)
        self,
        job: Job,
        wanted: Wanted,
        begin_query: Begin,
        failure: Failure,
        *,
        get_ready: Callable[[], object],
        log: structlog.stdlib.BoundLogger,
        new_state: bool = False,
    ) -> None:
        """Open nothing yet. *wanted* is the target state before *job* was read.

        *get_ready* is called before the leases are claimed: slow work would let them expire.
        """
        self._job, self._wanted, self._new_state = job, wanted, new_state
        self._get_ready = get_ready
        self._begin_query, self._failure = begin_query, failure
        self._log = log.bind(job=job.name)
        self._lines = BatchLines(self._log)
        self._clock = SystemClock()
        self._checkpoint = checkpoint_of(job.state, job.name)
        self._stopped = threading.Event()
        self._measures: StreamMeasures | None = None
        self._otlp: OtlpSender | None = None
        self._moved_ms = 0

    def stop(self) -> None:
        """Stop after the running batch. Any thread, and a signal handler, may call it."""
        self._stopped.set()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics while it runs. Any thread may call."""
        measures = self._measures
        return () if measures is None else in_detail(measures.all(), self._job.runtime)

    def run(self, notes: NoteCopy, *, until_idle: bool) -> Report:
        """Run the stream until it is stopped or, with *until_idle*, until all is delivered.

        Raises:
            JobBusyError: another process runs the job.
            HeadraceError: the error that stopped it.

        """
        store = notes.store(self._job.name)
        job_key = begin_run(self._job, notes, store)
        try:
            with self._checkpoint.running():
                report = self._run(notes, store, job_key, until_idle=until_idle)
        except JobBusyError:  # The status is that of the process that runs it.
            raise
        except HeadraceError as error:
            _report(store, f"{error.code}: {error}")
            raise
        _report(store, "")
        return report

    def _run(self, notes: NoteCopy, store: Store, job_key: bytes, *, until_idle: bool) -> Report:
        started, cpu_before = time.monotonic(), time.process_time()
        job, clock, log = self._job, self._clock, self._log
        context = Context(job=job.name, clock=clock, job_key=job_key, log=log)
        with closing(made_source(job, context)) as source:
            sink: Sink = made_sink(job, replace(context, origin=source.origin))
            self._check(source, sink)
            refuse_others(store, job.name)
            # With a commit, this is the state that it ran with.
            is_known = self._checkpoint.committed() is not None or bool(store.leases())
            if not (is_known or self._new_state):
                check_traces(job, source)
            plan = self._settled(source, sink, store)
            begin(job, source)
            splits = [split.split_id for split in source.plan()]
            once = SinkStates(job, self._checkpoint, splits) if sink.is_transactional else None
            commits = StreamCommits(
                job, notes, source, self._checkpoint, plan=plan, once=once, log=log
            )
            done, outcome = _Batches(), Outcome.ENDED
            self._get_ready()
            log.info("started", engine="spark", until_idle=until_idle)
            with commits.held(sink), self._measured(source):
                board, show = notes.board, self._watching(commits, store, until_idle)
                outcome = self._go(_Run(board, commits, source, done, show))
            books = closing_books(store, source, clock, lease_times(job)[0])
        log.info("stopped", changes=done.records, dead_lettered=commits.dead_lettered)
        return Report(
            books=books,
            failures=[],
            changes=done.records,
            dead_lettered=commits.dead_lettered,
            batches=done.count,
            commits=done.count,
            wall_seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu_before,
            memory_bytes_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            outcome=outcome,
        )

    @contextmanager
    def _measured(self, source: Source) -> Iterator[None]:
        """Keep metrics meanwhile; send them and a span of each micro-batch if the job asks."""
        self._measures = StreamMeasures(source)
        try:
            with ExitStack() as stack:
                self._otlp = sender_of(
                    self._job.runtime,
                    self._job.name,
                    stack,
                    measures=self.measures,
                    clock=self._clock,
                    log=self._log,
                )
                yield
        finally:
            self._measures = self._otlp = None

    def _check(self, source: Source, sink: Sink) -> None:
        """Check, before Spark starts, for errors that would stop every task. Raises ConfigError."""
        if sink.is_transactional and sink.home() is None:
            said = "only workers write it: it does not say where its positions are"
            hint = "--engine worker, or engine = 'worker' of its sources"
            raise ConfigError([Problem("sink", said, hint)])
        check_sink(self._job, sink, ErrorPolicy.of_job(self._job))
        source.plan()
        MicroBatches.of(source).ahead(None, 0)

    def _settled(self, source: Source, sink: Sink, store: Store) -> int:
        """Register the splits that tasks read, or replan to them; return the plan's number."""
        wanted = [split.split_id for split in source.plan()]
        begun = self._checkpoint.begun()
        if begun is not None and begun.seqs and begun.seqs.keys() != set(wanted):
            self._refuse_open_losses()
        replanning = Replanning(
            self._job, source, sink, store, stopped=self._stopped.wait, log=self._log
        )
        number = replanning.settle(ConfiguredSplits())
        if list(replanning.splits) != wanted:
            said = f"the job has {len(replanning.splits)} splits, tasks would read {len(wanted)}"
            hint = f"set splits: {len(replanning.splits)} in the source"
            raise ConfigError([Problem("source.splits", said, hint)])
        return number

    def _refuse_open_losses(self) -> None:
        """Exactly once, prevent other splits while a batch under way has dead letters."""
        if self._checkpoint.has_open_losses():
            said = "a batch of the former splits has dead letters, and has not ended"
            hint = "run the job once with the former splits and --until-idle"
            raise ConfigError([Problem("source.splits", said, hint)])

    def _watching(
        self,
        commits: StreamCommits,
        store: Store,
        until_idle: bool,  # noqa: FBT001 (passed on)
    ) -> Callable[[Desired], None]:
        """Return a function that reports the splits as paused or as moving."""
        splits = [state.split for state in commits.states]
        watch = watch_of(self._job, commits.worker, self._wanted.generation, until_idle=until_idle)
        watch.claimed(splits)
        self._moved_ms = self._clock.monotonic_ms()

        def show(state: Desired) -> None:
            now_ms = self._clock.monotonic_ms()
            moved = dict.fromkeys(splits, self._moved_ms)
            reasons = dict.fromkeys(splits, "a micro-batch has not ended")
            watch.pulse(Pulse(moved, reasons, state is Desired.PAUSED), now_ms)
            with suppress(StoreUnavailableError):
                if rows := watch.changed_rows(now_ms):
                    store.see(rows)

        return show

    def _go(self, run: _Run) -> Outcome:
        """Run the query while the target state is RUNNING; return why it ended.

        A query whose Python process starts too late is restarted.
        """
        late = 0
        while True:
            outcome = self._heed(run.board) or self._rest(run)
            if outcome is not None:
                return outcome
            before = run.done.count
            try:
                ended = self._follow(
                    self._begin_query(self._job, self._wanted.generation, self._checkpoint), run
                )
                if ended is not None:
                    return ended
            except PySparkException as error:
                outcome = self._heed(run.board)
                if outcome is not None:  # The job changed: tasks report it.
                    return outcome
                late = late + 1 if run.done.count == before else 1
                if _LATE not in str(error) or late > _LATE_IN_A_ROW_MAX:
                    raise self._failure(str(error)) from error
                self._log.warning("stream_restarted", reason=_LATE, in_a_row=late)

    def _follow(self, query: Query, run: _Run) -> Outcome | None:
        """Follow a query to its end; None: it was stopped because the job is paused."""
        try:
            while True:
                try:
                    ended = query.awaitTermination(round(LOOK_EVERY_SECONDS))
                finally:
                    self._look(query, run)
                if ended:
                    return Outcome.ENDED
                outcome = self._heed(run.board)
                if outcome is not None or self._is_paused(run.board):
                    self._end(query, run)
                    return outcome
        finally:
            query.stop()

    def _end(self, query: Query, run: _Run) -> None:
        """Wait for the running batch, within bounds; a batch that is cut off is repeated."""
        until = time.monotonic() + self._job.runtime.stop_seconds_max
        idle = threading.Event()  # Never set: Spark has no event.
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            idle.wait(_STOP_LOOK_SECONDS)
        query.stop()
        self._look(query, run)

    def _look(self, query: Query, run: _Run) -> None:
        """Count and log what *query* has delivered since the last look, and copy the commits."""
        done = run.done
        is_idle = not (query.isActive and query.status["isTriggerActive"])
        if is_idle:
            self._moved_ms = self._clock.monotonic_ms()
        new = []
        for progress in query.recentProgress:
            if progress.batchId <= done.newest:
                continue
            done.newest = progress.batchId
            records = self._checkpoint.records(progress.batchId)
            if not records:
                continue
            new.append((progress, records))
            done.count += 1
            done.records += records
            self._moved_ms = self._clock.monotonic_ms()
            if self._measures is not None:
                self._measures.note(records, progress.batchDuration)
            if self._otlp is not None:
                self._otlp.add(_trace_of(progress, records))
        run.commits.look()
        run.show(Desired.RUNNING)
        if self._measures is not None:
            self._measures.look(run.commits.states)
        left_bytes = None if self._measures is None else self._measures.left_bytes
        for progress, records in new:
            self._lines.tell(progress.batchId, records, progress.batchDuration, left_bytes)

    def _rest(self, run: _Run) -> Outcome | None:
        """While the job is paused, keep its leases; return why to end then, or None."""
        while self._is_paused(run.board):
            run.commits.look()
            run.show(Desired.PAUSED)
            self._stopped.wait(LOOK_EVERY_SECONDS)
            outcome = self._heed(run.board)
            if outcome is not None:
                return outcome
        return None

    def _is_paused(self, board: Board) -> bool:
        try:
            return board.wanted(self._job.name).state is Desired.PAUSED
        except StoreUnavailableError:
            return False

    def _heed(self, board: Board) -> Outcome | None:
        """Return why the stream must end, by the target state; None: it continues."""
        if self._stopped.is_set():
            return Outcome.ENDED
        before = self._wanted
        try:
            now = board.wanted(self._job.name)
        except StoreUnavailableError:
            return None
        if now.log_level:
            set_threshold(now.log_level)
        if now.state is Desired.STOPPED:
            return Outcome.STOPPED
        if now.mixed or now.generation != before.generation:
            return Outcome.CHANGED
        return Outcome.RESTART if now.restarts != before.restarts else None


def _trace_of(progress: Any, records: int) -> WorkTrace:  # noqa: ANN401 (Spark's)
    """Return the trace of a micro-batch, from its planning to its commit."""
    start_ms = round(datetime.fromisoformat(progress.timestamp).timestamp() * 1_000)
    attributes = {"headrace.batch": progress.batchId, "headrace.records": records}
    return WorkTrace("micro_batch", start_ms, start_ms + progress.batchDuration, attributes)


def _report(store: Store, problem: str) -> None:
    # For the status only; the error itself is raised.
    with suppress(StoreUnavailableError):
        store.report(problem)

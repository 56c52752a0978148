"""One process that runs one job: the control thread, which is the caller's, and the data thread.

The control thread keeps the leases and receives the signals; it never calls a plugin while the data
thread runs. The data thread is the pipeline. They exchange messages and share nothing else.
"""

import contextlib
import resource
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from headrace.connector.foundation import crash
from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Desired
from headrace.connector.obs.logging import set_threshold
from headrace.connector.runtime.books.committed import closing_books
from headrace.connector.runtime.books.equations import SplitBooks
from headrace.connector.runtime.books.report import Outcome, Report
from headrace.connector.runtime.failures.hung import PluginHungError, hung, returned
from headrace.connector.runtime.failures.refusals import Refusals, Resumes, no_sources
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.finishing import Course, Finishing, unfinished
from headrace.connector.runtime.making import made_sink, made_source
from headrace.connector.runtime.messages import (
    Closed,
    Command,
    Gain,
    HandOver,
    Idled,
    Lose,
    Pause,
    SetModes,
    Stop,
)
from headrace.connector.runtime.metrics import JobMeasures, in_detail
from headrace.connector.runtime.pipeline import WRITTEN, Pipeline
from headrace.connector.runtime.replanning import ConfiguredSplits, Replanning
from headrace.connector.runtime.schemas import encoder_of
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.ownership import Changes, tell_ownership
from headrace.connector.runtime.splits.split_task import DeliveryResult, Surroundings
from headrace.connector.runtime.splits.watch import Pulse, SplitWatch
from headrace.connector.runtime.starting import (
    begin,
    begin_run,
    check_sink,
    check_traces,
    in_ms,
    is_sink_noted,
    lease_times,
    limits_of,
    mark_of,
    store_of,
    watch_of,
)
from headrace.connector.runtime.unread import MissingTables, Unread, unread_errors
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import Owner, StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import WHOLE_JOB, Board, Wanted
from headrace.plugins import Context, HeadraceError, Locality, Nearness, Sink, Source
from headrace.plugins.metrics import Measure

if TYPE_CHECKING:
    from headrace.plugins.telemetry.otlp import OtlpSender

REPLAN_EVERY_MS: Final = 3_000  # Checking whether other splits are due is not free.


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A stop of the worker was requested."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The data thread ended, with the error that ended it."""

    error: BaseException | None


class Worker:
    """See the module. `run` once; `stop` at any time."""

    def __init__(  # noqa: PLR0913 (its surroundings, each with a default)
        self,
        job: Job,
        *,
        log: structlog.stdlib.BoundLogger,
        wanted: Wanted | None = None,
        configured: ConfiguredSplits | None = None,
        new_state: bool = False,
        resumes: Resumes = no_sources,
    ) -> None:
        """Open nothing. *wanted* is the target state before *job* was read.

        *configured* has the configured splits of the last run in this process. A job that ran
        before starts over only with *new_state*. *resumes* returns the sources of a table.
        """
        self._plan = 0
        self._replanning: Replanning | None = None
        self._missing_tables: MissingTables | None = None
        self._unread: Unread | None = None
        self._refusals: Refusals | None = None
        self._sink_noted = False
        self._nearness = Nearness()
        self._new_state = new_state
        self._resumes = resumes
        self._configured = configured or ConfiguredSplits()
        self._job = job
        self._wanted = wanted or Wanted()
        self._log = log.bind(job=job.name)
        self._clock = SystemClock()
        self._limits = limits_of(job)
        self._errors = ErrorPolicy.of_job(job)
        self._inbox: SimpleQueue[Closed | Idled | Pulse | _Stopped | _Ended] = SimpleQueue()
        self._measures: JobMeasures | None = None
        self._otlp: OtlpSender | None = None
        self._sending = contextlib.ExitStack()

    def measures(self) -> Iterable[Measure]:
        """Return the metrics while it runs. Any thread may call."""
        measures = self._measures
        return () if measures is None else in_detail(measures.all(), self._job.runtime)

    def stop(self) -> None:
        """Request a clean stop. Any thread, and a signal handler, may call it at any time."""
        self._inbox.put(_Stopped())

    def run(self, notes: NoteCopy, *, until_idle: bool) -> Report:
        """Run the job until it is stopped or, with *until_idle*, until everything is delivered.

        *notes* is the control store at `job.notes`; its connection is also that of the leases.

        Raises:
            HeadraceError: the job as a whole cannot run. Errors of single splits are reported.

        """
        started = time.monotonic()
        store = notes.store(self._job.name)
        job_key = begin_run(self._job, notes, store)
        self._refusals = Refusals(
            notes,
            self._job.name,
            self._wanted,
            resumes=self._resumes,
            clock=self._clock,
            log=self._log,
        )
        try:
            report = self._run(store, job_key, notes.board, started, until_idle=until_idle)
        except HeadraceError as error:
            _record_problem(store, f"{error.code}: {error}")
            raise
        _record_problem(store, "")
        return report

    def _run(
        self, store: Store, job_key: bytes, board: Board, started: float, *, until_idle: bool
    ) -> Report:
        cpu_before = time.process_time()  # The CPU time of all threads before the run.
        owner = this_process()
        noted, is_known = is_sink_noted(self._job, store, owner.host), bool(store.leases())
        self._sink_noted = noted is True
        # Without a note, a job with books has opened its sink here.
        has_books = noted is None and is_known and any(s.counters for s in store.states())
        resumes = noted or has_books
        name, clock = self._job.name, self._clock
        context = Context(job=name, clock=clock, job_key=job_key, log=self._log, resumes=resumes)
        with self._made_source(context) as source:
            sink: Sink = made_sink(self._job, replace(context, origin=source.origin))
            check_sink(self._job, sink, self._errors)
            if not (is_known or self._new_state):
                check_traces(self._job, source)
            replanning = Replanning(
                self._job, source, sink, store, stopped=self._is_stopped, log=self._log
            )
            self._plan = replanning.settle(self._configured)
            if self._plan:
                begin(self._job, source)
            self._otlp = self._sender(source)
            pipeline = Pipeline(
                lambda post: self._surroundings(source, sink, context, owner, post),
                self._limits,
                ThreadWake(),
                self._inbox.put,
                until_idle=until_idle,
                pulse=self._inbox.put,
            )
            self._log.info("started", splits=len(replanning.splits), until_idle=until_idle)
            onlooker = partial(
                self._job.source, self._job.source_config, replace(context, read_only=True)
            )
            watch = watch_of(
                self._job, owner.worker, self._wanted.generation, until_idle=until_idle
            )
            self._measures = JobMeasures(pipeline, watch, source, onlooker, self._clock)
            course = Course()
            if self._plan:
                missing_tables = MissingTables(
                    source, owner.worker, self._wanted.generation, self._log
                )
                self._missing_tables, self._replanning = missing_tables, replanning
                self._unread = Unread(source, owner.worker, self._wanted.generation)
                if isinstance(source, Locality):
                    seconds = self._job.runtime.call_seconds_max
                    self._nearness = returned(
                        source.nearness, "looking for near logs", seconds=seconds
                    )
                course = self._keep(store, board, owner, pipeline, watch, until_idle=until_idle)
            failures = list(course.failures.values())
            if until_idle and course.outcome is Outcome.ENDED:
                failures += [*unread_errors(source), *MissingTables.errors(source)]
            if until_idle:
                failures += unfinished(course, self._job.name)
            report = self._report(
                pipeline,
                failures,
                course.outcome,
                started=started,
                cpu_before=cpu_before,
                books=closing_books(store, source, self._clock, lease_times(self._job)[0]),
            )
            counts = {"changes": report.changes, "dead_lettered": report.dead_lettered}
            self._log.info("stopped", **counts, failures=len(failures))
            return report

    @contextlib.contextmanager
    def _made_source(self, context: Context) -> Iterator[Source]:
        """Make the source, and close it at the end, unless a plugin hangs and the process ends."""
        source: Source = made_source(self._job, context)
        is_hung = False
        try:
            yield source
        except PluginHungError:
            is_hung = True
            raise
        finally:
            self._end_measures()
            if not is_hung:
                source.close()

    def _sender(self, source: Source) -> "OtlpSender | None":
        if not self._job.runtime.otel_endpoint:
            return None
        # Imported here because few jobs need it.
        from headrace.connector.runtime.telemetry import sender_of  # noqa: PLC0415

        return sender_of(
            self._job.runtime,
            self._job.name,
            self._sending,
            measures=self.measures,
            stages=(WRITTEN, *source.stages),
            clock=self._clock,
            log=self._log,
        )

    def _end_measures(self) -> None:
        self._sending.close()
        measures, self._measures = self._measures, None
        if measures is not None:
            measures.close()

    @staticmethod
    def _report(  # noqa: PLR0913 (what a run came to)
        pipeline: Pipeline,
        failures: list[HeadraceError],
        outcome: Outcome,
        *,
        books: Sequence[SplitBooks],
        started: float,
        cpu_before: float,
    ) -> Report:
        """Return the report of a run; *started* and *cpu_before* are the clocks at its start."""
        return Report(
            books=books,
            failures=failures,
            changes=pipeline.stats.changes,
            dead_lettered=pipeline.stats.dead_lettered,
            batches=pipeline.stats.batches,
            commits=pipeline.stats.commits,
            wall_seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu_before,
            memory_bytes_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            outcome=outcome,
        )

    def _is_stopped(self, seconds: float) -> bool:
        """Wait for *seconds*, or until a stop is requested; return whether it was."""
        with contextlib.suppress(Empty):
            self._inbox.put(self._inbox.get(timeout=seconds))
        return not self._inbox.empty()

    def _surroundings(
        self,
        source: Source,
        sink: Sink,
        context: Context,
        owner: Owner,
        post: Callable[[DeliveryResult], None],
    ) -> Surroundings:
        """Open the objects of the data thread, on that thread."""
        runtime = self._job.runtime
        encoder = encoder_of(self._job, context, sink, source.origin)
        try:
            writers = Writers(sink, self._clock)
        except BaseException:
            encoder.close()
            raise
        store = store_of(self._job, writers)
        if not self._sink_noted:  # Before any write: a crash leaves it.
            with contextlib.suppress(StoreUnavailableError):
                store.note_sink(owner.host, mark_of(self._job))
        return Surroundings(
            source=source,
            writers=writers,
            encoder=encoder,
            store=store,
            clock=self._clock,
            log=self._log,
            job=self._job.name,
            worker=owner.worker,
            errors=self._errors,
            settle_ms_max=in_ms(runtime.settle_seconds_max),
            plan=self._plan,
            window_bytes=runtime.commit_max_bytes,
            post=post,
            trail=None if self._otlp is None else self._otlp.trail,
        )

    def _keep(  # noqa: PLR0913 (what the control thread works with)
        self,
        store: Store,
        board: Board,
        owner: Owner,
        pipeline: Pipeline,
        watch: SplitWatch,
        *,
        until_idle: bool,
    ) -> Course:
        """Keep the leases while the data thread runs; return how the run ended."""
        lease_ms, poll_ms = lease_times(self._job)
        near, splits = self._nearness, self._replanning.splits if self._replanning else ()
        store.enroll(owner, near.here)
        lease_holder = LeaseHolder(
            store, owner, self._clock, lease_ms=lease_ms, splits=splits, nearness=near
        )
        now_ms, me = self._clock.monotonic_ms(), owner.worker
        # The splits were settled just now.
        course, retry_ms_max = Course(replan_ms=now_ms + REPLAN_EVERY_MS), self._limits.retry_ms_max
        finishing = Finishing(
            course,
            lease_holder,
            watch,
            self._log,
            until_idle=until_idle,
            retry_ms_max=retry_ms_max,
            still_ms_max=retry_ms_max + in_ms(self._job.runtime.settle_seconds_max),
        )
        assert self._refusals is not None  # noqa: S101 (made before the job is run)
        refusals = self._refusals
        thread = threading.Thread(
            target=self._run_pipeline, args=(pipeline,), name="data", daemon=True
        )
        hands = _Hands(
            store, board, lease_holder, pipeline, watch, finishing, refusals, now_ms, me, thread
        )
        try:
            self._step(hands, course, now_ms)
            crash.reached("claimed")
            thread.start()
            self._control(hands, course, poll_ms=poll_ms)
        except PluginHungError:
            pipeline.command(Stop())  # If it ever returns. Its leases expire meanwhile.
            raise
        except BaseException:
            _end(thread, pipeline)
            _dismiss(store, owner, self._log)
            raise
        _end(thread, pipeline)
        with contextlib.suppress(StoreUnavailableError):  # The leases expire, too.
            self._show(hands)
        _dismiss(store, owner, self._log)
        return course

    def _run_pipeline(self, pipeline: Pipeline) -> None:
        error: BaseException | None = None
        try:
            pipeline.run()
        except BaseException as raised:  # noqa: BLE001 (the control thread raises it again)
            error = raised
        self._inbox.put(_Ended(error))

    def _control(self, hands: "_Hands", course: Course, *, poll_ms: int) -> None:
        step_ms = self._clock.monotonic_ms() + poll_ms
        while True:
            wait_ms = max(0, step_ms - self._clock.monotonic_ms())
            try:
                message = self._inbox.get(timeout=wait_ms / 1000)
            except Empty:
                now_ms = self._clock.monotonic_ms()
                self._check_hung(hands, now_ms)
                self._step(hands, course, now_ms)
                step_ms = hands.lease_holder.next_ms(poll_ms)
            else:
                if isinstance(message, _Ended):
                    if message.error is not None:
                        raise message.error
                    return
                self._receive(message, hands, course)
                if isinstance(message, Closed) and not course.stopping:
                    step_ms = self._clock.monotonic_ms()  # There may be one to claim.
            is_open = course.stopping or hands.refusals.waiting
            if not is_open and hands.finishing.is_over():
                self._stop(hands.pipeline, course, Outcome.ENDED)

    def _check_hung(self, hands: "_Hands", now_ms: int) -> None:
        runtime, pipeline = self._job.runtime, hands.pipeline
        bound_ms = max(in_ms(runtime.call_seconds_max), 2 * runtime.tick_min_ms)
        if pipeline.pass_ms is None:
            silent_ms, where = now_ms - hands.since_ms, "opening the sink"
        else:
            silent_ms, where = now_ms - pipeline.pass_ms, f"split {pipeline.split_last}"
        hands.watch.silent(silent_ms, where)
        if silent_ms > bound_ms:
            raise hung(silent_ms / 1000, where, hands.thread)

    def _receive(
        self, message: Closed | Idled | Pulse | _Stopped, hands: "_Hands", course: Course
    ) -> None:
        match message:
            case _Stopped():
                self._stop(hands.pipeline, course, Outcome.ENDED)
            case Idled():
                course.idled = message
            case Pulse():
                if not course.pulsed:  # It runs: the last error is over.
                    course.pulsed = True
                    _record_problem(hands.store, "")
                now_ms = self._clock.monotonic_ms()
                hands.watch.pulse(message, now_ms)
                if hands.finishing.is_stuck(message, now_ms):
                    self._stop(hands.pipeline, course, Outcome.ENDED)
            case Closed(split, token, None):
                target = hands.lease_holder.closed(split, token, failed=False)
                if target:
                    self._log.info("split_handed_over", split=split, token=token, target=target)
                if split not in hands.lease_holder.held:  # Else it was lost and gained again.
                    hands.watch.released(split)
            case Closed(split, token, HeadraceError() as error):
                again_ms = hands.watch.failed(
                    split,
                    error,
                    now_ms=self._clock.monotonic_ms(),
                    wall_ms=self._clock.wall_ms(),
                )
                hands.lease_holder.closed(split, token, failed=True, again_ms=again_ms)
                course.failures[split] = error
                hands.refusals.take(error)

    def _step(self, hands: "_Hands", course: Course, now_ms: int) -> None:
        """Check leases and the target state, and report the state of the splits."""
        lease_holder = hands.lease_holder
        try:
            lease_holder.rates.observe(
                {run.split: run.bytes_read for run in hands.pipeline.runs}, now_ms
            )
            if not course.stopping:
                hands.refusals.note()
                self._heed(hands, course, now_ms)
            changes = lease_holder.renew_only() if course.stopping else lease_holder.step()
            if changes.gained:
                self._heed_again(hands, course, now_ms)
            self._take_over(hands, course, changes)
            self._show(hands)
        except StoreUnavailableError as error:
            hands.finishing.store_failed(error, self._clock.monotonic_ms())
        else:
            hands.finishing.store_answered()

    def _take_over(self, hands: "_Hands", course: Course, changes: Changes) -> None:
        """Apply changed leases to the pipeline."""
        hands.watch.claimed(lease.split for lease in changes.gained)
        for split in changes.lost:
            hands.watch.released(split)
        tell_ownership(self._log, changes)
        for lease in changes.gained:
            course.failures.pop(lease.split, None)
        _command(hands, course, [Lose(split) for split in changes.lost])
        _command(hands, course, [HandOver(split) for split in changes.hand_over])
        if not course.stopping:  # Else they are not read, and given back at the end.
            _command(hands, course, [Gain(lease) for lease in changes.gained])

    def _show(self, hands: "_Hands") -> None:
        rows = hands.watch.changed_rows(self._clock.monotonic_ms())
        if rows:
            hands.store.see(rows)
        if self._missing_tables is not None and self._unread is not None:
            self._missing_tables.look(hands.store)
            self._unread.look(hands.store, self._clock.monotonic_ms())

    def _heed(self, hands: "_Hands", course: Course, now_ms: int) -> None:
        """Apply the target state to the pipeline."""
        before, now = self._wanted, hands.board.wanted(self._job.name)
        if now.log_level:
            set_threshold(now.log_level)
        self._wanted = msgspec.structs.replace(now, generation=before.generation)
        asked = [s for s, n in now.restarts.items() if n != before.restarts.get(s, 0)]
        if now.state is Desired.STOPPED:
            self._stop(hands.pipeline, course, Outcome.STOPPED)
        elif (
            now.mixed
            or now.generation != before.generation
            or self._must_replan(hands, course, now_ms)
        ):
            self._stop(hands.pipeline, course, Outcome.CHANGED)
        elif WHOLE_JOB in asked:
            self._stop(hands.pipeline, course, Outcome.RESTART)
        if course.stopping:
            return
        for split in asked:
            hands.lease_holder.admit(split)
            hands.watch.asked(split)
        _command(hands, course, [HandOver(s) for s in asked if hands.lease_holder.leave(s)])
        if course.paused is not (now.state is Desired.PAUSED):
            course.paused = not course.paused
            _command(hands, course, [Pause(course.paused)])
        if now.modes != course.modes:
            course.modes = now.modes
            _command(hands, course, [SetModes(now.modes)])

    def _heed_again(self, hands: "_Hands", course: Course, now_ms: int) -> None:
        """Check the target state again: while its splits are free, a job can be forked."""
        try:
            self._heed(hands, course, now_ms)
        except StoreUnavailableError:  # The outcome is unknown: restart.
            self._stop(hands.pipeline, course, Outcome.CHANGED)

    def _must_replan(self, hands: "_Hands", course: Course, now_ms: int) -> bool:
        if now_ms < course.replan_ms:
            return False
        course.replan_ms = now_ms + REPLAN_EVERY_MS
        workers = hands.lease_holder.live
        assert self._replanning is not None  # noqa: S101 (made before the leases are kept)
        return self._replanning.is_due(self._plan, workers, hands.me, now_ms=now_ms)

    def _stop(self, pipeline: Pipeline, course: Course, outcome: Outcome) -> None:
        if not course.stopping:
            course.stopping, course.outcome = True, outcome
            pipeline.command(Stop())


@dataclass(frozen=True, slots=True)
class _Hands:
    """The objects of the control thread."""

    store: Store
    board: Board
    lease_holder: LeaseHolder
    pipeline: Pipeline
    watch: SplitWatch
    finishing: Finishing
    refusals: Refusals
    since_ms: int
    me: str
    thread: threading.Thread
    """The data thread."""


def _command(hands: _Hands, course: Course, commands: Iterable[Command]) -> None:
    for command in commands:
        hands.pipeline.command(command)
        course.sent += 1


def _record_problem(store: Store, problem: str) -> None:
    # For the status only; the error itself is raised.
    with contextlib.suppress(StoreUnavailableError):
        store.report(problem)


def _end(thread: threading.Thread, pipeline: Pipeline) -> None:
    if thread.ident is not None:
        pipeline.command(Stop())
        thread.join()


def _dismiss(store: Store, owner: Owner, log: structlog.stdlib.BoundLogger) -> None:
    try:
        store.dismiss(owner.worker)
    except StoreUnavailableError as error:  # The leases expire by themselves.
        log.warning("store_unavailable", error=str(error))

"""One process that runs one job: the control thread, which is the caller's, and the data thread.

The control thread keeps the leases and hears the signals; it never calls a plugin while the data
thread runs. The data thread is the pipeline. They exchange messages and share nothing else.
"""

import contextlib
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Final

import structlog

from headrace.connector.job import Job
from headrace.connector.runtime import crash
from headrace.connector.runtime.books import SplitBooks
from headrace.connector.runtime.clock import SystemClock, ThreadWake
from headrace.connector.runtime.leases import LeaseKeeper
from headrace.connector.runtime.pipeline import (
    Closed,
    Command,
    Gain,
    HandOver,
    Idled,
    Limits,
    Lose,
    Pipeline,
    Stop,
)
from headrace.connector.runtime.processes import this_process
from headrace.connector.runtime.splitrun import Surroundings, Verdict
from headrace.connector.serde import Encoder
from headrace.connector.stores import Owner, StoreUnavailableError
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins import Context, FatalError, HeadraceError, Sink, Source

POLL_MS_MAX: Final = 1_000


class PluginHungError(FatalError):
    """A call of a plugin did not return (R8): the process ends, so that others may take over."""

    code = "plugin_hung"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to. `books` are those of all splits as committed, by whichever process."""

    books: Sequence[SplitBooks]
    failures: Sequence[HeadraceError]
    changes: int
    batches: int
    commits: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes_max: int


@dataclass(frozen=True, slots=True)
class _Stopped:
    """Someone asked the worker to stop."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """The data thread ended, with the error that ended it."""

    error: BaseException | None


@dataclass(slots=True)
class _Course:
    """Where the control loop stands."""

    sent: int = 0
    stopping: bool = False
    idled: Idled | None = None
    failures: list[HeadraceError] = field(default_factory=list)


class Worker:
    """See the module. `run` once; `stop` at any time."""

    def __init__(self, job: Job, *, log: structlog.stdlib.BoundLogger) -> None:
        """Open nothing yet."""
        self._job = job
        self._log = log.bind(job=job.name)
        self._clock = SystemClock()
        self._inbox: SimpleQueue[Closed | Idled | _Stopped | _Ended] = SimpleQueue()

    def stop(self) -> None:
        """Ask for a clean stop. Any thread, and a signal handler, may call it at any time."""
        self._inbox.put(_Stopped())

    def run(self, *, until_idle: bool) -> Report:
        """Run the job until it is stopped or, with *until_idle*, until all there is was taken.

        Raises:
            HeadraceError: the job as a whole cannot run. What stops single splits is reported.

        """
        started = time.monotonic()
        store = _open_store(self._job)
        try:
            try:
                report = self._run(store, started, until_idle=until_idle)
            except HeadraceError as error:
                _record_problem(store, f"{error.code}: {error}")
                raise
            _record_problem(store, "")
            return report
        finally:
            store.close()

    def _run(self, store: SqliteStore, started: float, *, until_idle: bool) -> Report:
        cpu_before = time.process_time()  # Of all threads; what start-up cost is no run's.
        context = Context(
            job=self._job.name, clock=self._clock, job_key=store.job_key(), log=self._log
        )
        source: Source = self._job.source(self._job.source_config, context)
        try:
            sink: Sink = self._job.sink(self._job.sink_config, context)
            encoder = Encoder(sink.encoding())
            store.register([split.split_id for split in source.plan()])
            owner = this_process()
            pipeline = Pipeline(
                lambda post: self._surroundings(source, sink, encoder, owner, post),
                _limits(self._job),
                ThreadWake(),
                self._inbox.put,
                until_idle=until_idle,
            )
            self._log.info("started", splits=len(store.leases()), until_idle=until_idle)
            failures = self._keep(store, owner, pipeline, until_idle=until_idle)
            usage = resource.getrusage(resource.RUSAGE_SELF)
            report = Report(
                books=committed_books(store, source),
                failures=failures,
                changes=pipeline.stats.changes,
                batches=pipeline.stats.batches,
                commits=pipeline.stats.commits,
                wall_seconds=time.monotonic() - started,
                cpu_seconds=time.process_time() - cpu_before,
                memory_bytes_max=usage.ru_maxrss * 1024,
            )
            self._log.info("stopped", changes=report.changes, failures=len(failures))
            return report
        finally:
            source.close()

    def _surroundings(
        self,
        source: Source,
        sink: Sink,
        encoder: Encoder,
        owner: Owner,
        post: Callable[[Verdict], None],
    ) -> Surroundings:
        """Open, on the data thread, what belongs to it."""
        runtime = self._job.runtime
        return Surroundings(
            source=source,
            writer=sink.open(),
            encoder=encoder,
            store=_open_store(self._job),
            clock=self._clock,
            log=self._log,
            worker=owner.worker,
            retry_ms_max=_ms(runtime.retry_seconds_max),
            settle_ms_max=_ms(runtime.settle_seconds_max),
            tick_ms=runtime.tick_min_ms,
            post=post,
        )

    def _keep(
        self, store: SqliteStore, owner: Owner, pipeline: Pipeline, *, until_idle: bool
    ) -> Sequence[HeadraceError]:
        """Keep the leases while the data thread runs; return why splits failed."""
        lease_ms = _ms(self._job.runtime.lease_seconds)
        keeper = LeaseKeeper(store, owner, self._clock, lease_ms=lease_ms)
        store.enroll(owner)
        thread = threading.Thread(
            target=self._run_pipeline, args=(pipeline,), name="data", daemon=True
        )
        course = _Course()
        try:
            self._step(keeper, pipeline, course)
            crash.reached("claimed")
            thread.start()
            self._control(keeper, pipeline, course, lease_ms=lease_ms, until_idle=until_idle)
        except PluginHungError:
            pipeline.command(Stop())  # Should it ever return. Its leases run out meanwhile.
            raise
        except BaseException:
            _end(thread, pipeline)
            _dismiss(store, owner, self._log)
            raise
        _end(thread, pipeline)
        _dismiss(store, owner, self._log)
        return course.failures

    def _run_pipeline(self, pipeline: Pipeline) -> None:
        error: BaseException | None = None
        try:
            pipeline.run()
        except BaseException as raised:  # noqa: BLE001 (the control thread raises it again)
            error = raised
        self._inbox.put(_Ended(error))

    def _control(
        self,
        keeper: LeaseKeeper,
        pipeline: Pipeline,
        course: _Course,
        *,
        lease_ms: int,
        until_idle: bool,
    ) -> None:
        poll_ms = min(POLL_MS_MAX, lease_ms // 3)
        step_ms = self._clock.monotonic_ms() + poll_ms
        while True:
            wait_ms = max(0, step_ms - self._clock.monotonic_ms())
            try:
                message = self._inbox.get(timeout=wait_ms / 1000)
            except Empty:
                self._check_hung(pipeline)
                self._step(keeper, pipeline, course)
                step_ms = self._clock.monotonic_ms() + poll_ms
            else:
                if isinstance(message, _Ended):
                    if message.error is not None:
                        raise message.error
                    return
                self._receive(message, keeper, pipeline, course)
                if isinstance(message, Closed) and not course.stopping:
                    step_ms = self._clock.monotonic_ms()  # Perhaps there is one to claim.
            if self._finished(keeper, course, until_idle=until_idle):
                self._stop(pipeline, course)

    def _check_hung(self, pipeline: Pipeline) -> None:
        runtime = self._job.runtime
        bound_ms = max(_ms(runtime.call_seconds_max), 2 * runtime.tick_min_ms)
        if pipeline.pass_ms is None:  # The sink is still being opened.
            return
        silent_ms = self._clock.monotonic_ms() - pipeline.pass_ms
        if silent_ms > bound_ms:
            raise PluginHungError(
                f"a call has not returned for {silent_ms / 1000:g} s",
                place=f"split {pipeline.split_last}",
                hint="runtime.call_seconds_max says how long a source or sink may take",
            )

    def _receive(
        self,
        message: Closed | Idled | _Stopped,
        keeper: LeaseKeeper,
        pipeline: Pipeline,
        course: _Course,
    ) -> None:
        match message:
            case _Stopped():
                self._stop(pipeline, course)
            case Idled():
                course.idled = message
            case Closed(split, token, problem):
                keeper.closed(split, token, failed=problem is not None)
                if problem is not None:
                    course.failures.append(problem)

    def _step(self, keeper: LeaseKeeper, pipeline: Pipeline, course: _Course) -> None:
        try:
            changes = keeper.renew_only() if course.stopping else keeper.step()
        except StoreUnavailableError as error:
            self._log.warning("store_unavailable", error=str(error))
            return
        commands: list[Command] = [Lose(split) for split in changes.lost]
        commands += [HandOver(split) for split in changes.hand_over]
        commands += [Gain(lease) for lease in changes.gained]
        for command in commands:
            pipeline.command(command)
        course.sent += len(commands)

    def _finished(self, keeper: LeaseKeeper, course: _Course, *, until_idle: bool) -> bool:
        if course.failures and not keeper.held:
            return not until_idle or keeper.others_live
        idled = course.idled
        if idled is None or idled.commands != course.sent or not keeper.others_live:
            return False
        return until_idle or idled.for_ever

    def _stop(self, pipeline: Pipeline, course: _Course) -> None:
        if not course.stopping:
            course.stopping = True
            pipeline.command(Stop())


def committed_books(store: SqliteStore, source: Source) -> Sequence[SplitBooks]:
    """Return the books of every split as they are committed."""
    books = []
    for state in store.states():
        own: Mapping[str, int] = {}
        if state.position is not None:
            own = source.decode_position(state.position).books()
        books.append(SplitBooks(state.split, own, state.counters))
    return books


def _open_store(job: Job) -> SqliteStore:
    return SqliteStore.open(
        job.state, job.name, quarantine_bytes_max=job.runtime.quarantine_bytes_max
    )


def _record_problem(store: SqliteStore, problem: str) -> None:
    # A courtesy to whoever asks for the status; the error itself is raised.
    with contextlib.suppress(StoreUnavailableError):
        store.report(problem)


def _end(thread: threading.Thread, pipeline: Pipeline) -> None:
    if thread.ident is not None:
        pipeline.command(Stop())
        thread.join()


def _dismiss(store: SqliteStore, owner: Owner, log: structlog.stdlib.BoundLogger) -> None:
    try:
        store.dismiss(owner.worker)
    except StoreUnavailableError as error:  # The leases run out by themselves.
        log.warning("store_unavailable", error=str(error))


def _limits(job: Job) -> Limits:
    runtime = job.runtime
    return Limits(
        tick_ms=runtime.tick_min_ms,
        commit_ms_max=_ms(runtime.commit_max_seconds),
        commit_bytes_max=runtime.commit_max_bytes,
        outstanding_bytes_max=runtime.outstanding_bytes_max,
        outstanding_records_max=runtime.outstanding_records_max,
        batch_bytes_max=runtime.batch_bytes_max,
        batch_records_max=runtime.batch_records_max,
        retry_ms_max=_ms(runtime.retry_seconds_max),
        stop_ms_max=_ms(runtime.stop_seconds_max),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

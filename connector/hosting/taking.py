"""One attempt at a run that a statement requested, in the process of its job or on Spark."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.hosting.run_plans import Asked
from headrace.connector.obs.blame import HINT, PluginBrokenError, described, place_of
from headrace.connector.replay import execution
from headrace.connector.replay.delivery import Work
from headrace.connector.replay.engine import Engine, Gatherer, Once, engine, once_here, perform_here
from headrace.connector.replay.errors import (
    RunBusyError,
    RunHaltedError,
    ShardFailedError,
    SparkMissingError,
)
from headrace.connector.replay.run_metrics import CompareMeasures, Measures, RunMeasures
from headrace.connector.replay.runs import Run, RunTable, ShardRow, ShardState
from headrace.connector.replay.shards import OverShards, Shard
from headrace.connector.runtime.telemetry import sender_of
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.asked_runs import AskedRun, AskedRuns, Progress, RunKind, RunState
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import HeadraceError
from headrace.plugins.errors import install_hint
from headrace.plugins.metrics import Measure

T = TypeVar("T")

_RESULT_CHARS_MAX: Final = 1_000
_LEAST_SECONDS: Final = 0.001


class _Before(msgspec.Struct, frozen=True, kw_only=True):
    """The results of earlier attempts, and the start of this one."""

    done: int = 0
    changes: int = 0
    size_bytes: int = 0
    lost: int = 0
    begun_s: float = 0


class Taking:
    """See the module. `take` once."""

    def __init__(  # noqa: PLR0913 (its surroundings)
        self,
        notes: NoteCopy,
        asked: AskedRun,
        seen: Progress,
        job: Job,
        stopped: threading.Event,
        *,
        master: str | None = None,
    ) -> None:
        """Continue from the progress *seen*; *master* is Spark's master, for a run on Spark."""
        self._master = master
        self._halt = threading.Event()
        self.progress = seen
        self._notes = notes
        self._asked = asked
        self._job = job
        self._stopped = stopped
        self._before = _Before()
        self._next_look_s = 0.0
        self._measures: RunMeasures | None = None
        self._reported: Measures | None = None  # The measures of the current step.

    def take(self) -> None:
        """Do the rest of the run.

        Raises:
            RunHaltedError: the run must stop.
            RunBusyError: another process takes the run.
            HeadraceError: some of it could not be read, or delivered; the rest is done.

        """
        try:
            with contextlib.closing(RunTable(self._job.notes, pause=self._pause)) as runs:
                self._execute_named(runs)
        except RunHaltedError:
            self._tell(state=RunState.WAITING)
            raise
        except (RunBusyError, StoreUnavailableError):
            raise
        except HeadraceError as error:
            attempt, text = self._asked.attempt, f"{error.code}: {error}"
            self._tell(state=RunState.FAILED, problem=text, attempt=attempt)
            raise
        ended_ms = SystemClock().wall_ms()
        self._tell(state=RunState.COMPLETED, problem="", ended_ms=ended_ms)

    def measures(self) -> Iterable[Measure]:
        """Return the metrics of the run. Any thread may call."""
        return () if self._reported is None else self._reported.measures()

    def _execute_named(self, runs: RunTable) -> None:
        """Raise any exception as a named error: a bug in a plugin ends only this run."""
        try:
            self._execute(runs)
        except HeadraceError:
            raise
        except Exception as error:
            raise PluginBrokenError(described(error), place=place_of(error), hint=HINT) from error

    def _execute(self, runs: RunTable) -> None:
        runs.keep_asked(lambda: {each.name for each, _ in AskedRuns(self._notes).all()})
        asked = Asked.of(self._asked, self._job, self._notes)
        with self._engine(runs, asked) as used:
            if self._asked.order.kind is RunKind.RECONCILE:
                self._compare(runs, asked, used)
            else:
                self._deliver(runs, asked, used)

    @contextlib.contextmanager
    def _engine(self, runs: RunTable, asked: Asked) -> Iterator[Engine]:
        """Yield Spark or this process; its parts end when the run is no longer wanted."""
        if asked.is_on_spark:
            with runs.executing(self._asked.name):
                pass  # Do not start Spark: another process takes it.
            with engine(self._master, go_on=self._goes_on) as used:
                counted = partial(self._counted, used.gather)
                yield replace(used, gather=counted, once=partial(self._counted_once, used.once))
            return
        yield Engine(
            partial(self._perform, asked.at_once),
            self._gather,
            partial(once_here, gather=self._gather, halted=self._halted),
            asked.at_once,
        )

    def _deliver(self, runs: RunTable, asked: Asked, used: Engine) -> None:
        run = asked.planned_in(runs)
        self._tell(result="; ".join(run.facts.get("findings", ()))[:_RESULT_CHARS_MAX])
        self._send(runs, run, used)

    def _send(self, runs: RunTable, run: Run, used: Engine) -> None:
        """Deliver the remaining shards of a planned run."""
        self._begin(runs.shards(run.run), measures := RunMeasures(run.run, note=self._report))
        try:
            with self._telling(measures):
                execution.execute(
                    runs,
                    run,
                    used.perform,
                    measures,
                    width=used.width,
                    shown=execution.Progress(stream=None),
                )
        except ShardFailedError as error:
            self._check_halted(error)
            raise

    def _compare(self, runs: RunTable, asked: Asked, used: Engine) -> None:
        """Compare from the beginning: findings of earlier attempts are not kept."""
        try:
            from headrace.connector.hosting.run_comparing import compared  # noqa: PLC0415 (an extra)
        except ImportError as error:
            message = f"a comparison needs {error.name}, which cannot be imported"
            raise SparkMissingError(message, hint=install_hint("spark")) from error
        with runs.executing(self._asked.name):
            runs.forget(self._asked.name)  # An earlier attempt's repair: this reads its records.
            self._tell(state=RunState.RUNNING, shards=0, done=0, attempt=self._asked.attempt)
            self._tell(begun_ms=self.progress.begun_ms or SystemClock().wall_ms())
            measures = CompareMeasures(self._asked.name)
            try:
                with self._telling(measures):
                    found = compared(asked, used.gather, used.once, self._wait, measures)
            except ShardFailedError as error:
                self._check_halted(error)
                raise
        result, lost = found.result, 0
        if found.repair is not None:
            self._tell(differences=found.differences, result=result)
            self._send(runs, found.repair, used)
            sent, lost = self.progress.changes, self.progress.lost
            result = f"repaired by {sent} changes; {result}"
        self._tell(changes=found.changes, differences=found.differences, result=result, lost=lost)

    @contextlib.contextmanager
    def _telling(self, measures: Measures) -> Iterator[None]:
        """Show *measures*, and send them and their spans, as the job configures."""
        self._reported = measures
        with contextlib.ExitStack() as stack:
            runtime, name = self._job.runtime, self._job.name
            sender = sender_of(runtime, name, stack, measures=measures.measures)
            if sender is not None:
                measures.trace = sender.add
            yield

    def _gather(self, tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
        """Run the tasks of a comparison, and show how many are done."""
        self._tell(shards=self.progress.shards + len(tasks))
        reports = []
        for task in tasks:
            self._check_halted()
            reports.append(task())
            self._tell(done=self.progress.done + 1)
        return reports

    def _counted(self, gather: Gatherer, tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
        """Run the tasks of a comparison concurrently, and show how many are left and done."""
        with self._counting(len(tasks)):
            return gather(tasks)

    @contextlib.contextmanager
    def _counted_once(self, once: Once, shards: Sequence[Shard]) -> Iterator[OverShards]:
        """Yield a function that does so with tasks of *shards*."""
        with once(shards) as over:

            def counted(
                make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]
            ) -> Sequence[T]:
                with self._counting(len(of)):
                    return over(make, of)

            yield counted

    @contextlib.contextmanager
    def _counting(self, tasks: int) -> Iterator[None]:
        self._check_halted()
        self._tell(shards=self.progress.shards + tasks)
        yield
        self._tell(done=self.progress.done + tasks)

    def _wait(self, seconds: float) -> None:
        """Wait, and check meanwhile whether the run is still wanted."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._check_halted()
            self._stopped.wait(min(left, execution.LOOK_EVERY_SECONDS))

    def _check_halted(self, cause: BaseException | None = None) -> None:
        """Raise RunHaltedError if the run is no longer wanted."""
        if not self._goes_on():
            raise RunHaltedError("the run was halted") from cause

    def _begin(self, rows: Sequence[ShardRow], measures: RunMeasures) -> None:
        """Show the results of earlier attempts."""
        done = [row.report for row in rows if row.state is ShardState.PASS]
        self._before = _Before(
            done=len(done),
            changes=sum(each.get("delivered", 0) for each in done),
            size_bytes=sum(each.get("size_bytes", 0) for each in done),
            lost=sum(each.get(fate, 0) for each in done for fate in ("rejected", "quarantined")),
            begun_s=time.monotonic(),
        )
        self._measures = measures
        begun_ms = self.progress.begun_ms or SystemClock().wall_ms()
        self._tell(
            state=RunState.RUNNING,
            shards=len(rows),
            attempt=self._asked.attempt,
            begun_ms=begun_ms,
            problem="",
        )
        self._report()

    def _perform(
        self,
        at_once: int,
        works: Sequence[Work],
        *,
        begun: execution.Begun,
        ended: execution.Ended,
    ) -> None:
        """Deliver shards; an error ends the running ones.

        Token ranges are delivered on threads. Shards of the logs, which are read once for all of
        them, are delivered one after another.
        """
        if self._asked.order.kind is not RunKind.SNAPSHOT:
            perform_here(works, begun=begun, ended=ended, halted=self._halted)
            return

        def ending(call: Callable[..., None]) -> Callable[..., None]:
            def called(*given: Any) -> None:  # noqa: ANN401 (a work, and perhaps its report)
                try:
                    call(*given)
                except BaseException:
                    self._halt.set()
                    raise

            return called

        execution.perform_at_once(
            works,
            lambda work: work.unless(self._halt.wait),
            at_once,
            begun=ending(begun),
            ended=ending(ended),
            go_on=self._goes_on,
        )

    def _goes_on(self) -> bool:
        """Return whether the run is still wanted; halt it if it is not."""
        with contextlib.suppress(StoreUnavailableError):  # It may respond the next time.
            if not self._is_wanted():
                self._halt.set()
        if self._stopped.is_set():
            self._halt.set()
        return not self._halt.is_set()

    def _pause(self, seconds: float) -> None:
        """Wait for *seconds*. Raises RunHaltedError if the process must stop."""
        if self._stopped.wait(seconds):
            raise RunHaltedError("the run was halted")

    def _halted(self, seconds: float) -> bool:
        """Wait for *seconds*; return whether the run must end. The store is read seldom."""
        if self._stopped.wait(seconds) or time.monotonic() >= self._next_look_s:
            self._next_look_s = time.monotonic() + execution.LOOK_EVERY_SECONDS
            self._goes_on()
        return self._halt.is_set()

    def _report(self) -> None:
        """Store the progress; if the store does not respond, the next report does."""
        if self._measures is None:
            return
        measured, before = self._measures, self._before
        fates, states = measured.fates, measured.states
        elapsed_s = max(time.monotonic() - before.begun_s, _LEAST_SECONDS)
        with contextlib.suppress(StoreUnavailableError):
            self._tell(
                done=states.get(ShardState.PASS, 0) if states else before.done,
                changes=before.changes + fates["delivered"],
                size_bytes=before.size_bytes + measured.size_bytes,
                rate=fates["delivered"] / elapsed_s,
                lost=before.lost + fates["rejected"] + fates["quarantined"],
            )

    def _tell(self, **fields: Any) -> None:  # noqa: ANN401 (of Progress)
        """Store changed *fields*."""
        self.progress = replace(self.progress, **fields)
        AskedRuns(self._notes).report(self._asked.name, self.progress)

    def _is_wanted(self) -> bool:
        found = AskedRuns(self._notes).get(self._asked.name)
        if found is None or found[0].wanted is not Desired.RUNNING:
            return False
        return self._notes.board.wanted(self._job.name).state is Desired.RUNNING

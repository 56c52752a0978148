"""One attempt to take a snapshot: a run of bulk work over ranges of tokens, on threads."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.jobs import job_text, table_source
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.states import Desired
from headrace.connector.obs.blame import HINT, PluginBrokenError, place_of, told
from headrace.connector.replay import execution
from headrace.connector.replay.delivery import Target, Work
from headrace.connector.replay.errors import RunBusyError, RunHaltedError, ShardFailedError
from headrace.connector.replay.planning import planned
from headrace.connector.replay.run_metrics import RunMeasures
from headrace.connector.replay.runs import Run, RunTable, ShardRow, ShardState
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, inside
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.snapshots import Progress, Snapshot, Snapshots, SnapshotState
from headrace.connector.stores.target_state import Board
from headrace.plugins import HeadraceError, RowReading
from headrace.plugins.metrics import Measure

KIND: Final = "snapshot"


class Taking:
    """See the module. `take` once."""

    def __init__(
        self,
        notes: NoteCopy,
        snapshot: Snapshot,
        seen: Progress,
        job: Job,
        stopped: threading.Event,
    ) -> None:
        """Continue from what was *seen* of it."""
        self._halt = threading.Event()
        self.progress = seen
        self._notes = notes
        self._snapshot = snapshot
        self._job = job
        self._stopped = stopped
        self._before = (0, 0, 0)
        self._measures: RunMeasures | None = None

    def take(self) -> None:
        """Read what is left of the table.

        Raises:
            RunHaltedError: it is to be stopped.
            RunBusyError: another process takes it.
            HeadraceError: some of it could not be read, or delivered; the rest is done.

        """
        try:
            with contextlib.closing(RunTable(self._job.notes, pause=self._pause)) as runs:
                self._execute_named(runs)
        except RunHaltedError:
            self._tell(state=SnapshotState.WAITING)
            raise
        except (RunBusyError, StoreUnavailableError):
            raise
        except HeadraceError as error:
            attempt, text = self._snapshot.attempt, f"{error.code}: {error}"
            self._tell(state=SnapshotState.FAILED, problem=text, attempt=attempt)
            raise
        ended_ms = SystemClock().wall_ms()
        self._tell(state=SnapshotState.COMPLETED, problem="", ended_ms=ended_ms)

    def measures(self) -> Iterable[Measure]:
        """Return the metrics of the run. Any thread may ask."""
        return () if self._measures is None else self._measures.measures()

    def _execute_named(self, runs: RunTable) -> None:
        """Raise any exception as a named error: a mistake in a plugin ends this snapshot alone."""
        try:
            self._execute(runs)
        except HeadraceError:
            raise
        except Exception as error:
            raise PluginBrokenError(told(error), place=place_of(error), hint=HINT) from error

    def _execute(self, runs: RunTable) -> None:
        run, parallel = self._run_in(runs)
        self._begin(runs.shards(run.run), measures := RunMeasures(run.run, note=self._report))
        try:
            execution.execute(
                runs,
                run,
                partial(self._perform, parallel),
                measures,
                width=parallel,
                shown=execution.Progress(stream=None),
            )
        except ShardFailedError as error:
            if self._halt.is_set():
                raise RunHaltedError("the snapshot was halted") from error
            raise

    def _run_in(self, runs: RunTable) -> tuple[Run, int]:
        """Return the run of the snapshot, which is planned first, and how many ranges at once."""
        entry = Catalogue(self._notes).source(self._snapshot.source)
        assert self._job.file is not None  # noqa: S101 (a job that a host runs has a file)
        text = job_text(self._job.file, self._job.name, notes=self._notes)
        options, name = entry.options, self._snapshot.name
        target = replace(Target.of_job(text), rate=options.snapshot_rate)
        with runs.executing(f"plan-{name}"):  # Two that plan at once would both read it.
            known = next((run for run in runs.runs() if run.run == name), None)
            if known is None:
                table = entry.table_text
                given = table_source(text, table, page_rows=options.snapshot_page_rows)
                spec = SourceSpec(given=given, directory=str(text.directory), job=text.name)
                shards = self._shards(spec, options.snapshot_ranges)
                facts = {"table": table, "shards": len(shards)}
                made_ms = self._snapshot.asked_ms
                known = Run(run=name, kind=KIND, made_ms=made_ms, target=target, facts=facts)
                runs.add(known, shards)
        return replace(known, target=target), options.snapshot_parallel

    def _shards(self, spec: SourceSpec, ranges: int) -> Sequence[Shard]:
        """Return ranges of tokens; of a partition that of its token, and none if it has no rows."""
        tokens = self._snapshot.tokens
        if (key := self._snapshot.key) is not None:
            with inside(spec.directory), contextlib.closing(spec.open()) as source:
                token = RowReading.of(source).token_of(key)
            if token is None:
                return ()
            tokens, ranges = ((token - 1, token),), 1
        return planned(spec, Selection(tokens=tokens), shards=ranges).shards

    def _begin(self, rows: Sequence[ShardRow], measures: RunMeasures) -> None:
        """Show what earlier attempts came to."""
        done = [row.report for row in rows if row.state is ShardState.PASS]
        lost = sum(each.get(fate, 0) for each in done for fate in ("rejected", "quarantined"))
        self._before = len(done), sum(each.get("delivered", 0) for each in done), lost
        self._measures = measures
        begun_ms = self.progress.begun_ms or SystemClock().wall_ms()
        self._tell(
            state=SnapshotState.RUNNING,
            ranges=len(rows),
            attempt=self._snapshot.attempt,
            begun_ms=begun_ms,
        )
        self._report()

    def _perform(
        self,
        parallel: int,
        works: Sequence[Work],
        *,
        begun: execution.Begun,
        ended: execution.Ended,
    ) -> None:
        """Deliver ranges on threads; an error ends those that are being read."""

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
            parallel,
            begun=ending(begun),
            ended=ending(ended),
            go_on=self._goes_on,
        )

    def _goes_on(self) -> bool:
        """Say whether the snapshot is still wanted; halt it if it is not."""
        with contextlib.suppress(StoreUnavailableError):  # It may answer the next time.
            if not self._is_wanted():
                self._halt.set()
        if self._stopped.is_set():
            self._halt.set()
        return not self._halt.is_set()

    def _pause(self, seconds: float) -> None:
        """Wait for *seconds*. Raises RunHaltedError when the process is to stop."""
        if self._stopped.wait(seconds):
            raise RunHaltedError("the snapshot was halted")

    def _report(self) -> None:
        """Store how far it is; if the store does not answer, the next report does so."""
        if self._measures is None:
            return
        fates, (_, rows, lost) = self._measures.fates, self._before
        states = self._measures.states
        with contextlib.suppress(StoreUnavailableError):
            self._tell(
                done=states.get(ShardState.PASS, 0) if states else self._before[0],
                rows=rows + fates["delivered"],
                lost=lost + fates["rejected"] + fates["quarantined"],
            )

    def _tell(self, **fields: Any) -> None:  # noqa: ANN401 (of Progress)
        """Store changed *fields*."""
        self.progress = replace(self.progress, **fields)
        Snapshots(self._notes).report(self._snapshot.name, self.progress)

    def _is_wanted(self) -> bool:
        found = Snapshots(self._notes).get(self._snapshot.name)
        if found is None or found[0].wanted is not Desired.RUNNING:
            return False
        return Board(self._notes).wanted(self._job.name).state is Desired.RUNNING

"""Executes a planned run shard by shard, resumes it, and shows its progress.

It does not depend on Spark: the caller passes a function that delivers shards.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TextIO, TypeVar

import structlog

from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.run_metrics import RunMeasures
from headrace.connector.replay.runs import Run, RunTable, ShardState
from headrace.plugins import HeadraceError

LINE_EVERY_SECONDS: Final = 10.0
LOOK_EVERY_SECONDS: Final = 0.2
_BAR_CHARS: Final = 30


class Came(Protocol):
    """The result of a work."""

    @property
    def is_halted(self) -> bool:
        """Whether it has not ended."""


WorkT = TypeVar("WorkT")
CameT = TypeVar("CameT", bound=Came)
GoOn = Callable[[], bool]
"""Says whether the work is still wanted."""
Begun = Callable[[Work], None]
Ended = Callable[[Work, ShardReport], None]


def always() -> bool:
    """Return True: the work is still wanted."""
    return True


class Performer(Protocol):
    """Delivers shards, several at once; calls back on the caller's thread."""

    def __call__(self, works: Sequence[Work], *, begun: Begun, ended: Ended) -> None:
        """Deliver all *works*."""


def perform_at_once(  # noqa: PLR0913 (what to do, and what to call)
    works: Sequence[WorkT],
    do: Callable[[WorkT], CameT],
    at_once: int,
    *,
    begun: Callable[[WorkT], None],
    ended: Callable[[WorkT, CameT], None],
    go_on: GoOn = always,
) -> None:
    """Call *do* with all works, *at_once* of them on threads; call back on this thread.

    *go_on* is called every `LOOK_EVERY_SECONDS`: once it returns False, no other work starts. A
    halted work has not ended.
    """
    waiting = list(reversed(works))
    running: dict[Future[CameT], WorkT] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="shard") as pool:
        while waiting or running:
            if waiting and not go_on():
                waiting.clear()
            while waiting and len(running) < at_once:
                work = waiting.pop()
                begun(work)
                running[pool.submit(do, work)] = work
            done, _ = wait(running, timeout=LOOK_EVERY_SECONDS, return_when=FIRST_COMPLETED)
            go_on()
            for future in done:
                work, report = running.pop(future), future.result()
                if not report.is_halted:
                    ended(work, report)


@dataclass(slots=True)
class Progress:
    """Shows the progress of a run: a bar on a terminal, else a line at intervals.

    Without a `stream` it shows nothing.
    """

    total: int = 0
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)
    done: int = 0
    failed: int = 0
    changes: int = 0
    _reported_seconds: float = 0

    def step(self, report: ShardReport) -> None:
        """Count a shard that ended."""
        self.done += 1
        self.failed += bool(report.problem)
        self.changes += report.delivered
        self.tell()

    def tell(self) -> None:
        """Show the progress, if it is due."""
        if self.stream is None:
            return
        text = f"{self.done} of {self.total} shards, {self.changes} changes, {self.failed} failed"
        if self.stream.isatty():
            filled = _BAR_CHARS * self.done // max(1, self.total)
            self.stream.write(f"\r[{'#' * filled:<{_BAR_CHARS}}] {text}")
            self.stream.write("\n" if self.done == self.total else "")
        elif (
            self.done == self.total
            or time.monotonic() - self._reported_seconds > LINE_EVERY_SECONDS
        ):
            self._reported_seconds = time.monotonic()
            self.stream.write(f"{text}\n")
        self.stream.flush()


def execute(  # noqa: PLR0913 (what to do, how, and what to call)
    table: RunTable,
    run: Run,
    perform: Performer,
    measures: RunMeasures | None = None,
    *,
    width: int = 1,
    shown: Progress | None = None,
) -> Counter[ShardState]:
    """Deliver each shard that did not pass yet once; return the number of shards in each state.

    *measures* counts each. *width* tasks at once share the target's rate.

    Raises:
        RunBusyError: another process executes it.
        ShardFailedError: shards failed; the others are done.

    """
    log = structlog.stdlib.get_logger().bind(run=run.run)
    with table.executing(run.run):
        waiting = [row for row in table.shards(run.run) if row.state is not ShardState.PASS]
        rate = run.target.rate / max(1, min(width, len(waiting)))
        target = replace(run.target, rate=rate)
        works = [Work(row.shard, target, run.run, row.attempt + 1) for row in waiting]
        progress, measured = shown or Progress(), measures or RunMeasures(run.run)
        progress.total = len(works)
        states = {row.shard.number: row.state for row in table.shards(run.run)}
        log.info("replay_started", shards=len(works), kind=run.kind)

        def begun(work: Work) -> None:
            table.begin(run.run, work.shard.number, work.attempt)
            states[work.shard.number] = ShardState.STARTED
            measured.step(Counter(states.values()))

        def ended(work: Work, report: ShardReport) -> None:
            if not report.problem and target.lake:
                report.problem = _joined(work)
            state = ShardState.FAIL if report.problem else ShardState.PASS
            table.end(run.run, report, state)
            states[report.number] = state
            measured.step(Counter(states.values()), report)
            measured.ended(work, report)
            if report.problem:
                log.error("shard_failed", shard=work.shard.number, error=report.problem)
            progress.step(report)

        perform(works, begun=begun, ended=ended)
        came_to = Counter(row.state for row in table.shards(run.run))
        if set(came_to) == {ShardState.PASS} and run.target.path:
            # Imported here because it needs an extra.
            from headrace.connector.replay.parquet import forget_begun  # noqa: PLC0415

            forget_begun(run.target.folder, run.run)
        log.info("replay_ended", **{state.value.lower(): came_to[state] for state in ShardState})
    failed = [row for row in table.shards(run.run) if row.state is not ShardState.PASS]
    if failed:
        first = failed[0].report.get("problem", "")
        numbers = ", ".join(str(row.shard.number) for row in failed[:10])
        raise ShardFailedError(
            f"{len(failed)} of {came_to.total()} shards failed; the first: {first}",
            place=f"run {run.run}: shards {numbers}",
            hint="the others are done: fix the cause and run it again",
        )
    return came_to


def _joined(work: Work) -> str:
    """Commit a shard's files to the tables of its lake; return the problem, if there is one."""
    # Imported here because it needs an extra.
    from headrace.connector.replay.lakehouse_tables import adopt, lake_of  # noqa: PLC0415

    target = work.target
    try:
        with closing(lake_of(target.lake, target.folder, target.catalog)) as lake:
            adopt(lake, target.folder, work.run, work.shard.number, work.attempt)
    except HeadraceError as error:
        return f"{error.code}: {error}"
    return ""

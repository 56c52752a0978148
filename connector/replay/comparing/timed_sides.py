"""Counts and traces the parts of the sides of a comparison, each timed in its own process."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace.connector.replay.comparing.bucket_sums import (
    LogSide,
    SideReport,
    TableSide,
    TopicSide,
)
from headrace.connector.replay.comparing.reconciling import Gather, ReadLogs
from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.engine import Gatherer
from headrace.connector.replay.execution import Performer
from headrace.connector.replay.run_metrics import CompareMeasures, ReadPart
from headrace.connector.replay.shards import OverShards, Shard

_NS: Final = 1_000_000  # In a millisecond.

Timed = tuple[SideReport, int, int]
"""The report of a task, and when it started and ended, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class _Task:
    """A task that measures its own time."""

    task: LogSide | TopicSide | TableSide

    @property
    def job_description(self) -> str:
        """A description of the task, for users of the engine."""
        return self.task.job_description

    def __call__(self) -> Timed:
        """Run the task."""
        start_ms = _now_ms()
        return self.task(), start_ms, _now_ms()


def gathering(gather: Gatherer, measures: CompareMeasures) -> Gather:
    """Return a function that reads parts of topics and tables by *gather*, and counts them."""

    def gathered(tasks: Sequence[TopicSide | TableSide]) -> Sequence[SideReport]:
        found = gather([_Task(each) for each in tasks])
        return _noted(((*_named(t), made) for t, made in zip(tasks, found, strict=True)), measures)

    return gathered


def reading(read: OverShards, measures: CompareMeasures) -> ReadLogs:
    """Return a function that reads shards of the logs by *read*, and counts them."""

    def made(make: Callable[[Shard], LogSide], shards: Sequence[Shard]) -> Sequence[SideReport]:
        found = read(partial(_timed, make), shards)
        named = zip(shards, found, strict=True)
        return _noted((("logs", shard.split, made) for shard, made in named), measures)

    return made


def performing(perform: Performer, measures: CompareMeasures) -> Performer:
    """Return *perform* for works that compare the files of shards, and count the shards.

    Their times are measured by the caller.
    """

    def performed(
        works: Sequence[Work],
        *,
        begun: Callable[[Work], None],
        ended: Callable[[Work, ShardReport], None],
    ) -> None:
        starts_ms: dict[int, int] = {}

        def starts(work: Work) -> None:
            starts_ms[work.shard.number] = _now_ms()
            begun(work)

        def ends(work: Work, report: ShardReport) -> None:
            part = ReadPart(
                side="files",
                name=work.shard.split,
                records=report.delivered,
                start_ms=starts_ms[work.shard.number],
                end_ms=_now_ms(),
                problem=report.problem,
            )
            measures.read(part)
            ended(work, report)

        perform(works, begun=starts, ended=ends)

    return performed


def _timed(make: Callable[[Shard], LogSide], shard: Shard) -> _Task:
    return _Task(make(shard))


def _named(task: TopicSide | TableSide) -> tuple[str, str]:
    """Return the side of a task, and its part of it."""
    if isinstance(task, TopicSide):
        return "topic", task.part
    return "table", task.shard.split


def _noted(
    found: Iterable[tuple[str, str, Timed]], measures: CompareMeasures
) -> Sequence[SideReport]:
    """Count parts; return their reports."""
    reports = []
    for side, name, (report, start_ms, end_ms) in found:
        part = ReadPart(
            side=side,
            name=name,
            records=report.records,
            start_ms=start_ms,
            end_ms=end_ms,
            problem=report.problem,
        )
        measures.read(part)
        reports.append(report)
    return reports


def _now_ms() -> int:
    return time.time_ns() // _NS

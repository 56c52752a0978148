"""The Spark session of a command, and shards as Spark's jobs. Imports pyspark.

Each job has one task, which takes some shards, one after another, while others continue. Each of
them ends, fails and is reported separately. What a task writes never passes through the JVM.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.errors import ShardFailedError, SparkMissingError
from headrace.connector.replay.execution import perform_at_once
from headrace.connector.replay.framing.framed_shards import SplitFiles, framing_of, warn_of
from headrace.connector.replay.framing.spark_blocks import FramedBlocks, framed_on, tasks_of
from headrace.connector.replay.shards import OverShards, Shard, close_kept

T = TypeVar("T")

LOCAL_MASTER: Final = "local[*,4]"  # Tries a task 4 times, as a cluster does.
# Settings for our tasks; those of a user or a cluster take precedence.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.speculation": "false",  # Two tasks must not deliver a shard at the same time.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 * 1024 * 1024),  # On the way to a task.
    # Java only distributes tasks: its second compiler costs more than it saves.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
}
_PROBLEM_CHARS_MAX: Final = 500


@contextmanager
def session(
    master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield the active session, or start one and stop it afterwards.

    Under `spark-submit` the master is that of the submission.

    Raises:
        SparkMissingError: Spark does not start, mostly because Java 17 is missing.

    """
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("headrace")
    if master or "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master(master or LOCAL_MASTER)
        if (master or LOCAL_MASTER).startswith("local"):
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    for name, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        hint = "install Java 17 or newer, or set JAVA_HOME; see docs/spark.md"
        raise SparkMissingError(f"Spark does not start: {_said(error)}", hint=hint) from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def width(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    return max(1, spark.sparkContext.defaultParallelism)


def perform(
    spark: SparkSession,
    works: Sequence[Work],
    *,
    begun: Callable[[Work], None],
    ended: Callable[[Work, ShardReport], None],
) -> None:
    """Deliver all *works* on the cluster, as many at once as it has cores.

    The logs are read once for all of them before, if the source offers that; then a task takes
    several shards, one after another. As many more wait in Spark's queue, so that no core waits for
    the driver to send the next.
    *begun* and *ended* are called on this thread. A shard whose task dies every time is reported
    as failed like any other.
    """

    def all_begun(group: _Group) -> None:
        for work in group.works:
            begun(work)

    def all_ended(group: _Group, came: _Reports) -> None:
        for work, report in zip(group.works, came.reports, strict=True):
            ended(work, report)

    at_once = 2 * width(spark)
    framing = framing_of([work.shard for work in works])
    if framing is not None:
        _describe(spark, f"{works[0].run}: read the logs once for all {len(works)} shards")
        of_split = {work.shard.split: work for work in works}
        tasks = tasks_of(framing, width(spark))
        groups = [_Group(n, [of_split[split] for split in each]) for n, each in enumerate(tasks)]
        with ExitStack() as stack:
            try:
                blocks = stack.enter_context(framed_on(spark, framing, tasks))
            except (PySparkException, Py4JError) as error:
                warn_of(_said(error))
            else:
                do = partial(_framed, spark, blocks)
                perform_at_once(groups, do, at_once, begun=all_begun, ended=all_ended)
                return
    perform_at_once(works, partial(_on_cluster, spark), at_once, begun=begun, ended=ended)


def gather(spark: SparkSession, tasks: Sequence[Callable[[], T]]) -> Sequence[T]:
    """Run *tasks* on the cluster, each as a task of one job; return their results in order.

    The job's description is the `job_description` that their class has.

    Raises:
        ShardFailedError: a task died every time.

    """
    if not tasks:
        return []
    _describe(spark, getattr(tasks[0], "job_description", ""))
    try:
        found = spark.sparkContext.parallelize(tasks, len(tasks)).map(_called).collect()
    except (PySparkException, Py4JError) as error:
        raise ShardFailedError(_said(error)) from error
    results: Sequence[T] = found
    return results


@contextmanager
def once(spark: SparkSession, shards: Sequence[Shard]) -> Iterator[OverShards]:
    """Yield what runs tasks of *shards* on the cluster, after their logs were read once for all.

    As often as it is called. It raises as `gather` does.
    """
    framing = framing_of(shards, sparing=False)
    tasks: Sequence[Sequence[str]] = ()
    blocks: FramedBlocks | None = None
    with ExitStack() as stack:
        if framing is not None:
            tasks = tasks_of(framing, width(spark))
            try:
                blocks = stack.enter_context(framed_on(spark, framing, tasks))
            except (PySparkException, Py4JError) as error:
                warn_of(_said(error))

        def over(make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]) -> Sequence[T]:
            if blocks is None:
                return gather(spark, [make(shard) for shard in of])
            by_split = {shard.split: shard for shard in of}
            wanted = [n for n, splits in enumerate(tasks) if not by_split.keys().isdisjoint(splits)]

            def do(number: int, files: SplitFiles) -> Mapping[str, T]:
                mine = [by_split[split] for split in tasks[number] if split in by_split]
                return {
                    shard.split: make(replace(shard, framed=files.file_of(shard.split)))()
                    for shard in mine
                }

            try:
                came = blocks.run(wanted, do)
            except (PySparkException, Py4JError) as error:
                raise ShardFailedError(_said(error)) from error
            found = {split: result for each in came for split, result in each.items()}
            return [found[shard.split] for shard in of]

        yield over


def _called(task: Callable[[], T]) -> T:
    return task()


def _describe(spark: SparkSession, text: str) -> None:
    """Say in Spark's pages what the next job of this thread does."""
    spark.sparkContext.setJobDescription(f"headrace: {text}" if text else "")


def _on_cluster(spark: SparkSession, work: Work) -> ShardReport:
    _describe(spark, work.describe())
    try:
        (report,) = spark.sparkContext.parallelize([work], 1).map(_do).collect()
    except (PySparkException, Py4JError) as error:
        return _lost(work, error)
    made: ShardReport = report
    return made


@dataclass(frozen=True, slots=True)
class _Group:
    """The shards of one task."""

    task: int
    works: Sequence[Work]


@dataclass(frozen=True, slots=True)
class _Reports:
    """What came of a group, in the order of its works."""

    reports: Sequence[ShardReport]
    is_halted: bool = False


def _framed(spark: SparkSession, blocks: FramedBlocks, group: _Group) -> _Reports:
    """Deliver the shards of a task; if it dies every time, each in a task of its own."""
    first, *others = group.works
    _describe(spark, first.describe() + (f" and {len(others)} more" if others else ""))

    def do(_: int, files: SplitFiles) -> Sequence[ShardReport]:
        try:
            return [_do(_with_blocks(work, files)) for work in group.works]
        finally:
            close_kept()

    try:
        (reports,) = blocks.run([group.task], do)
    except (PySparkException, Py4JError) as error:
        if not others:
            return _Reports([_lost(first, error)])
        alone = [_framed(spark, blocks, _Group(group.task, [work])) for work in group.works]
        return _Reports([report for each in alone for report in each.reports])
    return _Reports(reports)


def _with_blocks(work: Work, files: SplitFiles) -> Work:
    return replace(work, shard=replace(work.shard, framed=files.file_of(work.shard.split)))


def _lost(work: Work, error: Exception) -> ShardReport:
    return ShardReport(number=work.shard.number, problem=f"task_lost: {_said(error)}")


def _do(work: Work) -> ShardReport:
    report = work()  # In a function, because Spark sends no callable objects.
    _keep_modules()
    return report


@cache
def _keep_modules() -> None:
    """Exclude imported modules from the garbage collection that Spark runs after each task."""
    gc.collect()
    gc.freeze()


def _said(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:_PROBLEM_CHARS_MAX]

"""The Spark session of a command, and shards as Spark's jobs. Imports pyspark.

Each shard is a job of one task: it ends, fails and is reported separately, while others continue.
Entries of logs pass through the JVM once, in a shuffle by split; what a task writes never does.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.errors import ShardFailedError, SparkMissingError
from headrace.connector.replay.execution import perform_at_once
from headrace.connector.replay.framing.framed_shards import Framing, framing_of, warn_of
from headrace.connector.replay.framing.spark_shuffle import each_of, shuffled, with_blocks
from headrace.connector.replay.shards import OverShards, Shard

if TYPE_CHECKING:
    from pyspark import RDD

T = TypeVar("T")

LOCAL_MASTER: Final = "local[*,4]"  # Tries a task 4 times, as a cluster does.
# Settings for our tasks; those of a user or a cluster take precedence.
SETTINGS: Final[Mapping[str, str]] = {
    "spark.speculation": "false",  # Two tasks must not deliver a shard at the same time.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
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

    The logs are read once for all of them before, if the source offers that. As many more wait in
    Spark's queue, so that no core waits for the driver to send the next.
    *begun* and *ended* are called on this thread. A shard whose task dies every time is reported
    as failed like any other.
    """
    do = partial(_on_cluster, spark)
    framing = framing_of([work.shard for work in works])
    if framing is not None:
        _describe(spark, f"{works[0].run}: read the logs once for all {len(works)} shards")
        try:
            do = partial(_framed, spark, framing, shuffled(spark, framing))
        except (PySparkException, Py4JError) as error:
            warn_of(_said(error))
    perform_at_once(works, do, 2 * width(spark), begun=begun, ended=ended)


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
    blocks: RDD[tuple[str, bytes]] | None = None
    if framing is not None:
        try:
            blocks = shuffled(spark, framing)
        except (PySparkException, Py4JError) as error:
            warn_of(_said(error))

    def over(make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]) -> Sequence[T]:
        if framing is None or blocks is None:
            return gather(spark, [make(shard) for shard in of])
        by_number = {framing.splits.index(shard.split): shard for shard in of}

        def do(number: int, path: str) -> T:
            return make(replace(by_number[number], framed=path))()

        try:
            return each_of(spark, blocks, list(by_number), do)
        except (PySparkException, Py4JError) as error:
            raise ShardFailedError(_said(error)) from error

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


def _framed(
    spark: SparkSession, framing: Framing, blocks: "RDD[tuple[str, bytes]]", work: Work
) -> ShardReport:
    number = framing.splits.index(work.shard.split)
    _describe(spark, work.describe())
    do = with_blocks(lambda path: _do(replace(work, shard=replace(work.shard, framed=path))))
    try:
        (report,) = spark.sparkContext.runJob(blocks, do, [number])
    except (PySparkException, Py4JError) as error:
        return _lost(work, error)
    made: ShardReport = report
    return made


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

"""The Spark session of a command, and shards as Spark's jobs. Imports pyspark.

Each job has one task, which takes some shards, one after another, while others continue. Each of
them ends, fails and is reported separately. The records of a task never pass through the JVM.
"""

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeVar

import py4j
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.connector.replay.delivery import ShardReport, Work
from headrace.connector.replay.errors import ShardFailedError, SparkMissingError
from headrace.connector.replay.execution import LOOK_EVERY_SECONDS, GoOn, always, perform_at_once
from headrace.connector.replay.framing.framed_shards import Begins, SplitFiles, framing_of, warn_of
from headrace.connector.replay.framing.one_pass import deliver_together, passes_of
from headrace.connector.replay.framing.spark_blocks import FramedBlocks, framed_on, tasks_of
from headrace.connector.replay.shards import OverShards, Shard, close_kept, keep_modules

T = TypeVar("T")

LOCAL_MASTER: Final = "local[*,4]"  # Tries a task 4 times, as a cluster does.
# Settings for our tasks; submitted ones take precedence.
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
_HOME: Final = "SPARK_HOME"
_TAG: Final = "headrace-bulk"  # Of the jobs of the one run that a process performs at a time.


@dataclass(slots=True)
class _Started:
    """The session that this process started, and the number of its users."""

    spark: SparkSession | None = None
    users: int = 0


_STARTED: Final = _Started()
_STARTING: Final = threading.Lock()


@contextmanager
def session(
    master: str | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Yield the active session, or start one; its last user stops it.

    A job and its runs share one, also on several threads. Under `spark-submit` the master is that
    of the submission.

    Raises:
        SparkMissingError: Spark does not start, mostly because Java 17 is missing.

    """
    with _STARTING:
        active = None if _STARTED.spark else SparkSession.getActiveSession()
        if active is None:
            _STARTED.spark = _STARTED.spark or _start(master, settings or {})
            _STARTED.users += 1
    if active is not None:  # It belongs to the program.
        yield active
        return
    spark = _STARTED.spark
    assert spark is not None  # noqa: S101 (it has a user)
    try:
        for name, value in (settings or {}).items():
            if spark.conf.isModifiable(name):
                spark.conf.set(name, value)
        yield spark
    finally:
        with _STARTING:
            _STARTED.users -= 1
            if not _STARTED.users:
                _STARTED.spark = None
                spark.stop()


def _start(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        is_ours = bool(master) or "SPARK_ENV_LOADED" not in os.environ
        is_local = is_ours and (master or LOCAL_MASTER).startswith("local")
        with _homed() if is_local else nullcontext():
            conf = _conf(settings)
        builder = SparkSession.builder.config(conf=conf).appName("headrace")
        if is_ours:
            builder = builder.master(master or LOCAL_MASTER)
            if is_local:
                builder = builder.config("spark.driver.host", "127.0.0.1")
                builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
        spark = builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        hint = "Java printed the reason above; Spark needs Java 17 or newer, in PATH or JAVA_HOME"
        raise SparkMissingError(f"Spark does not start: {_said(error)}", hint=hint) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@contextmanager
def _homed() -> Iterator[None]:
    """Start Java with `_home`, unless the environment names a home of Spark."""
    if _HOME in os.environ:
        yield
        return
    os.environ[_HOME] = _home().name
    try:
        yield
    finally:
        del os.environ[_HOME]


@cache
def _home() -> "tempfile.TemporaryDirectory[str]":
    """Return a home of Spark like the installed one, with pyspark in a folder, not an archive.

    Spark's Python processes import pyspark from an archive without bytecode: each compiles it, for
    0.6 s. Java needs the home until it ends, which is when this process ends.
    """
    made = tempfile.TemporaryDirectory(prefix="headrace-spark-")
    installed, home = Path(pyspark.__file__).parent, Path(made.name)
    for each in installed.iterdir():
        if each.name != "python":
            (home / each.name).symlink_to(each)
    archive = home / "python" / "lib" / "pyspark.zip"  # Where Spark looks for it.
    archive.mkdir(parents=True)
    for package in (installed, Path(py4j.__file__).parent):
        (archive / package.name).symlink_to(package)
    return made


def _conf(settings: Mapping[str, str]) -> SparkConf:
    """Return the submitted settings, *settings*, and our own if they were not submitted.

    Submitted settings are options of `spark-submit`, and PYSPARK_SUBMIT_ARGS.
    """
    ours = SparkConf().setAll([*{**SETTINGS, **settings}.items()])
    SparkContext._ensure_initialized(conf=ours)  # noqa: SLF001 (Java alone has what was submitted)
    conf = SparkConf()
    for name, value in SETTINGS.items():
        conf.setIfMissing(name, value)
    return conf.setAll([*settings.items()])


def width(spark: SparkSession) -> int:
    """Return how many tasks run at once."""
    return max(1, spark.sparkContext.defaultParallelism)


def perform(
    spark: SparkSession,
    works: Sequence[Work],
    *,
    begun: Callable[[Work], None],
    ended: Callable[[Work, ShardReport], None],
    go_on: GoOn = always,
) -> None:
    """Deliver all *works* on the cluster, as many at once as it has cores.

    If few tasks read them, and they cannot be halted, a task takes several shards in one pass over
    the logs. Else the logs are read once for all of them before, if the source offers that; then a
    task takes several shards, one after another. As many more tasks wait in Spark's queue, so that
    no core waits for the driver. *begun*, *ended* and *go_on* are called on this thread. A shard
    whose task dies every time, or is cancelled because *go_on* returns False, is reported as
    failed.
    """

    def all_begun(group: _Group) -> None:
        for work in group.works:
            begun(work)

    def all_ended(group: _Group, came: _Reports) -> None:
        for work, report in zip(group.works, came.reports, strict=True):
            ended(work, report)

    halted = threading.Event()

    def look() -> bool:
        if not go_on():
            halted.set()
        return _looked(spark, go_on)

    with ExitStack() as stack:
        groups, do = _grouped(spark, works, halted, stack, go_on)
        perform_at_once(groups, do, 2 * width(spark), begun=all_begun, ended=all_ended, go_on=look)


def _grouped(
    spark: SparkSession,
    works: Sequence[Work],
    halted: threading.Event,
    stack: ExitStack,
    go_on: GoOn,
) -> "tuple[Sequence[_Group], Callable[[_Group], _Reports]]":
    """Return the shards of each task, and a function that delivers them; *stack* removes blocks."""
    # Shards that were delivered before a halt are not delivered again: so they end one by one.
    passes = passes_of(works, width(spark)) if go_on is always else ()
    if passes:
        return _groups(passes), partial(_together, spark, halted)
    framing = framing_of([work.shard for work in works])
    if framing is not None:
        what = f"{works[0].run}: read the logs once for all {len(works)} shards"
        of_split = {work.shard.split: work for work in works}
        tasks = tasks_of(framing, width(spark))
        try:
            opening = partial(stack.enter_context, framed_on(spark, framing, tasks))
            blocks = _heeded(spark, opening, go_on, what)
        except (PySparkException, Py4JError) as error:
            warn_of(_said(error))
        else:
            groups = _groups([[of_split[split] for split in each] for each in tasks])
            return groups, partial(_framed, spark, blocks, halted)
    return _groups([[work] for work in works]), partial(_one_by_one, spark)


def gather(
    spark: SparkSession, tasks: Sequence[Callable[[], T]], go_on: GoOn = always
) -> Sequence[T]:
    """Run *tasks* on the cluster, each as a task of one job; return their results in order.

    The job's description is the `job_description` that their class has.

    Raises:
        ShardFailedError: a task died every time.

    """
    if not tasks:
        return []
    what = getattr(tasks[0], "job_description", "")

    def called() -> Sequence[T]:
        found: Sequence[T] = (
            spark.sparkContext.parallelize(tasks, len(tasks)).map(_called).collect()
        )
        return found

    try:
        return _heeded(spark, called, go_on, what)
    except (PySparkException, Py4JError) as error:
        raise ShardFailedError(_said(error)) from error


@contextmanager
def once(
    spark: SparkSession,
    shards: Sequence[Shard],
    *,
    begins: Begins | None = None,
    go_on: GoOn = always,
) -> Iterator[OverShards]:
    """Yield a runner of tasks of *shards* on the cluster, after their logs were read once for all.

    *begins* as in `framing_of`. The runner can be called repeatedly, and raises as `gather` does.
    """
    framing = framing_of(shards, sparing=False, begins=begins)
    tasks: Sequence[Sequence[str]] = ()
    blocks: FramedBlocks | None = None
    with ExitStack() as stack:
        if framing is not None:
            tasks = tasks_of(framing, width(spark))
            try:
                opening = partial(stack.enter_context, framed_on(spark, framing, tasks))
                blocks = _heeded(spark, opening, go_on)
            except (PySparkException, Py4JError) as error:
                warn_of(_said(error))

        def over(make: Callable[[Shard], Callable[[], T]], of: Sequence[Shard]) -> Sequence[T]:
            if blocks is None:
                return gather(spark, [make(shard) for shard in of], go_on)
            by_split = {shard.split: shard for shard in of}
            wanted = [n for n, splits in enumerate(tasks) if not by_split.keys().isdisjoint(splits)]

            def do(number: int, files: SplitFiles) -> Mapping[str, T]:
                mine = [by_split[split] for split in tasks[number] if split in by_split]
                return {
                    shard.split: make(replace(shard, framed=files.file_of(shard.split)))()
                    for shard in mine
                }

            try:
                came = _heeded(spark, partial(blocks.run, wanted, do), go_on)
            except (PySparkException, Py4JError) as error:
                raise ShardFailedError(_said(error)) from error
            found = {split: result for each in came for split, result in each.items()}
            return [found[shard.split] for shard in of]

        yield over


def _called(task: Callable[[], T]) -> T:
    return task()


def _heeded(spark: SparkSession, call: Callable[[], T], go_on: GoOn, what: str = "") -> T:
    """Run *call* on a thread, and return its result; cancel its jobs once *go_on* is False."""

    def described() -> T:
        _describe(spark, what)
        return call()

    with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
        future = pool.submit(described)
        while not wait([future], timeout=LOOK_EVERY_SECONDS).done:
            _looked(spark, go_on)
        return future.result()


def _looked(spark: SparkSession, go_on: GoOn) -> bool:
    """Cancel the jobs of bulk work unless *go_on* returns True; return its result."""
    if go_on():
        return True
    spark.sparkContext.cancelJobsWithTag(_TAG)
    return False


def _describe(spark: SparkSession, text: str) -> None:
    """Describe the next job of this thread in Spark's pages, and tag it as bulk work."""
    spark.sparkContext.addJobTag(_TAG)
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

    def describe(self) -> str:
        """Return a description, for users of Spark's pages."""
        first, *others = self.works
        return first.describe() + (f" and {len(others)} more" if others else "")


@dataclass(frozen=True, slots=True)
class _Reports:
    """The reports of a group, in the order of its works."""

    reports: Sequence[ShardReport]
    is_halted: bool = False


def _groups(works: Sequence[Sequence[Work]]) -> Sequence[_Group]:
    return [_Group(number, each) for number, each in enumerate(works)]


def _one_by_one(spark: SparkSession, group: _Group) -> _Reports:
    return _Reports([_on_cluster(spark, work) for work in group.works])


def _together(spark: SparkSession, halted: threading.Event, group: _Group) -> _Reports:
    """Deliver the shards of a pass; if its task dies every time, each in a task of its own."""
    _describe(spark, group.describe())
    try:
        passes = spark.sparkContext.parallelize([group.works], 1)
        (reports,) = passes.map(_do_together).collect()
    except (PySparkException, Py4JError) as error:
        return _alone(halted, group, error, lambda work: [_on_cluster(spark, work)])
    return _Reports(reports)


def _framed(
    spark: SparkSession, blocks: FramedBlocks, halted: threading.Event, group: _Group
) -> _Reports:
    """Deliver the shards of a task; if it dies every time, each in a task of its own."""
    _describe(spark, group.describe())

    def do(_: int, files: SplitFiles) -> Sequence[ShardReport]:
        try:
            return [_do(_with_blocks(work, files)) for work in group.works]
        finally:
            close_kept()

    def one(work: Work) -> Sequence[ShardReport]:
        return _framed(spark, blocks, halted, _Group(group.task, [work])).reports

    try:
        (reports,) = blocks.run([group.task], do)
    except (PySparkException, Py4JError) as error:
        return _alone(halted, group, error, one)
    return _Reports(reports)


def _alone(
    halted: threading.Event,
    group: _Group,
    error: Exception,
    do: Callable[[Work], Sequence[ShardReport]],
) -> _Reports:
    """Call *do* with each shard of a dead task, unless it has only one, or was cancelled."""
    if len(group.works) == 1 or halted.is_set():
        return _Reports([_lost(work, error) for work in group.works])
    return _Reports([report for work in group.works for report in do(work)])


def _with_blocks(work: Work, files: SplitFiles) -> Work:
    return replace(work, shard=replace(work.shard, framed=files.file_of(work.shard.split)))


def _lost(work: Work, error: Exception) -> ShardReport:
    return ShardReport(number=work.shard.number, problem=f"task_lost: {_said(error)}")


def _do(work: Work) -> ShardReport:
    report = work()  # In a function, because Spark sends no callable objects.
    keep_modules()
    return report


def _do_together(works: Sequence[Work]) -> Sequence[ShardReport]:
    reports = deliver_together(works)
    keep_modules()
    return reports


def _said(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:_PROBLEM_CHARS_MAX]

"""Frames logs in tasks of Spark, and passes the blocks to the tasks of splits. Imports pyspark.

A task of the second stage takes several splits: each task costs Spark tens of ms. If all tasks run
on this machine, blocks are files in a temporary folder; on a cluster they are the rows of a
shuffle.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pyspark.sql import SparkSession

from headrace.connector.replay.framing.framed_shards import (
    PART_BYTES,
    Framing,
    SplitFiles,
    write_piece,
)

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

T = TypeVar("T")
Do = Callable[[int, SplitFiles], T]

TASKS_OF_A_CORE: Final = 4
TASK_BYTES: Final = 64 * 1024 * 1024  # Logs for a task, which is repeated as a whole if it dies.
_PREFIX: Final = "headrace-framed-"


class FramedBlocks(Protocol):
    """What was framed, on the machines of the cluster, for the splits of tasks."""

    def run(self, numbers: Sequence[int], do: Do[T]) -> Sequence[T]:
        """Call *do* in some of the tasks, of one job, with the number of the task and its blocks.

        Returns the results in order. Raises as Spark does.
        """


def tasks_of(framing: Framing, cores: int) -> Sequence[Sequence[str]]:
    """Return the splits of each task: some tasks for each core, more of large logs."""
    wanted = max(TASKS_OF_A_CORE * cores, len(framing.parts) * PART_BYTES // TASK_BYTES)
    count = min(len(framing.splits), wanted)
    return [framing.splits[number::count] for number in range(count)]


@contextmanager
def framed_on(
    spark: SparkSession, framing: Framing, tasks: Sequence[Sequence[str]]
) -> Iterator[FramedBlocks]:
    """Frame the logs, each part in a task; yield the blocks, which run the *tasks* of splits.

    Blocking. Raises as Spark does.
    """
    context = spark.sparkContext
    master = context.master or ""
    if master.startswith("local") and not master.startswith("local-cluster"):
        with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
            yield _InFolder(context, framing, tasks, Path(folder))
    else:
        yield _Shuffled(context, framing, tasks)


class _InFolder:
    """Blocks in files: each part of a log has a folder of its own."""

    def __init__(
        self,
        context: "SparkContext",
        framing: Framing,
        tasks: Sequence[Sequence[str]],
        folder: Path,
    ) -> None:
        self.tasks = tasks
        self._context = context
        parts = context.parallelize(framing.parts, len(framing.parts))
        names = parts.map(partial(write_piece, framing, folder)).collect()
        self._pieces = [folder / name for name in names]

    def run(self, numbers: Sequence[int], do: Do[T]) -> Sequence[T]:
        splits = [(number, self.tasks[number]) for number in numbers]
        called = partial(with_pieces, self._pieces, do)
        results: Sequence[T] = self._context.parallelize(splits, len(splits)).map(called).collect()
        return results


def with_pieces(pieces: Sequence[Path], do: Do[T], task: tuple[int, Sequence[str]]) -> T:
    """Call *do* with the number of *task*, and the blocks of its splits in these folders."""
    number, splits = task
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        files = SplitFiles(Path(folder))
        for split in splits:
            files.join(split, [piece / split for piece in pieces])
        return do(number, files)


class _Shuffled:
    """Blocks as rows of a shuffle: blocks lost with an executor are framed again."""

    def __init__(
        self, context: "SparkContext", framing: Framing, tasks: Sequence[Sequence[str]]
    ) -> None:
        self._context = context
        parts = context.parallelize(framing.parts, len(framing.parts))
        rows = parts.flatMap(lambda part: framing.frame([part]))
        numbers = {split: number for number, splits in enumerate(tasks) for split in splits}
        self._blocks: RDD[tuple[str, bytes]] = rows.partitionBy(len(tasks), numbers.__getitem__)
        context.runJob(self._blocks, lambda _: (), [0])  # The shuffle is written before any task.

    def run(self, numbers: Sequence[int], do: Do[T]) -> Sequence[T]:
        called = self._blocks.mapPartitionsWithIndex(partial(_with_rows, do))
        results: Sequence[T] = self._context.runJob(called, lambda made: made, numbers)
        return results


def _with_rows(do: Do[T], number: int, rows: Iterable[tuple[str, bytes]]) -> Iterator[T]:
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        files = SplitFiles(Path(folder))
        for split, block in rows:
            files.put(split, block)
        yield do(number, files)

"""Sends what tasks have framed of logs to the tasks of splits, as a shuffle of Spark.

Imports pyspark. A row is a block of entries; partition n has those of split n.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import SparkSession

from headrace.connector.replay.framing.framed_shards import Framing

if TYPE_CHECKING:
    from pyspark import RDD

T = TypeVar("T")
Blocks = Iterable[tuple[str, bytes]]


def shuffled(spark: SparkSession, framing: Framing) -> "RDD[tuple[str, bytes]]":
    """Frame the logs, each part in a task; return their blocks by split.

    Blocking. What is lost with an executor is framed again.
    """
    context = spark.sparkContext
    parts = context.parallelize(framing.parts, len(framing.parts))
    blocks = parts.flatMap(lambda part: framing.frame([part]))
    numbers = {split: number for number, split in enumerate(framing.splits)}
    found = blocks.partitionBy(len(numbers), numbers.__getitem__)
    context.runJob(found, lambda _: (), [0])  # The shuffle is written before the first split.
    return found


def with_blocks(do: Callable[[str], T]) -> Callable[[Blocks], Iterator[T]]:
    """Return what calls *do*, in a task, with the name of a file of the blocks of its partition."""

    def called(blocks: Blocks) -> Iterator[T]:
        with _kept(blocks) as path:
            yield do(path)

    return called


def each_of(
    spark: SparkSession,
    blocks: "RDD[tuple[str, bytes]]",
    numbers: Sequence[int],
    do: Callable[[int, str], T],
) -> Sequence[T]:
    """Call *do* for these partitions of *blocks*, in tasks of one job; return the results in order.

    It gets the number of the partition, and the name of a file of its blocks. Raises as Spark does.
    """

    def called(number: int, found: Blocks) -> Iterator[T]:
        with _kept(found) as path:
            yield do(number, path)

    results: Sequence[T] = spark.sparkContext.runJob(
        blocks.mapPartitionsWithIndex(called), lambda made: made, numbers
    )
    return results


@contextmanager
def _kept(blocks: Blocks) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="headrace-framed-") as folder:
        path = Path(folder) / "blocks"
        with path.open("wb") as file:
            for _, block in blocks:
                file.write(block)
        yield str(path)

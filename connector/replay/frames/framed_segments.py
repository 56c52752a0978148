"""The rows of `headrace.segments` from logs that are read once for all shards. Imports pyspark.

Spark reads a data source in tasks without a shuffle between them, so each task of the source reads
all logs. Here tasks frame parts of logs, a shuffle sends blocks to tasks of shards, and each of
these reads its shards as the data source does.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from headrace.connector.replay.frames.sources import SegmentPartition, SegmentReader, SegmentSource
from headrace.connector.replay.framing.block_rows import BLOCK_ROWS, SPLIT, Row, batches_of, rows_of
from headrace.connector.replay.framing.framed_shards import Framing, SplitFiles, framing_of
from headrace.connector.replay.framing.spark_blocks import tasks_of
from headrace.connector.replay.shards import close_kept

if TYPE_CHECKING:
    import pyarrow as pa


def segments(spark: SparkSession, path: str = "", **options: object) -> DataFrame:
    """Return the changes that `headrace.segments` reads with these options; see `docs/spark.md`.

    The logs are planned now, and read once for each query, however many shards there are: with
    `agreement = none`, few shards, or logs of agents they are read as the data source reads them.

    Raises:
        ConfigError: with what is wrong with an option.
        HeadraceError: the logs cannot be planned.

    """
    given = {name: str(value) for name, value in options.items()}
    if path:
        given["path"] = path
    schema = SegmentSource(given).schema()
    partitions = SegmentReader(given).partitions()
    framing = framing_of([each.shard for each in partitions])
    if framing is None:
        return spark.read.format(SegmentSource.name()).options(**given).load()
    tasks = tasks_of(framing, spark.sparkContext.defaultParallelism)
    count = 1 + len(framing.parts)
    return (
        spark.range(0, count, 1, count)
        .mapInArrow(lambda numbers: blocks_of(framing, numbers), BLOCK_ROWS)
        .repartitionById(len(tasks), SPLIT)
        .mapInArrow(lambda rows: changes_of(partitions, rows), schema)
    )


def blocks_of(framing: Framing, numbers: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Frame the parts of logs with these *numbers*; one more lets each shard come to a task."""
    parts = [number for batch in numbers for number in batch.column(0).to_pylist()]
    return batches_of(row for part in parts for row in _rows_of(framing, part))


def _rows_of(framing: Framing, number: int) -> Iterator[Row]:
    if number == len(framing.parts):
        yield from ((split, b"", None) for split in range(len(framing.splits)))
        return
    splits = {split: place for place, split in enumerate(framing.splits)}
    for split, block in framing.frame([framing.parts[number]]):
        yield splits[split], None, block


def changes_of(
    partitions: Sequence[SegmentPartition], rows: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Read the shards whose blocks are in *rows*, one after another."""
    wanted: set[int] = set()
    with tempfile.TemporaryDirectory(prefix="headrace-framed-") as folder:
        files = SplitFiles(Path(folder))
        for number, part, block in rows_of(rows):
            if part is None:
                files.put(str(number), block)
            else:
                wanted.add(number)
        try:
            for number in sorted(wanted):
                shard = replace(partitions[number].shard, framed=files.file_of(str(number)))
                yield from replace(partitions[number], shard=shard).batches()
        finally:
            close_kept()

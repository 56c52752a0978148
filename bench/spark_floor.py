"""What Spark itself takes for rows that are ready: what no frame of `headrace.segments` can beat.

The rows of a frame are written into Arrow files first. A data source then gives Spark these batches
as they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.connector.replay.frames.segment_reader import SegmentReader
from headrace.connector.replay.frames.sources import SegmentSource


@dataclass(frozen=True, slots=True)
class ReadyPart(InputPartition):
    """The rows of one task: a file."""

    path: str


class ReadyReader(DataSourceReader):
    """Gives the batches of the files in a folder."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet."""
        self._folder = folder

    def partitions(self) -> Sequence[ReadyPart]:
        """Return a partition for each file."""
        return [ReadyPart(str(path)) for path in sorted(self._folder.glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a file."""
        assert isinstance(partition, ReadyPart)  # noqa: S101 (made above)
        with pa.memory_map(partition.path) as file:
            rows = pa.ipc.open_file(file)
            for number in range(rows.num_record_batches):
                yield rows.get_batch(number)


class ReadySource(DataSource):
    """`spark.read.format("bench.ready")`, with the folder and the columns as options."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "bench.ready"

    def schema(self) -> str:
        """Return the columns."""
        return str(self.options["columns"])

    def reader(self, schema: StructType) -> ReadyReader:
        """Return a reader."""
        del schema
        return ReadyReader(Path(self.options["folder"]))


def ready_frame(spark: SparkSession, folder: Path, job: str, tasks: int) -> DataFrame:
    """Return a frame of the rows that `headrace.segments` has for *job*, which are in *folder*."""
    options = {"job": job, "shards": str(tasks)}
    folder.mkdir()
    for number, part in enumerate(SegmentReader(options).partitions()):
        rows = list(part.batches())
        with pa.ipc.new_file(str(folder / f"{number}.arrow"), rows[0].schema) as file:
            for batch in rows:
                file.write_batch(batch)
    spark.dataSource.register(ReadySource)
    columns = SegmentSource(options).schema()
    return spark.read.format("bench.ready").options(folder=str(folder), columns=columns).load()

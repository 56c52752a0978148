"""The sources and the sink that Spark finds by their names. Imports pyspark.

Spark starts several Python processes for a query, and each imports the module of its source. So
they are all here, and import the rest only where they use it.
"""

# ruff: noqa: PLC0415 (see above)

from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.mistakes import check_writing, shown_plainly
from headrace.connector.replay.framing.block_rows import AS_SINK, BLOCK_NAMES, BLOCK_ROWS

if TYPE_CHECKING:
    from headrace.connector.replay.frames.histories import HistoryReader, Plan
    from headrace.connector.replay.frames.segment_reader import SegmentReader
    from headrace.connector.replay.frames.sink_writer import SinkWriter
    from headrace.connector.replay.frames.topics import TopicReader
    from headrace.connector.replay.stream.sink_stream import SinkStream
    from headrace.connector.replay.stream.streaming import SegmentStream


class SegmentSource(DataSource):
    """`spark.read.format("headrace.segments")`: the changes on which all nodes' logs agree."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "headrace.segments"

    @shown_plainly()
    def schema(self) -> str:
        """Return the columns; `key` and `value` are those of a message. One `table` is typed."""
        if self.options.get("format") == AS_SINK:
            return BLOCK_ROWS
        from headrace.connector.replay.frames.segment_reader import columns_of

        return columns_of(self.name(), self.options)

    @shown_plainly()
    def reader(self, schema: StructType) -> "SegmentReader":
        """Return a batch reader."""
        del schema
        from headrace.connector.replay.frames.segment_reader import SegmentReader

        return SegmentReader(dict(self.options))

    @shown_plainly()
    def streamReader(self, schema: StructType) -> "SegmentStream":  # noqa: N802 (Spark's name)
        """Return a streaming reader."""
        del schema
        from headrace.connector.replay.stream.streaming import SegmentStream

        return SegmentStream(dict(self.options))


class TableSource(DataSource):
    """`spark.read.format("headrace.table")`: the current rows of a table, with write times."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "headrace.table"

    @shown_plainly()
    def schema(self) -> str:
        """Return the columns, also typed ones; asks the cluster."""
        from headrace.connector.replay.frames.segment_reader import columns_of, table_spec

        return columns_of(self.name(), self.options, table_spec)

    @shown_plainly()
    def reader(self, schema: StructType) -> "SegmentReader":
        """Return a batch reader. Options: `job`, `table`, and those of segments."""
        del schema
        from headrace.connector.replay.frames.segment_reader import SegmentReader, table_spec

        options = {name: text for name, text in self.options.items() if name != "job"}
        return SegmentReader(options, table_spec(self.options))


class TopicSource(DataSource):
    """`spark.read.format("headrace.topic")`: what the sink of a job has written."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "headrace.topic"

    @shown_plainly()
    def schema(self) -> str:
        """Return the columns: those of segments, and the place of the message."""
        from headrace.connector.replay.frames.topics import topic_columns

        return topic_columns(self.name(), self.options)

    @shown_plainly()
    def reader(self, schema: StructType) -> "TopicReader":
        """Return a batch reader."""
        del schema
        from headrace.connector.replay.frames.topics import TopicReader

        return TopicReader(dict(self.options))


class HistorySource(DataSource):
    """`spark.read.format("headrace.history")`: the changes that a history keeps."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "headrace.history"

    @cached_property
    def plan(self) -> "Plan":
        """Return what all queries of the frame read. Spark keeps it with the frame."""
        from headrace.connector.replay.frames.histories import Plan

        return Plan.of(self.options)

    @shown_plainly()
    def schema(self) -> StructType:
        """Return the columns. Spark calls it when a frame is loaded."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self.plan.layout.schema)

    @shown_plainly()
    def reader(self, schema: StructType) -> "HistoryReader":
        """Return a batch reader.

        Raises:
            ConfigError: a user gave a schema, of other columns.

        """
        from headrace.connector.replay.frames.histories import HistoryReader
        from headrace.connector.replay.frames.segment_reader import shards_of

        if schema != self.schema():
            raise bad_option("schema", "is that of the history's table", "load() without schema()")
        return HistoryReader(self.plan, shards_of(self.options))


class SinkTarget(DataSource):
    """`frame.write.format("headrace.sink")`: rows into the sink of a job."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return "headrace.sink"

    @shown_plainly()
    def writer(self, schema: StructType, overwrite: bool) -> "SinkWriter":  # noqa: FBT001 (Spark's)
        """Return a writer; it can only append."""
        missing = {"table", "key", "value"} - set(schema.fieldNames())
        columns = "write those of headrace.segments"
        check_writing('mode("append")', sorted(missing), overwrite=overwrite, columns=columns)
        from headrace.connector.replay.frames.sink_writer import SinkWriter

        return SinkWriter(dict(self.options))

    @shown_plainly()
    def streamWriter(self, schema: StructType, overwrite: bool) -> "SinkStream":  # noqa: FBT001, N802 (Spark's)
        """Return a writer of a stream of the same job's `headrace.segments`."""
        missing = set(BLOCK_NAMES) - set(schema.fieldNames())
        columns = "write those of headrace.segments in format `sink`"
        check_writing('outputMode("append")', sorted(missing), overwrite=overwrite, columns=columns)
        from headrace.connector.replay.stream.sink_stream import SinkStream

        return SinkStream(dict(self.options))

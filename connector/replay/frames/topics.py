"""Reads `headrace.topic` for Spark: what a sink wrote. Imports pyspark.

Each part of a topic is a task, read to its end.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from headrace.connector.replay.columns import arrow_schema
from headrace.connector.replay.comparing.bucket_sums import (
    Comparison,
    compared_as,
    reader_of,
    shaped,
)
from headrace.connector.replay.comparing.messages import ChangeRow, MessageReader
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.mistakes import check_options
from headrace.connector.replay.frames.segment_reader import schema_of, spec_of, target_of
from headrace.connector.replay.frames.sink_writer import job_of
from headrace.connector.replay.frames.typed_columns import typed_arrow_schema, typed_batch
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import inside, origin_of
from headrace.connector.replay.stream.checkpoint import known_schemas
from headrace.connector.serde.large import whole_messages
from headrace.plugins import (
    NO_ORIGIN,
    BadRecordError,
    EncodedRecords,
    HeadraceError,
    Origin,
    RecordSchema,
    Sink,
    Source,
    Stored,
    TypedColumns,
)
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.columns import TableType

OPTIONS: Final = ("job", "table", "tables")
_PLACE_SCHEMA: Final = "part string, `offset` bigint"
_PLACE: Final = pa.schema([("part", pa.string()), ("offset", pa.int64())])
_INDEX_BYTES: Final = 4


def topic_columns(source: str, options: Mapping[str, str]) -> str:
    """Return the columns of *source*, as DDL: those of segments, and the place of the message.

    Raises:
        ConfigError: with all mistakes found.

    """
    check_options(source, options, OPTIONS)
    job_of(options)
    return f"{_PLACE_SCHEMA}, {schema_of(spec_of(options), options)}"


@dataclass(frozen=True, slots=True)
class TopicPartition(InputPartition):
    """The work of one task."""

    part: str


class TopicReader(DataSourceReader):
    """Reads the messages of a job's sink for the named tables, or of one table with its columns."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Load the schemas in the job's state. Raises ConfigError."""
        check_options("headrace.topic", options, OPTIONS)
        text = job_of(options)
        named = options.get("table") or options.get("tables", "")
        self._tables = [t.strip() for t in named.split(",") if t.strip()]
        self._comparison = Comparison(
            sink=dict(text.sink),
            origin=origin_of(text.source),
            directory=str(text.directory),
            buckets=1,
            selection=Selection(),
        )
        self._schemas = known_schemas(text)
        self._spec = spec_of(options)
        self._target = target_of(self._spec, options)
        if self._target is not None:
            with self._sink() as (sink, _):
                _check_envelope(sink)

    def partitions(self) -> Sequence[TopicPartition]:
        """Return a partition for each part of the sink's topics."""
        tables = self._tables or [""]
        with self._sink() as (sink, _):
            return [TopicPartition(part) for part in sink.parts(tables)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a part; those that cannot be decoded have no decoded columns."""
        assert isinstance(partition, TopicPartition)  # noqa: S101 (made above)
        part, target, origin = partition.part, self._target, self._comparison.origin
        decoder = reader_of(self._comparison, self._known())
        with self._sink() as (sink, _):
            if target is None:
                for records in whole_messages(sink.read_back(part)):
                    yield _reported(part, [(each, _row(each, decoder)) for each in records], origin)
                return
            with inside(self._spec.directory), closing(self._spec.open()) as source:
                texts = {name: schema.text for name, schema in self._schemas.items()}
                typed = TypedMessages(target, source, texts)
                for records in whole_messages(sink.read_back(part)):
                    yield typed.batch(part, records, decoder)

    def _known(self) -> Mapping[bytes, RecordSchema]:
        """Return the schemas in the form of messages."""
        sink = compared_as(self._comparison.sink)
        with (
            inside(self._comparison.directory),
            sink_and_encoder(sink, "topic", self._comparison.origin) as (_, encoder),
        ):
            return shaped(encoder, self._schemas.values())

    def _sink(self) -> Any:  # noqa: ANN401 (a context manager of two)
        return sink_and_encoder(self._comparison.sink, "topic", NO_ORIGIN)


class TypedMessages:
    """Messages of one table as rows with typed columns."""

    def __init__(
        self, target: TableType, source: Source, schema_texts: Mapping[bytes, str]
    ) -> None:
        """*source* reads the values; *schema_texts* has the text of each schema, by id."""
        self._target = target
        self._source = source
        self._schema_texts = schema_texts
        self._schema = pa.schema([*_PLACE, *typed_arrow_schema(target, source.origin)])

    def batch(self, part: str, records: Sequence[Stored], decoder: MessageReader) -> pa.RecordBatch:
        """Return the table's changes, then messages that cannot be read, with their bytes only."""
        found, values, unreadable = [], [], []
        for stored in records:
            try:
                value = decoder.document(stored)
                table = "" if value is None else decoder.row(value, stored).table
            except BadRecordError:
                unreadable.append(stored)
                continue
            if value is None or table != self._target.table:
                continue
            if value["schemaUuid"] in self._schema_texts:
                found.append(stored)
                values.append(value)
            else:
                unreadable.append(stored)
        made = TypedColumns.of(self._source).typed_values(self._target, values, self._schema_texts)
        encoded = EncodedRecords(
            [each.key for each in found],
            [each.value or b"" for each in found],
            [each.headers for each in found],
            [self._target.table] * len(found),
            facts=made.facts,
        )
        rows = typed_batch(made, self._target, encoded, self._source.origin)
        places = [pa.repeat(part, len(found)), pa.array([s.place for s in found], pa.int64())]
        known = pa.RecordBatch.from_arrays([*places, *rows.columns], schema=self._schema)
        other = _reported(part, [(each, None) for each in unreadable], self._source.origin)
        arrays = [
            other.column(each.name)
            if each.name in other.schema.names
            else pa.nulls(len(unreadable), each.type)
            for each in self._schema
        ]
        both = [known, pa.RecordBatch.from_arrays(arrays, schema=self._schema)]
        return pa.concat_batches(both)


def _check_envelope(sink: Sink) -> None:
    """Raise if the values of messages cannot be read.

    Raises:
        ConfigError: their format is not Avro, or their envelope is not `cep44`.

    """
    encoding = sink.encoding()
    found = encoding.codec, encoding.envelope or "cep44", encoding.types
    if found != ("avro", "cep44", "lossless"):
        hint = "without `table` every message has its bytes"
        said = f"typed columns need Avro in cep44, lossless; this sink has {', '.join(found)}"
        raise bad_option("table", said, hint)


def _reported(
    part: str, messages: Sequence[tuple[Stored, ChangeRow | None]], origin: Origin
) -> pa.RecordBatch:
    """Return messages as rows, with the decoded columns of those that could be read."""
    schema = pa.schema([*_PLACE, *arrow_schema(origin)])
    rows = [_columns(part, stored, row, origin) for stored, row in messages]
    columns = [
        pa.array([each.get(field.name) for each in rows], pa.int64()).cast(field.type)
        if field.name == "write_time"
        else pa.array([each.get(field.name) for each in rows], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _row(stored: Stored, reader: MessageReader) -> ChangeRow | None:
    try:
        document = reader.document(stored)
        return None if document is None else reader.row(document, stored)
    except HeadraceError:
        return None


def _columns(part: str, stored: Stored, row: ChangeRow | None, origin: Origin) -> dict[str, Any]:
    values: dict[str, Any] = {
        "part": part,
        "offset": stored.place,
        "key": stored.key,
        "value": stored.value,
        "schema_id": dict(stored.headers).get(SCHEMA_ID_HEADER),
    }
    if row is not None:
        values |= {
            "table": row.table,
            "operation": row.operation,
            "write_time": row.time_us,
            "mutation": row.name[:-_INDEX_BYTES] or None,
            "index": int.from_bytes(row.name[-_INDEX_BYTES:], "big") if row.name else None,
            **dict(zip(origin.fields, row.origin, strict=True)),
        }
    return values

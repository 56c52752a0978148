"""Reads the logs, a topic and a table as sums of buckets, and as single changes and rows.

First each side is summed up by table, bucket of keys and slice of time; only buckets that differ
are then read change by change. Logs and topic are compared by changes, topic and table by rows.
This module has the tasks; `reconciling` plans them and evaluates their results.
"""

import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from headrace.connector.foundation.confinement import Bounds
from headrace.connector.replay.comparing.messages import (
    ChangeRow,
    MessageReader,
    check_fields,
    envelope_of,
)
from headrace.connector.replay.comparing.rows import FoldedRows, RowReader, RowState, Span, digest
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.options import check_comparable
from headrace.connector.replay.selection import Selection, names_of
from headrace.connector.replay.shards import (
    Shard,
    batches,
    changes_with_facts,
    encoded_changes,
    inside,
    opened,
)
from headrace.connector.serde import Encoder
from headrace.connector.serde.decoding import prefixes_of
from headrace.connector.serde.large import whole_messages
from headrace.plugins import (
    NO_ORIGIN,
    OPERATIONS,
    BadRecordError,
    Batch,
    Document,
    EncodedRecords,
    HeadraceError,
    Origin,
    RecordSchema,
    Source,
    Stored,
)
from headrace.plugins.records.codecs import RUN_HEADER, SCHEMA_ID_HEADER

ROWS_MAX: Final = 1_000_000  # Single changes or rows that a task of one side may return.
EXPIRED_MAX: Final = 1_000  # Expired rows that a task returns; the others are only counted.
SLICE_US: Final = 86_400_000_000
_MASK: Final = (1 << 64) - 1

KeyBucket = tuple[str, int]  # The table, and the number of a bucket of keys.
Bucket = tuple[str, int, int]  # The same, and the number of a slice of time.


class Members(NamedTuple):
    """The number of changes or rows, and the sum of their hashes, which has no order."""

    members: int = 0
    hashes: int = 0

    def plus(self, members: int, hashes: int) -> "Members":
        """Return the sum with further members."""
        return Members(self.members + members, (self.hashes + hashes) & _MASK)


Sums = Mapping[Bucket, Members]


@dataclass(frozen=True, slots=True)
class SideReport:
    """The result of one task: sums, or for given buckets single changes and rows.

    `repeated` is the number of messages with the same content as another one of the task. `touched`
    are keys by table that were written after the compared time. `waiting` is the number of
    mutations on which the logs do not agree yet. `gone` is the number of rows that expired;
    `expired` has some of them. `tables` are the current schemas of the tables that were read.
    """

    sums: Sums = field(default_factory=dict)
    rows: Sequence[ChangeRow] = ()
    row_sums: Sums = field(default_factory=dict)
    states: Sequence[RowState] = ()
    expired: Sequence[RowState] = ()
    gone: int = 0
    touched: frozenset[tuple[str, bytes]] = frozenset()
    schemas: Mapping[bytes, RecordSchema] = field(default_factory=dict)
    tables: Mapping[str, RecordSchema] = field(default_factory=dict)
    records: int = 0
    repeated: int = 0
    unreadable: int = 0
    waiting: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The buckets whose single changes and rows are read."""

    changes: frozenset[Bucket] = frozenset()
    rows: frozenset[Bucket] = frozenset()

    @property
    def keys(self) -> frozenset[KeyBucket]:
        """The buckets of keys whose rows are wanted."""
        return frozenset((table, number) for table, number, _ in self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The parameters of all sides: the sink, the number of buckets, and which changes count.

    With `run`, only messages that this run sent count. `tables` are the tables whose rows are
    compared, with their current schemas; their rows are compared as of `at_s`. `wanted` are the
    buckets whose single changes and rows are wanted; None asks for sums.
    """

    sink: Mapping[str, Any]
    origin: Origin
    directory: str
    buckets: int
    selection: Selection
    tables: Mapping[str, RecordSchema] = field(default_factory=dict)
    at_s: int = 0
    slice_us: int = SLICE_US
    wanted: Wanted | None = None
    run: str = ""

    @property
    def span(self) -> Span:
        """The write times of the values of rows that count."""
        chosen = self.selection
        return Span(from_us=chosen.from_us, to_us=chosen.to_us, at_s=self.at_s)

    def key_bucket(self, table: str, key: bytes) -> KeyBucket:
        """Return the bucket of a message's key."""
        return table, zlib.crc32(key) % self.buckets

    def bucket(self, table: str, key: bytes, time_us: int) -> Bucket:
        """Return the bucket of a change that was written at a time."""
        return (*self.key_bucket(table, key), time_us // self.slice_us)


class Summing:
    """Adds up the 64-bit hashes of a task's changes or rows. Duplicates count once."""

    def __init__(self) -> None:
        """Start with empty sums."""
        self._hashes: dict[Bucket, array[int]] = defaultdict(lambda: array("Q"))

    def add(self, bucket: Bucket, hashed: int) -> None:
        """Count a member."""
        self._hashes[bucket].append(hashed)

    def sums(self) -> dict[Bucket, Members]:
        """Return the sums."""
        found = {}
        for bucket, hashes in self._hashes.items():
            members = set(hashes)
            found[bucket] = Members().plus(len(members), sum(members))
        return found


class _Side:
    """Collects the changes of one side."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison
        self._keys = comparison.wanted.keys if comparison.wanted else frozenset()
        self._to_us = comparison.selection.to_us
        self._sums = Summing()
        self.rows: list[ChangeRow] = []
        self.touched: set[tuple[str, bytes]] = set()
        self.records = 0

    def sum(self, row: ChangeRow, hashed: int) -> None:
        """Count a change, with 64 bits of its content."""
        self.records += 1
        self._sums.add(self._comparison.bucket(row.table, row.key, row.time_us), hashed)

    def wants(self, row: ChangeRow) -> bool:
        """Return whether the comparison wants a change as a single one."""
        bucket = self._comparison.bucket(row.table, row.key, row.time_us)
        wanted = self._comparison.wanted
        return wanted is not None and (bucket in wanted.changes or bucket[:2] in self._keys)

    def add(self, row: ChangeRow) -> None:
        """Keep a change that is wanted."""
        self.records += 1
        self.rows.append(row)
        bounded(self.rows)

    def touch(self, table: str, key: bytes, time_us: int) -> None:
        """Record a key that was written after the compared time, if its rows are wanted."""
        if self._to_us is None or time_us < self._to_us:
            return
        if self._comparison.key_bucket(table, key) in self._keys:
            self.touched.add((table, key))

    def sums(self) -> Sums:
        """Return the sums."""
        return self._sums.sums()

    @property
    def repeated(self) -> int:
        """The number of changes with the same content as one summed before."""
        summed = sum(each.members for each in self.sums().values())
        return self.records - summed if self._comparison.wanted is None else 0


class RowSide:
    """Collects the rows of one side."""

    def __init__(self, comparison: Comparison) -> None:
        """Collect sums or single rows, as *comparison* wants."""
        self._comparison = comparison
        self._keys = comparison.wanted.keys if comparison.wanted else None
        self._sums = Summing()
        self.states: list[RowState] = []

    def asks_for(self, table: str, key: bytes) -> bool:
        """Return whether the rows of a key are wanted."""
        return self._keys is None or self._comparison.key_bucket(table, key) in self._keys

    def add(self, row: RowState) -> None:
        """Count a row that is wanted."""
        comparison = self._comparison
        counted = comparison.span.within(row)
        bucket = comparison.bucket(row.table, row.key, 0 if counted is None else counted.newest_us)
        if comparison.wanted is None:
            if counted is not None:
                self._sums.add(bucket, hash64(digest(counted)))
        elif counted is None or bucket in comparison.wanted.rows:
            self.states.append(row)
            bounded(self.states)

    def sums(self) -> Sums:
        """Return the sums."""
        return self._sums.sums()


def bounded(found: Sequence[object]) -> None:
    """Raise if there are more changes or rows than a task may keep."""
    if len(found) > ROWS_MAX:
        hint = "compare a shorter time, fewer tables or a range of tokens"
        raise bad_option("reconcile", f"more than {ROWS_MAX} changes differ in a task", hint)


@contextmanager
def _encoding(shard: Shard, comparison: Comparison) -> Iterator[tuple[Source, Encoder]]:
    """Open the source of a shard, and an encoder of its batches for a comparison."""
    sink = compared_as(comparison.sink)
    with (
        opened(shard) as source,
        sink_and_encoder(sink, "reconcile", source.origin) as (_, encoder),
    ):
        yield source, encoder


@dataclass(frozen=True, slots=True)
class LogSide:
    """The changes on which the logs of a shard agree."""

    job_description: ClassVar[str] = "read the changes of the logs"

    shard: Shard
    comparison: Comparison

    def __call__(self) -> SideReport:
        """Read this side."""
        side = _Side(self.comparison)
        schemas: dict[bytes, RecordSchema] = {}
        books: Mapping[str, int] = {}
        try:
            reader = reader_of(self.comparison, {})
            with _encoding(self.shard, self.comparison) as (source, encoder):
                for batch in batches(source, self.shard):
                    announced = shaped(encoder, batch.schemas())
                    reader.learn(announced.values())
                    schemas |= announced
                    self._take(changes_with_facts(encoder, batch), side, reader)
                    books = batch.end.books() if batch.has_end else books
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(
            sums=side.sums(),
            rows=side.rows,
            touched=frozenset(side.touched),
            schemas=schemas,
            records=side.records,
            waiting=sum(books.get(name, 0) for name in source.bookkeeping.held_back),
        )

    def _take(self, made: EncodedRecords, side: _Side, reader: MessageReader) -> None:
        encoded = self.comparison.selection.apply(made)
        rows = list(rows_of(encoded))
        if self.comparison.wanted is None:
            for row, hashed in zip(rows, reader.sums(rows, encoded), strict=True):
                side.sum(row, hashed)
            return
        for row in rows_of(made):
            side.touch(row.table, row.key, row.time_us)
        for number, row in enumerate(rows):
            if side.wants(row):
                headers = encoded.headers[number]
                stored = Stored(number, row.key, encoded.values[number], headers)
                document = reader.document(stored) or {}
                message = reader.row(document, stored)
                content = reader.content(document, row, headers)
                side.add(row._replace(expires_s=message.expires_s, content=content))


@dataclass(frozen=True, slots=True)
class TopicSide:
    """The changes in one part of a sink's topics, and the rows folded from them."""

    job_description: ClassVar[str] = "read the topics"

    part: str
    comparison: Comparison
    schemas: Mapping[bytes, RecordSchema]

    def __call__(self) -> SideReport:
        """Read this side."""
        side, rows = _Side(self.comparison), RowSide(self.comparison)
        reader = RowReader(self.comparison.tables, self.comparison.at_s)
        expired: list[RowState] = []
        gone = 0
        try:
            with FoldedRows(reader) as folded:
                unreadable = self._read(side, rows, reader, folded)
                for row in folded.rows():
                    rows.add(row)
                    if reader.has_expired(row):
                        gone += 1
                        expired += [row] if len(expired) < EXPIRED_MAX else []
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(
            sums=side.sums(),
            rows=side.rows,
            row_sums=rows.sums(),
            states=rows.states,
            expired=expired,
            gone=gone,
            touched=frozenset(side.touched),
            records=side.records,
            repeated=side.repeated,
            unreadable=unreadable,
        )

    def _read(self, side: _Side, rows: RowSide, reader: RowReader, folded: FoldedRows) -> int:
        """Read all messages; return the number of those that cannot be decoded."""
        unreadable, run = 0, self.comparison.run.encode()
        decoder = reader_of(self.comparison, self.schemas)
        with (
            inside(self.comparison.directory),
            sink_and_encoder(self.comparison.sink, "reconcile", NO_ORIGIN) as (sink, _),
        ):
            prefix_bytes, _ = prefixes_of(sink)
            for records in whole_messages(sink.read_back(self.part)):
                for given in records:
                    stored = given
                    if prefix_bytes and given.key is not None:
                        stored = given._replace(key=given.key[prefix_bytes:])
                    if run and (RUN_HEADER, run) not in stored.headers:
                        continue
                    try:
                        document = decoder.document(stored)
                        if document is None:
                            continue
                        row = decoder.row(document, stored)
                        self._take(side, decoder, row, document, stored)
                    except HeadraceError:
                        unreadable += 1
                        continue
                    if row.table in self.comparison.tables and self._is_folded(row, rows):
                        schema_id = dict(stored.headers).get(SCHEMA_ID_HEADER, b"")
                        value = self.schemas[schema_id].value
                        view = reader.view(schema_id, value, row.table)
                        assert view is not None  # noqa: S101 (the table is compared)
                        folded.add(view, document, row.key)
        return unreadable

    def _take(
        self,
        side: _Side,
        reader: MessageReader,
        row: ChangeRow,
        document: Document,
        stored: Stored,
    ) -> None:
        side.touch(row.table, row.key, row.time_us)
        # A change that was read from a table has no name in any log; only a run names it.
        named = self.comparison.run or not reader.is_of_table(document, row)
        if not named or not _is_selected(row, self.comparison.selection):
            return
        if self.comparison.wanted is None:
            side.sum(row, reader.sum_of(row, document, stored))
        elif side.wants(row):
            content = reader.content(document, row, stored.headers)
            side.add(row._replace(content=content))

    def _is_folded(self, row: ChangeRow, rows: RowSide) -> bool:
        selection = self.comparison.selection
        return (
            rows.asks_for(row.table, row.key)
            and (not selection.keys or row.key in selection.keys)
            and not self.comparison.span.is_recent(row.time_us)
        )


def reader_of(comparison: Comparison, schemas: Mapping[bytes, RecordSchema]) -> MessageReader:
    """Return the reader of the messages that the sink writes."""
    with sink_and_encoder(comparison.sink, "reconcile", NO_ORIGIN) as (sink, _):
        reader = MessageReader(sink, comparison.origin, Path(comparison.directory))
    reader.learn(schemas.values())
    return reader


def known_as_sent(
    sink: Mapping[str, Any],
    directory: str,
    origin: Origin,
    known: Mapping[bytes, RecordSchema],
    bounds: Bounds | None = None,
) -> Mapping[bytes, RecordSchema]:
    """Return the known schemas of a job, in the form of its messages.

    *bounds* are those of a sink that a statement created.

    Raises:
        ConfigError: the job's messages cannot be compared.

    """
    with (
        inside(directory),
        sink_and_encoder(compared_as(sink), "reconcile", origin, bounds) as (made, encoder),
    ):
        check_comparable(made, {schema.table for schema in known.values()})
        sent = shaped(encoder, known.values())
        check_fields(sent.values(), envelope_of(made.encoding()), origin)
        return sent


def shaped(encoder: Encoder, schemas: Iterable[RecordSchema]) -> dict[bytes, RecordSchema]:
    """Return schemas in the form of messages, by id; without those whose records are refused."""
    found = {}
    for schema in schemas:
        with suppress(BadRecordError):
            found[schema.schema_id] = encoder.schema(schema)
    return found


def parts_of(comparison: Comparison, tables: Sequence[str], suffix: str = "") -> Sequence[str]:
    """Return the parts of the topics of *tables* whose names end in *suffix*."""
    with (
        inside(comparison.directory),
        sink_and_encoder(comparison.sink, "reconcile", NO_ORIGIN) as (sink, _),
    ):
        return sink.parts(tables, suffix)


def compared_as(sink: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sink's options for encoding records that are compared and not sent.

    Options about framing are omitted, which would publish schemas to a schema store, and those
    about large values that do not change the content of a message.
    """
    apart = ("large.store", "schema.", "subject.")
    kept = {key: value for key, value in sink.items() if not key.startswith(apart)}
    for key, value in kept.items():
        if key.startswith("large.policy") and value != "truncate":
            kept[key] = "dlq"
    return kept


def rows_of(encoded: EncodedRecords) -> Iterator[ChangeRow]:
    """Yield encoded records, which have facts, as rows."""
    facts = encoded.facts
    if facts is None:
        return
    columns = zip(
        names_of(facts) or repeat(b"", len(encoded)),
        encoded.tables,
        encoded.keys,
        facts.operations,
        facts.timestamps_us,
        strict=True,
    )
    for name, table, key, operation, time_us in columns:
        yield ChangeRow(name, table, key or b"", OPERATIONS[operation].value, time_us)


def _is_selected(row: ChangeRow, selection: Selection) -> bool:
    """Return whether a change counts; the token of a message is not known."""
    return (
        (not selection.tables or row.table in selection.tables)
        and (not selection.operations or row.operation in selection.operations)
        and (not selection.keys or row.key in selection.keys)
        and (selection.from_us is None or row.time_us >= selection.from_us)
        and (selection.to_us is None or row.time_us < selection.to_us)
    )


def hash64(member: bytes) -> int:
    """Return 64 bits of a member: the same on every machine."""
    return int.from_bytes(blake2b(member, digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True)
class TableSide:
    """The rows of a token range of a table, as the changes of a backfill."""

    job_description: ClassVar[str] = "read the tables"

    shard: Shard
    comparison: Comparison

    def __call__(self) -> SideReport:
        """Read the rows."""
        rows = RowSide(self.comparison)
        tables: dict[str, RecordSchema] = {}
        records = 0
        try:
            with _encoding(self.shard, self.comparison) as (source, encoder):
                for batch in batches(source, self.shard):
                    for schema in batch.schemas():
                        tables[schema.table] = encoder.schema(schema)
                    records += self._take(encoder, batch, rows, tables)
        except HeadraceError as error:
            return SideReport(problem=f"{error.code}: {error}")
        return SideReport(row_sums=rows.sums(), states=rows.states, tables=tables, records=records)

    def _take(
        self,
        encoder: Encoder,
        batch: Batch,
        rows: RowSide,
        tables: Mapping[str, RecordSchema],
    ) -> int:
        schemas = {schema.schema_id: schema for schema in tables.values()}
        decoder = reader_of(self.comparison, schemas)
        reader = RowReader(tables, self.comparison.at_s)
        encoded = replace(self.comparison.selection, from_us=None, to_us=None).apply(
            encoded_changes(encoder, batch)
        )
        columns = zip(encoded.tables, encoded.keys, encoded.values, encoded.headers, strict=True)
        for number, (table, key, value, headers) in enumerate(columns):
            if not rows.asks_for(table, key or b""):
                continue
            schema_id = dict(headers).get(SCHEMA_ID_HEADER, b"")
            document = decoder.document(Stored(number, key, value, headers))
            view = reader.view(schema_id, schemas[schema_id].value, table)
            assert document is not None  # noqa: S101 (a row is not a tombstone)
            assert view is not None  # noqa: S101 (the schema was announced)
            rows.add(reader.of_one(view, document, key or b""))
        return len(encoded)

"""Immutable values for the mutations of a log, as logged, and for their row changes.

A Mutation has all its content (partition updates, rows, range markers, columns, cells) in log
order; values are decoded on access. `changes_of` returns the row-level changes:

* a partition deletion, then the static row, then rows and ranges as they stand in the update
* a row with a deletion and data gives a DELETE, then an INSERT or UPDATE
* a range deletion is one change, where its start marker stands; a boundary ends one range and
  starts the next
* cells of dropped columns, and cells not newer than the drop of a column that came back, are
  ignored; a row of which nothing is left gives no change

The bytes are parsed by `parser`, the only parser of the format; this module does no I/O.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final

import msgspec
from msgspec.structs import replace

from headrace.plugins.records.record import Operation
from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.mutation.values import Value, partition_key_parts, to_python
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

MUTATION_ID_BYTES: Final = 16
_INCLUSIVE_ENDS: Final = (constants.INCL_END, constants.INCL_END_EXCL_START)
_INCLUSIVE_STARTS: Final = (constants.INCL_START, constants.EXCL_END_INCL_START)

ClusteringValues = tuple[bytes | None, ...]


class Deletion(msgspec.Struct, frozen=True):
    """A deletion covers all writes at or before `timestamp_us`.

    `local_s` is the coordinator's clock in seconds, by which Cassandra purges.
    """

    timestamp_us: int
    local_s: int


class Liveness(msgspec.Struct, frozen=True):
    """The liveness of a row, from an INSERT; `ttl_s` and `expires_s` are set if it expires."""

    timestamp_us: int
    ttl_s: int | None = None
    expires_s: int | None = None


class Cell(msgspec.Struct, frozen=True):
    """One written value. `raw` is None for a tombstone; `path` is None in a simple column.

    `local_s` is the second at which a live cell expires, or the coordinator's clock for a
    tombstone.
    """

    column: ColumnSchema
    timestamp_us: int
    raw: bytes | None
    path: bytes | None = None
    ttl_s: int | None = None
    local_s: int | None = None

    @property
    def expires_s(self) -> int | None:
        """The second at which this cell expires, or None."""
        return self.local_s if self.ttl_s is not None else None

    @property
    def key(self) -> Value:
        """The list element's id, set element, map key, or UDT field's position, as Python."""
        if self.path is None:
            return None
        return to_python(self.column.type.path_type, self.path)

    @property
    def value_type(self) -> CqlType:
        """The type of `raw`: the column's, or that of the element or field."""
        return self.column.type.cell_type(self.path)

    @property
    def value(self) -> Value:
        """The value as Python; None for a tombstone and for an empty value of, say, an int."""
        return None if self.raw is None else to_python(self.value_type, self.raw)


class Column(msgspec.Struct, frozen=True):
    """A row's write to one column: one cell, or the cells and deletion of a complex column."""

    schema: ColumnSchema
    cells: tuple[Cell, ...]
    deletion: Deletion | None = None

    @property
    def name(self) -> str:
        """The column's name."""
        return self.schema.name


class Row(msgspec.Struct, frozen=True):
    """One row of an update; `clustering` is None for the static row."""

    clustering: ClusteringValues | None
    liveness: Liveness | None
    deletion: Deletion | None
    columns: tuple[Column, ...]

    @property
    def is_static(self) -> bool:
        """Whether this is the static row."""
        return self.clustering is None


class RangeMarker(msgspec.Struct, frozen=True):
    """A range tombstone's marker as logged; `kind` is a bound kind of `native.constants`."""

    kind: int
    values: ClusteringValues
    close: Deletion | None
    open: Deletion | None


class Bound(msgspec.Struct, frozen=True):
    """One side of a range: a prefix of clustering values, and whether it is in the range."""

    values: ClusteringValues
    inclusive: bool


class RangeDeletion(msgspec.Struct, frozen=True):
    """A deletion of all rows from `start` to `end` in clustering order; None is an open side."""

    start: Bound | None
    end: Bound | None
    deletion: Deletion


class PartitionUpdate(msgspec.Struct, frozen=True):
    """A mutation's writes to one partition of one table, in clustering order."""

    table: TableSchema
    key: bytes
    deletion: Deletion | None
    static: Row | None
    items: tuple[Row | RangeMarker, ...]

    def rows_and_ranges(self) -> list[Row | RangeDeletion]:
        """Return rows and ranges in log order; a range is at the place of its start marker.

        Raises:
            BadMutationError: a range has no end, or an end has no start.

        """
        found: list[Row | RangeDeletion] = []
        opened: int | None = None
        for item in self.items:
            if isinstance(item, Row):
                found.append(item)
                continue
            if item.close is not None:
                bound = Bound(item.values, item.kind in _INCLUSIVE_ENDS) if item.values else None
                if opened is None:
                    raise BadMutationError("a range ends that did not start")
                started = found[opened]
                assert isinstance(started, RangeDeletion)  # noqa: S101 (kept in this loop)
                found[opened] = replace(started, end=bound)
                opened = None
            if item.open is not None:
                bound = Bound(item.values, item.kind in _INCLUSIVE_STARTS) if item.values else None
                if opened is not None:
                    raise BadMutationError("a range starts inside another")
                opened = len(found)
                found.append(RangeDeletion(bound, None, item.open))
        if opened is not None:
            raise BadMutationError("a range does not end")
        return found


class Mutation(msgspec.Struct, frozen=True):
    """One entry of a log, decoded; its updates share the keyspace and the partition key.

    `position` is the logical end of the entry in its segment; `mutation_id` is the first half of
    the raw bytes' SHA-256, so equal bytes have the same id on every replica. `is_cut_short`: an
    update of an unknown table follows; it and the bytes after it were not parsed.
    """

    segment_id: int
    position: int
    messaging: int
    size_bytes: int
    mutation_id: bytes
    updates: tuple[PartitionUpdate, ...]
    is_cut_short: bool = False

    @property
    def keyspace(self) -> str:
        """The keyspace of all updates."""
        return self.updates[0].table.keyspace

    @property
    def cdc(self) -> bool:
        """Whether a table of the mutation has `cdc = true`."""
        return any(update.table.cdc for update in self.updates)

    def changes(self) -> "list[Change]":
        """Return the row-level changes, in log order; see `changes_of`."""
        return list(changes_of(self))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One row-level change.

    `key` has one value per partition key column. `clustering` is None for a static row, a range and
    a partition. `ttl_s` and `expires_s` are those of the row's liveness.
    """

    table: TableSchema
    operation: Operation
    timestamp_us: int
    key: tuple[bytes, ...]
    clustering: ClusteringValues | None = None
    is_static: bool = False
    ttl_s: int | None = None
    expires_s: int | None = None
    columns: tuple[Column, ...] = ()
    range: RangeDeletion | None = None

    def key_values(self) -> Mapping[str, Value]:
        """Return the primary key as Python values by column; for ranges and static rows, a part."""
        columns = (*self.table.partition_key, *self.table.clustering)
        values = (*self.key, *(self.clustering or ()))
        return {
            column.name: None if raw is None else to_python(column.type, raw)
            for column, raw in zip(columns, values, strict=False)
        }


def changes_of(mutation: Mutation) -> Iterator[Change]:
    """Yield the row-level changes of all updates, in log order.

    Raises:
        BadMutationError: range markers do not pair.
        BadValueError: a partition key does not fit the schema.

    """
    for update in mutation.updates:
        types = [column.type for column in update.table.partition_key]
        key = tuple(partition_key_parts(types, update.key))
        table = update.table
        if update.deletion is not None:
            timestamp_us = update.deletion.timestamp_us
            yield Change(
                table=table,
                operation=Operation.DELETE_PARTITION,
                timestamp_us=timestamp_us,
                key=key,
            )
        if update.static is not None:
            yield from _row_changes(table, key, update.static)
        for item in update.rows_and_ranges():
            if isinstance(item, Row):
                yield from _row_changes(table, key, item)
            else:
                yield Change(
                    table=table,
                    operation=Operation.DELETE_RANGE,
                    timestamp_us=item.deletion.timestamp_us,
                    key=key,
                    range=item,
                )


def _row_changes(table: TableSchema, key: tuple[bytes, ...], row: Row) -> Iterator[Change]:
    if row.deletion is not None:
        yield Change(
            table=table,
            operation=Operation.DELETE,
            timestamp_us=row.deletion.timestamp_us,
            key=key,
            clustering=row.clustering,
        )
    columns = _kept(row.columns)
    if row.liveness is not None:
        yield Change(
            table=table,
            operation=Operation.INSERT,
            timestamp_us=row.liveness.timestamp_us,
            key=key,
            clustering=row.clustering,
            is_static=row.is_static,
            ttl_s=row.liveness.ttl_s,
            expires_s=row.liveness.expires_s,
            columns=columns,
        )
    elif columns:
        yield Change(
            table=table,
            operation=Operation.UPDATE,
            timestamp_us=_newest(columns),
            key=key,
            clustering=row.clustering,
            is_static=row.is_static,
            columns=columns,
        )


def _newest(columns: tuple[Column, ...]) -> int:
    """Return the newest write time of the cells or, without cells, of the deletions."""
    cells = [cell.timestamp_us for column in columns for cell in column.cells]
    deletions = [column.deletion.timestamp_us for column in columns if column.deletion]
    return max(cells or deletions)


def _kept(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Remove content that Cassandra ignores: dropped columns, cells from before a drop."""
    kept = []
    for column in columns:
        dropped_us = column.schema.dropped_us
        if column.schema.is_dropped:
            continue
        if dropped_us is None:
            left = column
        else:
            cells = tuple(cell for cell in column.cells if cell.timestamp_us > dropped_us)
            deletion = column.deletion
            if deletion is not None and deletion.timestamp_us <= dropped_us:
                deletion = None
            left = replace(column, cells=cells, deletion=deletion)
        if left.cells or left.deletion is not None:
            kept.append(left)
    return tuple(kept)


class MutationDecoder:
    """Turns raw mutations into Mutation values. For one thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Decode mutations of the tables in *catalogue*."""
        self._tables = catalogue.tables
        self._cutter = Cutter(catalogue)

    def decode(self, raw: bytes, *, messaging: int, segment_id: int, position: int) -> Mutation:
        """Decode one raw mutation; *position* is the end of its entry.

        Raises:
            UnknownTableError: an update is of a table that is not in the schema; `known` is the
                mutation before it.
            BadMutationError: the bytes do not fit the schema.

        """
        try:
            self._cutter.cut(raw, 0, len(raw), messaging)
        except UnknownTableError as error:
            error.known_bytes = self._cutter.at
            with suppress(BadMutationError):
                if self._cutter.is_neighbour():
                    known = self._mutation(raw, messaging, segment_id, position, cut_short=True)
                    error.known = known
            raise
        return self._mutation(raw, messaging, segment_id, position)

    def _mutation(
        self, raw: bytes, messaging: int, segment_id: int, position: int, *, cut_short: bool = False
    ) -> Mutation:
        words = self._cutter.operations[: self._cutter.count * constants.WIDTH].tolist()
        return Mutation(
            segment_id=segment_id,
            position=position,
            messaging=messaging,
            size_bytes=len(raw),
            mutation_id=sha256(raw).digest()[:MUTATION_ID_BYTES],
            updates=tuple(_Operations(raw, words, self._tables).updates()),
            is_cut_short=cut_short,
        )


class _Operations:
    """Builds values from the operations of one mutation."""

    def __init__(self, raw: View, words: list[int], tables: list[TableSchema]) -> None:
        self._raw = raw
        self._words = words
        self._tables = tables
        self._at = 0

    def _kind(self) -> int:
        return self._words[self._at] if self._at < len(self._words) else 0

    def _take(self) -> list[int]:
        begin = self._at
        self._at += constants.WIDTH
        return self._words[begin : self._at]

    def _bytes(self, operation: list[int]) -> bytes | None:
        start, length = operation[constants.START], operation[constants.LENGTH]
        return None if length < 0 else bytes(self._raw[start : start + length])

    def _deletion(self, kind: int) -> Deletion | None:
        if self._kind() != kind:
            return None
        operation = self._take()
        return Deletion(operation[constants.TIMESTAMP], operation[constants.LDT])

    def updates(self) -> Iterator[PartitionUpdate]:
        while self._kind() == constants.UPDATE:
            operation = self._take()
            table = self._tables[operation[constants.COLUMN]]
            deletion = self._deletion(constants.PARTITION_DELETION)
            items: list[Row | RangeMarker] = []
            static = None
            while self._kind() in (constants.ROW, constants.MARKER):
                item = self._row(table) if self._kind() == constants.ROW else self._marker()
                if isinstance(item, Row) and item.is_static:
                    static = item
                else:
                    items.append(item)
            key = self._bytes(operation) or b""
            yield PartitionUpdate(table, key, deletion, static, tuple(items))

    def _values(self) -> ClusteringValues:
        values = []
        while self._kind() == constants.VALUE:
            values.append(self._bytes(self._take()))
        return tuple(values)

    def _row(self, table: TableSchema) -> Row:
        operation = self._take()
        flags = operation[constants.FLAGS]
        liveness = None
        if flags & constants.HAS_TIMESTAMP:
            ttl_s = operation[constants.TTL] if flags & constants.HAS_TTL else None
            expires_s = operation[constants.LDT] if flags & constants.HAS_TTL else None
            liveness = Liveness(operation[constants.TIMESTAMP], ttl_s, expires_s)
        values = self._values()
        deletion = self._deletion(constants.ROW_DELETION)
        columns = []
        while self._kind() in (constants.CELL, constants.COMPLEX):
            columns.append(self._column(table))
        clustering = None if flags & constants.ROW_STATIC else values
        return Row(clustering, liveness, deletion, tuple(columns))

    def _column(self, table: TableSchema) -> Column:
        operation = self._take()
        column = table.columns[operation[constants.COLUMN]]
        if operation[constants.KIND] == constants.CELL:
            return Column(column, (self._cell(column, operation),))
        deletion = None
        if operation[constants.FLAGS]:
            deletion = Deletion(operation[constants.TIMESTAMP], operation[constants.LDT])
        cells = []
        while self._kind() == constants.CELL and self._words[self._at + constants.PATH_LENGTH] >= 0:
            cells.append(self._cell(column, self._take()))
        return Column(column, tuple(cells), deletion)

    def _cell(self, column: ColumnSchema, operation: list[int]) -> Cell:
        flags = operation[constants.FLAGS]
        path = None
        if operation[constants.PATH_LENGTH] >= 0:
            start = operation[constants.PATH]
            path = bytes(self._raw[start : start + operation[constants.PATH_LENGTH]])
        expiring = flags & constants.IS_EXPIRING
        return Cell(
            column=column,
            timestamp_us=operation[constants.TIMESTAMP],
            raw=None if flags & constants.IS_DELETED else self._bytes(operation),
            path=path,
            ttl_s=operation[constants.TTL] if expiring else None,
            local_s=operation[constants.LDT]
            if flags & (constants.IS_DELETED | constants.IS_EXPIRING)
            else None,
        )

    def _marker(self) -> RangeMarker:
        operation = self._take()
        return RangeMarker(
            kind=operation[constants.FLAGS],
            values=self._values(),
            close=self._deletion(constants.MARKER_CLOSE),
            open=self._deletion(constants.MARKER_OPEN),
        )

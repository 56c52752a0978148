"""Folds changes, in any order, into the resulting rows of the table, by Cassandra's rules.

A cell's value is decided by write time; on a tie an expiring cell beats one that does not expire, a
tombstone beats both, then the later expiry or deletion, then the larger bytes. A deletion covers
all writes at or before its time (docs/commit-log.md 8). Separate because only consumers fold; this
module does no I/O, and the time is an argument.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.plugins.records.record import Operation
from headrace.sources.cassandra.mutation.changes import (
    Bound,
    Cell,
    Change,
    ClusteringValues,
    Column,
    RangeDeletion,
)
from headrace.sources.cassandra.mutation.json_values import json_key, to_json
from headrace.sources.cassandra.mutation.ordering import SortKey, sort_key
from headrace.sources.cassandra.mutation.values import Value
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, TableSchema

_NEVER: Final = -(1 << 63) - 1  # Before every write time.


class _Column(msgspec.Struct):
    """The newest cell of each path; a simple column has the one path None."""

    schema: ColumnSchema
    deleted_us: int = _NEVER
    cells: dict[SortKey, Cell] = msgspec.field(default_factory=dict)

    def add(self, column: Column) -> None:
        if column.deletion is not None:
            self.deleted_us = max(self.deleted_us, column.deletion.timestamp_us)
        for cell in column.cells:
            path_type = self.schema.type.path_type if cell.path is not None else None
            path = None if path_type is None else sort_key(path_type, cell.path)
            known = self.cells.get(path)
            if known is None or _rank(known) < _rank(cell):
                self.cells[path] = cell

    def live(self, after_us: int, now_s: int) -> list[Cell]:
        """Return the cells that a read at *now_s* returns, by path."""
        after_us = max(after_us, self.deleted_us)
        found = [
            (path, cell)
            for path, cell in self.cells.items()
            if cell.timestamp_us > after_us
            and cell.raw is not None
            and (cell.expires_s is None or cell.expires_s > now_s)
        ]
        return [cell for _path, cell in sorted(found, key=lambda pair: pair[0] or ())]


def _rank(cell: Cell) -> tuple[int, bool, bool, int, bytes]:
    dead = cell.raw is None
    expiring = cell.ttl_s is not None
    return cell.timestamp_us, dead or expiring, dead, cell.local_s or 0, cell.raw or b""


class _Row(msgspec.Struct):
    values: ClusteringValues
    deleted_us: int = _NEVER
    liveness: tuple[int, bool, int] = (_NEVER, False, 0)  # Write time, expires, when.
    columns: dict[str, _Column] = msgspec.field(default_factory=dict)

    def add(self, change: Change) -> None:
        if change.operation is Operation.DELETE:
            self.deleted_us = max(self.deleted_us, change.timestamp_us)
        elif change.operation is Operation.INSERT:
            expires = change.expires_s is not None
            written = (change.timestamp_us, expires, change.expires_s or 0)
            self.liveness = max(self.liveness, written)
        for column in change.columns:
            known = self.columns.get(column.name)
            if known is None:
                known = self.columns[column.name] = _Column(column.schema)
            known.add(column)

    def is_live(self, after_us: int, now_s: int) -> bool:
        timestamp_us, expires, at_s = self.liveness
        return timestamp_us > after_us and (not expires or at_s > now_s)


class _Partition(msgspec.Struct):
    key: tuple[bytes, ...]
    deleted_us: int = _NEVER
    ranges: list[RangeDeletion] = msgspec.field(default_factory=list)
    static: _Row = msgspec.field(default_factory=lambda: _Row(()))
    rows: dict[SortKey, _Row] = msgspec.field(default_factory=dict)


class Fold:
    """The rows of one table. For one thread.

    Memory grows with all writes, including deletions: a deletion may come before the writes it
    covers. The time of a read grows with the rows of a partition times its range deletions.
    """

    def __init__(self, table: TableSchema) -> None:
        """Start with an empty table."""
        self.table = table
        self._partitions: dict[SortKey, _Partition] = {}
        self._clustering = table.clustering
        self._clustering_types = [column.type for column in table.clustering]

    def add(self, change: Change) -> None:
        """Add a change of this table; adding it again has no effect.

        Raises:
            BadValueError: a key does not fit its type.

        """
        # Partition keys are compared by their bytes: Cassandra hashes these.
        partition = self._partitions.setdefault(change.key, _Partition(change.key))
        if change.operation is Operation.DELETE_PARTITION:
            partition.deleted_us = max(partition.deleted_us, change.timestamp_us)
        elif change.range is not None:
            partition.ranges.append(change.range)
        elif change.is_static:
            partition.static.add(change)
        else:
            values = change.clustering or ()
            row = partition.rows.setdefault(self._position(values), _Row(values))
            row.add(change)

    def rows(self, now_s: int) -> Iterator[dict[str, Value]]:
        """Yield the rows of `SELECT JSON *` at *now_s* (Unix seconds), a dict per row.

        Partitions are in the order of their first change, rows by clustering; columns without a
        value are None. Values are those of `json_values`.
        """
        for partition in self._partitions.values():
            named = zip(self.table.partition_key, partition.key, strict=True)
            key = {column.name: to_json(column.type, raw) for column, raw in named}
            static, has_static = self._static(partition, now_s)
            rows = sorted(partition.rows.items(), key=lambda item: self._sorted(item[0]))
            shown = False
            for position, row in rows:
                document = self._row(partition, position, row, now_s)
                if document is not None:
                    shown = True
                    yield key | static | document
            if has_static and not shown:
                yield key | static | self._nothing(ColumnKind.CLUSTERING, ColumnKind.REGULAR)

    def _position(self, values: ClusteringValues) -> SortKey:
        return tuple(map(sort_key, self._clustering_types, values))

    def _sorted(self, position: SortKey) -> SortKey:
        """Return *position* as a key that sorts in clustering order, also descending columns."""
        return tuple(
            _Reversed(key) if column.descending else key
            for column, key in zip(self._clustering, position, strict=False)
        )

    def _nothing(self, *kinds: ColumnKind) -> dict[str, Value]:
        columns = self.table.columns
        return {c.name: None for c in columns if c.kind in kinds and not c.is_dropped}

    def _static(self, partition: _Partition, now_s: int) -> tuple[dict[str, Value], bool]:
        found = _columns(partition.static, partition.deleted_us, now_s)
        return self._nothing(ColumnKind.STATIC) | found, bool(found)

    def _row(
        self, partition: _Partition, position: SortKey, row: _Row, now_s: int
    ) -> dict[str, Value] | None:
        after_us = max(partition.deleted_us, row.deleted_us)
        for deleted in partition.ranges:
            if deleted.deletion.timestamp_us > after_us and self._covers(deleted, position):
                after_us = deleted.deletion.timestamp_us
        found = _columns(row, after_us, now_s)
        if not found and not row.is_live(after_us, now_s):
            return None
        clustering = {
            column.name: None if raw is None else to_json(column.type, raw)
            for column, raw in zip(self._clustering, row.values, strict=True)
        }
        return clustering | self._nothing(ColumnKind.REGULAR) | found

    def _covers(self, deleted: RangeDeletion, position: SortKey) -> bool:
        start = self._inside(deleted.start, position, is_start=True)
        return start and self._inside(deleted.end, position, is_start=False)

    def _inside(self, bound: Bound | None, position: SortKey, *, is_start: bool) -> bool:
        if bound is None:
            return True
        prefix = self._sorted(self._position(bound.values))
        own = self._sorted(position)[: len(prefix)]
        if own == prefix:
            return bound.inclusive
        return bool(own < prefix) != is_start


class _Reversed(msgspec.Struct, frozen=True):
    """A key of a descending column: it sorts in reverse."""

    key: SortKey

    def __lt__(self, other: "_Reversed") -> bool:
        return bool(other.key < self.key)


def _columns(row: _Row, after_us: int, now_s: int) -> dict[str, Value]:
    found = {}
    for name, column in row.columns.items():
        if cells := column.live(after_us, now_s):
            found[name] = _value(column.schema, cells)
    return found


def _value(column: ColumnSchema, cells: list[Cell]) -> Value:
    cql_type = column.type
    values = [to_json(cell.value_type, cell.raw or b"") for cell in cells]
    if not column.is_complex:
        return values[0]
    if cql_type.is_udt:
        fields = {
            int.from_bytes(c.path or b"", "big"): v for c, v in zip(cells, values, strict=True)
        }
        return {name: fields.get(i) for i, (name, _type) in enumerate(cql_type.fields)}
    keys = [to_json(cql_type.path_type, cell.path or b"") for cell in cells]
    if cql_type.name == "list":
        return values
    if cql_type.name == "set":
        return keys
    return {json_key(key): value for key, value in zip(keys, values, strict=True)}

"""Makes changes from a table's rows in the form of CQL results. Pure.

CQL returns the write time and TTL of each value, but not those of a row's liveness, nor the ids of
a list's elements. For a missing time, the oldest of the row is used: a newer change of the live
stream wins, and an older one is already in the row.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.plugins import Operation
from headrace.plugins.cql_text import quoted_name
from headrace.sources.cassandra.mutation.changes import (
    MUTATION_ID_BYTES,
    Cell,
    Change,
    Column,
    Deletion,
)
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, TableSchema

Raw = Sequence[bytes | None]
_COUNT_BYTES: Final = 4  # Before a collection, and before each of its elements.
_UUID_EPOCH: Final = 0x01B2_1DD2_1381_4000  # 100 ns from 1582 to 1970.
_ORDER_BYTES: Final = 2
_TICKS: Final = 10  # Of a timeuuid, per microsecond.


@dataclass(frozen=True, slots=True)
class Selected:
    """The query of a table; with *times_of_elements* the node returns the times of elements."""

    table: TableSchema
    times_of_elements: bool

    @property
    def keys(self) -> tuple[ColumnSchema, ...]:
        """The columns of the primary key."""
        return (*self.table.partition_key, *self.table.clustering)

    @property
    def values(self) -> tuple[ColumnSchema, ...]:
        """The other columns that were not dropped."""
        kinds = (ColumnKind.STATIC, ColumnKind.REGULAR)
        return tuple(c for c in self.table.columns if c.kind in kinds and not c.is_dropped)

    def timed(self, column: ColumnSchema) -> bool:
        """Return whether the node returns the times of a column."""
        return self.times_of_elements or not column.is_complex

    def statement(self) -> str:
        """Return the query of a range of tokens, excluding its first and including its last."""
        keys = ", ".join(quoted(column) for column in self.table.partition_key)
        return f"{self._head()} WHERE token({keys}) > %s AND token({keys}) <= %s"

    def statement_of_row(self, *, is_static: bool) -> str:
        """Return the query of one row, or of a partition's static columns; its values are JSON."""
        keys = self.table.partition_key if is_static else self.keys
        where = " AND ".join(f"{quoted(column)} = fromJson(%s)" for column in keys)
        return f"{self._head()} WHERE {where} LIMIT 1"

    def statement_of_token(self) -> str:
        """Return the query of a partition's token; the values of its key are JSON."""
        keys = ", ".join(quoted(column) for column in self.table.partition_key)
        where = " AND ".join(f"{quoted(c)} = fromJson(%s)" for c in self.table.partition_key)
        table = f'"{self.table.keyspace}"."{self.table.name}"'
        return f"SELECT token({keys}) FROM {table} WHERE {where} LIMIT 1"  # noqa: S608 (names)

    def _head(self) -> str:
        keys = ", ".join(quoted(column) for column in self.table.partition_key)
        selected = [f"token({keys})", *map(quoted, self.keys)]
        for column in self.values:
            name = quoted(column)
            selected.append(name)
            if self.timed(column):
                selected += [f"WRITETIME({name})", f"TTL({name})"]
        table = f'"{self.table.keyspace}"."{self.table.name}"'
        return f"SELECT {', '.join(selected)} FROM {table}"  # noqa: S608 (names)


class _Value(msgspec.Struct, frozen=True):
    """A column's value and times: one of each, or one per element; None if unknown."""

    column: ColumnSchema
    raw: bytes
    times_us: tuple[int, ...] | None
    ttls_s: tuple[int | None, ...]


class Snapshot:
    """Makes changes of the rows of one query, which are ordered by partition."""

    def __init__(self, selected: Selected) -> None:
        """Set the query; rows have the columns of `selected.statement()`, as raw bytes."""
        self._selected = selected
        self._partition: tuple[bytes, ...] | None = None

    def changes(self, row: Raw, *, now_s: int | None = None) -> Iterator[Change]:
        """Yield the row's changes; a partition's first row also gives its static columns."""
        now = int(time.time()) if now_s is None else now_s
        table = self._selected.table
        parts = len(table.partition_key)
        key = tuple(part or b"" for part in row[1 : 1 + parts])
        clustering = tuple(row[1 + parts : 1 + parts + len(table.clustering)])
        values = self._values(row)
        statics = [v for v in values if v.column.kind is ColumnKind.STATIC]
        if statics and key != self._partition:
            columns = _columns(statics, _oldest(statics), now)
            yield Change(
                table=table,
                operation=Operation.UPDATE,
                timestamp_us=max(cell.timestamp_us for column in columns for cell in column.cells),
                key=key,
                is_static=True,
                columns=columns,
            )
        self._partition = key
        if table.clustering and all(value is None for value in clustering):
            return  # A partition with only static columns.
        regular = [v for v in values if v.column.kind is ColumnKind.REGULAR]
        oldest = _oldest(regular)
        ttls = [ttl for value in regular for ttl in value.ttls_s]
        ttl = max(ttl for ttl in ttls if ttl) if ttls and all(ttls) else None
        yield Change(
            table=table,
            operation=Operation.INSERT,
            timestamp_us=oldest,
            key=key,
            clustering=clustering,
            ttl_s=ttl,
            expires_s=None if ttl is None else now + ttl,
            columns=_columns(regular, oldest, now),
        )

    def _values(self, row: Raw) -> list[_Value]:
        """Return the values other than null."""
        found = []
        at = 1 + len(self._selected.keys)
        for column in self._selected.values:
            raw = row[at]
            at += 1
            times: tuple[int, ...] | None = None
            ttls: tuple[int | None, ...] = ()
            if self._selected.timed(column):
                times, ttls = _times(column, row[at], row[at + 1])
                at += 2
            if raw is not None:
                found.append(_Value(column, raw, times, ttls))
        return found


def identity(change: Change) -> bytes:
    """Return the id of a change of a snapshot: a row with the same times has the same id."""
    described = repr((change.table.table_id, change.key, change.clustering, change.columns))
    return sha256(described.encode()).digest()[:MUTATION_ID_BYTES]


def quoted(column: ColumnSchema) -> str:
    """Return a column's name in CQL, quoted."""
    return quoted_name(column.name)


def _times(
    column: ColumnSchema, times: bytes | None, ttls: bytes | None
) -> tuple[tuple[int, ...] | None, tuple[int | None, ...]]:
    if not column.is_complex:
        reported = None if times is None else (int.from_bytes(times, "big", signed=True),)
        return reported, (None if ttls is None else int.from_bytes(ttls, "big"),)
    if times is None:
        return None, ()
    numbers = tuple(int.from_bytes(each or b"", "big", signed=True) for each in _elements(times, 1))
    return numbers, ttls_of(ttls)


def ttls_of(raw: bytes | None) -> tuple[int | None, ...]:
    """Return the TTLs of the elements of a collection."""
    left = _elements(raw, 1) if raw is not None else []
    return tuple(None if each is None else int.from_bytes(each, "big") for each in left)


def list_as_read(
    column: ColumnSchema,
    raw: bytes | None,
    ttls_s: tuple[int | None, ...],
    *,
    read_us: int,
    now_s: int,
) -> Column:
    """Return a column that replaces a list by the result of a query at *read_us*; None is null.

    Its write time is the time of the query: a later query or deletion wins.
    """
    cells = [] if raw is None else _cells(_Value(column, raw, None, ttls_s), read_us, now_s)
    return Column(column, tuple(cells), Deletion(read_us, now_s))


def _elements(raw: bytes, parts: int) -> list[bytes | None]:
    """Return the parts of a collection, *parts* for each element."""
    count = int.from_bytes(raw[:_COUNT_BYTES], "big") * parts
    return _fields(raw[_COUNT_BYTES:], count)


def _fields(raw: bytes, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    at = 0
    while len(found) < count and at < len(raw):
        length = int.from_bytes(raw[at : at + _COUNT_BYTES], "big", signed=True)
        at += _COUNT_BYTES
        found.append(None if length < 0 else raw[at : at + length])
        at += max(0, length)
    return found


def _oldest(values: Sequence[_Value]) -> int:
    times = [us for value in values for us in value.times_us or ()]
    return min(times, default=0)


def _columns(values: Sequence[_Value], oldest: int, now_s: int) -> tuple[Column, ...]:
    found = []
    for value in values:
        cells = _cells(value, oldest, now_s)
        deletion = None
        if value.column.is_list and cells:
            # In the live stream its elements have other ids: these are deleted. Sets, maps and
            # fields need no deletion, which would hide writes that are older but applied later.
            deletion = Deletion(min(cell.timestamp_us for cell in cells) - 1, now_s)
        if cells:
            found.append(Column(value.column, tuple(cells), deletion))
    return tuple(found)


def _cells(value: _Value, oldest: int, now_s: int) -> list[Cell]:
    column = value.column
    if not column.is_complex:
        time_us = value.times_us[0] if value.times_us else oldest
        ttl = value.ttls_s[0] if value.ttls_s else None
        return [Cell(column, time_us, value.raw, None, ttl, None if ttl is None else now_s + ttl)]
    pairs = _pairs(column, value.raw)
    newest = max(value.times_us or (oldest,)) + 1  # After the deletion of a list.
    found = []
    for place, (path, raw) in enumerate(pairs):
        time_us = (
            value.times_us[place] if value.times_us and place < len(value.times_us) else oldest
        )
        ttl = value.ttls_s[place] if place < len(value.ttls_s) else None
        expires_s = None if ttl is None else now_s + ttl
        cell = Cell(column, time_us, raw, path, ttl, expires_s)
        if column.is_list:
            cell = replace(cell, timestamp_us=newest, path=_list_id(newest, place))
        found.append(cell)
    return found


def _pairs(column: ColumnSchema, raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return path and value of each element of a collection, or field of a type."""
    cql_type = column.type
    if cql_type.is_udt:
        fields = _fields(raw, len(cql_type.fields))
        places = (place.to_bytes(_ORDER_BYTES, "big") for place in range(len(fields)))
        return [(p, f) for p, f in zip(places, fields, strict=True) if f is not None]
    if cql_type.name == "map":
        parts = [part or b"" for part in _elements(raw, 2)]
        return list(zip(parts[::2], parts[1::2], strict=True))
    elements = [element or b"" for element in _elements(raw, 1)]
    if cql_type.name == "set":
        return [(element, b"") for element in elements]
    return [(b"", element) for element in elements]


def _list_id(time_us: int, place: int) -> bytes:
    """Return a timeuuid that keeps a list's elements in order."""
    ticks = time_us * _TICKS + _UUID_EPOCH + place
    return UUID(
        fields=(
            ticks & 0xFFFF_FFFF,
            ticks >> 32 & 0xFFFF,
            ticks >> 48 & 0x0FFF | 0x1000,
            0x80,
            0,
            0,
        )
    ).bytes

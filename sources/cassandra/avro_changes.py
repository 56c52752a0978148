"""Changes made again of what `avro` made of them, for who reads topics: values become bytes anew.

What has no form in Avro does not come back: inside a value a null, a missing field and an empty
value are all null. Pure.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, Final
from uuid import UUID

from headrace.plugins import Document, FactColumns, Operation
from headrace.plugins.columns import TableType, TypedChanges
from headrace.sources.cassandra.avro_schema import avro_names, payload_columns, tuple_fields
from headrace.sources.cassandra.change_columns import ChangeColumns
from headrace.sources.cassandra.changes import (
    Bound,
    Cell,
    Change,
    ClusteringValues,
    Column,
    Deletion,
    RangeDeletion,
)
from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.forge.wire import signed_vint, sized
from headrace.sources.cassandra.schema import ColumnSchema, TableSchema
from headrace.sources.cassandra.types import CqlType
from headrace.sources.cassandra.values import DATE_ZERO, BadValueError, Duration

# Any: what an Avro type has for a value.
Given = Any

_NULL: Final = b"\xff" * 4  # The length of what is not there.
_LENGTH: Final = struct.Struct(">i")
_POSITION: Final = struct.Struct(">H")  # Of a UDT's field.
_NO_CLUSTERING: Final = (Operation.DELETE_RANGE, Operation.DELETE_PARTITION)
_ORDERED: Final = (" ASC);\n", " DESC);\n")
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"


def table_of(text: str, name: str) -> TableSchema:
    """Return the table *name* of its canonical text, which tells all but its id and options."""
    joined = "AND" if text.endswith(_ORDERED) else "WITH"
    whole = text.removesuffix(";\n")
    table = parse_schema(f"{whole} {joined} ID = {_NO_ID};").table(name)
    assert table is not None  # noqa: S101 (its text says so)
    return table


def typed_values(
    target: TableType, values: Sequence[Document], texts: Mapping[bytes, str]
) -> TypedChanges:
    """Return changes that are values in Avro as typed columns; see `Source.typed_values`."""
    columns, facts = ChangeColumns(target), FactColumns()
    tables: dict[bytes, _Payload] = {}
    for value in values:
        schema_id = value["schemaUuid"]
        if schema_id not in tables:
            tables[schema_id] = _Payload(table_of(texts[schema_id], target.table))
        try:
            change = tables[schema_id].change(value)
        except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
            kind = type(error).__name__  # What it says may hold a value.
            said = f"a value of {target.table} is not as `cep44` has it: {kind}"
            raise BadValueError(said, hint="was it transformed? leave out `table`") from error
        columns.add(change)
        facts.add(
            change.timestamp_us,
            change.operation,
            index=value["index"],
            mutation=value["mutation"],
            origin={name: value[name] for name in ("copies", "node", "segment", "position")},
        )
    return columns.typed(facts.facts())


class _Payload:
    """Makes changes of one version of a table."""

    def __init__(self, table: TableSchema) -> None:
        self._table = table
        columns = payload_columns(table)
        names = avro_names(tuple(column.name for column in columns))
        self._columns = dict(zip(names, columns, strict=True))
        self._names = {column: name for name, column in self._columns.items()}

    def change(self, value: Document) -> Change:
        table, payload = self._table, value["payload"]
        operation = Operation(value["operationType"])
        is_row = operation not in _NO_CLUSTERING and not value["isStatic"]
        notes = {note["field"]: note for note in value["cells"]}
        return Change(
            table=table,
            operation=operation,
            timestamp_us=value["timestampMicros"],
            key=tuple(raw or b"" for raw in self._prefix(table.partition_key, payload)),
            clustering=self._prefix(table.clustering, payload) if is_row else None,
            is_static=value["isStatic"],
            ttl_s=value["ttl"],
            expires_s=value["expires"],
            columns=tuple(
                _elements(self._columns[name], payload[name])
                if self._columns[name].is_complex
                else _simple(self._columns[name], value, payload[name], notes.get(name))
                for name in value["updateFields"]
                if payload[name] is not None or name not in value["truncatedFields"]
            ),
            range=None if value["range"] is None else self._range(value),
        )

    def _prefix(self, columns: Sequence[ColumnSchema], given: Document) -> ClusteringValues:
        return tuple(_raw(column.type, given[self._names[column]]) for column in columns)

    def _range(self, value: Document) -> RangeDeletion:
        start, end = (self._bound(value["range"][side]) for side in ("start", "end"))
        return RangeDeletion(start, end, Deletion(value["timestampMicros"], 0))

    def _bound(self, given: Document | None) -> Bound | None:
        if given is None:
            return None
        columns = self._table.clustering[: given["count"]]
        return Bound(self._prefix(columns, given["values"]), given["inclusive"])


def _simple(column: ColumnSchema, value: Document, given: Given, note: Document | None) -> Column:
    told = value if note is None else note
    written = told["timestampMicros"]
    raw = _raw(column.type, given)
    if note is not None:
        written = value["timestampMicros"] if written is None else written
        raw = b"" if note["isEmpty"] else raw
    return Column(column, (Cell(column, written, raw, ttl_s=told["ttl"], local_s=told["expires"]),))


def _elements(column: ColumnSchema, given: Document) -> Column:
    """Return a column that is written cell by cell."""
    deleted = given["deletedAt"]
    if column.type.is_udt:  # By name, in the order of their positions.
        written = enumerate(given["fields"].values())
        cells = tuple(_cell(column, _POSITION.pack(at), c) for at, c in written if c is not None)
    else:
        cells = tuple(_element(column, cell) for cell in given["cells"])
    return Column(column, cells, None if deleted is None else Deletion(deleted, 0))


def _element(column: ColumnSchema, given: Document) -> Cell:
    return _cell(column, encoded(column.type.path_type, given["key"]), given)


def _cell(column: ColumnSchema, path: bytes, given: Document) -> Cell:
    raw = _raw(column.type.cell_type(path), given.get("value"))  # A set's elements have none.
    raw = None if given["removed"] else raw or b""
    written = given["timestampMicros"]
    return Cell(column, written, raw, path, ttl_s=given["ttl"], local_s=given["expires"])


def _raw(cql_type: CqlType, given: Given) -> bytes | None:
    return None if given is None else encoded(cql_type, given)


def encoded(cql_type: CqlType, given: Given) -> bytes:
    """Return the bytes of which `decode` in the form `AVRO` makes *given*."""
    if cql_type.is_udt:
        names = avro_names(tuple(name for name, _ in cql_type.fields))
        types = [inner for _, inner in cql_type.fields]
        return _counted(zip(types, (given[name] for name in names), strict=True))
    if cql_type.name == "tuple":
        fields = (given[name] for name in tuple_fields(len(cql_type.arguments)))
        return _counted(zip(cql_type.arguments, fields, strict=True))
    if cql_type.name in ("list", "set"):
        (inner,) = cql_type.arguments
        return _LENGTH.pack(len(given)) + _counted((inner, item) for item in given)
    if cql_type.name == "map":
        key, value = cql_type.arguments
        parts = [part for each in given for part in ((key, each["key"]), (value, each["value"]))]
        return _LENGTH.pack(len(given)) + _counted(parts)
    if cql_type.name == "vector":
        (inner,) = cql_type.arguments
        items = [b"" if item is None else encoded(inner, item) for item in given]
        return b"".join(items if inner.fixed_length is not None else map(sized, items))
    return _NATIVES.get(cql_type.name, bytes)(given)


def _counted(parts: Iterable[tuple[CqlType, Given]]) -> bytes:
    """Return each part behind its length."""
    made = (_raw(cql_type, given) for cql_type, given in parts)
    return b"".join(_NULL if raw is None else _LENGTH.pack(len(raw)) + raw for raw in made)


def _packed(code: str) -> Callable[[Given], bytes]:
    return struct.Struct(code).pack


def _decimal(given: Given) -> bytes:
    return _LENGTH.pack(given["scale"]) + bytes(given["unscaled"])


def _duration(given: Given) -> bytes:
    return b"".join(signed_vint(given[part]) for part in Duration._fields)


_NATIVES: Final[Mapping[str, Callable[[Given], bytes]]] = {
    "ascii": lambda given: given.encode(),
    "bigint": _packed(">q"),
    "boolean": _packed(">?"),
    "date": lambda given: struct.pack(">I", given + DATE_ZERO),
    "decimal": _decimal,
    "double": _packed(">d"),
    "duration": _duration,
    "float": _packed(">f"),
    "inet": lambda given: ip_address(given).packed,
    "int": _packed(">i"),
    "smallint": _packed(">h"),
    "text": lambda given: given.encode(),
    "time": _packed(">q"),
    "timestamp": _packed(">q"),
    "timeuuid": lambda given: UUID(str(given)).bytes,
    "tinyint": _packed(">b"),
    "uuid": lambda given: UUID(str(given)).bytes,
}

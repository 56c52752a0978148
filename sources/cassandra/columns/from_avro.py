"""Makes typed columns from Avro values of `avro_objects`: messages, and rows of a table.

Each value is converted to a form that Arrow accepts. Information that Avro cannot express is lost:
inside a value a null, a missing field and an empty value are all null. Pure.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import partial
from ipaddress import ip_address
from typing import Any, Final
from uuid import UUID

from headrace.plugins import Document, FactColumns, Operation
from headrace.plugins.records.columns import (
    CELL_TYPE,
    ColumnKind,
    ColumnType,
    TableType,
    TypedChanges,
)
from headrace.sources.cassandra.columns.column_types import DIGITS_MAX, column_type, scaled
from headrace.sources.cassandra.encode.avro_schema import avro_names, payload_columns, tuple_fields
from headrace.sources.cassandra.mutation.values import DATE_ZERO, BadValueError, Duration
from headrace.sources.cassandra.mutation.vints import signed_vint, sized
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

# Any: a value of an Avro type, or one that Arrow accepts.
Given = Any
_Reader = Callable[[Given], Given]

_NULL: Final = b"\xff" * 4  # The length of a null.
_LENGTH: Final = struct.Struct(">i")
_POSITION: Final = struct.Struct(">H")  # Of a UDT's field.
_MS_MAX: Final = ((1 << 63) - 1) // 1000  # More days exceed 64 bits in µs.
_EXACT: Final = Context(prec=DIGITS_MAX)
_CELL_FIELDS: Final = tuple(name for name, _ in CELL_TYPE.fields)
_ORDERED: Final = (" ASC);\n", " DESC);\n")
_NO_ID: Final = "00000000-0000-0000-0000-000000000000"


def table_of(text: str, name: str) -> TableSchema:
    """Return the table *name* of its canonical text, which has everything except id and options."""
    joined = "AND" if text.endswith(_ORDERED) else "WITH"
    whole = text.removesuffix(";\n")
    table = parse_schema(f"{whole} {joined} ID = {_NO_ID};").table(name)
    assert table is not None  # noqa: S101 (it is in its text)
    return table


def typed_values(
    target: TableType, values: Sequence[Document], schema_texts: Mapping[bytes, str]
) -> TypedChanges:
    """Return changes given as Avro values as typed columns; see `Source.typed_values`."""
    facts = FactColumns()
    rows: list[Given] = []
    tables: dict[bytes, _Payload] = {}
    for value in values:
        schema_id = value["schemaUuid"]
        if schema_id not in tables:
            tables[schema_id] = _Payload(table_of(schema_texts[schema_id], target.table), target)
        table = tables[schema_id]
        try:
            rows.append((*table.row(value), list(table.cells(value)), table.bounds(value)))
            facts.add(
                value["timestampMicros"],
                Operation(value["operationType"]),
                index=value["index"],
                mutation=value["mutation"],
                origin={name: value[name] for name in ("copies", "node", "segment", "position")},
            )
        except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
            kind = type(error).__name__  # Its message may contain a value.
            said = f"a value of {target.table} is not as `cep44` has it: {kind}"
            raise BadValueError(said, hint="was it transformed? leave out `table`") from error
    row, unfit, cells, bounds = zip(*rows, strict=True) if rows else ((), (), (), ())
    has_bounds = target.bounds is not None
    return TypedChanges(row, cells, unfit, bounds if has_bounds else None, facts.facts())


class _Payload:
    """Reads changes of one version of a table."""

    def __init__(self, table: TableSchema, target: TableType) -> None:
        self._misfit = False  # Whether a value read does not fit its column.
        columns = payload_columns(table)
        names = avro_names(tuple(column.name for column in columns))
        self._columns = dict(zip(names, columns, strict=True))
        kinds = dict(target.row.fields)
        self._readers = {
            name: self._column_reader(column, kinds.get(column.name))
            for name, column in self._columns.items()
            if column.name in kinds or column.is_complex
        }
        aliases = {column: name for name, column in self._columns.items()}
        prefix = target.bounds.fields[0][1].fields[0][1].fields if target.bounds else ()
        self._bounds = [
            (name, aliases[column], self._reader(column.type, kind))
            for column, (name, kind) in zip(table.clustering, prefix, strict=False)
        ]

    def row(self, value: Document) -> tuple[Mapping[str, Given], Sequence[str]]:
        """Return the values of columns, and the names of those whose value does not fit."""
        payload, row, unfit = value["payload"], {}, []
        for alias, read in self._readers.items():
            if payload[alias] is not None:
                name = self._columns[alias].name
                self._misfit = False
                row[name] = read(payload[alias])
                if self._misfit:
                    unfit.append(name)
        return row, unfit

    def cells(self, value: Document) -> Iterator[Mapping[str, Given]]:
        """Yield the properties of cells besides their values; see `CELL_TYPE`."""
        life = value["timestampMicros"], value["ttl"], value["expires"]
        if value["ttl"] is not None:
            yield _cell(None, None, *life)
        notes = {note["field"]: note for note in value["cells"]}
        for alias in value["updateFields"]:
            column, given = self._columns[alias], value["payload"][alias]
            if given is None and alias in value["truncatedFields"]:
                continue
            if column.is_complex:
                if given["deletedAt"] is not None:
                    yield _cell(column.name, None, given["deletedAt"], None, None, removed=True)
                for place, cell in _elements(column, given):
                    own = cell["timestampMicros"], cell["ttl"], cell["expires"]
                    if cell["removed"] or own != life:
                        path = _path(column.type, place)
                        yield _cell(column.name, path, *own, removed=cell["removed"])
                continue
            note, own = notes.get(alias), life
            if note is not None:
                written = note["timestampMicros"]
                own = life[0] if written is None else written, note["ttl"], note["expires"]
            removed = given is None and not (note and note["isEmpty"])
            if removed or own != life:
                yield _cell(column.name, None, *own, removed=removed)

    def bounds(self, value: Document) -> Mapping[str, Given] | None:
        """Return the range that a change deletes."""
        given = value["range"]
        return given and {side: given[side] and self._bound(given[side]) for side in given}

    def _bound(self, given: Document) -> Mapping[str, Given]:
        values, count = given["values"], given["count"]
        row = {name: read(values[alias]) for name, alias, read in self._bounds[:count]}
        return {"values": row, "count": count, "inclusive": given["inclusive"]}

    # ---- readers of the values of a type ----

    def _column_reader(self, column: ColumnSchema, kind: ColumnType | None) -> _Reader:
        if not column.is_complex:
            assert kind is not None  # noqa: S101 (checked before)
            return self._reader(column.type, kind)
        if kind is None or column_type(column.type).kind is not kind.kind:
            return self._refused
        if column.type.is_udt:
            return self._fields_reader(column.type, kind, written=True)
        inner = zip(column.type.arguments, kind.fields, strict=True)
        readers = [self._reader(each, own) for each, (_, own) in inner]
        parts = {"set": ["key"], "list": ["value"]}.get(column.type.name, ["key", "value"])

        def elements(given: Given) -> Given:
            living = [each for each in given["cells"] if not each["removed"]]
            read = [
                tuple(reader(each[part]) for reader, part in zip(readers, parts, strict=True))
                for each in living
            ]
            if kind.kind is ColumnKind.MAP:
                return self._entries(read) if read else None
            return [each for (each,) in read] or None

        return elements

    def _reader(self, cql_type: CqlType, kind: ColumnType) -> _Reader:
        """Return a converter of values of *cql_type*, or null, to a column of *kind*."""
        own = column_type(cql_type)
        if own.kind is not kind.kind or own.scale != kind.scale:
            return self._refused
        if cql_type.is_udt or cql_type.name == "tuple":
            return self._fields_reader(cql_type, kind, written=False)
        inner = zip(cql_type.arguments, kind.fields, strict=False)
        readers = [self._reader(each, part) for each, (_, part) in inner]
        read: _Reader = _same
        match cql_type.name:
            case "list" | "set" | "vector":
                read = _same if readers == [_same] else partial(_items, readers[0])
            case "map":
                read = partial(self._map, *readers)
            case "decimal":
                read = partial(self._decimal, kind.scale)
            case "varint":
                read = partial(self._number, 0, 0)
            case "timestamp":
                read = self._moment
            case "uuid" | "timeuuid":
                read = str
        return read if read is _same else partial(_or_null, read)

    def _fields_reader(self, cql_type: CqlType, kind: ColumnType, *, written: bool) -> _Reader:
        """Return a reader of tuples and UDTs, including those *written* cell by cell."""
        kinds, own = dict(kind.fields), column_type(cql_type)
        names = tuple(name for name, _ in cql_type.fields)
        aliases = avro_names(names) or tuple_fields(len(cql_type.arguments))
        inner = [each for _, each in cql_type.fields] or cql_type.arguments
        parts = [
            (name, alias, self._reader(each, kinds[name]))
            for (name, _), alias, each in zip(own.fields, aliases, inner, strict=True)
            if name in kinds
        ]

        def fields(given: Given) -> Given:
            return {name: read(given[alias]) for name, alias, read in parts}

        def living(given: Given) -> Given:
            cells = {n: c["value"] for n, c in given["fields"].items() if c and not c["removed"]}
            return {name: read(cells.get(alias)) for name, alias, read in parts} if cells else None

        return living if written else partial(_or_null, fields)

    def _refused(self, given: Given) -> Given:
        """Return null for a value that does not fit the column, and record that."""
        self._misfit |= given is not None
        return None

    def _map(self, key: _Reader, value: _Reader, given: Given) -> Given:
        return self._entries([(key(each["key"]), value(each["value"])) for each in given])

    def _entries(self, pairs: Sequence[tuple[Given, Given]]) -> Given:
        if all(key is not None for key, _ in pairs):
            return pairs
        return self._refused(pairs)

    def _moment(self, given: int) -> Given:
        return given * 1000 if -_MS_MAX <= given <= _MS_MAX else self._refused(given)

    def _decimal(self, scale: int, given: Document) -> Given:
        return self._number(scale, given["scale"], given["unscaled"])

    def _number(self, scale: int, own: int, unscaled: bytes) -> Given:
        number = scaled(own, unscaled, scale)
        if number is None:
            return self._refused(unscaled)
        return Decimal(number).scaleb(-scale, _EXACT)


def _same(given: Given) -> Given:
    return given


def _or_null(read: _Reader, given: Given) -> Given:
    return None if given is None else read(given)


def _items(read: _Reader, given: Sequence[Given]) -> list[Given]:
    return [read(each) for each in given]


def _cell(*fields: Given, removed: bool = False) -> Mapping[str, Given]:
    return dict(zip(_CELL_FIELDS, (*fields, removed), strict=True))


def _elements(column: ColumnSchema, given: Document) -> Iterable[tuple[Given, Document]]:
    """Return the cells of a column that is written cell by cell, each with its place there."""
    if column.type.is_udt:  # By name, in the order of their positions.
        return [(at, c) for at, c in enumerate(given["fields"].values()) if c is not None]
    return [(each["key"], each) for each in given["cells"]]


def _path(cql_type: CqlType, place: Given) -> bytes:
    return _POSITION.pack(place) if cql_type.is_udt else encoded(cql_type.path_type, place)


def _raw(cql_type: CqlType, given: Given) -> bytes | None:
    return None if given is None else encoded(cql_type, given)


def encoded(cql_type: CqlType, given: Given) -> bytes:
    """Return the bytes that `decode` in the form `AVRO` converts to *given*."""
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
    """Return each part, preceded by its length."""
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

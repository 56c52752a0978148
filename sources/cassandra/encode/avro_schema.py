"""The Avro schemas of a table's messages, as parsed JSON; `avro_objects` states their rules.

Separate so that code that encodes values needs no builder of schemas.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final

from headrace.plugins.records.record import Operation
from headrace.sources.cassandra.mutation.values import Value
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

Json = dict[str, Value]

_ALLOWED: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_FORBIDDEN: Final = re.compile("[^A-Za-z0-9_]")
_UUID_STRING: Final[Json] = {"type": "string", "logicalType": "uuid"}
_NATIVE_TYPES: Final[Mapping[str, Value]] = {
    "ascii": "string",
    "bigint": "long",
    "blob": "bytes",
    "boolean": "boolean",
    "counter": "long",
    "date": {"type": "int", "cqlType": "date"},
    "double": "double",
    "empty": "bytes",
    "float": "float",
    "inet": {"type": "string", "cqlType": "inet"},
    "int": "int",
    "smallint": "int",
    "text": "string",
    "time": {"type": "long", "cqlType": "time"},
    "timestamp": {"type": "long", "cqlType": "timestamp"},
    "timeuuid": _UUID_STRING,
    "tinyint": "int",
    "uuid": _UUID_STRING,
    "varint": {"type": "bytes", "cqlType": "varint"},
}
# The payload's properties that list its columns by kind.
_OPERATIONS: Final = tuple(operation.value for operation in Operation)
_ROLES: Final = {
    "partitionKey": ColumnKind.PARTITION_KEY,
    "clustering": ColumnKind.CLUSTERING,
    "static": ColumnKind.STATIC,
}
# Named types that all paths share; defined where they occur first.
_SHARED_RECORDS: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "decimal": (("scale", "int"), ("unscaled", "bytes")),
    "duration": (("months", "int"), ("days", "int"), ("nanoseconds", "long")),
}


@lru_cache(maxsize=4096)
def avro_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return an Avro name for each of one record's *names*; allowed ones stay."""
    taken = {name for name in names if _ALLOWED.fullmatch(name)}
    result = []
    for name in names:
        alias = name
        if not _ALLOWED.fullmatch(name):
            alias = _alias(name)
            while alias in taken:
                alias += "_"
            taken.add(alias)
        result.append(alias)
    return tuple(result)


def _alias(name: str) -> str:
    if _ALLOWED.fullmatch(name):
        return name
    plain = _FORBIDDEN.sub("_", name)
    lead = "_" if plain[:1].isdigit() else ""
    return f"{lead}{plain}_{md5(name.encode(), usedforsecurity=False).hexdigest()[:8]}"


def key_schema(table: TableSchema) -> Json:
    """Return the schema of `avro_key` for *table*."""
    return _SchemaBuilder(table).key()


def value_schema(table: TableSchema) -> Json:
    """Return the schema of `avro_value` for *table*."""
    return _SchemaBuilder(table).value()


def message_schemas(table: TableSchema) -> tuple[Json, Json]:
    """Return `key_schema` and `value_schema`."""
    builder = _SchemaBuilder(table)
    return builder.key(), builder.value()


def payload_columns(table: TableSchema) -> tuple[ColumnSchema, ...]:
    """Return the columns that are fields of the payload, in order."""
    return tuple([column for column in table.columns if not column.is_dropped])


def tuple_fields(count: int) -> tuple[str, ...]:
    """Return the names of a tuple's fields."""
    return tuple(f"field_{index}" for index in range(count))


class _SchemaBuilder:
    """Builds a table's schemas; every named type has its own name within each."""

    def __init__(self, table: TableSchema) -> None:
        self._namespace = f"headrace.{_alias(table.keyspace)}.{_alias(table.name)}"
        self._names: set[str] = set()
        columns = payload_columns(table)
        aliases = avro_names(tuple([column.name for column in columns]))
        self._columns = list(zip(columns, aliases, strict=True))

    def key(self) -> Json:
        self._names.clear()
        fields = [
            _field(alias, self._type(column.type, f"key_{alias}"), column.name)
            for column, alias in self._columns
            if column.kind is ColumnKind.PARTITION_KEY
        ]
        return self._record("Key", fields) | {"namespace": self._namespace}

    def value(self) -> Json:
        self._names.clear()
        fields = [*_BEFORE, _field("payload", self._payload()), _CELLS, self._range(), *_BEHIND]
        return self._record("Change", fields) | {"namespace": self._namespace}

    def _payload(self) -> Value:
        fields = []
        for column, alias in self._columns:
            cql_type = column.type
            if cql_type.name in _NATIVE_TYPES and cql_type.is_native:
                fields.append(_native_field(alias, cql_type.name, column.name))
                continue
            build = self._complex if column.is_complex else self._type
            fields.append(_optional(alias, build(cql_type, f"col_{alias}"), column.name))
        roles = {
            role: [alias for column, alias in self._columns if column.kind is kind]
            for role, kind in _ROLES.items()
        }
        if any(column.descending for column, _ in self._columns):
            clustering = [c for c, _ in self._columns if c.kind is ColumnKind.CLUSTERING]
            # Without it, readers of the Avro schema alone would not know the extent of a range.
            roles["clusteringOrder"] = ["DESC" if c.descending else "ASC" for c in clustering]
        return self._record("Payload", fields) | roles

    def _range(self) -> Json:
        prefix = [
            _optional(alias, self._type(column.type, f"bound_{alias}"), column.name)
            for column, alias in self._columns
            if column.kind is ColumnKind.CLUSTERING
        ]
        return _range(prefix) if prefix else _RANGE_OF_PARTITION

    def _type(self, cql_type: CqlType, path: str) -> Value:
        """Return the type of a value in one piece: native or frozen."""
        name = cql_type.name
        if cql_type.is_udt:
            return self._product(path, *zip(*cql_type.fields, strict=True))
        if name == "tuple":
            names = tuple_fields(len(cql_type.arguments))
            return self._product(path, names, cql_type.arguments)
        if name == "map":
            key, value = cql_type.arguments
            fields = [
                _field("key", self._type(key, f"{path}_key")),
                _optional("value", self._type(value, f"{path}_value")),
            ]
            return {"type": "array", "items": self._record(f"{path}_entry", fields)}
        if name in ("list", "set", "vector"):
            element = self._type(cql_type.arguments[0], f"{path}_item")
            return {"type": "array", "items": ["null", element]}
        if name in _SHARED_RECORDS:
            return self._shared(name)
        return _NATIVE_TYPES.get(name, "bytes")

    def _product(self, path: str, names: tuple[str, ...], types: Sequence[CqlType]) -> Value:
        fields = [
            _optional(alias, self._type(inner, f"{path}_{alias}"), name)
            for name, alias, inner in zip(names, avro_names(names), types, strict=True)
        ]
        return self._record(path, fields)

    def _complex(self, cql_type: CqlType, path: str) -> Value:
        """Return the type of a column that is logged cell by cell."""
        if cql_type.is_udt:
            written = _field("fields", self._written_fields(cql_type, path))
        else:
            key = _field("key", self._type(cql_type.path_type, f"{path}_key"))
            value = None if cql_type.name == "set" else cql_type.arguments[-1]
            cell = self._cell(f"{path}_cell", [key], value, f"{path}_value")
            written = _field("cells", {"type": "array", "items": cell})
        mode: Value = "CollectionMode"
        if mode not in self._names:
            mode = self._named("enum", "CollectionMode", symbols=["replace", "merge"])
        fields = [
            _field("mode", mode),
            _optional("deletedAt", "long"),
            written,
        ]
        return self._record(path, fields) | {"cqlType": str(cql_type)}

    def _written_fields(self, cql_type: CqlType, path: str) -> Value:
        """Return the record of a UDT's fields, each null or the cell that was written."""
        names = tuple(name for name, _ in cql_type.fields)
        fields = []
        for (name, inner), alias in zip(cql_type.fields, avro_names(names), strict=True):
            cell = self._cell(f"{path}_{alias}_cell", [], inner, f"{path}_{alias}")
            fields.append(_optional(alias, cell, name))
        return self._record(f"{path}_fields", fields)

    def _cell(self, name: str, fields: list[Json], value: CqlType | None, path: str) -> Json:
        """Return the record of a cell: its key in *fields*, its value and its properties."""
        if value is not None:
            fields = [*fields, _optional("value", self._type(value, path))]
        fields += [
            _field("removed", "boolean"),
            _field("timestampMicros", "long"),
            _optional("ttl", "int"),
            _optional("expires", "long"),
        ]
        return self._record(name, fields)

    def _shared(self, name: str) -> Value:
        title = name.capitalize()
        if title in self._names:
            return title
        return self._record(title, [_field(part, kind) for part, kind in _SHARED_RECORDS[name]])

    def _record(self, name: str, fields: list[Json]) -> Json:
        return self._named("record", name, fields=fields)

    def _named(self, kind: str, name: str, **rest: Value) -> Json:
        unique = name
        number = 1
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return _definition(kind, unique, **rest)


def _field(alias: str, avro_type: Value, cql_name: str | None = None) -> Json:
    field: Json = {"name": alias, "type": avro_type}
    return field if cql_name in (None, alias) else field | {"cqlName": cql_name}


def _optional(alias: str, avro_type: Value, cql_name: str | None = None) -> Json:
    return _field(alias, ["null", avro_type], cql_name) | {"default": None}


def _definition(kind: str, name: str, **rest: Value) -> Json:
    return {"type": kind, "name": name, **rest}


@lru_cache(maxsize=4096)
def _native_field(alias: str, native: str, cql_name: str) -> Json:
    """Return the field of a column of a native type; many tables have the same."""
    return _optional(alias, _NATIVE_TYPES[native], cql_name)


def _range(prefix: Sequence[Json]) -> Json:
    """Return the field of a range; *prefix* are the fields of the clustering."""
    values = _definition("record", "ClusteringPrefix", fields=prefix)
    fields = [_field("values", values), _field("count", "int"), _field("inclusive", "boolean")]
    bound = _definition("record", "Bound", fields=fields)
    ends = [_optional("start", bound), _optional("end", "Bound")]
    return _optional("range", _definition("record", "Range", fields=ends))


# The common part of all tables' messages is made once. The names of types that are made for a
# column start with `col_`, `key_` or `bound_`, so these names are free.
_BEFORE: Final = (
    _field("timestampMicros", "long"),
    _field("operationType", _definition("enum", "OperationType", symbols=[*_OPERATIONS])),
    _field("sourceKeyspace", "string"),
    _field("sourceTable", "string"),
    _field("schemaUuid", _definition("fixed", "SchemaUuid", size=16)),
    _optional("version", "string"),
    _field("isPartial", "boolean"),
    _field("truncatedFields", {"type": "array", "items": "string"}),
    _field("isStatic", "boolean"),
    _optional("ttl", "int"),
    _optional("expires", "long"),
    _field("updateFields", {"type": "array", "items": "string"}),
)
_NOTE: Final = (
    _field("field", "string"),
    _optional("timestampMicros", "long"),
    _optional("ttl", "int"),
    _optional("expires", "long"),
    _field("isEmpty", "boolean"),
)
_CELLS: Final = _field(
    "cells", {"type": "array", "items": _definition("record", "CellNote", fields=[*_NOTE])}
)
_RANGE_OF_PARTITION: Final = _range([])
_BEHIND: Final = (
    _field("mutation", _definition("fixed", "MutationId", size=16)),
    _field("index", "int"),
    _field("of", "int"),
    _field("copies", "int"),
    _field("node", "string"),
    _field("segment", "long"),
    _field("position", "long"),
)

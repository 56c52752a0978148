"""Converts statements of a script to documents of mutations, as Cassandra does (section 8).

A statement is one of `insert`, `update`, `delete` with the table's name, the key's columns and the
values; several in a `batch` are one mutation. Times are µs, `now` and `ttl` seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.values import elements, encode, pairs
from headrace.sources.cassandra.schema.tables import ColumnKind, ColumnSchema, Schema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType

VERBS: Final = ("insert", "update", "delete")
_MICROS: Final = 1_000_000
_GREGORIAN: Final = 0x01B2_1DD2_1381_4000  # 100 ns steps from 1582 to 1970, for time-uuids.
_MEMBERS: Final = {
    "insert": {"values"},
    "update": {"key", "set", "add", "remove"},
    "delete": {"key", "columns", "elements", "range"},
}
_COMMON: Final = {"timestamp", "ttl", "now"}

Statement = Mapping[str, Any]  # Any: parsed YAML or JSON.
Document = dict[str, Any]


class Statements:
    """Converts statements to documents; default timestamps count up from a fixed time."""

    def __init__(self, schema: Schema, *, start_us: int = 1_700_000_000_000_000) -> None:
        """Set *start_us*, the first default timestamp; each later one is one µs higher."""
        self._schema = schema
        self._next_us = start_us
        self._elements = 0

    def document(self, statements: Iterable[Statement]) -> Document:
        """Return one mutation of all *statements*.

        Raises:
            ScriptError: a statement cannot be written.

        """
        updates: dict[str, Document] = {}
        for statement in statements:
            made = self._update(statement)
            known = updates.setdefault(made["table"], made)
            if known is not made:
                _merge(known, made)
        return {"updates": list(updates.values())}

    def _update(self, statement: Statement) -> Document:
        verb = next((verb for verb in VERBS if verb in statement), None)
        if verb is None:
            raise ScriptError(f"expected one of {', '.join(VERBS)}, found {list(statement)}")
        unknown = statement.keys() - _MEMBERS[verb] - _COMMON - {verb}
        if unknown:
            known = ", ".join(sorted(_MEMBERS[verb] | _COMMON))
            hint = f"{verb} has {known}"
            raise ScriptError(f"{verb} has no {', '.join(sorted(unknown))}", hint=hint)
        table = self._schema.table(statement[verb])
        if table is None:
            raise ScriptError(f"{statement[verb]} is not in the schema")
        timestamp = statement.get("timestamp", self._next_us)
        self._next_us += 1
        now = statement.get("now", timestamp // _MICROS)
        writer = _Writer(self, table, timestamp, now, statement.get("ttl"))
        return getattr(writer, verb)(statement)  # type: ignore[no-any-return]  # One of VERBS.

    def element_path(self, timestamp: int) -> bytes:
        """Return the path of a list's next element: a timeuuid later than all before."""
        self._elements += 1
        steps = _GREGORIAN + timestamp * 10 + self._elements
        low, middle, high = steps & 0xFFFF_FFFF, steps >> 32 & 0xFFFF, steps >> 48 & 0x0FFF
        return UUID(fields=(low, middle, 0x1000 | high, 0x80, 0, 0x0102_0304_0506)).bytes


class _Writer:
    """One statement while it becomes an update."""

    def __init__(
        self, owner: Statements, table: TableSchema, timestamp: int, now: int, ttl: int | None
    ) -> None:
        self._owner = owner
        self._table = table
        self._ts = timestamp
        self._now = now
        self._ttl = ttl
        self._columns = {column.name: column for column in table.columns if not column.is_dropped}

    def insert(self, statement: Statement) -> Document:
        values = statement.get("values", {})
        document, clustering = self._placed(values)
        written = {name: v for name, v in values.items() if not self._in_key(name)}
        rows = self._rows({name: self._replaced(name, v) for name, v in written.items()})
        if clustering is not None:
            liveness = {"ts": self._ts, **self._expiry()}
            row = {"clustering": clustering, "liveness": liveness, "columns": rows["row"]}
            document["items"] = [row]
        elif rows["row"]:
            raise ScriptError(f"{self._table.qualified}: the clustering is missing")
        return self._with_static(document, rows)

    def update(self, statement: Statement) -> Document:
        document, clustering = self._placed(statement.get("key", {}))
        columns: dict[str, Document] = {}
        for name, value in statement.get("set", {}).items():
            columns[name] = self._replaced(name, value)
        for name, value in statement.get("add", {}).items():
            columns[name] = {"cells": self._cells(self._complex(name), value)}
        for name, value in statement.get("remove", {}).items():
            columns.setdefault(name, {"cells": []})["cells"] += self._removed(name, value)
        return self._finished(document, clustering, columns)

    def delete(self, statement: Statement) -> Document:
        if "range" in statement:
            return self._range(statement)
        document, clustering = self._placed(statement.get("key", {}))
        columns = {name: self._replaced(name, None) for name in statement.get("columns", ())}
        for name, keys in statement.get("elements", {}).items():
            columns[name] = {"cells": self._removed(name, keys)}
        if columns:
            return self._finished(document, clustering, columns)
        deletion = {"ts": self._ts, "ldt": self._now}
        if clustering is None or not self._table.clustering:
            document["partition_deletion"] = deletion
        else:
            document["items"] = [{"clustering": clustering, "deletion": deletion, "columns": {}}]
        return document

    def _range(self, statement: Statement) -> Document:
        document, _ = self._placed(statement.get("key", {}))
        deletion = {"ts": self._ts, "ldt": self._now}
        for side, role in (("start", "open"), ("end", "close")):
            bound = statement["range"].get(side) or {"values": [], "inclusive": True}
            kind = f"{'INCL' if bound.get('inclusive', True) else 'EXCL'}_{side.upper()}_BOUND"
            types = [column.type for column in self._table.clustering]
            values = [encode(t, v).hex() for t, v in zip(types, bound["values"], strict=False)]
            document["items"].append({"marker": kind, "values": values, role: deletion})
        return document

    def _placed(self, values: Statement) -> tuple[Document, list[str | None] | None]:
        """Return an update without content, and the clustering, or None if none is given."""
        unknown = values.keys() - self._columns.keys()
        if unknown:
            raise ScriptError(f"{self._table.qualified} has no column {', '.join(sorted(unknown))}")
        key = [self._value(column, values) for column in self._table.partition_key]
        parts = [len(raw).to_bytes(2, "big") + raw + b"\0" for raw in key]
        document: Document = {
            "table": self._table.qualified,
            "id": str(self._table.table_id),
            "key": (key[0] if len(key) == 1 else b"".join(parts)).hex(),
            "items": [],
        }
        given = [column for column in self._table.clustering if column.name in values]
        if self._table.clustering and not given:
            return document, None
        clustering = [
            None if values.get(column.name) is None else self._value(column, values).hex()
            for column in self._table.clustering
        ]
        return document, clustering

    def _value(self, column: ColumnSchema, values: Statement) -> bytes:
        if column.name not in values:
            raise ScriptError(f"{self._table.qualified}: {column.name} is missing")
        return encode(column.type, values[column.name])

    def _finished(
        self,
        document: Document,
        clustering: list[str | None] | None,
        columns: Mapping[str, Document],
    ) -> Document:
        rows = self._rows(columns)
        if rows["row"]:
            if clustering is None:
                raise ScriptError(f"{self._table.qualified}: the clustering is missing")
            document["items"] = [{"clustering": clustering, "columns": rows["row"]}]
        return self._with_static(document, rows)

    def _with_static(self, document: Document, rows: Mapping[str, Document]) -> Document:
        if rows["static"]:
            document["static"] = {"clustering": "static", "columns": rows["static"]}
        return document

    def _rows(self, columns: Mapping[str, Document]) -> dict[str, Document]:
        rows: dict[str, Document] = {"static": {}, "row": {}}
        for name, column in columns.items():
            static = self._column(name).kind is ColumnKind.STATIC
            rows["static" if static else "row"][name] = column
        return rows

    def _in_key(self, name: str) -> bool:
        return self._columns[name].kind in {ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING}

    def _column(self, name: str) -> ColumnSchema:
        column = self._columns.get(name)
        if column is None or self._in_key(name):
            raise ScriptError(f"{self._table.qualified} has no column {name} that can be written")
        return column

    def _complex(self, name: str) -> CqlType:
        column = self._column(name)
        if not column.is_complex:
            raise ScriptError(f"{name} is not a collection that can be added to")
        return column.type

    def _replaced(self, name: str, value: object) -> Document:
        """Return a set column; a collection is also deleted, one µs earlier (section 8)."""
        column = self._column(name)
        if column.is_complex:
            cells = [] if value is None else self._cells(column.type, value)
            return {"deletion": {"ts": self._ts - 1, "ldt": self._now}, "cells": cells}
        if value is None:
            return self._tombstone()
        return self._cell(encode(column.type, value))

    def _cells(self, cql_type: CqlType, value: Any) -> list[Document]:  # noqa: ANN401 (parsed YAML)
        if cql_type.is_udt:
            given = [(i, *field) for i, field in enumerate(cql_type.fields) if field[0] in value]
            return [
                self._tombstone(i.to_bytes(2, "big"))
                if value[name] is None
                else self._cell(encode(inner, value[name]), i.to_bytes(2, "big"))
                for i, name, inner in given
            ]
        if cql_type.name == "map":
            return [self._cell(raw, key) for key, raw in pairs(cql_type, value)]
        items = elements(cql_type, value)
        if cql_type.name == "set":
            return [self._cell(b"", item) for item in items]
        return [self._cell(item, self._owner.element_path(self._ts)) for item in items]

    def _removed(self, name: str, keys: Sequence[Any]) -> list[Document]:
        """Return tombstones of a set's elements, a map's keys, a UDT's fields or a list's paths."""
        cql_type = self._complex(name)
        if cql_type.is_udt:
            fields = [field for field, _ in cql_type.fields]
            return [self._tombstone(fields.index(key).to_bytes(2, "big")) for key in keys]
        paths = CqlType("set", (cql_type.path_type,))
        return [self._tombstone(path) for path in elements(paths, keys)]

    def _cell(self, raw: bytes, path: bytes | None = None) -> Document:
        return {"ts": self._ts, **self._expiry(), **_path(path), "value": raw.hex()}

    def _tombstone(self, path: bytes | None = None) -> Document:
        return {"ts": self._ts, "ldt": self._now, **_path(path), "tombstone": True}

    def _expiry(self) -> Document:
        return {} if self._ttl is None else {"ttl": self._ttl, "ldt": self._now + self._ttl}


def _path(path: bytes | None) -> Document:
    return {} if path is None else {"path": path.hex()}


def _merge(known: Document, more: Document) -> None:
    """Merge an update of the same table, as Cassandra does in a batch: by key, row by row."""
    if known["key"] != more["key"]:
        raise ScriptError(
            "a batch is one mutation, so all its statements have the same partition key",
            hint="give a statement of another partition a step of its own",
        )
    if "partition_deletion" in more:
        known["partition_deletion"] = more["partition_deletion"]
    if "static" in more:
        static = known.setdefault("static", {"clustering": "static", "columns": {}})
        static["columns"].update(more["static"]["columns"])
    rows = {str(item["clustering"]): item for item in known["items"] if "clustering" in item}
    for item in more["items"]:
        row = rows.get(str(item.get("clustering")))
        if row is None:
            known["items"].append(item)
        else:
            row["columns"].update(item["columns"])
            row.update({part: item[part] for part in ("liveness", "deletion") if part in item})

"""Renders changes and states of rows as the documents that queries return.

`JsonShape` writes JSON from the bytes of changes and states. Arrow rows, and values of rarer types,
are made from objects, by `Shape`.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from headrace.connector.history.images import state_of
from headrace.connector.history.json_values import is_same, json_key, json_value
from headrace.connector.rows import json_ways
from headrace.connector.rows.folding import (
    NEVER,
    State,
    TableView,
    columns_of,
    in_order,
    shown_columns,
    sort_key,
)
from headrace.connector.rows.json_rows import JsonRows, Member
from headrace.connector.rows.state_reading import StateReader
from headrace.connector.serde.avro_types import AvroType, field_of, is_complex, without_null
from headrace.connector.serde.codecs.records import reader_of, writer_of
from headrace.plugins import Document, RecordSchema
from headrace.plugins.records.record import OPERATIONS

Values = list[Any]  # Any: Avro values.
_UNPACK: Final = msgspec.msgpack.Decoder()
_LOAD: Final = msgspec.json.Decoder()
_DUMP: Final = json.JSONEncoder(ensure_ascii=False).encode
_WAYS: Final = {"timestamp": json_ways.TIMESTAMP, "date": json_ways.DATE, "bytes": json_ways.BLOB}
_IN_JSON: Final[Mapping[str, type]] = {"boolean": bool, "int": int, "long": int, "string": str}
_JSON_NAMES: Final = {bool: "true or false", int: "a whole number", str: "a string"}
_WRITING: Final = ("INSERT", "UPDATE")
EMPTY: Final[State] = {"deleted": NEVER, "columns": {}}


class Shape:
    """Renders changes of one schema from objects; for one thread at a time."""

    def __init__(self, schema: RecordSchema) -> None:
        """Read the schema."""
        self.schema = schema
        self.view = TableView(schema)
        self.fold = self.view.fold
        names = [*self.view.types]
        self.key_columns = [names.index(name) for name in self.view.key]
        self.columns = [
            [names.index(name) for name in of] for of in (self.view.static, self.view.regular)
        ]
        """The numbers of the static columns, and of the regular ones."""
        self.same = frozenset(n for n, kind in self.view.types.items() if is_same(kind))
        """The columns whose values are rendered as they are."""
        self.reader = self._reader()

    def _reader(self) -> StateReader:
        """Return a reader of changes and states."""
        return StateReader(self.fold, self.key_columns)

    def read(self, content: bytes) -> Document:
        """Return a change up to its range. Raises BadAvroError."""
        made: Document = _UNPACK.decode(self.fold.document(content))
        return made

    def folded(self, state: bytes | None, content: bytes) -> bytes:
        """Return *state* with the change in *content*."""
        self.fold.read(content)
        return self.fold.fold(state)

    def key(self, partition: Values, clustering: Values) -> Document:
        """Return the given values of the primary key, by CQL names."""
        return self.json_key(partition, clustering)

    def json_key(self, partition: Values, clustering: Values) -> Document:
        """Return `key` as JSON values."""
        view, values = self.view, (*partition, *clustering)
        names = (*view.key, *view.clustering)[: len(values)]
        return {
            view.names[n]: json_value(view.types[n], value)
            for n, value in zip(names, values, strict=True)
        }

    def key_bytes(self, values: Document) -> bytes | None:
        """Return the message key for these partition key values in JSON form.

        Returns None if the partition key is incomplete, or has a type with several forms of a
        value.
        """
        given = {name: values.get(self.view.names[name]) for name in self.view.key}
        kinds = {name: self.view.types[name] for name in self.view.key}
        if not all(_is_exact(kinds[name], value) for name, value in given.items()):
            return None
        return writer_of(self.schema.key)(given)

    def misfits(self, values: Document) -> Iterator[tuple[str, str]]:
        """Yield the key columns whose JSON value has a wrong type, and the expected type."""
        view = self.view
        for name in (*view.key, *view.clustering):
            if view.names[name] in values and name in self.same:
                kind, value = without_null(view.types[name]), values[view.names[name]]
                wanted = _IN_JSON[kind if isinstance(kind, str) else kind["type"]]
                if type(value) is not wanted:
                    yield view.names[name], _JSON_NAMES[wanted]

    def partition(self, key: bytes) -> Values:
        """Return the values of the partition key in the key of a message."""
        found = reader_of(self.schema.key)(key)
        return [found[name] for name in self.view.key]

    def written_image(self, content: bytes) -> Any:  # noqa: ANN401 (as the shape renders it)
        """Return the columns written by the change that was read last, which is *content*."""
        return self.change(self.read(content))

    def image(  # noqa: PLR0913, PLR0917 (of a row, at a time)
        self,
        name: tuple[Values, Values | None],
        content: bytes | None,
        partition: State | None,
        after: int,
        at_s: int,
        is_whole: bool,  # noqa: FBT001 (for speed)
    ) -> Any:  # noqa: ANN401 (as the shape renders it)
        """Return a row's columns at *at_s*; without clustering values, the partition's.

        *content* is its state, which `reader` has read. Deletions up to *after* cover the whole
        row. Unless it *is_whole*, the image has only columns that the state has.
        """
        del after  # It is computed again here.
        state = state_of(content)
        if name[1] is None:
            found = self.static(name[0], state, at_s)
        else:
            found = self.row((name[0], name[1]), state, partition, at_s)
        if is_whole:
            return found or {}
        known = self.known(state)
        return {name: value for name, value in (found or {}).items() if name in known}

    def depends_on_time(self) -> bool:
        """Return whether the last image can differ at another time."""
        return True

    def change(self, value: Document) -> Document | None:
        """Return the written columns, by CQL names; None for a mere deletion."""
        match value["operationType"]:
            case "DELETE" | "DELETE_PARTITION":
                return None
            case "DELETE_RANGE":
                bounds = {side: self.bound(value["range"][side]) for side in ("start", "end")}
                return {"range": bounds}
        payload = value["payload"]
        names = self.view.names
        return {names[n]: self.written(n, payload[n]) for n in value["updateFields"]}

    def row(
        self, name: tuple[Values, Values], state: State | None, partition: State | None, now_s: int
    ) -> Document | None:
        """Return a row's columns without its key, as SELECT shows them at *now_s*."""
        found = columns_of(self.view, name[1], state or EMPTY, partition, now_s)
        return None if found is None else self._shown(self.view.regular, found)

    def static(self, partition: Values, state: State | None, now_s: int) -> Document | None:
        """Return the static columns of a partition at *now_s*."""
        del partition  # Not used for JSON.
        state = state or EMPTY
        found = shown_columns(state["columns"], state["deleted"], now_s)
        return self._shown(self.view.static, found) if found else None

    def known(self, state: State | None) -> frozenset[str]:
        """Return the columns, by CQL names, for which *state* has an entry."""
        return frozenset(self.view.names[name] for name in (state or EMPTY)["columns"])

    def value(self, kind: AvroType, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return the rendered value of an opened type."""
        return json_value(kind, value)

    def entries(self, key: AvroType, content: AvroType, cells: Iterable[Values]) -> Any:  # noqa: ANN401
        """Return the rendered keys and values of a map."""
        return {json_key(key, each): json_value(content, value) for each, value in cells}

    def column(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a column of a row; *value* contains the cells of a collection or UDT."""
        if value is None or name in self.same:
            return value
        kind = self.view.types[name]
        if is_complex(kind):
            return self._cells(name, value, whole=True)
        return self.value(kind, value)

    def written(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a column of a change; for a collection or UDT, the written cells and mode."""
        if value is None or name in self.same:
            return value
        kind = self.view.types[name]
        if not is_complex(kind):
            return self.value(kind, value)
        fields = value.get("fields")
        if fields is None:
            cells = [(cell["key"], cell) for cell in value["cells"]]
            key_type = cell_field(kind, "key")
            removed = [self.value(key_type, key) for key, cell in cells if cell["removed"]]
        else:
            cells = [(key, cell) for key, cell in fields.items() if cell is not None]
            removed = [key for key, cell in cells if cell["removed"]]
        kept = [[key, cell.get("value")] for key, cell in cells if not cell["removed"]]
        is_nothing = not kept and value["mode"] == "replace"
        shown = None if is_nothing else self._cells(name, kept, whole=False)
        made = {"mode": value["mode"], "value": shown}
        return made | ({"removed": removed} if removed else {})

    def _cells(self, name: str, cells: list[Values], *, whole: bool) -> Any:  # noqa: ANN401
        """Return cells, pairs of key and value, as a collection or UDT.

        A *whole* UDT has all of its fields, with null for a missing cell.
        """
        kind = self.view.types[name]
        fields = field_of(kind, "fields")
        if fields is not None:
            values = {each[0]: each[1] for each in cells}
            return {
                field.get("cqlName", field["name"]): self.value(
                    value_type(field), values.get(field["name"])
                )
                for field in fields["type"]["fields"]
                if whole or field["name"] in values
            }
        ordered = in_order(self.view, name, cells)
        key = cell_field(kind, "key")
        if kind["cqlType"].startswith("set<"):
            return [self.value(key, each) for each, _ in ordered]
        content = cell_field(kind, "value")
        if kind["cqlType"].startswith("list<"):
            return [self.value(content, each) for _, each in ordered]
        return self.entries(key, content, ordered)

    def bound(self, bound: Document | None) -> Document | None:
        """Return a bound of a range, or None if it is open."""
        if bound is None:
            return None
        view = self.view
        names = view.clustering[: bound["count"]]
        values = {view.names[n]: self.column(n, bound["values"][n]) for n in names}
        return {"values": values, "inclusive": bound["inclusive"]}

    def _shown(self, names: Iterable[str], found: Document) -> Document:
        cql = self.view.names
        return {cql[n]: self.column(n, found.get(n)) for n in names}


class JsonShape(Shape):
    """Renders changes of one schema as JSON, from bytes."""

    rows: JsonRows

    def _reader(self) -> StateReader:
        members = [self._member(name) for name in self.view.types]
        self.rows = JsonRows(self.fold, self.key_columns, members, _quoted)
        return self.rows

    def written_image(self, content: bytes) -> Any:  # noqa: ANN401 (see `loaded`)
        """Return the written columns, as described for `Shape.written_image`."""
        if OPERATIONS[self.fold.operation] in _WRITING:
            return self.loaded(self.rows.written())
        found = super().written_image(content)
        return None if found is None else self.loaded(_DUMP(found).encode())

    def image(  # noqa: PLR0913, PLR0917 (as there)
        self,
        name: tuple[Values, Values | None],
        content: bytes | None,
        partition: State | None,
        after: int,
        at_s: int,
        is_whole: bool,  # noqa: FBT001 (as there)
    ) -> Any:  # noqa: ANN401 (see `loaded`)
        """Return an image, as described for `Shape.image`."""
        del content, partition  # The reader has the state.
        is_row = name[1] is not None
        return self.loaded(self.rows.image(self.columns[is_row], after, at_s, is_row, is_whole))

    def depends_on_time(self) -> bool:
        """Return whether time matters, as described for `Shape.depends_on_time`."""
        return bool(self.rows.depends_on_time)

    def loaded(self, text: bytes) -> Any:  # noqa: ANN401 (of JSON)
        """Return the document of a JSON text."""
        return _LOAD.decode(text)

    def _member(self, name: str) -> Member:
        kind = self.view.types[name]
        label = self.view.names[name]
        if not is_complex(kind):
            return _member(label, kind)
        fields = field_of(kind, "fields")
        cql = str(kind["cqlType"])
        if fields is not None:
            way = json_ways.FIELDS
            given = fields["type"]["fields"]
            parts = [_member(each.get("cqlName", each["name"]), value_type(each)) for each in given]
        elif cql.startswith("set<"):
            way, parts = json_ways.SET, [_member("", cell_field(kind, "key"))]
        else:
            way = json_ways.LIST if cql.startswith("list<") else json_ways.MAP
            parts = [_member("", cell_field(kind, each)) for each in ("key", "value")]
        written = partial(self._json_written, name)
        return Member(_label(label), way, written, parts, cell_order(kind))

    def _json_written(self, name: str, content: bytes) -> bytes:
        """Return a written collection or UDT, given in MessagePack."""
        return _DUMP(self.written(name, _UNPACK.decode(content))).encode()


class TextShape(JsonShape):
    """Renders changes of one schema as the text of JSON."""

    def loaded(self, text: bytes) -> Any:  # noqa: ANN401 (as there)
        """Return the text."""
        return text.decode()


def _member(name: str, kind: AvroType) -> Member:
    """Return the JSON member of this name for values of an opened type."""
    kind = without_null(kind)
    form = kind if isinstance(kind, str) else kind.get("cqlType") or kind["type"]
    way = json_ways.SAME if is_same(kind) else _WAYS.get(form, json_ways.CALLED)
    return Member(_label(name), way, _double if kind == "double" else partial(_json, kind))


def cell_order(kind: AvroType) -> Callable[[bytes], object] | None:
    """Return a sort key for a column's cells, or None if `StateReader` has one."""
    if not is_complex(kind) or field_of(kind, "fields") is not None:
        return None
    key = cell_field(kind, "key")
    name = key if isinstance(key, str) else key.get("cqlType") or key.get("logicalType")
    base = key["type"] if isinstance(key, Mapping) else key
    if base in ("int", "long") or (base == "string" and name not in ("uuid", "inet")):
        return None
    return lambda content: sort_key(key, _UNPACK.decode(content))


def _label(name: str) -> bytes:
    return f"{_DUMP(name)}: ".encode()


def _json(kind: AvroType, content: bytes) -> bytes:
    """Return a MessagePack value as JSON."""
    return _DUMP(json_value(kind, _UNPACK.decode(content))).encode()


def _double(content: bytes) -> bytes:
    number: float = _UNPACK.decode(content)
    return repr(number).encode() if math.isfinite(number) else _json("double", content)


def _quoted(text: bytes) -> bytes:
    return _DUMP(text.decode()).encode()


def cell_field(kind: AvroType, name: str) -> AvroType:
    """Return the type of a field of the cells of a collection."""
    cells = field_of(kind, "cells")
    found = field_of(cells["type"]["items"], name) if cells else None
    assert found is not None  # noqa: S101 (every collection has both, sets no values)
    return found["type"]


def value_type(field: Document) -> AvroType:
    """Return the type of the value in the cells of a UDT's field."""
    found = field_of(without_null(field["type"]), "value")
    assert found is not None  # noqa: S101 (every cell of a UDT has it)
    return found["type"]


def _is_exact(kind: AvroType, value: Any) -> bool:  # noqa: ANN401 (by type)
    """Return whether a JSON value equals Avro's, and is its only form."""
    name = kind if isinstance(kind, str) else kind.get("cqlType") or kind.get("logicalType")
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return (name in ("int", "long") and is_int) or (
        name in ("string", "uuid") and isinstance(value, str)
    )

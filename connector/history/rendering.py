"""Changes and states of rows as the documents that queries return."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headrace.connector.history.images import clustering_of
from headrace.connector.history.json_values import is_same, json_key, json_value
from headrace.connector.rows.folding import (
    NEVER,
    State,
    TableView,
    columns_of,
    deleted_until,
    in_order,
    shown_columns,
)
from headrace.connector.serde.avro_types import AvroType, field_of, is_complex, without_null
from headrace.connector.serde.codecs.records import reader_of, writer_of
from headrace.plugins import Document, RecordSchema

Values = list[Any]  # Any: as Avro has them.
_UNPACK: Final = msgspec.msgpack.Decoder()
EMPTY: Final[State] = {"deleted": NEVER, "columns": {}}


class Shape:
    """Renders what one schema describes, as JSON; for one thread at a time."""

    def __init__(self, schema: RecordSchema) -> None:
        """Take the schema apart."""
        self.schema = schema
        self.view = TableView(schema)
        self.same = frozenset(n for n, kind in self.view.types.items() if is_same(kind))
        """The columns whose values are rendered as they are."""

    def read(self, content: bytes) -> Document:
        """Return a change, without what is behind its range. Raises BadAvroError."""
        made: Document = _UNPACK.decode(self.view.fold.document(content))
        return made

    def folded(self, state: bytes | None, content: bytes) -> bytes:
        """Return *state* with the change in *content*."""
        fold = self.view.fold
        fold.read(content)
        return fold.fold(state)

    def key(self, partition: Values, clustering: Values) -> Document:
        """Return the values of the primary key, as far as they are given, by CQL names."""
        return self.json_key(partition, clustering)

    def json_key(self, partition: Values, clustering: Values) -> Document:
        """Return `key` as JSON has it."""
        view, values = self.view, (*partition, *clustering)
        names = (*view.key, *view.clustering)[: len(values)]
        return {
            view.names[n]: json_value(view.types[n], value)
            for n, value in zip(names, values, strict=True)
        }

    def key_bytes(self, values: Document) -> bytes | None:
        """Return the key of messages whose partition key has these values, as JSON has them.

        None, if the partition key is not whole, or a type of it has several forms for a value.
        """
        given = {name: values.get(self.view.names[name]) for name in self.view.key}
        kinds = {name: self.view.types[name] for name in self.view.key}
        if not all(_is_exact(kinds[name], value) for name, value in given.items()):
            return None
        return writer_of(self.schema.key)(given)

    def partition(self, key: bytes) -> Values:
        """Return the values of the partition key that the key of a message has."""
        found = reader_of(self.schema.key)(key)
        return [found[name] for name in self.view.key]

    def change(self, value: Document) -> Document | None:
        """Return what was written, by CQL names; None for a deletion without more."""
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
        """Return a row's columns besides its key, as SELECT shows them at *now_s*."""
        found = columns_of(self.view, name[1], state or EMPTY, partition, now_s)
        return None if found is None else self._shown(self.view.regular, found)

    def static(self, partition: Values, state: State | None, now_s: int) -> Document | None:
        """Return the static columns of a partition at *now_s*."""
        del partition  # Not in JSON.
        state = state or EMPTY
        found = shown_columns(state["columns"], state["deleted"], now_s)
        return self._shown(self.view.static, found) if found else None

    def known(self, state: State | None) -> frozenset[str]:
        """Return the columns, by CQL names, of which *state* knows something."""
        return frozenset(self.view.names[name] for name in (state or EMPTY)["columns"])

    def deleted_us(self, row: bytes, state: State | None, partition: State | None) -> int:
        """Return the newest deletion that covers the whole row; before it nothing is unknown."""
        return deleted_until(self.view, clustering_of(row), state or EMPTY, partition)

    def value(self, kind: AvroType, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a value of an opened type."""
        return json_value(kind, value)

    def entries(self, key: AvroType, content: AvroType, cells: Iterable[Values]) -> Any:  # noqa: ANN401
        """Return the keys and values of a map."""
        return {json_key(key, each): json_value(content, value) for each, value in cells}

    def column(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a column of a row; of a collection or UDT *value* has its cells."""
        if value is None or name in self.same:
            return value
        kind = self.view.types[name]
        if is_complex(kind):
            return self._cells(name, value, whole=True)
        return self.value(kind, value)

    def written(self, name: str, value: Any) -> Any:  # noqa: ANN401 (by type)
        """Return a column of a change: what was written of a collection or UDT, and how."""
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
        """Return cells, each a key and a value, as the collection or UDT that they are.

        A *whole* UDT has all of its fields, null where there is no cell.
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
        """Return a side of a range; None if it is open."""
        if bound is None:
            return None
        view = self.view
        names = view.clustering[: bound["count"]]
        values = {view.names[n]: self.column(n, bound["values"][n]) for n in names}
        return {"values": values, "inclusive": bound["inclusive"]}

    def _shown(self, names: Iterable[str], found: Document) -> Document:
        cql = self.view.names
        return {cql[n]: self.column(n, found.get(n)) for n in names}


def cell_field(kind: AvroType, name: str) -> AvroType:
    """Return the type of a field of the cells of a collection."""
    cells = field_of(kind, "cells")
    found = field_of(cells["type"]["items"], name) if cells else None
    assert found is not None  # noqa: S101 (every collection has both, sets no values)
    return found["type"]


def value_type(field: Document) -> AvroType:
    """Return the type of a field of a UDT, of which the cells have the value."""
    found = field_of(without_null(field["type"]), "value")
    assert found is not None  # noqa: S101 (every cell of a UDT has it)
    return found["type"]


def _is_exact(kind: AvroType, value: Any) -> bool:  # noqa: ANN401 (by type)
    """Say whether a value of JSON is Avro's, and the only one that means it."""
    name = kind if isinstance(kind, str) else kind.get("cqlType") or kind.get("logicalType")
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return (name in ("int", "long") and is_int) or (
        name in ("string", "uuid") and isinstance(value, str)
    )


def newest_us(value: Document) -> int:
    """Return the newest time at which a part of a change was written, in µs."""
    times: list[int] = [value["timestampMicros"]]
    times += [note["timestampMicros"] for note in value["cells"] if note["timestampMicros"]]
    for name in value["updateFields"]:
        given = value["payload"][name]
        if isinstance(given, Mapping) and "mode" in given:
            cells = given["cells"] if "cells" in given else given["fields"].values()
            times += [cell["timestampMicros"] for cell in cells if cell is not None]
            times += [given["deletedAt"]] if given["deletedAt"] is not None else []
    return max(times)

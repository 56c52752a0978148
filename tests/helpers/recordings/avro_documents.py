"""Change documents from Avro messages, so that both forms of a change can be compared.

Avro's values become JSON ones by the types of columns and the forms of `effects`, without the code
that writes change documents.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema
from headrace.sources.cassandra.schema.types import CqlType
from helpers.recordings.effects import float_text, member, native_json

DIGIT_BYTES_MAX: Final = 1_700  # Longer numbers are their bytes in JSON.
Message = Mapping[str, Any]
FieldValue = Callable[[CqlType, bytes], Any]


class Documents:
    """Turns the messages of one table into documents."""

    def __init__(self, table: TableSchema, names: Iterable[str], field_value: FieldValue) -> None:
        """*names* are the payload's, in the order of columns; a UDT's field is bytes in Avro."""
        columns = [column for column in table.columns if not column.is_dropped]
        self._columns: dict[str, ColumnSchema] = dict(zip(names, columns, strict=True))
        self._table = table
        self._field_value = field_value

    def document(self, value: Message) -> dict[str, Any]:
        """Return the message *value* as a change document without provenance."""
        payload = value["payload"]
        plain = {c.name: _json(c.type, payload[n]) for n, c in self._columns.items() if _key(c)}
        has_row = value["operationType"] in {"INSERT", "UPDATE", "DELETE"}
        document: dict[str, Any] = {
            "table": f"{value['sourceKeyspace']}.{value['sourceTable']}",
            "op": value["operationType"],
            "key": {c.name: plain[c.name] for c in self._table.partition_key},
            "clustering": None,
            "timestamp": value["timestampMicros"],
        }
        if has_row and not value["isStatic"]:
            document["clustering"] = {c.name: plain[c.name] for c in self._table.clustering}
        if value["isStatic"]:
            document["static"] = True
        if value["ttl"] is not None:
            document |= {"ttl": value["ttl"], "expires": value["expires"]}
        if value["operationType"] in {"INSERT", "UPDATE"}:
            notes = {note["field"]: note for note in value["cells"]}
            document["columns"] = {
                self._columns[name].name: self._column(value, name, notes.get(name))
                for name in value["updateFields"]
            }
        if value["range"] is not None:
            sides = value["range"]
            document["range"] = {name: self._bound(sides[name]) for name in ("start", "end")}
        return document

    def _bound(self, bound: Message | None) -> object:
        if bound is None:
            return None
        values = list(bound["values"].values())[: bound["count"]]
        pairs = zip(self._table.clustering, values, strict=False)
        shown = [_json(column.type, value) for column, value in pairs]
        return {"values": shown, "inclusive": bound["inclusive"]}

    def _column(self, value: Message, name: str, note: Message | None) -> dict[str, Any]:
        column, written = self._columns[name], value["payload"][name]
        if column.is_complex:
            return self._complex(value, column, written)
        document = {"value": _json(column.type, written), "ts": value["timestampMicros"]}
        if note is None:
            return document
        if note["timestampMicros"] is not None:
            document["ts"] = note["timestampMicros"]
        if written is not None or note["isEmpty"]:
            document |= _life(value, note)
        return document | ({"empty": True} if note["isEmpty"] else {})

    def _complex(self, value: Message, column: ColumnSchema, written: Message) -> dict[str, Any]:
        cql_type, cells = column.type, _cells(column.type, written)
        shown = [self._cell(value, cql_type, cell) for cell in cells]
        live = [cell for cell, raw in zip(shown, cells, strict=True) if not raw["removed"]]
        removed = [cell["key"] for cell, raw in zip(shown, cells, strict=True) if raw["removed"]]
        collected: Any = {member(cell["key"]): cell.get("value") for cell in live}
        if cql_type.name in {"list", "set"} and not cql_type.is_udt:
            collected = [cell["key" if cql_type.name == "set" else "value"] for cell in live]
        document = {"mode": written["mode"], "value": collected}
        if written["mode"] == "merge":
            return document | {"removed": removed, "cells": shown}
        document |= {"value": collected if live else None, "deletedAt": written["deletedAt"]}
        notes = [{k: v for k, v in cell.items() if k not in {"key", "value"}} for cell in live]
        is_list = cql_type.name == "list" and not cql_type.is_udt
        if removed or (live and is_list) or any(note != notes[0] for note in notes):
            return document | {"removed": removed, "cells": shown}
        return document | (notes[0] if notes else {"ts": written["deletedAt"]})

    def _cell(self, value: Message, cql_type: CqlType, cell: Message) -> dict[str, Any]:
        is_set = cql_type.name == "set" and not cql_type.is_udt
        if cql_type.is_udt:
            key, inner = cell["key"], dict(cql_type.fields)[cell["key"]]
        else:
            key, inner = _json(cql_type.path_type, cell["key"]), cql_type.cell_type(b"")
        document = {"key": key}
        if not cell["removed"] and not is_set:
            document["value"] = _json(inner, cell["value"])
        document["ts"] = cell["timestampMicros"]
        if cell["removed"]:
            return document
        document |= _life(value, cell)
        return document | ({"empty": True} if document.get("value", key) is None else {})


def _cells(cql_type: CqlType, written: Message) -> list[Message]:
    """Return the cells of a column, those of a UDT with the names of its fields as keys."""
    if not cql_type.is_udt:
        return list(written["cells"])
    pairs = zip(cql_type.fields, written["fields"].values(), strict=True)
    return [{"key": name, **cell} for (name, _), cell in pairs if cell is not None]


def _key(column: ColumnSchema) -> bool:
    return column.kind.value in {"partition_key", "clustering"}


def _life(value: Message, cell: Message) -> dict[str, Any]:
    """Return a cell's TTL and expiry if they differ from the row's."""
    if (cell["ttl"], cell["expires"]) == (value["ttl"], value["expires"]):
        return {}
    return {n: cell[n] for n in ("ttl", "expires") if n == "ttl" or cell[n] is not None}


def _json(cql_type: CqlType, value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON form of an Avro value."""
    if value is None:
        return None
    if cql_type.is_udt or cql_type.name == "tuple":
        types = [inner for _name, inner in cql_type.fields] or cql_type.arguments
        shown = [_json(inner, item) for inner, item in zip(types, value.values(), strict=True)]
        names = [name for name, _inner in cql_type.fields]
        return dict(zip(names, shown, strict=True)) if names else shown
    if cql_type.name == "map":
        key, inner = cql_type.arguments
        return {member(_json(key, e["key"])): _json(inner, e["value"]) for e in value}
    if cql_type.arguments:
        return [_json(cql_type.arguments[0], item) for item in value]
    convert = _OWN.get(cql_type.name)
    if cql_type.is_custom or convert is None:
        return f"0x{value.hex()}" if isinstance(value, bytes) else native_json(cql_type, value)
    return convert(value)


def _varint(raw: bytes) -> object:
    number = int.from_bytes(raw, "big", signed=True)
    return number if len(raw) <= DIGIT_BYTES_MAX else f"0x{raw.hex()}"


def _decimal(parts: Mapping[str, Any]) -> object:
    raw = parts["unscaled"]
    if len(raw) + 4 > DIGIT_BYTES_MAX:
        return f"0x{parts['scale'].to_bytes(4, 'big', signed=True).hex()}{raw.hex()}"
    digits = Decimal(int.from_bytes(raw, "big", signed=True)).as_tuple()
    return str(Decimal((digits.sign, digits.digits, -parts["scale"])))


def _real(value: float) -> float | str:
    odd = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return odd.get(repr(value), value)


_OWN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "decimal": _decimal,
    "double": _real,
    "duration": lambda parts: native_json(
        CqlType("duration"),
        {"months": parts["months"], "days": parts["days"], "nanos": parts["nanoseconds"]},
    ),
    "empty": lambda _: None,
    "float": lambda value: float_text(_real(value)),
    "varint": _varint,
}


def comparable(document: Mapping[str, Any]) -> str:
    """Return a document as a string, in which NaN equals itself."""
    return json.dumps(document, sort_keys=True)

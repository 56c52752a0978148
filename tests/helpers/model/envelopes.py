"""The contents of messages as dictionaries: made slowly, independently of the fast encoder."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from headrace import __version__
from headrace.connector.serde.avro_types import definitions, field_of
from headrace.plugins import Document, Encoding, Operation, Record

Json = Any
Leaves = dict[str, Callable[[Json], Json]]
_FLAT = {
    "__op": "operationType",
    "__timestamp": "timestampMicros",
    "__static": "isStatic",
    "__ttl": "ttl",
    "__expires": "expires",
    "__written": "updateFields",
    "__truncated": "truncatedFields",
    **{f"__{name}": name for name in ("cells", "range", "mutation", "index", "of", "copies")},
    **{f"__{name}": name for name in ("node", "segment", "position")},
}
# By the schema's id; the schema is kept too, so that its id is not used again.
_DEFINED: Final[dict[int, tuple[Document, dict[str, Document]]]] = {}
_OPS = {"INSERT": "i", "UPDATE": "u", "DELETE": "d", "DELETE_PARTITION": "d", "DELETE_RANGE": "r"}


def value_of(record: Record, wanted: Encoding) -> Document:
    """Return the value of *record*'s message."""
    value, payload = record.value, field_of(record.schema.value, "payload")["type"]  # type: ignore[index]
    known = _known(record.schema.value)
    leaf = _CEP if wanted.types == "cep44" else {}
    leaf = _DEBEZIUM if wanted.envelope == "debezium" else leaf
    columns = _columns(payload, value["payload"], known, leaf)
    images = {
        name: image and image | {"payload": _columns(payload, image["payload"], known, leaf)}
        for name, image in value.items()
        if name in {"pre", "post"}
    }
    match wanted.envelope:
        case "debezium":
            return _debezium(value, columns, payload, images)
        case "flat":
            facts = {_unused(name, columns): value[fact] for name, fact in _FLAT.items()}
            shown = {_unused(f"__{name}", columns): image for name, image in images.items()}
            return {**columns, **facts, **shown}
    return {**value, "payload": columns, **images}


def _columns(payload: Json, values: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    return {
        field["name"]: _made(field["type"], values[field["name"]], known, leaf)
        for field in payload["fields"]
    }


def key_of(record: Record, wanted: Encoding) -> Document:
    """Return the key of *record*'s message."""
    payload = field_of(record.schema.value, "payload")["type"]  # type: ignore[index]
    known = _known(record.schema.value) | _known(record.schema.key)
    types = {f["name"]: f["type"] for f in (*payload["fields"], *record.schema.key["fields"])}
    key = dict(record.key or {})
    if wanted.key == "primary":
        key |= {name: record.value["payload"][name] for name in payload["clustering"]}
    leaf = _CEP if wanted.types == "cep44" else {}
    return {name: _made(types[name], datum, known, leaf) for name, datum in key.items()}


def _known(schema: Document) -> dict[str, Document]:
    """Return the types that *schema* defines; records share schemas, so each is searched once."""
    if id(schema) not in _DEFINED:
        _DEFINED[id(schema)] = (schema, definitions(schema))
    return _DEFINED[id(schema)][1]


def is_buried(record: Record, wanted: Encoding) -> bool:
    """Return whether *record* deletes everything under its key."""
    clustered = bool(field_of(record.schema.value, "payload")["type"]["clustering"])  # type: ignore[index]
    if record.operation is Operation.DELETE_PARTITION:
        return wanted.key == "partition" or not clustered
    return record.operation is Operation.DELETE and (wanted.key == "primary" or not clustered)


def _made(kind: Json, datum: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    if isinstance(kind, list):
        return None if datum is None else _made(kind[1], datum, known, leaf)
    kind = known.get(kind, kind) if isinstance(kind, str) else kind
    if _name(kind) in leaf:
        return leaf[_name(kind)](datum)
    if field_of(kind, "deletedAt") and "cqlType" in kind:
        return _by_cell(kind, datum, known, leaf)
    if isinstance(kind, Mapping) and kind["type"] == "array":
        return _items(kind["items"], datum, known, leaf)
    if isinstance(kind, Mapping) and kind["type"] == "record":
        return {f["name"]: _made(f["type"], datum[f["name"]], known, leaf) for f in kind["fields"]}
    return datum


def _items(kind: Json, datum: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    items = [_made(kind, each, known, leaf) for each in datum]
    inner = known.get(kind, kind) if isinstance(kind, str) else kind
    if leaf is _DEBEZIUM and field_of(inner, "value"):
        return _mapping(field_of(inner, "key"), items)
    return items


def _cell(kind: Json, cell: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    parts = {
        name: _made(field_of(kind, name)["type"], cell[name], known, leaf)  # type: ignore[index]
        for name in ("key", "value")
        if name in cell
    }
    return {**cell, **parts}


def _by_cell(kind: Json, datum: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    """Return a column that is written cell by cell."""
    fields = field_of(kind, "fields")
    if fields is not None:
        return _udt(fields["type"]["fields"], datum, known, leaf)
    cell = field_of(kind, "cells")["type"]["items"]  # type: ignore[index]
    cells = [_cell(cell, each, known, leaf) for each in datum["cells"]]
    return _collected(kind, cells) if leaf is _DEBEZIUM else {**datum, "cells": cells}


def _udt(fields: Json, datum: Json, known: Mapping[str, Json], leaf: Leaves) -> Json:
    """Return a UDT that is written field by field; Debezium has only the values."""
    written = datum["fields"]
    made = {
        f["name"]: written[f["name"]] and _cell(f["type"][1], written[f["name"]], known, leaf)
        for f in fields
    }
    if leaf is not _DEBEZIUM:
        return {**datum, "fields": made}
    return {name: cell and cell["value"] for name, cell in made.items()}


def _collected(kind: Json, cells: list[Json]) -> Json:
    """Return Debezium's form of a collection that is written cell by cell."""
    live = [cell for cell in cells if not cell["removed"]]
    cell = field_of(kind, "cells")["type"]["items"]  # type: ignore[index]
    if field_of(cell, "value") is None:
        return [each["key"] for each in live]
    if kind["cqlType"].startswith("list<"):
        return [each["value"] for each in live]
    return _mapping(field_of(cell, "key"), live)


def _mapping(key: Json, entries: list[Json]) -> Json:
    """Return Debezium's form of a map: a map, if its keys are strings."""
    if key and key["type"] == "string":
        return {each["key"]: each["value"] for each in entries}
    return [{"key": each["key"], "value": each["value"]} for each in entries]


def _number(stored: bytes) -> int:
    return int.from_bytes(stored, "big", signed=True)


def _wrap(number: int, bits: int) -> int:
    low = number & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


def _name(kind: Json) -> str:
    """Return a name by which types that other formats write differently are distinguished."""
    if isinstance(kind, str):
        return kind
    return "varint" if kind.get("cqlType") == "varint" else str(kind.get("name"))


def _truncated(number: float) -> int:
    if math.isnan(number):
        return 0
    return max(-(1 << 63), min((1 << 63) - 1, int(max(-1e300, min(1e300, number)))))


def _whole(value: Document) -> int:
    unscaled, scale = _number(value["unscaled"]), value["scale"]
    if abs(scale) > 1_000:
        return 0
    whole = abs(unscaled) * 10**-scale if scale < 0 else abs(unscaled) // 10**scale
    return _wrap(-whole if unscaled < 0 else whole, 64)


def _nanoseconds(value: Document) -> int:
    days = value["months"] * 30 + value["days"]
    return _wrap(days * 86_400_000_000_000 + value["nanoseconds"], 64)


def _digits(value: Document) -> str:
    unscaled, scale = _number(value["unscaled"]), value["scale"]
    if scale <= 0:
        return f"{unscaled}E{-scale}" if scale else str(unscaled)
    if scale >= 1_000:
        return f"{unscaled}E-{scale}"
    whole, part = divmod(abs(unscaled), 10**scale)
    return f"{'-' if unscaled < 0 else ''}{whole}.{part:0{scale}}"


def _duration(value: Document) -> str:
    parts = ((value["months"], "mo"), (value["days"], "d"), (value["nanoseconds"], "ns"))
    text = "".join(f"{abs(amount)}{unit}" for amount, unit in parts if amount)
    return ("-" if any(amount < 0 for amount, _ in parts) else "") + (text or "0ns")


_CEP: Leaves = {
    "long": lambda number: _wrap(number, 32),
    "float": _truncated,
    "double": _truncated,
    "varint": lambda stored: _wrap(_number(stored), 32),
    "Decimal": _whole,
    "Duration": _nanoseconds,
}
_DEBEZIUM: Leaves = {
    "varint": lambda stored: str(_number(stored)),
    "Decimal": _digits,
    "Duration": _duration,
}


def _unused(name: str, columns: Mapping[str, Json]) -> str:
    while name in columns:
        name += "_"
    return name


def _debezium(
    value: Document, columns: Mapping[str, Json], payload: Json, images: Mapping[str, Json]
) -> Document:
    timestamp = value["timestampMicros"]
    source = {
        "version": __version__,
        "connector": "cassandra",
        "name": value["node"],
        "ts_ms": timestamp // 1_000,
        "snapshot": "false",
        "db": "NULL",
        "sequence": f"[{value['index']},{value['of']}]",
        "ts_us": timestamp,
        "ts_ns": timestamp * 1_000 if abs(timestamp * 1_000) < 1 << 63 else None,
        "cluster": "",
        "file": str(value["segment"]),
        "pos": value["position"],
        "keyspace": value["sourceKeyspace"],
        "table": value["sourceTable"],
    }
    notes = {note["field"]: note for note in value["cells"]}
    keys = {*payload["partitionKey"], *payload["clustering"]}
    after: dict[str, Json] = {}
    for name, made in columns.items():
        written = name in value["updateFields"]
        after[name] = None
        if written or (name in keys and made is not None):
            expires = notes.get(name, value)["expires"] if written else None
            deletion = None if expires is None else expires * 1_000_000
            after[name] = {"value": made, "deletion_ts": deletion, "set": True}
    types = {field["name"]: _type_name(field["type"][1]) for field in payload["fields"]}
    deleted = value["range"] or {"start": None, "end": None}
    for side in ("start", "end"):
        bound, name = deleted[side], _unused(f"_range_{side}", columns)
        after[name] = bound and {
            "method": f"{'INCL' if bound['inclusive'] else 'EXCL'}_{side.upper()}_BOUND",
            "values": [
                {"name": column, "value": _text(bound["values"][column]), "type": types[column]}
                for column in payload["clustering"][: bound["count"]]
            ],
        }
    made = {"ts_ms": timestamp // 1_000, "op": _OPS[value["operationType"]], "source": source}
    if "pre" in images:
        made["before"] = _whole_row(images["pre"], keys, columns)
    many = {"DELETE_RANGE", "DELETE_PARTITION"} if payload["clustering"] else {"DELETE_RANGE"}
    if "post" in images and value["operationType"] not in many:
        return made | {"after": _whole_row(images["post"], keys, columns)}
    return made | {"after": after}


def _whole_row(image: Json, keys: set[str], columns: Mapping[str, Json]) -> Json:
    """Return an image as Debezium has a row; one that expires says when."""
    if image is None:
        return None
    ends = dict(zip(image["knownFields"], image["expires"], strict=True))
    row: dict[str, Json] = {}
    for name, value in image["payload"].items():
        is_shown = name in ends or (name in keys and value is not None)
        end = ends.get(name)
        deletion = None if end is None else end * 1_000_000
        row[name] = {"value": value, "deletion_ts": deletion, "set": True} if is_shown else None
    return row | {_unused(f"_range_{side}", columns): None for side in ("start", "end")}


def _type_name(kind: Json) -> str:
    if isinstance(kind, str):
        return kind
    return str(kind.get("cqlType") or kind.get("logicalType") or kind.get("name") or kind["type"])


def _text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()

"""Cassandra's rules on decoded changes: what folding bytes is compared with."""

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from headrace.connector.rows.folding import NEVER, State
from headrace.plugins import Document

Value = Any  # Any: what an Avro type has for a value.

_PACK: Final = msgspec.msgpack.Encoder(order="deterministic")
_WRITTEN_BY_CELL: Final = ({"mode", "deletedAt", "cells"}, {"mode", "deletedAt", "fields"})


def add(state: State | None, value: Document) -> State:
    """Return *state* with one change more; the same one twice is as once."""
    state = {"deleted": NEVER, "columns": {}} if state is None else state
    written = value["timestampMicros"]
    match value["operationType"]:
        case "DELETE_PARTITION" | "DELETE":
            state["deleted"] = max(state["deleted"], written)
        case "DELETE_RANGE":
            bounds = [value["range"]["start"], value["range"]["end"]]
            ranges = state.setdefault("ranges", [])
            if [written, *bounds] not in ranges:
                ranges.append([written, *bounds])
        case "INSERT":
            expires = value["expires"]
            live = [written, expires is not None, expires or 0]
            state["live"] = max(state.get("live", live), live)
    notes = {note["field"]: note for note in value["cells"]}
    for name in value["updateFields"]:
        _add_column(state["columns"], name, value, notes.get(name))
    return state


def _add_column(columns: State, name: str, value: Document, note: Document | None) -> None:
    given = value["payload"][name]
    if isinstance(given, Mapping) and given.keys() in _WRITTEN_BY_CELL:
        known = columns.setdefault(name, {"deleted": NEVER, "cells": {}})
        if given["deletedAt"] is not None:
            known["deleted"] = max(known["deleted"], given["deletedAt"])
        for key, cell in _cells(given):
            path = _PACK.encode(key)
            content = None if cell["removed"] else [key, cell.get("value")]
            made = [cell["timestampMicros"], cell["expires"], content]
            known["cells"][path] = _newer(known["cells"].get(path), made)
        return
    written = value["timestampMicros"]
    expires = value["expires"]
    empty = False
    if note is not None:
        written = written if note["timestampMicros"] is None else note["timestampMicros"]
        expires, empty = note["expires"], note["isEmpty"]
    content = None if given is None and not empty else [None, given]
    columns[name] = _newer(columns.get(name), [written, expires, content])


def _cells(given: Document) -> Iterable[tuple[Value, Document]]:
    """Return each cell behind its key: that of an element, or the name of a UDT's field."""
    if "fields" in given:
        return [(name, cell) for name, cell in given["fields"].items() if cell is not None]
    return [(cell["key"], cell) for cell in given["cells"]]


def _newer(known: list[Any] | None, cell: list[Any]) -> list[Any]:
    return cell if known is None or _rank(known) < _rank(cell) else known


def _rank(cell: list[Any]) -> tuple[int, bool, bool, int, bytes]:
    written, expires, content = cell
    dead = content is None
    later = dead or expires is not None
    return written, later, dead, expires or 0, b"" if dead else _stored(content[1])


def _stored(value: Value) -> bytes:
    """Return bytes that sort as those that Cassandra has for a value of one column."""
    if isinstance(value, bool) or value is None:
        return bytes([bool(value)])
    if isinstance(value, int):
        return (value & (1 << 64) - 1).to_bytes(8, "big")
    if isinstance(value, float):
        return struct.pack(">d", value)
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else _PACK.encode(value)

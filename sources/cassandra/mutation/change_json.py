"""Changes as JSON documents, for `inspect` and the file sink.

Values have the form of CQL's SELECT JSON (`json_values`). An unwritten column is left out; one set
to null has the value null; an empty value of a type other than text has `"empty": true` beside its
null.
"""

from collections.abc import Iterable
from typing import Final

from headrace.plugins.records.record import Operation
from headrace.sources.cassandra.mutation.changes import Bound, Cell, Change, Column
from headrace.sources.cassandra.mutation.json_values import json_key, to_json
from headrace.sources.cassandra.mutation.values import Value, is_empty_value
from headrace.sources.cassandra.schema.tables import ColumnSchema

Document = dict[str, Value]

_ROW_OPERATIONS: Final = (Operation.INSERT, Operation.UPDATE)


def change_document(change: Change) -> Document:
    """Return *change* as a JSON object, without its origin: see `provenance_document`.

    Raises:
        BadValueError: a value does not fit its type.

    """
    table = change.table
    document: Document = {
        "table": table.qualified,
        "op": change.operation.value,
        "key": _named(table.partition_key, change.key),
        "clustering": None,
        "timestamp": change.timestamp_us,
    }
    if change.clustering is not None:
        document["clustering"] = _named(table.clustering, change.clustering)
    if change.is_static:
        document["static"] = True
    if change.ttl_s is not None:
        document |= {"ttl": change.ttl_s, "expires": change.expires_s}
    if change.operation in _ROW_OPERATIONS:
        document["columns"] = {column.name: _column(change, column) for column in change.columns}
    if change.range is not None:
        document["range"] = {
            "start": _bound(table.clustering, change.range.start),
            "end": _bound(table.clustering, change.range.end),
        }
    return document


def provenance_document(  # noqa: PLR0913 (the members it has)
    *,
    mutation_id: bytes,
    index: int,
    of: int,
    segment_id: int,
    position: int,
    copies: int | None = None,
    node: str | None = None,
) -> Document:
    """Return the members with the origin of a change; None omits *copies* and *node*."""
    document: Document = {"mutation": mutation_id.hex(), "index": index, "of": of}
    if copies is not None:
        document["copies"] = copies
    if node is not None:
        document["node"] = node
    return document | {"segment": segment_id, "position": position}


def _named(columns: Iterable[ColumnSchema], values: Iterable[bytes | None]) -> Document:
    return {
        column.name: None if raw is None else to_json(column.type, raw)
        for column, raw in zip(columns, values, strict=True)
    }


def _bound(columns: Iterable[ColumnSchema], bound: Bound | None) -> Document | None:
    if bound is None:
        return None
    values = [
        None if raw is None else to_json(column.type, raw)
        for column, raw in zip(columns, bound.values, strict=False)
    ]
    return {"values": values, "inclusive": bound.inclusive}


def _column(change: Change, column: Column) -> Document:
    if column.schema.is_complex:
        return _complex_column(change, column)
    (cell,) = column.cells
    return {"value": _cell_value(cell), **_cell_notes(change, cell)}


def _cell_value(cell: Cell) -> Value:
    return None if cell.raw is None else to_json(cell.value_type, cell.raw)


def _cell_notes(change: Change, cell: Cell) -> Document:
    """Return a cell's time, and its differences from the row's liveness."""
    notes: Document = {"ts": cell.timestamp_us}
    if (cell.ttl_s, cell.expires_s) != (change.ttl_s, change.expires_s) and cell.raw is not None:
        notes["ttl"] = cell.ttl_s
        if cell.ttl_s is not None:
            notes["expires"] = cell.expires_s
    if cell.raw is not None and not _is_set(cell) and is_empty_value(cell.value_type, cell.raw):
        notes["empty"] = True
    return notes


def _complex_column(change: Change, column: Column) -> Document:
    """Return a collection or UDT that is written cell by cell.

    In mode replace the cells are listed only if they add to `value`: the ids of a list's elements,
    by which a later change removes them, or times that differ.
    """
    live = [cell for cell in column.cells if cell.raw is not None]
    removed = [_cell_key(cell) for cell in column.cells if cell.raw is None]
    cells = [_complex_cell(change, cell) for cell in column.cells]
    if column.deletion is None:
        value = _collected(column, live)
        return {"mode": "merge", "value": value, "removed": removed, "cells": cells}
    # An empty or null replacement: CQL does not distinguish an empty collection from null.
    value = _collected(column, live) if live else None
    notes = [_cell_notes(change, cell) for cell in live]
    document: Document = {
        "mode": "replace",
        "value": value,
        "deletedAt": column.deletion.timestamp_us,
    }
    if removed or (live and column.schema.is_list) or any(n != notes[0] for n in notes):
        return document | {"removed": removed, "cells": cells}
    return document | (notes[0] if notes else {"ts": column.deletion.timestamp_us})


def _collected(column: Column, live: list[Cell]) -> Value:
    cql_type = column.schema.type
    if not cql_type.is_udt and cql_type.name == "set":
        return [_cell_key(cell) for cell in live]
    if column.schema.is_list:
        return [_cell_value(cell) for cell in live]
    return {json_key(_cell_key(cell)): _cell_value(cell) for cell in live}


def _is_set(cell: Cell) -> bool:
    """Return whether this is an element of a set, which only has a key."""
    return cell.path is not None and cell.value_type.name == "empty"


def _cell_key(cell: Cell) -> Value:
    """Return the list element's id, set element, map key, or UDT field's name."""
    cql_type = cell.column.type
    key = to_json(cql_type.path_type, cell.path or b"")
    if cql_type.is_udt and isinstance(key, int) and 0 <= key < len(cql_type.fields):
        return cql_type.fields[key][0]
    return key


def _complex_cell(change: Change, cell: Cell) -> Document:
    document: Document = {"key": _cell_key(cell)}
    if cell.raw is not None and not _is_set(cell):
        document["value"] = _cell_value(cell)
    return document | _cell_notes(change, cell)

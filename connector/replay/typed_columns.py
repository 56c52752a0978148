"""Typed columns of one table's changes, in Arrow's words and in Spark's; nothing is copied."""

from collections.abc import Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connector.replay.columns import ARROW_SCHEMA, SPARK_SCHEMA, fact_batch, record_batch
from headrace.connector.replay.selection import Selection
from headrace.plugins import EncodedRecords
from headrace.plugins.columns import (
    CELLS_TYPE,
    UNFIT_TYPE,
    ColumnBuffers,
    ColumnKind,
    ColumnType,
    TableType,
    TypedChanges,
)

_DIGITS: Final = 38
_SIMPLE: Final[Mapping[ColumnKind, tuple[pa.DataType, str]]] = {
    ColumnKind.BOOLEAN: (pa.bool_(), "boolean"),
    ColumnKind.INT8: (pa.int8(), "tinyint"),
    ColumnKind.INT16: (pa.int16(), "smallint"),
    ColumnKind.INT32: (pa.int32(), "int"),
    ColumnKind.INT64: (pa.int64(), "bigint"),
    ColumnKind.FLOAT: (pa.float32(), "float"),
    ColumnKind.DOUBLE: (pa.float64(), "double"),
    ColumnKind.TEXT: (pa.string(), "string"),
    ColumnKind.BYTES: (pa.binary(), "binary"),
    ColumnKind.DATE: (pa.date32(), "date"),
    ColumnKind.TIMESTAMP: (pa.timestamp("us", tz="UTC"), "timestamp"),
}


@cache
def arrow_type(kind: ColumnType) -> pa.DataType:
    """Return Arrow's type."""
    inner = [pa.field(name, arrow_type(each)) for name, each in kind.fields]
    match kind.kind:
        case ColumnKind.DECIMAL:
            return pa.decimal128(_DIGITS, kind.scale)
        case ColumnKind.LIST:
            return pa.list_(inner[0])
        case ColumnKind.MAP:
            return pa.map_(inner[0].with_nullable(nullable=False), inner[1])
        case ColumnKind.STRUCT:
            return pa.struct(inner)
        case simple:
            return _SIMPLE[simple][0]


def spark_type(kind: ColumnType) -> str:
    """Return Spark's type, as DDL."""
    inner = [spark_type(each) for _, each in kind.fields]
    match kind.kind:
        case ColumnKind.DECIMAL:
            return f"decimal({_DIGITS},{kind.scale})"
        case ColumnKind.LIST:
            return f"array<{inner[0]}>"
        case ColumnKind.MAP:
            return f"map<{inner[0]},{inner[1]}>"
        case ColumnKind.STRUCT:
            names = ["`" + name.replace("`", "``") + "`" for name, _ in kind.fields]
            return f"struct<{','.join(f'{n}:{t}' for n, t in zip(names, inner, strict=True))}>"
        case simple:
            return _SIMPLE[simple][1]


def _columns(target: TableType) -> dict[str, ColumnType]:
    bounds = {} if target.bounds is None else {"bounds": target.bounds}
    return {"row": target.row, "cells": CELLS_TYPE, "unfit": UNFIT_TYPE, **bounds}


def spark_schema(target: TableType) -> str:
    """Return the columns of `typed_batch` as DDL."""
    typed = [f"{name} {spark_type(kind)}" for name, kind in _columns(target).items()]
    return ", ".join([SPARK_SCHEMA, *typed])


@cache
def typed_arrow_schema(target: TableType) -> pa.Schema:
    """Return the columns of `typed_batch`."""
    fields = [pa.field(name, arrow_type(kind)) for name, kind in _columns(target).items()]
    return pa.schema([*ARROW_SCHEMA, *fields])


def typed_batch(
    changes: TypedChanges, target: TableType, encoded: EncodedRecords | None
) -> pa.RecordBatch:
    """Return rows of what is known of each change, then `row`, `cells`, `unfit` and `bounds`.

    *encoded* are the same changes as messages; without it those columns are null.
    """
    known = fact_batch(changes.facts, target.table) if encoded is None else record_batch(encoded)
    columns = {
        "row": changes.row,
        "cells": changes.cells,
        "unfit": changes.unfit,
        **({} if changes.bounds is None else {"bounds": changes.bounds}),
    }
    arrays = [*known.columns, *(_array(columns[name]) for name in _columns(target))]
    return pa.RecordBatch.from_arrays(arrays, schema=typed_arrow_schema(target))


def chosen(rows: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Return the rows that have the selection's operations and write times."""
    masks = []
    if selection.operations:
        wanted = pa.array(sorted(selection.operations))
        masks.append(pc.is_in(rows.column("operation"), value_set=wanted))
    times = rows.column("write_time").cast(pa.int64())
    if selection.from_us is not None:
        masks.append(pc.greater_equal(times, selection.from_us))
    if selection.to_us is not None:
        masks.append(pc.less(times, selection.to_us))
    for mask in masks[1:]:
        masks[0] = pc.and_(masks[0], mask)
    return rows.filter(masks[0]) if masks else rows


def _array(column: ColumnBuffers) -> pa.Array:
    kind = arrow_type(column.type)
    buffers = [pa.py_buffer(column.valid)]
    if column.offsets is not None:
        buffers.append(pa.py_buffer(column.offsets))
    if column.values is not None:
        buffers.append(pa.py_buffer(column.values))
    children = [_array(child) for child in column.children]
    if column.type.kind is ColumnKind.MAP:
        entries = pa.struct([kind.key_field, kind.item_field])
        count = len(children[0])
        children = [pa.Array.from_buffers(entries, count, [None], children=children)]
    return pa.Array.from_buffers(kind, column.count, buffers, children=children or None)

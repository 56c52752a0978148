"""Typed columns of one table's changes, as types of Arrow and of Spark; copies no buffer."""

from collections.abc import Mapping
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connector.replay.columns import arrow_schema, fact_batch, record_batch
from headrace.connector.replay.columns import spark_schema as spark_schema_of
from headrace.connector.replay.selection import Selection
from headrace.plugins import BadRecordError, EncodedRecords, Origin
from headrace.plugins.records.columns import (
    CELLS_TYPE,
    UNFIT_TYPE,
    ColumnBuffers,
    ColumnKind,
    ColumnType,
    TableType,
    TypedChanges,
    TypedColumn,
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


def spark_schema(target: TableType, origin: Origin) -> str:
    """Return the columns of `typed_batch` as DDL."""
    typed = [f"{name} {spark_type(kind)}" for name, kind in _columns(target).items()]
    return ", ".join([spark_schema_of(arrow_schema(origin)), *typed])


def typed_arrow_schema(target: TableType, origin: Origin) -> pa.Schema:
    """Return the columns of `typed_batch`."""
    return _typed(target, arrow_schema(origin))


@cache
def _typed(target: TableType, known: pa.Schema) -> pa.Schema:
    fields = [pa.field(name, arrow_type(kind)) for name, kind in _columns(target).items()]
    return pa.schema([*known, *fields])


def typed_batch(
    changes: TypedChanges, target: TableType, encoded: EncodedRecords | None, origin: Origin
) -> pa.RecordBatch:
    """Return rows with the known columns of each change, then `row`, `cells`, `unfit` and `bounds`.

    *encoded* are the same changes as messages; without it the columns of messages are null.
    """
    schema = arrow_schema(origin)
    known = (
        fact_batch(changes.facts, target.table, schema)
        if encoded is None
        else record_batch(encoded, schema)
    )
    columns = {
        "row": changes.row,
        "cells": changes.cells,
        "unfit": changes.unfit,
        **({} if changes.bounds is None else {"bounds": changes.bounds}),
    }
    typed = [_array(columns[name], kind) for name, kind in _columns(target).items()]
    arrays = [*known.columns, *typed]
    return pa.RecordBatch.from_arrays(arrays, schema=_typed(target, schema))


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


def _array(column: TypedColumn, kind: ColumnType) -> pa.Array:
    """Return a column of values, or of buffers. Raises BadRecordError."""
    if isinstance(column, ColumnBuffers):
        return _of_buffers(column)
    try:
        return pa.array(column, arrow_type(kind))
    except (pa.ArrowException, OverflowError) as error:
        # The message of the error may contain the value.
        said = f"a value does not fit its column: {type(error).__name__}"
        raise BadRecordError(said, hint="were messages transformed? leave out `table`") from error


def _of_buffers(column: ColumnBuffers) -> pa.Array:
    kind = arrow_type(column.type)
    buffers = [pa.py_buffer(column.valid)]
    if column.offsets is not None:
        buffers.append(pa.py_buffer(column.offsets))
    if column.values is not None:
        buffers.append(pa.py_buffer(column.values))
    children = [_of_buffers(child) for child in column.children]
    if column.type.kind is ColumnKind.MAP:
        entries = pa.struct([kind.key_field, kind.item_field])
        count = len(children[0])
        children = [pa.Array.from_buffers(entries, count, [None], children=children)]
    return pa.Array.from_buffers(kind, column.count, buffers, children=children or None)

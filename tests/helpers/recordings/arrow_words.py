"""Columns of Arrow as strings, because a value that is not a number does not equal itself."""

import pyarrow as pa
import pyarrow.compute as pc


def in_words(rows: pa.RecordBatch) -> list[object]:
    """Return the columns of *rows* as strings, without values under a null."""
    return [_in_words(column) for column in rows.columns]


def _in_words(column: pa.Array) -> object:
    kind = column.type
    if pa.types.is_struct(kind):
        return [column.is_valid().to_pylist(), *map(_in_words, column.flatten())]
    if pa.types.is_map(kind):
        column = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
    if pa.types.is_list(column.type):
        return [pc.list_value_length(column).to_pylist(), _in_words(column.flatten())]
    return column.to_string(window=1 << 30, container_window=1 << 30)

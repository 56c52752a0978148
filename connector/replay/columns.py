"""Converts encoded records into Arrow columns, from whole buffers and not cell by cell."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.plugins import OPERATIONS, EncodedRecords, Facts, Headers, Origin
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.records.columns import Pieces

_TIME: Final = pa.timestamp("us", tz="UTC")
_INDEX: Final = pa.int32()
# Columns of the changes of every source. The fields of a source's origin follow them.
ARROW_SCHEMA: Final = pa.schema(
    [
        ("table", pa.string()),
        ("operation", pa.string()),
        ("write_time", _TIME),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("schema_id", pa.binary()),
        ("mutation", pa.binary()),
        ("index", _INDEX),
    ]
)
# By their names in Avro, which origins use.
_ORIGIN_TYPES: Final[Mapping[str, pa.DataType]] = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
}
_SPARK_TYPES: Final[Mapping[pa.DataType, str]] = {
    pa.binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
T = TypeVar("T")

_ID_BYTES: Final = 16
_INT64: Final = pa.int64()
_COUNTING: Final = array("q", range(20_000)).tobytes()
_OPERATION_NAMES: Final = pa.array([operation.value for operation in OPERATIONS])


def arrow_schema(origin: Origin) -> pa.Schema:
    """Return the columns of the changes of a source."""
    return _schema_with(tuple(origin.fields.items()))


@cache
def _schema_with(fields: tuple[tuple[str, str], ...]) -> pa.Schema:
    return pa.schema([*ARROW_SCHEMA, *own_columns(Origin(fields=dict(fields)))])


def own_columns(origin: Origin) -> Sequence[pa.Field]:
    """Return the columns that only this source has."""
    return [pa.field(name, _ORIGIN_TYPES[kind]) for name, kind in origin.fields.items()]


def spark_schema(schema: pa.Schema) -> str:
    """Return the same columns as Spark's DDL."""
    return ", ".join(f"`{each.name}` {_SPARK_TYPES[each.type]}" for each in schema)


def record_batch(encoded: EncodedRecords, schema: pa.Schema) -> pa.RecordBatch:
    """Return the records as rows of *schema*; unknown values are null."""
    count = len(encoded)
    columns: dict[str, pa.Array] = {
        "table": _repeated(encoded.tables, pa.string()),
        "key": _bytes(encoded.keys),
        "value": _bytes(encoded.values),
        "schema_id": _repeated(encoded.headers, pa.binary(), _schema_id),
    }
    if encoded.facts is not None and len(encoded.facts.timestamps_us) == count:
        columns |= _of_facts(encoded.facts, schema)
    return _batch(columns, count, schema)


def fact_batch(facts: Facts, table: str, schema: pa.Schema) -> pa.RecordBatch:
    """Return changes of one table as rows of *schema*, without the bytes of messages."""
    count = len(facts.timestamps_us)
    return _batch({"table": pa.repeat(table, count), **_of_facts(facts, schema)}, count, schema)


def _batch(columns: Mapping[str, pa.Array], count: int, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        columns[each.name] if each.name in columns else pa.nulls(count, each.type)
        for each in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def encoded_rows(rows: pa.RecordBatch) -> EncodedRecords:
    """Return rows as records for a sink; those with a `schema_id` have it in a header."""
    tables, keys, values = (rows.column(name).to_pylist() for name in ("table", "key", "value"))
    has_ids = "schema_id" in rows.schema.names
    ids = rows.column("schema_id").to_pylist() if has_ids else [None] * rows.num_rows
    of_id: dict[bytes | None, Headers] = {  # Equal headers are one object.
        each: ((SCHEMA_ID_HEADER, each),) if each is not None else () for each in dict.fromkeys(ids)
    }
    return EncodedRecords(keys, values, [of_id[each] for each in ids], tables)


def _of_facts(facts: Facts, schema: pa.Schema) -> dict[str, pa.Array]:
    columns = {
        "operation": _OPERATION_NAMES.take(_numbers(facts.operations)),
        "write_time": _numbers(facts.timestamps_us, _TIME),
        "index": _numbers(facts.indexes).cast(_INDEX),
    }
    of_mutations: dict[str, pa.Array] = {}
    for name, column in facts.places.items():
        at = schema.get_field_index(name)
        if at < 0:
            continue
        if name in facts.strings:
            of_mutations[name] = pa.array(facts.strings[name], pa.string()).take(_numbers(column))
        else:
            of_mutations[name] = _numbers(column).cast(schema.field(at).type)
    if facts.ids:
        fixed = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_ID_BYTES), len(facts.ids) // _ID_BYTES, [None, pa.py_buffer(facts.ids)]
        )
        of_mutations["mutation"] = fixed.cast(pa.binary())
    numbers = facts.mutations.tobytes()
    has_one_each = numbers == _COUNTING[: len(numbers)] and all(
        len(each) == len(facts.mutations) for each in of_mutations.values()
    )
    if not has_one_each:
        mutations = _numbers(facts.mutations)
        of_mutations = {name: each.take(mutations) for name, each in of_mutations.items()}
    return columns | of_mutations


def _numbers(column: memoryview, kind: pa.DataType = _INT64) -> pa.Array:
    """Return a column of 64-bit numbers, which may have gaps in memory."""
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column.tobytes())])


def _bytes(column: Sequence[bytes | None]) -> pa.Array:
    """Return a column of bytes; buffers with Arrow's layout are not copied."""
    if not isinstance(column, Pieces):
        return pa.array(column, pa.binary())
    made = column.buffers
    buffers = [None, pa.py_buffer(made.offsets), pa.py_buffer(made.values)]
    return pa.Array.from_buffers(pa.binary(), made.count, buffers)


def _repeated(
    column: Sequence[T], kind: pa.DataType, value_of: Callable[[T], object] = lambda each: each
) -> pa.Array:
    """Return a column with few distinct objects, each repeated many times in sequence."""
    if column and column.count(column[0]) == len(column):
        return pa.repeat(pa.scalar(value_of(column[0]), kind), len(column))
    values: list[object] = []
    ends: list[int] = []
    before: object = None
    for place, each in enumerate(column):
        if each is not before or not values:
            before = each
            values.append(value_of(each))
            ends.append(place)
    if not values:
        return pa.array([], kind)
    ends = [*ends[1:], len(column)]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), pa.array(values, kind))
    return pc.run_end_decode(runs)


def _schema_id(headers: Headers) -> bytes | None:
    return dict(headers).get(SCHEMA_ID_HEADER)

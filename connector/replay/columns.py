"""Encoded records as Arrow columns, made from whole buffers and not cell by cell."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.plugins import OPERATIONS, EncodedRecords, Facts, Headers
from headrace.plugins.codecs import SCHEMA_ID_HEADER
from headrace.plugins.columns import Pieces

# The same in Spark's words and in Arrow's.
SPARK_SCHEMA: Final = (
    "`table` string, operation string, write_time timestamp, `key` binary, `value` binary, "
    "schema_id binary, mutation binary, `index` int, copies int, node string, segment bigint, "
    "`position` bigint"
)
ARROW_SCHEMA: Final = pa.schema(
    [
        ("table", pa.string()),
        ("operation", pa.string()),
        ("write_time", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("schema_id", pa.binary()),
        ("mutation", pa.binary()),
        ("index", pa.int32()),
        ("copies", pa.int32()),
        ("node", pa.string()),
        ("segment", pa.int64()),
        ("position", pa.int64()),
    ]
)
# What a sink is given besides: a topic if not its own, headers, what a tombstone follows.
SINK_SPARK_SCHEMA: Final = f"{SPARK_SCHEMA}, topic string, headers binary, tombstone boolean"
SINK_ARROW_SCHEMA: Final = pa.schema(
    [*ARROW_SCHEMA, ("topic", pa.string()), ("headers", pa.binary()), ("tombstone", pa.bool_())]
)
T = TypeVar("T")

_ID_BYTES: Final = 16
_INT64: Final = pa.int64()
_FIELDS: Final[Mapping[str, pa.DataType]] = {each.name: each.type for each in ARROW_SCHEMA}
_COUNTING: Final = array("q", range(20_000)).tobytes()
_OPERATION_NAMES: Final = pa.array([operation.value for operation in OPERATIONS])


def record_batch(encoded: EncodedRecords) -> pa.RecordBatch:
    """Return the records as rows of ARROW_SCHEMA; what is not known of them is null."""
    count = len(encoded)
    columns: dict[str, pa.Array] = {
        "table": _repeated(encoded.tables, pa.string()),
        "key": _bytes(encoded.keys),
        "value": _bytes(encoded.values),
        "schema_id": _repeated(encoded.headers, pa.binary(), _schema_id),
    }
    if encoded.facts is not None and len(encoded.facts.timestamps_us) == count:
        columns |= _of_facts(encoded.facts)
    return _batch(columns, count)


def fact_batch(facts: Facts, table: str) -> pa.RecordBatch:
    """Return changes of one table as such rows, without the bytes of messages."""
    count = len(facts.timestamps_us)
    return _batch({"table": pa.repeat(table, count), **_of_facts(facts)}, count)


def _batch(columns: Mapping[str, pa.Array], count: int) -> pa.RecordBatch:
    arrays = [
        columns[each.name] if each.name in columns else pa.nulls(count, each.type)
        for each in ARROW_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def sink_batch(encoded: EncodedRecords) -> pa.RecordBatch:
    """Return the records as rows of SINK_ARROW_SCHEMA: nothing that a sink is given is missing."""
    rows = record_batch(encoded)
    after = set(encoded.tombstones)
    columns = [
        pa.nulls(len(encoded), pa.string())
        if encoded.topics is None
        else pa.array(encoded.topics, pa.string()),
        _repeated(encoded.headers, pa.binary(), msgspec.msgpack.encode),
        pa.array([place in after for place in range(len(encoded))], pa.bool_()),
    ]
    return pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=SINK_ARROW_SCHEMA)


def encoded_rows(rows: pa.RecordBatch) -> EncodedRecords:
    """Return rows as a sink takes them."""
    columns = {n: rows.column(i).to_pylist() for i, n in enumerate(rows.schema.names)}
    after = columns.get("tombstone", ())
    topics = columns.get("topic", [None])
    return EncodedRecords(
        columns["key"],
        columns["value"],
        _headers(columns, rows.num_rows),
        columns["table"],
        tombstones=tuple(place for place, has_one in enumerate(after) if has_one),
        topics=None if None in topics else topics,
    )


def _headers(columns: Mapping[str, list[Any]], count: int) -> list[Headers]:
    """Return the headers; of equal ones a single object."""
    whole = columns.get("headers")
    if whole is not None:
        known = {each: msgspec.msgpack.decode(each, type=Headers) for each in dict.fromkeys(whole)}
        return [known[each] for each in whole]
    ids = columns.get("schema_id") or [None] * count
    of_id: dict[bytes | None, Headers] = {
        each: ((SCHEMA_ID_HEADER, each),) if each is not None else () for each in dict.fromkeys(ids)
    }
    return [of_id[each] for each in ids]


def _of_facts(facts: Facts) -> dict[str, pa.Array]:
    columns = {
        "operation": _OPERATION_NAMES.take(_numbers(facts.operations)),
        "write_time": _numbers(facts.timestamps_us, _FIELDS["write_time"]),
        "index": _numbers(facts.indexes).cast(_FIELDS["index"]),
    }
    of_mutations: dict[str, pa.Array] = {}
    for name, place in facts.places.items():
        if name == "node":
            of_mutations[name] = pa.array(facts.nodes, pa.string()).take(_numbers(place))
        elif name in _FIELDS:
            of_mutations[name] = _numbers(place).cast(_FIELDS[name])
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
    """Return a column of bytes; nothing is copied of what lies in memory as it should."""
    if not isinstance(column, Pieces):
        return pa.array(column, pa.binary())
    made = column.buffers
    buffers = [None, pa.py_buffer(made.offsets), pa.py_buffer(made.values)]
    return pa.Array.from_buffers(pa.binary(), made.count, buffers)


def _repeated(
    column: Sequence[T], kind: pa.DataType, value_of: Callable[[T], object] = lambda each: each
) -> pa.Array:
    """Return a column whose entries are few objects, each of them many times in a row."""
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

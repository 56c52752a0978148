"""Typed columns are valid Arrow, and Spark's types are the same."""

import pyarrow as pa
import pytest

from headrace.connector.replay.columns import arrow_schema
from headrace.connector.replay.frames.typed_columns import chosen, spark_type, typed_batch
from headrace.connector.replay.selection import Selection
from headrace.plugins import NO_ORIGIN, BadRecordError, FactColumns, Operation
from headrace.plugins.records.columns import ColumnKind, ColumnType, TableType, TypedChanges
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.logs.node_logs import batches, open_all, source
from helpers.recordings.corpora import recording


@pytest.fixture(scope="module")
def typed() -> list[tuple[TableType, pa.RecordBatch]]:
    """Return typed rows of every table of a recording with all types."""
    folder = recording("5.0-types")
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = source(options | {"consistency": "ONE", "splits": 1})
    found = []
    for batch in batches(open_all(made).values()):
        for table in sorted(set(batch.encode("avro").tables)):
            target = made.table_type(table)
            changes = batch.typed(target, with_messages=True)
            found.append((target, typed_batch(changes, target, changes.encoded, made.origin)))
    made.close()
    return found


def test_arrow_takes_them(typed: list[tuple[TableType, pa.RecordBatch]]) -> None:
    """Buffers, offsets and lengths of every type pass Arrow's full validation."""
    for _, rows in typed:
        rows.validate(full=True)

    kinds = {kind for target, _ in typed for kind in _kinds(target.row)}
    assert set(ColumnKind) == kinds
    names = arrow_schema(ORIGIN).names
    assert all(names == rows.schema.names[:12] for _, rows in typed)


def test_choice(typed: list[tuple[TableType, pa.RecordBatch]]) -> None:
    """Operations and write times select rows; the start is included, the end is not."""
    _, rows = max(typed, key=lambda each: each[1].num_rows)
    times = rows.column("write_time").cast(pa.int64()).to_pylist()
    low, high = sorted(times)[len(times) // 4], sorted(times)[len(times) // 2]
    wanted = [
        us
        for us, operation in zip(times, rows.column("operation").to_pylist(), strict=True)
        if low <= us < high and operation == "INSERT"
    ]

    selection = Selection(operations=frozenset({"INSERT"}), from_us=low, to_us=high)
    found = chosen(rows, selection)

    assert wanted == found.column("write_time").cast(pa.int64()).to_pylist()
    assert rows.num_rows == chosen(rows, Selection()).num_rows


def test_a_value_that_no_column_holds() -> None:
    """A number too large for its column is refused, and the message does not repeat it."""
    row = ColumnType(ColumnKind.STRUCT, (("n", ColumnType(ColumnKind.INT8)),))
    facts = FactColumns()
    facts.add(1, Operation.INSERT, origin={})
    changes = TypedChanges([{"n": 300}], [[]], [[]], None, facts.facts())

    with pytest.raises(BadRecordError, match="does not fit its column: ArrowInvalid\n"):
        typed_batch(changes, TableType("ks.t", row, None), None, NO_ORIGIN)


def test_a_name_with_a_quote() -> None:
    """A field's name may contain Spark's quotation mark."""
    kind = ColumnType(ColumnKind.STRUCT, (("a`b c", ColumnType(ColumnKind.INT8)),))

    assert "struct<`a``b c`:tinyint>" == spark_type(kind)


def _kinds(kind: ColumnType) -> set[ColumnKind]:
    return {kind.kind}.union(*(_kinds(inner) for _, inner in kind.fields))

"""Typed columns are what Arrow takes for valid, and Spark's types are the same."""

import pyarrow as pa
import pytest

from corpora import recording
from headrace.connector.replay.columns import ARROW_SCHEMA
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.typed_columns import chosen, spark_type, typed_batch
from headrace.plugins.columns import ColumnKind, ColumnType, TableType
from node_logs import batches, open_all, source


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
            found.append((target, typed_batch(changes, target, changes.encoded)))
    made.close()
    return found


def test_arrow_takes_them(typed: list[tuple[TableType, pa.RecordBatch]]) -> None:
    """Every buffer, offset and length is as Arrow demands, of every type there is."""
    for _, rows in typed:
        rows.validate(full=True)

    kinds = {kind for target, _ in typed for kind in _kinds(target.row)}
    assert set(ColumnKind) == kinds
    assert all(ARROW_SCHEMA.names == rows.schema.names[:12] for _, rows in typed)


def test_choice(typed: list[tuple[TableType, pa.RecordBatch]]) -> None:
    """Operations and write times choose rows; the first time is in, the second one is not."""
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


def test_a_name_with_a_quote() -> None:
    """A field's name may hold what quotes it in Spark's words."""
    kind = ColumnType(ColumnKind.STRUCT, (("a`b c", ColumnType(ColumnKind.INT8)),))

    assert "struct<`a``b c`:tinyint>" == spark_type(kind)


def _kinds(kind: ColumnType) -> set[ColumnKind]:
    return {kind.kind}.union(*(_kinds(inner) for _, inner in kind.fields))

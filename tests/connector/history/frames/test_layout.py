"""Rows of Arrow are what queries return, with the types of the table's columns."""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.connector.history.client import connect
from headrace.connector.history.config import SCOPES
from headrace.connector.history.frames.layout import UNFIT, Layout
from headrace.connector.history.query import Event
from headrace.connector.replay.frames.typed_columns import typed_batch
from headrace.plugins import Operation, RecordSchema
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.histories.arrow_values import is_same
from helpers.histories.kept import Kept, beside, fill, of_table
from helpers.histories.oracle import changes
from helpers.histories.rows import TABLE, change, delivery
from helpers.logs.node_logs import batches, open_all, source
from helpers.recordings.batches import recorded_batches
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled
from helpers.settings.seeds import soaked

KEYS_AT = 3  # Behind the time, its number and the bucket.
Both = tuple[list[Event], pa.Table]


def recorded(name: str, folder: Path) -> Iterator[Both]:
    """Yield the history of each table of a recording: its events, and its rows of Arrow."""
    for number, table in enumerate(changes(name)):
        (folder / str(number)).mkdir()
        made = Kept(DrivenClock(), **beside(folder / str(number), table=table, seed="empty"))
        sent = [of_table(batch, table) for batch in recorded_batches(name)]
        fill(made, sent, per_commit=50, step_ms=0)
        yield read(made)


def read(made: Kept) -> Both:
    """Return the events and the rows of a history."""
    with connect(made.sink.config.place) as client:
        selection = client.select(0, include=SCOPES)
        return list(selection), selection.arrow()


@pytest.fixture(scope="module", params=["5.0-types", "6.0-v9-random", *soaked("4.1-ops")])
def tables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Both]:
    """Return all tables of a recording."""
    return list(recorded(request.param, tmp_path_factory.mktemp(request.param)))


@pytest.mark.soak
def test_rows_have_what_events_have(tables: Sequence[Both]) -> None:
    """Keys, images, what was written, bounds and flags of every type, or the column is unfit."""
    for events, rows in filled(tables):
        assert len(events) == rows.num_rows
        rows.validate(full=True)
        for number, event in enumerate(events):
            row = {name: rows.column(name)[number] for name in rows.column_names}
            unfit = row["unfit"].as_py()
            named = zip(event.key, rows.column_names[KEYS_AT:], strict=False)
            check_struct(event.key, {}, {key: row[name] for key, name in named}, unfit)
            assert (event.time_ms * 1_000, event.sequence) == (
                row["cdc_time"].value,
                row["seq"].as_py(),
            )
            assert event.operation.lower() == row["op"].as_py()
            assert event.written_us == row["write_time"].value
            for flag in ("partial", "derived", "static", "effective"):
                assert getattr(event, flag) == row[flag].as_py()
            for image in ("pre", "post", "latest"):
                found = getattr(event, image)
                is_there = row[image].is_valid
                assert is_there or not found, "an image is missing"
                if is_there and found is not None:
                    check_struct(found, event.key, row[image], unfit)
            check_change(event, row, unfit)


def check_change(event: Event, row: dict[str, Any], unfit: list[str]) -> None:
    """Compare what was written."""
    if event.operation is Operation.DELETE_RANGE:
        assert event.change is not None
        assert not row["change"].is_valid
        for side, bound in event.change["range"].items():
            found = row["bounds"][side]
            assert (bound is not None) == found.is_valid
            if bound is not None:
                check_struct(bound["values"], {}, found["values"], unfit)
                assert (bound["inclusive"], len(bound["values"])) == (
                    found["inclusive"].as_py(),
                    found["count"].as_py(),
                )
        return
    assert (event.change is not None) == row["change"].is_valid
    if event.change is not None:
        assert list(event.change) == row["written"].as_py()
        check_struct(event.change, event.key, row["change"], unfit)


def check_struct(found: Any, key: Any, values: Any, unfit: list[str]) -> None:  # noqa: ANN401 (JSON, Arrow)
    """Compare columns of JSON with those of Arrow."""
    for name, value in {**key, **found}.items():
        assert is_same(value, values[name]) or (name in unfit and not values[name].is_valid), name


def test_values_are_those_of_segments(tmp_path: Path) -> None:
    """What was written has the values that `headrace.segments` has of the same changes."""
    folder = recording("5.0-types")
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = source(options | {"consistency": "ONE", "splits": 1})
    segments: dict[str, list[Any]] = {}
    for batch in batches(open_all(made).values()):
        for table in sorted(set(batch.encode("avro").tables)):
            target = made.table_type(table)
            typed = typed_batch(batch.typed(target, with_messages=False), target, None, made.origin)
            segments.setdefault(table, []).extend(typed.column("row"))
    made.close()
    count = 0
    for table, (_, rows) in zip(changes("5.0-types"), recorded("5.0-types", tmp_path), strict=True):
        assert len(segments[table]) == rows.num_rows
        for theirs, ours, unfit in zip(segments[table], *columns(rows), strict=True):
            if ours.is_valid:
                count += 1
                for name in filled(field.name for field in theirs.type):
                    if name not in unfit.as_py():
                        found = ours[name]
                        if "mode" in getattr(found, "keys", list)():
                            found = found["value"] if found.is_valid else found
                        assert repr(plain(theirs[name])) == repr(plain(found)), name
    assert count > 400


def columns(rows: pa.Table) -> tuple[Any, Any]:
    """Return what was written, and what did not fit."""
    return rows.column("change"), rows.column("unfit")


def plain(scalar: Any) -> Any:  # noqa: ANN401 (of Arrow)
    """Return a value of Arrow; a collection without elements is null."""
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {field.name: plain(scalar[field.name]) for field in scalar.type}
    if pa.types.is_list(scalar.type) or pa.types.is_map(scalar.type):
        return list(map(plain, scalar.values)) or None
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


@pytest.mark.soak
def test_spark_has_the_same_types(tables: Sequence[Both]) -> None:
    """Spark's types of the columns are Arrow's again: it takes batches as they are."""
    for _, rows in filled(tables):
        assert rows.schema == to_arrow_schema(from_arrow_schema(rows.schema), timezone="UTC")


def schema_of(*columns: str, types: str = "", key: str = "id int, at int") -> RecordSchema:
    """Return the schema of a table with these columns."""
    names = ", ".join(part.split()[0] for part in key.split(", "))
    text = f"""
CREATE KEYSPACE shop WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
{types}
CREATE TABLE shop.orders ({", ".join([key, *columns])}, PRIMARY KEY ({names}))
WITH ID = 00000000-0000-1000-8000-000000000001 AND cdc = true;
"""
    (table,) = parse_schema(text).tables.values()
    return RecordSchema.of(
        table.qualified, table.text, key=key_schema(table), value=value_schema(table)
    )


def test_columns_that_have_the_name_of_another() -> None:
    """A column of the key gets `_` behind its name, also where only the case is another."""
    layout = Layout.of([schema_of(key='op int, "SEQ" int, seq_ int')], ("change",))
    assert ["op_", "SEQ_", "seq__"] == layout.keys
    assert {"op", "SEQ", "seq_"} == {field.name for field in layout.schema.field("change").type}


def test_columns_of_all_schemas() -> None:
    """A dropped column stays, fields are added to UDTs, and the newest of two types is used."""
    types = "CREATE TYPE shop.u (a int{});"
    older = schema_of("gone text", "was int", "u frozen<u>", types=types.format(""))
    newer = schema_of("was text", "u frozen<u>", "more int", types=types.format(", b text"))
    layout = Layout.of([older, newer], ("change", "post"))
    image = layout.schema.field("post").type
    wanted = {"gone": pa.string(), "was": pa.string(), "more": pa.int32()}
    wanted |= {"u": pa.struct([("a", pa.int32()), ("b", pa.string())])}
    assert wanted == {f.name: f.type for f in image if f.name in wanted}
    shape = layout.shape(older)
    assert UNFIT is shape.column("was", 1) is shape.written("was", 1)
    assert None is shape.column("was", None)
    assert {"a": 1} == shape.column("u", {"a": 1})
    assert "x" == layout.shape(newer).column("was", "x")
    before = Layout.of([older], ("change",))
    assert UNFIT is before.shape(newer).column("u", {"a": 1, "b": "lost"})


def test_a_row_without_other_columns() -> None:
    """Its image has the key, so it is not the one of a row that is gone."""
    schema = schema_of()
    shape = Layout.of([schema], ("post",)).shape(schema)
    live: dict[str, Any] = {"deleted": 0, "columns": {}, "live": [1, False, 0]}
    assert {"id": 1, "at": 2} == shape.row(([1], [2]), live, None, 0)
    assert None is shape.row(([1], [2]), {**live, "deleted": 1}, None, 0)


def test_a_layout_travels() -> None:
    """It is pickled for the tasks of Spark."""
    layout = Layout.of([schema_of("note text")], ("change", "pre"))
    assert layout == pickle.loads(pickle.dumps(layout))  # noqa: S301 (our own)


def test_what_is_unknown_is_distinguished_from_null(tmp_path: Path) -> None:
    """Of partial images `known` names the columns; no row is null, and an empty one is not."""
    made = Kept(DrivenClock(), **beside(tmp_path, table=TABLE))
    sent = delivery(
        change("UPDATE", written_us=1 << 50, note="n"),
        change("DELETE", written_us=2 << 50),
        change(written_us=3 << 50),
    )
    fill(made, [sent], per_commit=9, step_ms=1)
    _, rows = read(made)
    first, second, third = rows.to_pylist()
    assert [("pre", []), ("post", ["note"]), ("latest", ["note", "total"])] == first["known"]
    key = {"id": 1, "at": 1}
    assert None is first["pre"]
    assert {**key, "note": "n", "total": None} == first["post"]
    assert ("note", ["note"]) == (second["known"][0][1][0], first["written"])
    assert (None, None) == (second["post"], second["change"])
    assert (None, None) == (third["known"], third["pre"])
    assert {**key, "note": None, "total": None} == third["post"] == third["change"]
    assert [] == third["written"]

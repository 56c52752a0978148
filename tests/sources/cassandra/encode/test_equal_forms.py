"""Avro and JSON describe every change equally: neither has more than the other."""

import io
import json
from functools import cache
from typing import Any

import fastavro
import pytest

from headrace.sources.cassandra.encode.avro_objects import Provenance, avro_value
from headrace.sources.cassandra.encode.avro_schema import value_schema
from headrace.sources.cassandra.mutation.change_json import change_document
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.json_values import to_json
from headrace.sources.cassandra.schema.tables import TableSchema
from helpers.logs.sample_log import recorded_mutations
from helpers.logs.scenes import NOW_S, NOW_US, Scene
from helpers.recordings.avro_documents import Documents, comparable
from helpers.recordings.corpora import recording

ORIGIN = Provenance(
    mutation_id=bytes(16), index=0, of=1, copies=2, node="node1", segment_id=3, position=4
)
RECORDINGS = [
    *("4.0-types", "5.0-compact", "5.0-types", "5.0-random"),
    *("5.0-v8-ops", "6.0-v9-random"),
]


@cache
def schema_of(table: TableSchema) -> Any:  # noqa: ANN401 (fastavro's own)
    """Return the table's schema without logical types: values stay as they were."""
    text = json.dumps(value_schema(table)).replace("logicalType", "was")
    return fastavro.parse_schema(json.loads(text))


def distinguished_by_avro(change: Change) -> str:
    """Encode *change* with fastavro, decode it, and return the document that it makes."""
    table = change.table
    schema = schema_of(table)
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, avro_value(change, ORIGIN), strict=True)
    buffer.seek(0)
    message: Any = fastavro.schemaless_reader(buffer, schema, None)
    return comparable(Documents(table, message["payload"], to_json).document(message))


@pytest.mark.parametrize("name", RECORDINGS)
def test_o05_recorded_changes_have_equal_content(name: str) -> None:
    """O05: the document made of the Avro message is the change document, for every change."""
    count = 0
    for change in (c for m in recorded_mutations(recording(name)) for c in m.changes()):
        if not change.table.is_counter:
            assert comparable(change_document(change)) == distinguished_by_avro(change)
            count += 1
    assert count > 50


ODD_ROWS: dict[str, dict[str, Any]] = {
    "years beyond texts": {"d": 0, "ts": -(1 << 63)},
    "numbers beyond texts": {"vi": 1 << 20_000, "de": "1E-2147483647"},
    "no numbers": {"f": "NaN", "do": "-Infinity"},
    "empties in collections": {"m": {"1": ""}, "l": [], "u": {"a": 1}},
    "nulls": {"d": None, "m": None, "u": None, "fu": None},
    "fields without values": {"u": {"a": None, "b": "x"}, "fu": {"a": None, "b": None}},
}


@pytest.mark.parametrize("name", ODD_ROWS)
@pytest.mark.parametrize("ttl", [None, 60])
def test_o05_odd_values_have_equal_content(name: str, ttl: int | None) -> None:
    """O05: extremes, empties, nulls and what expires are the same in both forms."""
    scene = Scene(
        "CREATE TYPE s.u (a int, b text)",
        "CREATE TABLE s.t (k int PRIMARY KEY, d date, ts timestamp, vi varint, de decimal, f float,"
        " do double, m map<int, text>, l list<int>, u u, fu frozen<u>)",
    )
    values = {"k": 1} | ODD_ROWS[name]
    for step in (
        {"insert": "s.t", "values": values},
        {"update": "s.t", "key": {"k": 1}, "set": ODD_ROWS[name]},
    ):
        (change,) = scene.changes(step if ttl is None else step | {"ttl": ttl, "now": NOW_S})
        assert comparable(change_document(change)) == distinguished_by_avro(change)


def test_o05_cells_of_other_times_have_equal_content() -> None:
    """O05: a cell's own time and TTL, an empty one and a removed one are the same in both forms."""
    scene = Scene(
        "CREATE TABLE s.t (k int, c int, a int, b text, e int, l list<int>, m map<int, int>,"
        " PRIMARY KEY (k, c))"
    )
    life = {"ttl": 9, "ldt": NOW_S + 9}
    columns = {
        "a": {"ts": 7, "value": "00000001"},
        "b": {"ts": NOW_US, "ldt": NOW_S, "tombstone": True},
        "e": {"ts": 7, "value": "", **life},
        "l": {
            "deletion": {"ts": 4, "ldt": NOW_S},
            "cells": [{"ts": 5, "path": "5f8c1a4083a511eeb9620242ac120002", "value": "00000007"}],
        },
        "m": {
            "cells": [
                {"ts": 5, "path": "00000001", "value": "", **life},
                {"ts": 6, "path": "00000002", "ldt": NOW_S, "tombstone": True},
            ]
        },
    }
    for liveness in ({"ts": NOW_US}, {"ts": NOW_US, **life}, None):
        row: dict[str, Any] = {"clustering": ["00000002"], "columns": columns}
        if liveness is not None:
            row["liveness"] = liveness
        given = {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}
        (change,) = scene.changes(given)
        assert comparable(change_document(change)) == distinguished_by_avro(change)

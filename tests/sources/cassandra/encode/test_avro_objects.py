"""Avro values fit their schemas, keep every value, and are what fastavro encodes and reads."""

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.sources.cassandra.encode.avro_objects import Provenance, avro_key, avro_value
from headrace.sources.cassandra.encode.avro_schema import avro_names, key_schema, value_schema
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import TableSchema
from helpers.logs.sample_log import (
    NOW_S,
    NOW_US,
    recorded_mutations,
    sample_mutation,
    sample_schema,
)
from helpers.recordings.corpora import recording

RECORDINGS = ["4.0-types", "4.1-ops", "5.0-compact", "5.0-types", "5.0-v8-random", "6.0-v9-types"]
ORIGIN = Provenance(
    mutation_id=bytes(range(16)), index=0, of=1, copies=2, node="node1", segment_id=3, position=4
)


def parsed(schema: Mapping[str, object]) -> Any:  # noqa: ANN401 (fastavro's own)
    """Return *schema* as fastavro has it, without logical types: values stay as they were."""
    return fastavro.parse_schema(json.loads(json.dumps(schema).replace("logicalType", "was")))


def encoded(schema: Any, value: object) -> bytes:  # noqa: ANN401 (fastavro's own)
    """Return *value* as fastavro encodes it; what does not fit exactly is refused."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, value, strict=True)
    return buffer.getvalue()


def changes(name: str) -> Iterator[Change]:
    """Yield the changes of a recording."""
    for mutation in recorded_mutations(recording(name)):
        yield from mutation.changes()


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_changes_survive_avro(name: str) -> None:
    """Key and value of every recorded change are encoded by fastavro and read back equal."""
    schemas: dict[str, tuple[Any, Any]] = {}
    count = 0
    for change in changes(name):
        table = change.table
        if table.qualified not in schemas:
            schemas[table.qualified] = parsed(key_schema(table)), parsed(value_schema(table))
        pairs = zip(
            schemas[table.qualified], (avro_key(change), avro_value(change, ORIGIN)), strict=True
        )
        for schema, value in pairs:
            raw = encoded(schema, value)
            back = fastavro.schemaless_reader(io.BytesIO(raw), schema, None)
            # NaN differs from itself: compare what it is encoded as.
            assert raw == encoded(schema, back)
        count += 1
    assert count > 50


def only(name: str) -> dict[str, Any]:
    """Return the value of the only change in a mutation made by hand."""
    (change,) = sample_mutation(name).changes()
    return dict(avro_value(change, ORIGIN))


def test_insert_is_an_envelope() -> None:
    """The envelope of an INSERT has every field, in order, and notes nothing about plain cells."""
    absent = dict.fromkeys(("note", "tags", "attrs", "addr"))
    expected = {
        "timestampMicros": NOW_US,
        "operationType": "INSERT",
        "sourceKeyspace": "shop",
        "sourceTable": "users",
        "schemaUuid": next(iter(sample_schema().tables.values())).schema_id,
        "version": None,
        "isPartial": True,
        "truncatedFields": [],
        "isStatic": False,
        "ttl": None,
        "expires": None,
        "updateFields": ["age", "name"],
        "payload": {"id": 7, "seq": 1, "age": 30, "name": "Ann", **absent},
        "cells": [],
        "range": None,
        "mutation": bytes(range(16)),
        "index": 0,
        "of": 1,
        "copies": 2,
        "node": "node1",
        "segment": 3,
        "position": 4,
    }
    found = only("insert")
    assert expected == found
    (table,) = sample_schema().tables.values()
    assert list(expected) == [field["name"] for field in parsed(value_schema(table))["fields"]]


def test_collections_keep_their_cells() -> None:
    """A replaced set has its deletion and a cell per element; a null is in updateFields."""
    found = only("replace")
    life = {"timestampMicros": NOW_US, "ttl": 86400, "expires": NOW_S + 86400}
    assert ["name", "tags"] == found["updateFields"]
    assert found["payload"]["name"] is None
    assert {
        "mode": "replace",
        "deletedAt": NOW_US - 1,
        "cells": [{"key": key, "removed": False, **life} for key in "ab"],
    } == found["payload"]["tags"]
    assert [] == found["cells"]


def test_fields_of_a_udt_come_by_name() -> None:
    """An unfrozen UDT has its written fields by name, each of its own type."""
    found = only("fields")["payload"]["addr"]
    values = {name: cell["value"] for name, cell in found["fields"].items()}
    assert {"street": "Main", "no": 9} == values


def test_ranges_have_typed_bounds() -> None:
    """A range has the values of its bounds, how many there are, and null for an open side."""
    found = [
        avro_value(change, ORIGIN)["range"] for change in sample_mutation("two ranges").changes()
    ]
    five = {"values": {"seq": 5}, "count": 1}
    assert [
        {
            "start": {"values": {"seq": 1}, "count": 1, "inclusive": True},
            "end": five | {"inclusive": False},
        },
        {"start": five | {"inclusive": True}, "end": None},
    ] == found


def test_partition_deletion_has_only_the_key() -> None:
    """A partition deletion's payload is its partition key."""
    payload = only("partition")["payload"]
    assert {"id": 7} == {name: value for name, value in payload.items() if value is not None}


def notes(name: str) -> list[Any]:
    """Return all cell notes of a recording."""
    values: list[Any] = [avro_value(change, ORIGIN) for change in changes(name)]
    return [note for value in values for note in value["cells"]]


def test_notes_tell_cells_apart() -> None:
    """A cell with its own TTL, and an empty one, is noted."""
    noted = notes("4.1-ops")
    assert any(note["ttl"] is not None and note["timestampMicros"] is None for note in noted)
    assert not any(note["timestampMicros"] for note in noted)
    assert any(note["isEmpty"] for note in notes("5.0-types"))


def test_older_cells_are_noted() -> None:
    """A cell that was written at another time than its row says when."""
    (change,) = sample_mutation("insert").changes()
    age, name = change.columns
    older = replace(age, cells=(replace(age.cells[0], timestamp_us=5),))
    assert [
        {"field": "age", "timestampMicros": 5, "ttl": None, "expires": None, "isEmpty": False}
    ] == avro_value(replace(change, columns=(older, name)), ORIGIN)["cells"]


def table(columns: str, types: str = "") -> TableSchema:
    """Return a table with the column `k` as key and *columns*."""
    (made,) = parse_schema(
        f"{types} CREATE TABLE s.t (k int PRIMARY KEY{columns})"
        " WITH ID = 00000000-0000-1000-8000-000000000001"
    ).tables.values()
    return made


TYPES: dict[str, object] = {
    "int": "int",
    "smallint": "int",
    "bigint": "long",
    "counter": "long",
    "ascii": "string",
    "inet": {"type": "string", "cqlType": "inet"},
    "blob": "bytes",
    "'com.example.Odd'": "bytes",
    "date": {"type": "int", "cqlType": "date"},
    "time": {"type": "long", "cqlType": "time"},
    "timestamp": {"type": "long", "cqlType": "timestamp"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "varint": {"type": "bytes", "cqlType": "varint"},
    "frozen<set<int>>": {"type": "array", "items": ["null", "int"]},
    "vector<float, 3>": {"type": "array", "items": ["null", "float"]},
    "decimal": {
        "type": "record",
        "name": "Decimal",
        "fields": [{"name": "scale", "type": "int"}, {"name": "unscaled", "type": "bytes"}],
    },
    "tuple<int, text>": {
        "type": "record",
        "name": "col_v",
        "fields": [
            {"name": "field_0", "type": ["null", "int"], "default": None},
            {"name": "field_1", "type": ["null", "string"], "default": None},
        ],
    },
    "frozen<map<text, int>>": {
        "type": "array",
        "items": {
            "type": "record",
            "name": "col_v_entry",
            "fields": [
                {"name": "key", "type": "string"},
                {"name": "value", "type": ["null", "int"], "default": None},
            ],
        },
    },
}


@pytest.mark.parametrize("text", TYPES)
def test_types_are_lossless(text: str) -> None:
    """Every CQL type has an Avro type that holds all its values."""
    schema: Any = value_schema(table(f", v {text}"))
    payload = schema["fields"][12]["type"]["fields"]
    assert {"name": "v", "type": ["null", TYPES[text]], "default": None} == payload[1]


def test_named_types_are_unique() -> None:
    """Columns whose paths are alike, and types used often, still give one name each."""
    schema = value_schema(
        table(
            ", a frozen<map<int, decimal>>, a_entry tuple<decimal, duration>, b list<decimal>,"
            " b_cell tuple<int>, u u, w frozen<u>",
            "CREATE TYPE s.u (x decimal);",
        )
    )
    fastavro.parse_schema(json.loads(json.dumps(schema)))
    text = json.dumps(schema)
    assert 1 == text.count('"name": "Decimal"')
    assert '"col_a_entry_2"' in text


def test_schemas_are_deterministic() -> None:
    """The same table gives the same schemas every time."""
    (made,) = sample_schema().tables.values()
    assert json.dumps(value_schema(made)) == json.dumps(value_schema(made))


def test_names_that_avro_forbids_have_an_alias() -> None:
    """A forbidden name becomes an allowed one; the field tells the CQL name."""
    schema: Any = value_schema(table(', "a b" int, "1é" tuple<int>'))
    fields = schema["fields"][12]["type"]["fields"]
    assert ["1é", "a b"] == [field["cqlName"] for field in fields[1:]]
    assert fields[1]["name"].startswith("_1__")
    assert fields[2]["name"].startswith("a_b_")
    assert "cqlName" not in fields[0]
    fastavro.parse_schema(schema)


def test_an_alias_avoids_names_in_use() -> None:
    """A column that has the alias of another keeps its name; the other's gets longer."""
    (alias,) = avro_names(("a b",))
    assert (alias, f"{alias}_") == avro_names((alias, "a b"))


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=8))
def test_any_names_give_distinct_allowed_ones(names: list[str]) -> None:
    """For any names of columns, their Avro names are allowed and differ."""
    aliases = avro_names(tuple(names))
    assert len(names) == len(set(aliases))
    for alias in aliases:
        assert alias.isascii()
        assert alias.isidentifier()


def test_empty_keys_are_refused() -> None:
    """A key that is an empty number has no Avro value: a named error says so."""
    (insert,) = sample_mutation("insert").changes()
    (made,) = parse_schema(
        "CREATE TABLE s.t (a int, b int, PRIMARY KEY ((a, b)))"
        " WITH ID = 00000000-0000-1000-8000-000000000001"
    ).tables.values()
    change = Change(table=made, operation=insert.operation, timestamp_us=1, key=(b"", b"\0\0\0\1"))
    with pytest.raises(BadValueError, match="an empty int as a key has no form in Avro"):
        avro_key(change)

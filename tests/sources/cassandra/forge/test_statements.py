"""Statements become the mutations that the format's description works out by hand."""

from collections.abc import Mapping
from typing import Any

import pytest

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.forge.statements import Statements
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.logs.sample_log import MUTATIONS, NOW_S, NOW_US, SCHEMA

USERS = "shop.users"
ROW = {"id": 7, "seq": 1}
AT = {"timestamp": NOW_US, "now": NOW_S}
STATEMENTS: Mapping[str, list[dict[str, Any]]] = {
    "insert": [{"insert": USERS, "values": {**ROW, "name": "Ann", "age": 30}}],
    "replace": [
        {"update": USERS, "key": ROW, "ttl": 86400, "set": {"name": None, "tags": ["b", "a"]}}
    ],
    "both, 4.x": [
        {"update": USERS, "key": ROW, "set": {"attrs": {"k": 7}}, "add": {"tags": ["c"]}}
    ],
    "range": [
        {
            "delete": USERS,
            "key": {"id": 7},
            "range": {"start": {"values": [1]}, "end": {"values": [5], "inclusive": False}},
        }
    ],
    "partition": [{"delete": USERS, "key": {"id": 7}}],
    "static": [
        {"update": USERS, "key": {"id": 7}, "set": {"note": "hi"}},
        {"delete": USERS, "key": ROW},
    ],
    "fields": [{"update": USERS, "key": ROW, "add": {"addr": {"street": "Main", "no": 9}}}],
}


def raw(statements: list[dict[str, Any]], *, static: bool = False) -> bytes:
    """Return the bytes of one mutation."""
    schema = parse_schema(SCHEMA.format(static="static" if static else ""))
    document = Statements(schema).document([{**AT, **each} for each in statements])
    return encode_mutation(document, schema, 12)


@pytest.mark.parametrize("name", STATEMENTS)
def test_bytes_are_those_worked_out_by_hand(name: str) -> None:
    """To the last one: flags, order of columns, what is relative to what."""
    assert MUTATIONS[name].hex() == raw(STATEMENTS[name], static=name == "static").hex()


def test_later_releases_write_live_deletions_otherwise() -> None:
    """Of messaging 13 on, none is all ones."""
    schema = parse_schema(SCHEMA.format(static=""))
    document = Statements(schema).document([{**AT, **STATEMENTS["both, 4.x"][0]}])
    assert MUTATIONS["both, 5.x"].hex() == encode_mutation(document, schema, 13).hex()


def test_what_a_statement_does_not_say_is_counted_up() -> None:
    """Each statement is a microsecond after the one before."""
    made = Statements(parse_schema(SCHEMA.format(static="")))
    documents = [made.document([{"insert": USERS, "values": ROW}]) for _ in range(3)]
    times = [d["updates"][0]["items"][0]["liveness"]["ts"] for d in documents]
    assert [NOW_US, NOW_US + 1, NOW_US + 2] == times


def test_a_batch_is_one_update_of_each_table() -> None:
    """Rows of one clustering are joined, others stand one after the other."""
    made = Statements(parse_schema(SCHEMA.format(static="")))
    document = made.document(
        [
            {"insert": USERS, "values": {**ROW, "age": 1}},
            {"update": USERS, "key": ROW, "set": {"name": "Ann"}},
            {"delete": USERS, "key": {"id": 7, "seq": 2}, "columns": ["age"]},
            {"delete": USERS, "key": {"id": 7, "seq": 3}, "elements": {"tags": ["a"]}},
        ]
    )
    (update,) = document["updates"]
    columns = [list(item["columns"]) for item in update["items"]]
    assert [["age", "name"], ["age"], ["tags"]] == columns
    assert "tombstone" in update["items"][2]["columns"]["tags"]["cells"][0]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ({"insret": USERS}, "expected one of insert, update, delete"),
        ({"insert": "shop.none", "values": ROW}, "shop.none is not in the schema"),
        ({"insert": USERS, "value": ROW}, "insert has no value"),
        ({"insert": USERS, "values": {"id": 7, "sq": 1}}, "has no column sq"),
        ({"insert": USERS, "values": {"seq": 7}}, "id is missing"),
        ({"insert": USERS, "values": {"id": 7, "age": 1}}, "the clustering is missing"),
        ({"insert": USERS, "values": {**ROW, "age": "x"}}, "expected a value of int, found 'x'"),
        ({"update": USERS, "key": ROW, "add": {"age": [1]}}, "age is not a collection"),
        ({"update": USERS, "key": ROW, "set": {"seq": 1}}, "no column seq that can be written"),
    ],
)
def test_mistakes_are_named(statement: dict[str, Any], message: str) -> None:
    """With what there is, never as an error of Python's."""
    with pytest.raises(ScriptError, match=message):
        raw([statement])


def test_a_batch_has_one_partition() -> None:
    """Cassandra makes one mutation of each partition."""
    with pytest.raises(ScriptError, match="same partition key"):
        raw([{"insert": USERS, "values": ROW}, {"insert": USERS, "values": {"id": 8, "seq": 1}}])

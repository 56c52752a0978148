"""The class of a table's columns has Python's types, and their values are exact."""

from decimal import Decimal
from ipaddress import ip_address
from uuid import UUID

import msgspec
import pytest

from headrace.connector.serde.avro_types import definitions, field_of
from headrace.connector.streams.columns import Columns
from headrace.sources.cassandra.encode.avro_schema import value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema

DDL = """
CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE s.place (street text, "zip-code" int);
CREATE TABLE s.t (
    k uuid PRIMARY KEY, amount decimal, big varint, host inet, day date, at timestamp,
    home frozen<place>, pair frozen<tuple<int, decimal>>, hosts frozen<set<inet>>,
    rates frozen<map<text, decimal>>, tags set<text>, "from" text, "a-b" int
) WITH ID = 00000000-0000-1000-8000-000000000001;
"""
ID = UUID("12345678-1234-5678-1234-567812345678")
DECIMAL = {
    "scale": 2,
    "unscaled": (-1234567890123456789012345678901234567890).to_bytes(17, "big", signed=True),
}


@pytest.fixture
def columns() -> Columns:
    """Return the class of the table."""
    (table,) = parse_schema(DDL).tables.values()
    schema = value_schema(table)
    payload = field_of(schema, "payload")
    assert payload is not None
    return Columns(payload["type"], definitions(schema))


def test_values_are_of_pythons_types(columns: Columns) -> None:
    """Exactly: a decimal of forty digits keeps them all, and a null stays one."""
    tags = {
        "mode": "merge",
        "deletedAt": None,
        "cells": [{"key": "x", "removed": False, "timestampMicros": 7}],
    }
    row = columns.make(
        {
            "k": str(ID),
            "amount": DECIMAL,
            "big": (-300).to_bytes(2, "big", signed=True),
            "host": "::1",
            "day": -800_000,
            "at": 1 << 60,
            "home": {"street": "Elm"},
            "pair": {"field_0": 1, "field_1": None},
            "hosts": ["10.0.0.1"],
            "rates": [{"key": "eur", "value": {"scale": -3, "unscaled": b"\x02"}}],
            "tags": tags,
            "from": "here",
        }
    )

    assert ID == row.k
    assert Decimal("-12345678901234567890123456789012345678.90") == row.amount
    assert (-300, ip_address("::1"), -800_000, 1 << 60) == (row.big, row.host, row.day, row.at)
    assert ("Elm", 1, None) == (row.home.street, row.pair.field_0, row.pair.field_1)
    assert [ip_address("10.0.0.1")] == row.hosts
    assert [("eur", Decimal("2E+3"))] == [(each.key, each.value) for each in row.rates]
    assert ("merge", ["x"]) == (row.tags.mode, [cell.key for cell in row.tags.cells])
    assert "here" == row.from_
    assert (
        getattr(row, columns.attributes[next(n for n in columns.attributes if n.startswith("a_b"))])
        is None
    )


def test_the_class_states_its_types(columns: Columns) -> None:
    """A program can look them up; each may be None."""
    hints = {field.name: field.type for field in msgspec.structs.fields(columns.type)}

    assert UUID | None == hints["k"]
    assert Decimal | None == hints["amount"]
    assert int | None == hints["big"]


def test_json_has_the_names_of_cql(columns: Columns) -> None:
    """All that Python and Avro allow in names."""
    text = msgspec.json.encode(columns.make({"from": "here"}))

    assert {"from", "a-b", "k"} < msgspec.json.decode(text).keys()

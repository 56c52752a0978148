"""States of rows of a table with columns of all types, made by chance."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from headrace.connector.rows.folding import NEVER, State, TableView
from headrace.connector.serde.avro_types import AvroType, field_of, is_complex
from helpers.histories.whole_changes import schema_of

DDL: Final = """
CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TYPE k.money (amount int, unit text);
CREATE TABLE k.t (id int, at timestamp, s1 text static, s2 set<int> static, a ascii, b bigint,
  c blob, d boolean, e date, f decimal, g double, h float, i inet, j int, k smallint, l text,
  m time, n timestamp, o timeuuid, p tinyint, q uuid, r varint, s duration,
  t frozen<list<int>>, u frozen<map<text, timestamp>>, v tuple<int, text, float>,
  w frozen<money>, x set<date>, y map<int, text>, z list<double>, price money,
  sd set<double>, si set<inet>, mu map<uuid, int>,
  "Odd ""name" int, PRIMARY KEY (id, at))
WITH ID = 00000000-0000-1000-8000-000000000003 AND cdc = true;
"""
SCHEMA: Final = schema_of(DDL)
VIEW: Final = TableView(SCHEMA)
SECONDS: Final = st.sampled_from((0, 50, 100))
_TIMES: Final = st.sampled_from((-3, 5, 6, 1 << 40))
_EXPIRIES: Final = st.sampled_from((None, None, None, 50, 60, 1 << 33))
_PACK: Final = msgspec.msgpack.Encoder(order="deterministic")
_LONG: Final = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-62_135_596_800_001, 253_402_300_800_000),  # The bounds of Python's dates.
)
_DAYS: Final = st.one_of(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-719_163, 2_932_897))
_PLAIN: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _DAYS,
    "long": _LONG,
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=40),
    "string": st.text(max_size=40),
}

_OF_KEYS: Final[Mapping[str, st.SearchStrategy[str]]] = {
    "inet": st.ip_addresses().map(str),
    "uuid": st.uuids().map(str),
}


def values(kind: AvroType) -> st.SearchStrategy[Any]:
    """Return values of an opened type."""
    if isinstance(kind, str):
        return _PLAIN[kind]
    if isinstance(kind, list):
        return st.one_of([values(each) for each in kind])
    name = kind.get("cqlType") or kind.get("logicalType")
    if name in _OF_KEYS:
        return _OF_KEYS[name]
    match kind["type"]:
        case "record":
            names = [field["name"] for field in kind["fields"]]
            parts = st.tuples(*(values(field["type"]) for field in kind["fields"]))
            return parts.map(lambda made: dict(zip(names, made, strict=True)))
        case "array":
            return st.lists(values(kind["items"]), max_size=3)
        case name:
            return _PLAIN[name]


def states(names: list[str]) -> st.SearchStrategy[State]:
    """Return states with some of these columns."""
    columns = st.fixed_dictionaries({}, optional={name: _column(name) for name in names})
    known = {"deleted": st.sampled_from((NEVER, -3, 5)), "columns": columns}
    live = st.tuples(_TIMES, st.booleans(), st.sampled_from((0, 50, 1 << 33)))
    return st.fixed_dictionaries(known, optional={"live": live})


def _column(name: str) -> st.SearchStrategy[Any]:
    kind = VIEW.types[name]
    if not is_complex(kind):
        return _cell(st.tuples(st.none(), st.one_of(st.none(), values(kind))))
    fields = field_of(kind, "fields")
    if fields is not None:
        contents = [
            st.tuples(st.just(f["name"]), values(_inner(f["type"][1], "value")))
            for f in fields["type"]["fields"]
        ]
        content = st.one_of(contents)
    else:
        of_cell = _inner(kind, "cells")["items"]
        value = field_of(of_cell, "value")
        content = st.tuples(
            values(_inner(of_cell, "key")), st.none() if value is None else values(value["type"])
        )
    if str(kind.get("cqlType")).startswith("list<"):
        content = st.tuples(st.uuids(version=1).map(str), values(_inner(of_cell, "value")))
    cells = st.lists(st.tuples(content, _cell(st.just(None))), max_size=4).map(_by_path)
    return st.fixed_dictionaries({"deleted": st.sampled_from((NEVER, 5)), "cells": cells})


def _by_path(drawn: list[tuple[Any, list[Any]]]) -> dict[bytes, Any]:
    """Return cells by their keys; one without content is deleted."""
    made = {}
    for number, (content, (written, expires, _)) in enumerate(drawn):
        made[_PACK.encode(content[0])] = [written, expires, content if number != 1 else None]
    return made


def _cell(content: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.builds(
        lambda *parts: [*parts], _TIMES, _EXPIRIES, st.one_of(content, content, st.none())
    )


def _inner(record: AvroType, name: str) -> AvroType:
    found = field_of(record, name)
    assert found is not None
    return found["type"]

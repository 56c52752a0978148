"""Values that were read from messages become typed columns, and paths the bytes that they were."""

from decimal import Decimal

import pytest

from headrace.plugins.records.columns import ColumnKind, ColumnType, TableType, bounds_type
from headrace.sources.cassandra.columns.column_types import column_type
from headrace.sources.cassandra.columns.from_avro import encoded, table_of, typed_values
from headrace.sources.cassandra.encode.avro_objects import AVRO
from headrace.sources.cassandra.mutation.values import BadValueError, decode
from headrace.sources.cassandra.schema.types import parse_type

TEXT = (
    'CREATE TABLE ks.t (k int, "C d" text, v set<int>, PRIMARY KEY ((k), "C d"))'
    ' WITH CLUSTERING ORDER BY ("C d" DESC);\n'
)
TARGET = TableType("ks.t", ColumnType(ColumnKind.STRUCT), None)


@pytest.mark.parametrize(
    ("cql", "raw"),
    [
        ("ascii", b"a"),
        ("bigint", b"\xff" * 8),
        ("blob", b"\0\1"),
        ("boolean", b"\1"),
        ("date", b"\x7f\xff\xff\xff"),
        ("decimal", b"\xff\xff\xff\xfe\7"),
        ("double", b"\x40\x09\x21\xfb\x54\x44\x2d\x18"),
        ("duration", b"\2\4\xff" + b"\xff" * 7 + b"\xfe"),
        ("float", b"\x7f\x80\0\0"),
        ("inet", b"\x20\1" + bytes(13) + b"\1"),
        ("inet", bytes(10) + b"\xff\xff\1\2\3\4"),
        ("smallint", b"\x80\0"),
        ("text", "ä".encode()),
        ("time", b"\0" * 7 + b"\1"),
        ("timestamp", b"\x80" + bytes(7)),
        ("timeuuid", bytes(range(16))),
        ("tinyint", b"\x80"),
        ("varint", b"\0\x80"),
        ("'org.example.Odd'", b"x"),
        ("frozen<list<int>>", b"\0\0\0\2\0\0\0\4\0\0\0\1\xff\xff\xff\xff"),
        ("frozen<map<text, tinyint>>", b"\0\0\0\1\0\0\0\1a\0\0\0\1\7"),
        ("tuple<int, text>", b"\xff\xff\xff\xff\0\0\0\1x"),
        ("vector<float, 2>", b"\x3f\x80\0\0" * 2),
        ("vector<text, 2>", b"\1a\2bc"),
    ],
)
def test_bytes_come_back(cql: str, raw: bytes) -> None:
    """The bytes of every type are restored from their Avro value."""
    kind = parse_type(cql)

    assert raw == encoded(kind, decode(kind, raw, AVRO))


def test_a_table_of_its_text() -> None:
    """The canonical text of a table gives a table with the same text."""
    unordered = TEXT.replace(' WITH CLUSTERING ORDER BY ("C d" DESC)', "")

    assert [TEXT, unordered] == [table_of(text, "ks.t").text for text in (TEXT, unordered)]


@pytest.mark.parametrize(
    ("planned", "cql", "given", "found"),
    [
        ("timestamp", "timestamp", -1, -1000),
        ("timestamp", "timestamp", 1 << 62, None),
        ("decimal", "decimal", {"scale": -2, "unscaled": b"\7"}, Decimal(700)),
        ("decimal", "decimal", {"scale": 19, "unscaled": b"\1"}, None),
        ("varint", "varint", (10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1)),
        ("varint", "varint", (10**38).to_bytes(16, "big"), None),
        ("int", "text", "x", None),
        ("set<int>", "text", "x", None),
        ("text", "set<int>", {"deletedAt": 1, "cells": []}, None),
        (
            "frozen<map<timestamp, int>>",
            "frozen<map<timestamp, int>>",
            [{"key": 1 << 62, "value": 1}],
            None,
        ),
        ("frozen<list<timestamp>>", "frozen<list<timestamp>>", [1, 1 << 62], [1000, None]),
        (
            "tuple<int, text>",
            "tuple<int, int>",
            {"field_0": 1, "field_1": 2},
            {"_1": 1, "_2": None},
        ),
    ],
)
def test_what_a_column_cannot_hold(planned: str, cql: str, given: object, found: object) -> None:
    """A value that does not fit its column is null, and the column reported; others are exact."""
    fields = (("k", ColumnType(ColumnKind.INT32)), ("v", column_type(parse_type(planned))))
    target = TableType("ks.t", ColumnType(ColumnKind.STRUCT, fields), None)
    text = f"CREATE TABLE ks.t (k int PRIMARY KEY, v {cql});\n"

    made = typed_values(target, [_document(given)], {b"1": text})

    unfit = ["v"] if "None" in repr(found) else []
    assert (({"k": 1, "v": found},), (unfit,)) == (made.row, made.unfit)


def test_a_bound_of_a_column_that_was_renamed() -> None:
    """The columns of a range's bounds are known by their places."""
    whole = bounds_type([("new", ColumnType(ColumnKind.TEXT))])
    target = TableType("ks.t", ColumnType(ColumnKind.STRUCT), whole)
    start = {"values": {"C_d_4bb6f280": "x"}, "count": 1, "inclusive": True}
    range_ = {"range": {"start": start, "end": None}, "operationType": "DELETE_RANGE"}
    payload = {"k": 1, "C_d_4bb6f280": None, "v": None}
    given = {**_document(None), **range_, "payload": payload, "updateFields": []}

    made = typed_values(target, [given], {b"1": TEXT})

    bound = {"values": {"new": "x"}, "count": 1, "inclusive": True}
    assert ({"start": bound, "end": None},) == made.bounds


def _document(given: object) -> dict[str, object]:
    """Return the value of a message that writes the column `v`."""
    return {
        "timestampMicros": 1,
        "operationType": "UPDATE",
        "schemaUuid": b"1",
        "truncatedFields": [],
        "isStatic": False,
        "ttl": None,
        "expires": None,
        "updateFields": ["v"],
        "payload": {"k": 1, "v": given},
        "cells": [],
        "range": None,
        "mutation": bytes(16),
        "index": 0,
        "copies": 1,
        "node": "n",
        "segment": 1,
        "position": 2,
    }


def test_a_value_of_another_envelope() -> None:
    """What is not as the envelope has it is refused by name."""
    with pytest.raises(BadValueError, match="not as `cep44` has it"):
        typed_values(TARGET, [{"schemaUuid": b"1", "payload": {}}], {b"1": TEXT})

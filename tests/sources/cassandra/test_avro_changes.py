"""Values that were read from messages become the bytes that they were made of."""

import pytest

from headrace.plugins.columns import ColumnKind, ColumnType, TableType
from headrace.sources.cassandra.avro import AVRO
from headrace.sources.cassandra.avro_changes import encoded, table_of, typed_values
from headrace.sources.cassandra.types import parse_type
from headrace.sources.cassandra.values import BadValueError, decode

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
    """The bytes of every type are made anew of what Avro has of them."""
    kind = parse_type(cql)

    assert raw == encoded(kind, decode(kind, raw, AVRO))


def test_a_table_of_its_text() -> None:
    """The canonical text of a table gives a table with the same text."""
    unordered = TEXT.replace(' WITH CLUSTERING ORDER BY ("C d" DESC)', "")

    assert [TEXT, unordered] == [table_of(text, "ks.t").text for text in (TEXT, unordered)]


def test_a_value_of_another_envelope() -> None:
    """What is not as the envelope has it is refused by name."""
    with pytest.raises(BadValueError, match="not as `cep44` has it"):
        typed_values(TARGET, [{"schemaUuid": b"1", "payload": {}}], {b"1": TEXT})

"""Values are encoded as Cassandra does: the format's examples, and every value recorded."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.values import encode
from headrace.sources.cassandra.mutation.json_values import to_json
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.types import CqlType, parse_type
from helpers.recordings.corpora import recording

EXAMPLES = [
    ("tinyint", -2, "fe"),
    ("smallint", -2, "fffe"),
    ("double", -0.1, "bfb999999999999a"),
    ("varint", 128, "0080"),
    ("varint", -128, "80"),
    ("varint", 0, "00"),
    ("decimal", "-123.45", "00000002cfc7"),
    ("decimal", "1E+3", "fffffffd01"),
    ("inet", "127.0.0.1", "7f000001"),
    ("date", "2023-11-14", "80004cdb"),
    ("date", "1969-12-31", "7fffffff"),
    ("time", "13:14:15.000000016", "00002b578b58c610"),
    ("timestamp", "2023-11-14T22:13:20.123Z", "0000018bcfe5687b"),
    ("timestamp", -1, "ffffffffffffffff"),
    ("duration", "1mo2d3ns", "020406"),
    ("duration", "-1mo2d1h", "0103fc068c61713fff"),
    ("duration", "1y2w3us", "181c9770"),
    ("float", "NaN", "7fc00000"),
    ("frozen<list<int>>", [1, 2], "00000002000000040000000100000004" + "00000002"),
    ("frozen<set<text>>", ["b", "a"], "0000000200000001610000000162"),
    ("frozen<map<int, text>>", {"10": "k", "9": "l"}, None),
    ("tuple<int, text>", [1, None], "0000000400000001ffffffff"),
    ("vector<float, 2>", [1.0, -2.0], "3f800000c0000000"),
    ("vector<text, 2>", ["a", "bc"], "0161026263"),
    ("vector<smallint, 2>", [1, 2], "020001020002"),
    ("'org.example.Own'", "0xcafe", "cafe"),
]


@pytest.mark.parametrize(("text", "given", "expected"), EXAMPLES)
def test_examples(text: str, given: object, expected: str | None) -> None:
    """Sets and maps are sorted as Cassandra sorts them."""
    sorted_keys = "0000000200000004000000090000000" + "16c000000040000000a000000016b"
    assert (expected or sorted_keys) == encode(parse_type(text), given).hex()


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("int", "x"),
        ("int", 1.5),
        ("int", True),
        ("int", 1 << 31),
        ("text", 7),
        ("boolean", 1),
        ("blob", "cafe"),
        ("uuid", "7"),
        ("inet", "1.2.3"),
        ("date", "yesterday"),
        ("time", "25"),
        ("duration", "1 day"),
        ("decimal", "one"),
        ("frozen<list<int>>", "12"),
        ("vector<int, 2>", [1]),
        ("tuple<int>", [1, 2]),
        ("frozen<map<int, int>>", [1]),
    ],
)
def test_what_is_no_value_is_named(text: str, given: object) -> None:
    """With the type and what was found."""
    with pytest.raises(ScriptError, match="expected a value of"):
        encode(parse_type(text), given)


def test_types_of_any_depth_that_the_schema_allows() -> None:
    """A value within values, 64 deep, is written and read; cut short anywhere it is refused."""
    depth = 63
    deep = parse_type("tuple<" * depth + "int" + ">" * depth)
    given: object = 7
    for _ in range(depth):
        given = [given]

    raw = encode(deep, given)

    assert given == to_json(deep, raw)
    for length in range(1, len(raw), 7):
        with pytest.raises(BadValueError):
            to_json(deep, raw[:length])


def recorded(name: str) -> Iterator[tuple[CqlType, bytes]]:
    """Yield the values of a recording's cells, with their types."""
    folder = recording(name)
    tables = parse_schema((folder / "schema.cql").read_text()).tables.values()
    types = {(str(t.table_id), c.name): c.type for t in tables for c in t.columns}
    for line in (folder / "oracle.jsonl").read_text().splitlines():
        for update in json.loads(line)["updates"]:
            for item in update["items"]:
                for column, given in item.get("columns", {}).items():
                    yield from cells(types[update["id"], column], given)


def cells(cql_type: CqlType, given: dict[str, Any]) -> Iterator[tuple[CqlType, bytes]]:
    """Yield the values of a column's cells."""
    for cell in given.get("cells", [given]):
        path = bytes.fromhex(cell["path"]) if "path" in cell else None
        if cell.get("value"):
            yield cql_type.cell_type(path), bytes.fromhex(cell["value"])


@pytest.mark.parametrize("name", ["4.0-types", "5.0-types", "6.0-v9-types"])
def test_what_was_recorded_is_written_again(name: str) -> None:
    """A value read as JSON and encoded again has the bytes that Cassandra wrote, of every type."""
    seen = set()
    for cql_type, raw in recorded(name):
        assert raw == encode(cql_type, to_json(cql_type, raw)), cql_type
        seen.add(cql_type.name)
    assert len(seen) > 20

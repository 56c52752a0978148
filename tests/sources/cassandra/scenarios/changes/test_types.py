"""Scenarios T: every value of every type, in every place of a row, is read as it was written."""

import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.encode.avro_schema import value_schema
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.mutation.change_json import change_document
from headrace.sources.cassandra.mutation.changes import MutationDecoder
from headrace.sources.cassandra.mutation.json_values import to_json
from headrace.sources.cassandra.mutation.values import to_python
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.types import parse_type
from helpers.logs.scenes import NOW_US, Scene

UDT = "CREATE TYPE s.u (a int, b text, c frozen<list<int>>)"
I8, I16, I32, I64 = ((-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32, 64))
# Values as SELECT JSON returns them, by type.
VALUES: dict[str, Sequence[Any]] = {
    "ascii": ["", "plain", "\x01\x7f'\""],
    "bigint": [*I64, 0, -1],
    "blob": ["0x", "0x00", "0x" + "ff" * 300],
    "boolean": [True, False],
    "date": ["1970-01-01", "0001-01-01", "9999-12-31", 0, (1 << 32) - 1],
    "decimal": ["-123.45", "1E+300", "0", "1E-2147483647", "1E+2147483648", "9" * 40 + ".5"],
    "double": [0.0, -0.0, 5e-324, 1.7976931348623157e308, "NaN", "Infinity", "-Infinity"],
    "duration": ["1mo2d3ns", "-1mo2d3ns", "0ns", "178956970y7mo2147483647d", "2562047h47m16s"],
    "float": [1.5, -0.0, 1e-45, 3.4028235e38, "NaN", "Infinity"],
    "inet": ["127.0.0.1", "255.255.255.255", "::1", "2001:db8::ff00:42:8329"],
    "int": [*I32, 0],
    "smallint": [*I16, -1],
    "text": ["", "käse 日本語 😀", "\x00\U0010ffff", "x" * 70_000],
    "time": ["00:00:00.000000000", "23:59:59.999999999"],
    "timestamp": ["1970-01-01 00:00:00.000Z", "1969-12-31 23:59:59.999Z", *I64],
    "timeuuid": ["5f8c1a40-83a5-11ee-b962-0242ac120002"],
    "tinyint": [*I8, -2],
    "uuid": ["00000000-0000-0000-0000-000000000000", "123e4567-e89b-42d3-a456-426614174000"],
    "varint": [0, -1, 128, -(1 << 500), (1 << 500) - 1],
    "frozen<list<int>>": [[], [1, 2, 1]],
    "frozen<set<text>>": [[], ["a", "b"]],
    "frozen<map<text, int>>": [{}, {"a": 1, "b": -1}],
    "tuple<int, text>": [[1, "a"], [None, "a"], [1, None]],
    "frozen<u>": [{"a": 1, "b": "x", "c": [1]}, {"a": None, "b": None, "c": None}],
    "vector<float, 3>": [[1.0, -2.5, 0.0]],
    "vector<vector<smallint, 2>, 2>": [[[1, 2], [3, -4]]],
    "vector<frozen<list<text>>, 2>": [[["a"], []]],
}
NOT_IN_KEYS = {"duration"}
KEY_PART_BYTES_MAX = 1 << 16
CASES = [(name, value) for name, values in VALUES.items() for value in values]
IDS = [f"{name} {str(value)[:20]}" for name, value in CASES]


def one_column(cql_type: str) -> Scene:
    """Return a table whose only regular column is of a type."""
    return Scene(UDT, f"CREATE TABLE s.t (k int PRIMARY KEY, v {cql_type})")


def exact(value: Any) -> str:  # noqa: ANN401 (JSON)
    """Return JSON text, in which -0.0 and 0.0 differ, and the order of members counts."""
    return json.dumps(value)


def written(scene: Scene, value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return the value of the column `v` of the change when *value* is written to it."""
    columns = scene.columns({"insert": "s.t", "values": {"k": 1, "v": value}, "timestamp": NOW_US})
    assert NOW_US == columns["v"]["ts"]
    return columns["v"]["value"]


@pytest.mark.parametrize(("cql_type", "value"), CASES, ids=IDS)
def test_t01_scalar_round_trip(cql_type: str, value: object) -> None:
    """T01: a value, the least, the greatest and an empty one are read as they were written."""
    assert exact(value) == exact(written(one_column(cql_type), value))


def test_t01_null_of_every_type() -> None:
    """T01: null of every type is read as null."""
    for cql_type in VALUES:
        assert written(one_column(cql_type), None) is None


DECIMALS = {
    "negative": (-12345, 2, "-123.45"),
    "forty digits": (10**40 - 1, 20, "9" * 20 + "." + "9" * 20),
    "the largest scale": (1, 2**31 - 1, "1E-2147483647"),
    "the smallest scale": (1, -(2**31), "1E+2147483648"),
    "trailing zeros": (1000, 2, "10.00"),
}


@pytest.mark.parametrize("name", DECIMALS)
def test_t02_decimals_are_exact(name: str) -> None:
    """T02: a decimal keeps every digit and its scale, as a string and as scale and digits."""
    unscaled, scale, expected = DECIMALS[name]
    raw = struct.pack(">i", scale) + unscaled.to_bytes(20, "big", signed=True)
    assert expected == to_json(parse_type("decimal"), raw)
    found = to_python(parse_type("decimal"), raw)
    sign, digits, exponent = found.as_tuple()  # type: ignore[attr-defined]
    assert (unscaled, -scale) == (int("".join(map(str, digits))) * (-1) ** sign, exponent)


def test_t03_varints_never_overflow() -> None:
    """T03: a varint of 10,000 bytes is exact, as a number in Python and as its bytes in JSON."""
    varint = parse_type("varint")
    for value in (1 << 64, -(1 << 64), (1 << 79_992) - 1, -(1 << 79_992)):
        raw = value.to_bytes(10_000, "big", signed=True)
        assert value == to_python(varint, raw)
        assert f"0x{raw.hex()}" == to_json(varint, raw)
    assert exact(1 << 64) == exact(written(one_column("varint"), 1 << 64))


YEARS = {
    "the epoch": (1 << 31, "1970-01-01"),
    "the first text": ((1 << 31) - 719_162, "0001-01-01"),
    "the last text": ((1 << 31) + 2_932_896, "9999-12-31"),
    "the year -5,877,641": (0, 0),
    "the year 5,881,580": ((1 << 32) - 1, (1 << 32) - 1),
}


@pytest.mark.parametrize("name", YEARS)
def test_t04_dates_of_all_years(name: str) -> None:
    """T04: a date is a string where CQL can write it, and otherwise the number of days."""
    stored, expected = YEARS[name]
    raw = stored.to_bytes(4, "big")
    assert expected == to_json(parse_type("date"), raw)
    assert exact(expected) == exact(written(one_column("date"), expected))


def test_t05_times_keep_nanoseconds() -> None:
    """T05: a time keeps the last nanosecond of a day."""
    assert exact("23:59:59.999999999") == exact(written(one_column("time"), "23:59:59.999999999"))


def test_t06_timestamps_keep_milliseconds() -> None:
    """T06: timestamps before 1970 and in the far future are exact."""
    for value in ("1969-12-31 23:59:59.999Z", "9999-12-31 23:59:59.999Z", *I64):
        assert exact(value) == exact(written(one_column("timestamp"), value))


def test_t07_uuids_are_canonical() -> None:
    """T07: UUIDs are in lower case with hyphens."""
    text = "5f8c1a40-83a5-11ee-b962-0242ac120002"
    for cql_type in ("uuid", "timeuuid"):
        assert exact(text) == exact(written(one_column(cql_type), text.upper()))


def test_t08_addresses_have_no_names() -> None:
    """T08: addresses of both kinds are canonical strings, never host names."""
    scene = one_column("inet")
    assert exact("127.0.0.1") == exact(written(scene, "127.0.0.1"))
    assert exact("2001:db8::1") == exact(written(scene, "2001:0db8:0000:0000:0000:0000:0000:0001"))


def test_t09_durations_keep_their_parts() -> None:
    """T09: months, days and nanoseconds stay separate, and have the same sign."""
    duration = parse_type("duration")
    assert (1, 2, 3) == to_python(duration, bytes.fromhex("020406"))
    assert (-1, -2, -3) == to_python(duration, bytes.fromhex("010305"))
    assert exact("-1mo2d3ns") == exact(written(one_column("duration"), "-1mo2d3ns"))


def test_t10_tuples_keep_positions() -> None:
    """T10: a null in a tuple keeps its position, also the last one."""
    scene = one_column("tuple<int, text, boolean>")
    for value in ([1, None, True], [None, None, None], [None, "x", None]):
        assert exact(value) == exact(written(scene, value))


def test_t11_structures_are_kept() -> None:
    """T11: tuples, lists and UDTs within each other keep their structure."""
    scene = one_column("frozen<list<tuple<frozen<u>, frozen<map<text, frozen<list<int>>>>>>>")
    value = [[{"a": 1, "b": None, "c": [2]}, {"k": [3, 4], "l": []}], [None, None]]
    assert exact(value) == exact(written(scene, value))


WRAPPED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "list": ("frozen<list<{}>>", lambda value: [value]),
    "set": ("frozen<set<{}>>", lambda value: [value]),
    "map value": ("frozen<map<int, {}>>", lambda value: {"1": value}),
    "tuple": ("tuple<{}, int>", lambda value: [value, None]),
    "vector": ("vector<{}, 1>", lambda value: [value]),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("cql_type", ["int", "text", "smallint", "duration", "frozen<u>"])
def test_t11_eight_levels_deep(name: str, cql_type: str) -> None:
    """T11: a value is the same under eight levels of any kind of nesting."""
    text, wrap = WRAPPED[name]
    value: Any = VALUES[cql_type][0]
    for _ in range(8):
        cql_type, value = text.format(cql_type), wrap(value)
    assert exact(value) == exact(written(one_column(cql_type), value))


def test_t11_eight_kinds_deep() -> None:
    """T11: eight levels of different kinds, with a map's key among them, keep the value."""
    cql_type: str = "int"
    value: Any = 7
    for text, wrap in (*WRAPPED.values(), WRAPPED["tuple"], WRAPPED["list"]):
        cql_type, value = text.format(cql_type), wrap(value)
    cql_type = f"frozen<map<{cql_type}, int>>"
    assert exact({json.dumps(value): 1}) == exact(
        written(one_column(cql_type), {json.dumps(value): 1})
    )


@pytest.mark.parametrize("cql_type", ["text", "timestamp", "uuid", "int", "frozen<list<int>>"])
def test_t12_reversed_clustering_columns(cql_type: str) -> None:
    """T12: a descending column has the same values as an ascending one."""
    table = f"CREATE TABLE s.t (k int, c {cql_type}, PRIMARY KEY (k, c))"
    ascending = Scene(UDT, table)
    descending = Scene(UDT, f"{table} WITH CLUSTERING ORDER BY (c DESC)")
    for value in VALUES[cql_type]:
        step = {"insert": "s.t", "values": {"k": 1, "c": value}}
        found = descending.only(step)
        assert ascending.only(step) == found
        assert exact({"c": value}) == exact(found["clustering"])


EVERYWHERE = [
    (name, value)
    for name, value in CASES
    if name not in NOT_IN_KEYS and len(str(value)) < KEY_PART_BYTES_MAX
]


@pytest.mark.parametrize(
    ("cql_type", "value"), EVERYWHERE, ids=[f"{n} {str(v)[:20]}" for n, v in EVERYWHERE]
)
def test_t13_every_type_everywhere(cql_type: str, value: object) -> None:
    """T13: a value is the same as partition key, alone or composite, clustering, regular, static.

    It is also the same as an element of a list or set, as key and value of a map, and as a field of
    a UDT, where these are not frozen.
    """
    frozen = f"CREATE TYPE s.w (f {cql_type})"
    scene = Scene(
        UDT,
        frozen,
        f"CREATE TABLE s.a (k {cql_type} PRIMARY KEY)",
        f"CREATE TABLE s.t (k1 {cql_type}, k2 int, c1 int, c2 {cql_type}, s {cql_type} static,"
        f" v {cql_type}, l list<{cql_type}>, e set<{cql_type}>, m map<{cql_type}, {cql_type}>,"
        " u w, PRIMARY KEY ((k1, k2), c1, c2))",
    )
    assert exact({"k": value}) == exact(
        scene.only({"insert": "s.a", "values": {"k": value}})["key"]
    )
    key = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    values = {"k1": value, "k2": 2, "c1": 1, "c2": value, "s": value, "v": value}
    several = {"l": [value], "e": [value], "m": {key: value}, "u": {"f": value}}
    static, row = scene.documents({"insert": "s.t", "values": values | several})
    assert exact({"k1": value, "k2": 2}) == exact(row["key"])
    assert exact({"c1": 1, "c2": value}) == exact(row["clustering"])
    assert exact(value) == exact(static["columns"]["s"]["value"])
    assert exact(value) == exact(row["columns"]["v"]["value"])
    for name, expected in several.items():
        assert exact(expected) == exact(row["columns"][name]["value"])


def test_t14_small_numbers_as_keys_keep_their_sign() -> None:
    """T14: a negative tinyint and smallint are negative as key columns."""
    scene = Scene("CREATE TABLE s.t (a tinyint, b smallint, c tinyint, PRIMARY KEY ((a, b), c))")
    found = scene.only({"insert": "s.t", "values": {"a": -128, "b": -32768, "c": -1}})
    assert ({"a": -128, "b": -32768}, {"c": -1}) == (found["key"], found["clustering"])


def test_t15_vectors() -> None:
    """T15: a vector is an array of its numbers, in their order, also a vector of vectors."""
    assert exact([1.0, -2.0, 3.5]) == exact(
        written(one_column("vector<float, 3>"), [1.0, -2.0, 3.5])
    )
    assert exact([[1.0, 2.0], [-1.0, 0.5]]) == exact(
        written(one_column("vector<vector<double, 2>, 2>"), [[1.0, 2.0], [-1.0, 0.5]])
    )
    assert exact(["", "long"]) == exact(written(one_column("vector<text, 2>"), ["", "long"]))


def test_t16_empty_null_and_missing_are_three_things() -> None:
    """T16: an empty value, null and a missing column are three different things in every type."""
    scene = Scene("CREATE TABLE s.t (k int PRIMARY KEY, a text, b blob, n int, u uuid)")
    update = scene.mutation({"update": "s.t", "key": {"k": 1}, "set": {"a": None, "b": "0x"}})
    (document,) = map(change_document, update.changes())
    ts = document["timestamp"]
    assert {"a": {"value": None, "ts": ts}, "b": {"value": "0x", "ts": ts}} == document["columns"]
    row = {"clustering": [], "columns": {"n": {"ts": 5, "value": ""}, "a": {"ts": 5, "value": ""}}}
    given = {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}
    empty = {"value": None, "ts": 5, "empty": True}
    assert {"n": empty, "a": {"value": "", "ts": 5}} == scene.columns(given)


def test_t16_nan_keeps_its_bits() -> None:
    """T16: NaN is shown as NaN, and the form of mutations keeps its bits."""
    scene = one_column("double")
    raw = "7ff8dead0000beef"
    row = {"clustering": [], "columns": {"v": {"ts": 5, "value": raw}}}
    step = {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}
    assert "NaN" == scene.columns(step)["v"]["value"]
    (column,) = scene.changes(step)[0].columns
    assert bytes.fromhex(raw) == column.cells[0].raw


def test_t17_avro_schema_of_every_type() -> None:
    """T17: fastavro accepts the schema of a table with a column of every type, frozen and not."""
    columns = ", ".join(f"c{i} {cql_type}" for i, cql_type in enumerate(VALUES))
    several = "l list<duration>, m map<int, frozen<u>>, e set<inet>, w u"
    scene = Scene(UDT, f"CREATE TABLE s.t (k int PRIMARY KEY, {columns}, {several})")
    (table,) = scene.schema.tables.values()
    schema: Any = value_schema(table)
    fastavro.parse_schema(json.loads(json.dumps(schema)))
    payload = next(f for f in schema["fields"] if f["name"] == "payload")["type"]["fields"]
    expected = {"k", "l", "m", "e", "w", *(f"c{i}" for i in range(len(VALUES)))}
    assert expected == {field["name"] for field in payload}


@given(st.lists(st.integers(1, 31), min_size=1, max_size=30))
def test_t18_types_without_number(depths: list[int]) -> None:
    """T18: any number of distinct frozen types is read and written, each as its own type."""
    for number, depth in enumerate(depths):
        text = "int"
        for level in range(depth):
            text = f"frozen<{('list', 'set')[(number >> level) & 1]}<{text}>>"
        assert text == str(parse_type(text))


NAMES = ["Mixed", "select", "with space", "käse", 'quo"te', "日本語", "a.b"]


def test_t19_names_are_kept() -> None:
    """T19: quoted, reserved and non-ASCII names are unchanged, in every part of a row."""
    quoted = {name: '"' + name.replace('"', '""') + '"' for name in NAMES}
    columns = ", ".join(f"{name} int" for name in quoted.values())
    key, clustering, *others = NAMES
    scene = Scene(
        f'CREATE TABLE "Key Space"."Ta ble" ({columns},'
        f" PRIMARY KEY ({quoted[key]}, {quoted[clustering]}))"
    )
    step = {"insert": "Key Space.Ta ble", "values": {name: i for i, name in enumerate(NAMES)}}
    found = scene.only(step)
    assert "Key Space.Ta ble" == found["table"]
    assert ({key: 0}, {clustering: 1}) == (found["key"], found["clustering"])
    assert set(others) == set(found["columns"])
    (table,) = scene.schema.tables.values()
    fastavro.parse_schema(json.loads(json.dumps(value_schema(table))))


def test_more_clustering_columns_than_a_header_holds() -> None:
    """Of forty clustering columns each keeps its value, empty and null ones too (5.2)."""
    names = [f"c{i:02}" for i in range(40)]
    columns = ", ".join(f"{name} text" for name in names)
    scene = Scene(f"CREATE TABLE s.t (k int, {columns}, PRIMARY KEY (k, {', '.join(names)}))")
    values = {name: (None, "", "x")[i % 3] for i, name in enumerate(names)}
    row = {
        "clustering": [None if v is None else v.encode().hex() for v in values.values()],
        "liveness": {"ts": 5},
        "columns": {},
    }
    document = {"updates": [{"table": "s.t", "key": "00000001", "items": [row]}]}
    decoder = MutationDecoder(Catalogue(scene.schema))
    raw = encode_mutation(document, scene.schema, 12)
    mutation = decoder.decode(raw, messaging=12, segment_id=1, position=1)
    (change,) = mutation.changes()
    assert values == change_document(change)["clustering"]

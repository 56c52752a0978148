"""Values of every type, compared with the public driver and with what recordings' writers meant."""

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from ipaddress import ip_address
from typing import Any
from uuid import UUID

import pytest
from cassandra import cqltypes, util
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.mutation.json_values import DIGIT_BYTES_MAX, to_json
from headrace.sources.cassandra.mutation.values import (
    BadValueError,
    Duration,
    inet_text,
    is_empty_value,
    partition_key_parts,
    to_python,
)
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.types import CqlType, parse_type
from helpers.recordings.corpora import recording
from helpers.settings.filled import filled

PROTOCOL = 4
RECORDINGS = ["4.0-types", "5.0-types", "6.0-v9-types", "5.0-random", "5.0-v8-random"]
DRIVER_CLASSES = {
    "ascii": cqltypes.AsciiType,
    "bigint": cqltypes.LongType,
    "blob": cqltypes.BytesType,
    "boolean": cqltypes.BooleanType,
    "date": cqltypes.SimpleDateType,
    "decimal": cqltypes.DecimalType,
    "double": cqltypes.DoubleType,
    "duration": cqltypes.DurationType,
    "float": cqltypes.FloatType,
    "inet": cqltypes.InetAddressType,
    "int": cqltypes.Int32Type,
    "list": cqltypes.ListType,
    "map": cqltypes.MapType,
    "set": cqltypes.SetType,
    "smallint": cqltypes.ShortType,
    "text": cqltypes.UTF8Type,
    "time": cqltypes.TimeType,
    "timestamp": cqltypes.DateType,
    "timeuuid": cqltypes.TimeUUIDType,
    "tinyint": cqltypes.ByteType,
    "tuple": cqltypes.TupleType,
    "uuid": cqltypes.UUIDType,
    "varint": cqltypes.IntegerType,
    "vector": cqltypes.VectorType,
}


def driver_type(cql_type: CqlType) -> Any:  # noqa: ANN401 (the driver has no types)
    """Return the driver's class for *cql_type*."""
    inner = [driver_type(argument) for argument in cql_type.arguments]
    if cql_type.is_udt:
        fields = [driver_type(field) for _name, field in cql_type.fields]
        names = [name for name, _type in cql_type.fields]
        return cqltypes.UserType.make_udt_class(cql_type.keyspace, cql_type.name, names, fields)
    if cql_type.name == "vector":
        return cqltypes.VectorType.apply_parameters([*inner, cql_type.dimension], None)
    made = DRIVER_CLASSES[cql_type.name]
    return made.apply_parameters(inner) if inner else made


def comparable(value: object) -> object:
    """Return the driver's value, or ours, in a form that both share."""
    simple: dict[type, Any] = {
        util.Date: lambda v: v.days_from_epoch,
        util.Time: lambda v: v.nanosecond_time,
        util.Duration: lambda v: (v.months, v.days, v.nanoseconds),
        Duration: tuple,
        date: lambda v: (v - date(1970, 1, 1)).days,
        datetime: lambda v: v.replace(tzinfo=UTC),
        float: lambda v: struct.pack(">d", v),
    }
    if type(value) in simple:
        return simple[type(value)](value)
    if isinstance(value, Mapping):
        return sorted((repr(comparable(k)), comparable(v)) for k, v in value.items())
    if hasattr(value, "_asdict"):
        return comparable(value._asdict())
    if isinstance(value, (frozenset, util.SortedSet)):
        return sorted(repr(comparable(item)) for item in value)
    if isinstance(value, (list, tuple)):
        return [comparable(item) for item in value]
    return value if isinstance(value, (int, str, bytes, UUID, Decimal, type(None))) else str(value)


def recorded(name: str) -> Iterator[tuple[CqlType, bytes, object]]:
    """Yield the type, bytes and meant value of all values written in a recording."""
    folder = recording(name)
    schema = parse_schema((folder / "schema.cql").read_text())
    tables = {t.name: {c.name: c.type for c in t.columns} for t in schema.tables.values()}
    for line in (folder / "truth.jsonl").read_text().splitlines():
        statement = json.loads(line)
        written = {**(statement.get("key") or {}), **(statement.get("set") or {})}
        for column, value in written.items():
            if isinstance(value, dict) and value.get("hex") is not None:
                raw = bytes.fromhex(value["hex"])
                yield tables[statement["table"]][column], raw, value["value"]


@pytest.mark.parametrize("name", RECORDINGS)
def test_python_values_are_the_drivers(name: str) -> None:
    """Every recorded value reads as the driver reads it."""
    compared = 0
    for cql_type, raw, _meant in recorded(name):
        if "counter" in str(cql_type) or is_empty_value(cql_type, raw):
            continue
        try:
            expected = driver_type(cql_type).deserialize(raw, PROTOCOL)
        except OverflowError:  # A timestamp beyond Python's years.
            continue
        assert comparable(expected) == comparable(to_python(cql_type, raw)), str(cql_type)
        compared += 1
    assert compared > 1_500


PLAIN_TYPES = {
    "ascii",
    "bigint",
    "boolean",
    "decimal",
    "inet",
    "int",
    "smallint",
    "text",
    "tinyint",
}
PLAIN_TYPES |= {"timeuuid", "uuid", "varint", "double"}


def is_plain(cql_type: CqlType) -> bool:
    """Say whether the recordings note a value of this type as SELECT JSON has it."""
    inner = [*cql_type.arguments, *(field for _name, field in cql_type.fields)]
    if cql_type.name == "map":
        return False
    return all(map(is_plain, inner)) if inner else cql_type.name in PLAIN_TYPES


@pytest.mark.parametrize("name", RECORDINGS)
def test_json_values_are_what_was_written(name: str) -> None:
    """Every recorded value of a type with one JSON form is what its statement wrote."""
    compared = 0
    for cql_type, raw, meant in recorded(name):
        if is_plain(cql_type) and raw and not isinstance(meant, str | float):
            assert meant == to_json(cql_type, raw), str(cql_type)
            compared += 1
    assert compared > 300


@pytest.mark.parametrize("name", ["4.0-types", "5.0-types"])
def test_text_is_cassandras(name: str) -> None:
    """Durations and decimals are written as Cassandra's own reader prints them."""
    folder = recording(name)
    schema = parse_schema((folder / "schema.cql").read_text())
    tables = {t.table_id: {c.name: c.type for c in t.columns} for t in schema.tables.values()}
    compared = 0
    for line in (folder / "oracle.jsonl").read_text().splitlines():
        for update in json.loads(line)["updates"]:
            types = tables[UUID(update["id"])]
            cells = [cell for item in update["items"] for cell in item.get("columns", {}).items()]
            for column, cell in cells:
                if str(types[column]) in ("duration", "decimal") and cell.get("value"):
                    raw = bytes.fromhex(cell["value"])
                    assert cell["text"] == to_json(types[column], raw)
                    compared += 1
    assert compared > 20


PYTHON = {
    "zero": ("int", "00000000", 0),
    "small": ("tinyint", "fe", -2),
    "any byte is true": ("boolean", "02", True),
    "varint": ("varint", "0080", 128),
    "decimal": ("decimal", "00000002cfc7", Decimal("-123.45")),
    "decimal with exponent": ("decimal", "fffffffd01", Decimal("1E+3")),
    "date": ("date", "80004cdb", date(2023, 11, 14)),
    "date beyond Python": ("date", "ffffffff", 2**31 - 1),
    "time": ("time", "00002b578b58c610", 47655000000016),
    "timestamp": ("timestamp", "0000018bcfe5687b", datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)),
    "timestamp beyond Python": ("timestamp", "7fffffffffffffff", 2**63 - 1),
    "duration": ("duration", "0103fc068c61713fff", Duration(-1, -2, -3_600_000_000_000)),
    "inet 4": ("inet", "7f000001", ip_address("127.0.0.1")),
    "inet 6": ("inet", f"{1:032x}", ip_address("::1")),
    "counter": (
        "counter",
        "00018000" + "aa" * 16 + "00060a24181e4000" + "0000000000000005",
        5,
    ),
    "counter of two shards": (
        "counter",
        "00018000" + 2 * ("aa" * 16 + "00060a24181e4000" + "0000000000000005"),
        10,
    ),
    "empty int": ("int", "", None),
    "empty text": ("text", "", ""),
    "empty blob": ("blob", "", b""),
    "empty list": ("list<int>", "00000000", []),
    "list": ("list<int>", "00000002000000040000000100000004ffffffff", [1, -1]),
    "set": ("set<text>", "000000020000000161" + "0000000162", frozenset("ab")),
    "set of lists": ("set<list<int>>", "0000000100000004" + "00000000", frozenset([()])),
    "map": ("map<text, int>", "00000001000000016b0000000400000007", {"k": 7}),
    "map of sets": (
        "map<frozen<map<int, int>>, int>",
        "0000000100000010" + "0000000100000004000000010000" + "0000" + "0000000400000007",
        {((1, None),): 7},
    ),
    "null in a tuple": ("tuple<int, text>", "0000000400000001ffffffff", (1, None)),
    "short tuple": ("tuple<int, text>", "0000000400000001", (1, None)),
    "empty tuple": ("tuple<int, text>", "", (None, None)),
    "empty int in a tuple": ("tuple<int, text>", "0000000000000000", (None, "")),
    "fixed vector": ("vector<float, 2>", "3f800000c0000000", [1.0, -2.0]),
    "vector of text": ("vector<text, 2>", "0161026263", ["a", "bc"]),
    "vector of smallint": ("vector<smallint, 2>", "020001020002", [1, 2]),
    "custom": ("'com.example.Odd'", "0102", b"\1\2"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_values_are_plain_python(name: str) -> None:
    """Bytes read as the Python value they mean."""
    text, raw, expected = PYTHON[name]
    found = to_python(parse_type(text), bytes.fromhex(raw))
    assert (expected, type(expected)) == (found, type(found))


ADDRESS = CqlType("a", keyspace="s", fields=(("Street", CqlType("text")), ("no", CqlType("int"))))


def test_udts_are_dicts() -> None:
    """A UDT has all its fields by name; those missing from a short value are null."""
    raw = bytes.fromhex("000000044d61696e")
    assert {"Street": "Main", "no": None} == to_python(ADDRESS, raw)
    assert {"Street": "Main", "no": None} == to_json(ADDRESS, raw)
    assert {"Street": None, "no": None} == to_json(ADDRESS, b"")


JSON = {
    "blob": ("blob", "cafe", "0xcafe"),
    "uuid": ("uuid", "123e4567e89b42d3a456426614174000", "123e4567-e89b-42d3-a456-426614174000"),
    "inet": ("inet", "20010db8" + 20 * "0" + "0001", "2001:db8::1"),
    "decimal": ("decimal", "00000002cfc7", "-123.45"),
    "small decimal": ("decimal", "0000000a01", "1E-10"),
    "huge varint": ("varint", "01" * (DIGIT_BYTES_MAX + 1), "0x" + "01" * (DIGIT_BYTES_MAX + 1)),
    "largest varint": (
        "varint",
        "7f" + "ff" * (DIGIT_BYTES_MAX - 1),
        2 ** (8 * DIGIT_BYTES_MAX - 1) - 1,
    ),
    "huge decimal": ("decimal", "01" * 2_000, "0x" + "01" * 2_000),
    "date": ("date", "80004cdb", "2023-11-14"),
    "first date": ("date", f"{2**31 - 719162:08x}", "0001-01-01"),
    "date before": ("date", f"{2**31 - 719163:08x}", 2**31 - 719163),
    "last date": ("date", f"{2**31 + 2932896:08x}", "9999-12-31"),
    "date after": ("date", f"{2**31 + 2932897:08x}", 2**31 + 2932897),
    "time": ("time", "00002b578b58c610", "13:14:15.000000016"),
    "no time": ("time", f"{86_400_000_000_000:016x}", 86_400_000_000_000),
    "timestamp": ("timestamp", "0000018bcfe5687b", "2023-11-14 22:13:20.123Z"),
    "timestamp beyond": ("timestamp", "8000000000000000", -(2**63)),
    "duration": ("duration", "0103fc068c61713fff", "-1mo2d1h"),
    "zero duration": ("duration", "000000", "0ns"),
    "every unit": ("duration", "1c06fc169ca346716e", "1y2mo3d3h27m11s5ms6us7ns"),
    "not a number": ("double", "7ff8000000000000", "NaN"),
    "infinity": ("float", "7f800000", "Infinity"),
    "minus infinity": ("double", "fff0000000000000", "-Infinity"),
    "float": ("float", "48188b1c", 156204.44),
    "smallest float": ("float", "00000001", 1e-45),
    "largest float": ("float", "7f7fffff", 3.4028235e38),
    "minus zero": ("float", "80000000", -0.0),
    "keys are text": ("map<int, text>", "00000001000000040000000700000000", {"7": ""}),
    "list as key": (
        "map<frozen<list<text>>, boolean>",
        "000000010000000d00000001" + "00000005" + "22c3a422ff"[:8] + "61" + "0000000101",
        {'["\\"ä\\"a"]': True},
    ),
    "tuple": ("tuple<int, text>", "0000000400000001", [1, None]),
    "custom": ("'com.example.Odd'", "0102", "0x0102"),
    "empty inet": ("inet", "", None),
    "type empty": ("empty", "", None),
}


@pytest.mark.parametrize("name", JSON)
def test_values_are_select_json(name: str) -> None:
    """Bytes are written as SELECT JSON would, and as the module's head says where it could not."""
    text, raw, expected = JSON[name]
    found = to_json(parse_type(text), bytes.fromhex(raw))
    assert (expected, str(expected)) == (found, str(found))
    json.dumps(found, allow_nan=False)


ADDRESSES = {
    "::1": f"{1:032x}",
    "::": f"{0:032x}",
    "1:0:0:2::3": "00010000000000020000000000000003",
    "::ffff:1.2.3.4": "00000000000000000000ffff01020304",
    "::1.2.3.4": "00000000000000000000000001020304",
    "127.0.0.1": "7f000001",
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_are_compressed(text: str) -> None:
    """An address is its shortest text; only the mapped ones have dots within IPv6."""
    expected = "::102:304" if text == "::1.2.3.4" else text
    assert expected == inet_text(bytes.fromhex(ADDRESSES[text]))


BAD = {
    "short int": ("int", "0000"),
    "long int": ("int", "0000000000"),
    "no boolean": ("boolean", "0000"),
    "no UTF-8": ("text", "ff"),
    "surrogate": ("text", "eda080"),
    "no ASCII": ("ascii", "80"),
    "uuid": ("uuid", "00"),
    "inet": ("inet", "0000000000"),
    "date": ("date", "00"),
    "decimal without digits": ("decimal", "00000000"),
    "short decimal": ("decimal", "0000"),
    "short duration": ("duration", "0000"),
    "long duration": ("duration", "00000000"),
    "months beyond 32 bits": ("duration", "f1000000000000"),
    "short counter": ("counter", "00"),
    "counter header": ("counter", "0009"),
    "counter shard": ("counter", "000000"),
    "list without count": ("list<int>", "0000"),
    "negative count": ("list<int>", "ffffffff"),
    "count beyond the bytes": ("list<int>", "7fffffff"),
    "element beyond the bytes": ("list<int>", "0000000100000005" + "00000000"),
    "bytes left in a list": ("list<int>", "0000000000"),
    "bytes left in a tuple": ("tuple<int>", "0000000400000001" + "00"),
    "half a length": ("tuple<int>", "0000"),
    "short vector": ("vector<int, 2>", "00000001"),
    "long vector": ("vector<int, 1>", "0000000100"),
    "vector of text cut": ("vector<text, 2>", "0161"),
    "vector length cut": ("vector<text, 1>", "ff"),
    "bad element": ("list<int>", "000000010000000100"),
    "type empty": ("tuple<empty>", "0000000100"),
}


@pytest.mark.parametrize("name", BAD)
def test_bytes_that_do_not_fit_are_a_named_error(name: str) -> None:
    """Wrong bytes give BadValueError, which names the type and never the value."""
    text, raw = BAD[name]
    for read in (to_python, to_json):
        with pytest.raises(BadValueError, match=r"bytes are not a valid"):
            read(parse_type(text), bytes.fromhex(raw))


EVERY_TYPE = sorted({cql_type for cql_type, _raw, _meant in recorded("5.0-types")}, key=str)


@given(st.sampled_from(EVERY_TYPE), st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_named_error(cql_type: CqlType, raw: bytes) -> None:
    """No bytes make the reader raise anything but its own error."""
    with suppress(BadValueError):
        to_python(cql_type, raw)
        reported = to_json(cql_type, raw)
        assert reported == json.loads(json.dumps(reported, allow_nan=False))


def test_every_truncation_is_noticed() -> None:
    """A truncated value is an error or another value; missing fields are null."""
    values = [(t, raw) for t, raw, _meant in recorded("4.0-types") if t.arguments]
    for cql_type, raw in filled((t, raw) for t, raw in values if len(raw) < 300):
        whole = to_python(cql_type, raw)
        for length in range(1, len(raw)):
            with suppress(BadValueError):
                cut = to_python(cql_type, raw[:length])
                assert whole != cut or cql_type.name == "tuple" or cql_type.fields


KEYS = {
    "one column is the key": (["int"], "00000007", ["00000007"]),
    "two": (["int", "text"], "00040000000100000361626300", ["00000001", "616263"]),
    "empty part": (["int", "text"], "00000000000000"[:12] + "", ["", ""]),
}


@pytest.mark.parametrize("name", KEYS)
def test_composite_keys_are_cut(name: str) -> None:
    """A partition key has one part per key column."""
    types, raw, expected = KEYS[name]
    found = partition_key_parts([parse_type(text) for text in types], bytes.fromhex(raw))
    assert expected == [part.hex() for part in found]


@pytest.mark.parametrize(
    "raw", ["", "00", "0004000000010000", "000400000001000003616263", "00" * 7]
)
def test_other_composite_keys_are_refused(raw: str) -> None:
    """A key with missing parts or extra bytes is a named error."""
    with pytest.raises(BadValueError, match="a partition key of"):
        partition_key_parts([CqlType("int"), CqlType("text")], bytes.fromhex(raw))

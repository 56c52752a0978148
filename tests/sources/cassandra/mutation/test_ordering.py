"""Values sort as Cassandra sorts them, which for many types is not by their bytes."""

from collections.abc import Sequence

import pytest

from headrace.sources.cassandra.mutation.ordering import sort_key
from headrace.sources.cassandra.schema.types import CqlType, parse_type

UDT = CqlType("u", keyspace="s", fields=(("a", CqlType("int")), ("b", CqlType("text"))))
# Values in Cassandra's order, as hex; None is null.
ORDERED: dict[str, tuple[str, Sequence[str | None]]] = {
    "null, empty, then values": ("int", [None, "", "80000000", "ffffffff", "00000000"]),
    "tinyint": ("tinyint", ["80", "ff", "00", "7f"]),
    "bigint": ("bigint", ["8" + "0" * 15, "f" * 16, "0" * 16, "7" + "f" * 15]),
    "varint": ("varint", ["ff00", "80", "ff", "00", "7f", "0080", "01" + "00" * 20]),
    "decimal": ("decimal", ["0000000081", "000000017f", "00000000" + "0d", "ffffffff02"]),
    "double": (
        "double",
        [
            "fff0000000000000",
            "8000000000000000",
            "0000000000000000",
            "3ff0000000000000",
            "7ff0000000000000",
            "7ff8000000000000",
        ],
    ),
    "float": ("float", ["ff7fffff", "bf800000", "00000001", "7f800000", "ffc00000"]),
    "boolean": ("boolean", ["00", "01"]),
    "date": ("date", ["00000000", "7fffffff", "80000000", "ffffffff"]),
    "timestamp": ("timestamp", ["8" + "0" * 15, "0" * 16]),
    "text": ("text", ["61", "6161", "62", "c3a9"]),
    "inet": ("inet", ["01020304", "01020304" + "00" * 12, "7f000001"]),
    "uuid: version, then time or bytes": (
        "uuid",
        [
            "00000002000011b28000000000000000",
            "00000001000111b28000000000000000",
            "00000000000041b28000000000000000",
            "ffffffff000041b28000000000000000",
        ],
    ),
    "timeuuid: time, then signed bytes": (
        "timeuuid",
        [
            "00000002000011b28000000000000000",
            "00000001000111b280808080808080ff",
            "00000001000111b2800000000000007f",
            "00000001000111b27f00000000000000",
        ],
    ),
    "list: by element, then length": (
        "frozen<list<tinyint>>",
        [
            "00000000",
            "0000000100000001ff",
            "000000010000000100",
            "00000002000000010000000001ff",
            "000000010000000101",
        ],
    ),
    "tuple": ("tuple<tinyint, text>", ["ffffffff", "00000001ff", "00000001000000000161"]),
    "vector": ("vector<tinyint, 2>", ["01ff0101", "01000100", "01000101"]),
}


@pytest.mark.parametrize("name", ORDERED)
def test_values_are_in_order(name: str) -> None:
    """Keys compare as Cassandra's comparator of the type does."""
    text, values = ORDERED[name]
    cql_type = parse_type(text)
    keys = [sort_key(cql_type, None if v is None else bytes.fromhex(v)) for v in values]
    assert keys == sorted(keys)
    assert len(keys) == len({repr(key) for key in keys})


def test_udts_sort_by_their_fields() -> None:
    """A UDT compares field by field, nulls first."""
    raws = [bytes.fromhex(raw) for raw in ("ffffffff0000000161", "0000000400000001ffffffff")]
    raws.append(bytes.fromhex("00000004000000010000000161"))
    keys = [sort_key(UDT, raw) for raw in raws]
    assert keys == sorted(keys)


EQUAL = {
    "decimals of other scales": ("decimal", "000000010a", "0000000001"),
    "varints with leading bytes": ("varint", "0001", "01"),
    "no numbers": ("double", "7ff8000000000000", "fff8000000000001"),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_have_equal_keys(name: str) -> None:
    """Values that Cassandra takes for one have one key, with different bytes."""
    text, one, other = EQUAL[name]
    cql_type = parse_type(text)
    first, second = (sort_key(cql_type, bytes.fromhex(raw)) for raw in (one, other))
    assert first == second
    assert hash(first) == hash(second)

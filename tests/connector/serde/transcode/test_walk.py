"""A value of any type is skipped up to its end, where fastavro ended it, or refused."""

from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.conversion import piece_of
from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transcode.names import NameReader
from headrace.connector.serde.transcode.walk import BadAvroError, Piece

pytestmark = pytest.mark.hot

MUTATION = bytes(range(16))
LONG = 1 << 63
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["one", "two"]}},
        {"name": "d", "type": ["null", "double"]},
        {"name": "b", "type": "boolean"},
        {"name": "t", "type": ["null", "string"]},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 5}},
        {"name": "m", "type": {"type": "map", "values": ["null", "bytes"]}},
        {"name": "l", "type": {"type": "array", "items": {"type": "array", "items": "long"}}},
        {"name": "r", "type": ["null", {"type": "record", "name": "none", "fields": []}]},
    ],
}
PARSED: Any = fastavro.parse_schema(SCHEMA)
LONGS = st.integers(-LONG, LONG - 1) | st.integers(0, 62).map(lambda bits: 1 << bits)
VALUES = st.fixed_dictionaries(
    {
        "n": st.none() | LONGS,
        "e": st.sampled_from(["one", "two"]),
        "d": st.none() | st.floats(allow_nan=False),
        "b": st.booleans(),
        "t": st.none() | st.text(max_size=80),
        "x": st.binary(min_size=5, max_size=5),
        "m": st.dictionaries(st.text(), st.none() | st.binary(), max_size=3),
        "l": st.lists(st.lists(LONGS, max_size=3), max_size=3),
        "r": st.none() | st.just({}),
    }
)


def name_behind(piece: Piece, content: bytes) -> bytes:
    """Read the name of a change that has a value, then its mutation and its index 3."""
    fields = [piece, Piece(octets.FIXED, size_bytes=len(MUTATION)), Piece(octets.LONG)]
    return NameReader(fields, mutation=1, index=2).of(content, 0)


@given(value=VALUES)
def test_what_follows_a_value_is_found(value: Any) -> None:  # noqa: ANN401 (of the schema)
    """Numbers of one to ten bytes, and types in one another, end where fastavro ended them."""
    out = BytesIO()
    fastavro.schemaless_writer(out, PARSED, value)
    content = out.getvalue()

    assert MUTATION + b"\0\0\0\3" == name_behind(piece_of(SCHEMA), content + MUTATION + b"\x06")
    for end in range(0, len(content), 7):
        with pytest.raises(BadAvroError):
            name_behind(piece_of(SCHEMA), content[:end])


def test_blocks_may_say_how_many_bytes_they_have() -> None:
    """A negative count of items is followed by the size of the block."""
    items = b"\x03\x04\x02\x04\x02\x06\x00"  # Two items in two bytes, one more, the end.
    piece = piece_of({"type": "array", "items": "long"})

    assert MUTATION + b"\0\0\0\3" == name_behind(piece, items + MUTATION + b"\x06")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("long", b"\x80" * 10 + b"\0"),
        ("string", b"\x01"),
        ("bytes", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ({"type": "array", "items": "null"}, b"\xd0\x0f\0"),  # A thousand of no bytes.
        ({"type": "array", "items": "null"}, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"),
    ],
)
def test_a_size_beyond_the_bytes_is_refused(kind: Any, content: bytes) -> None:  # noqa: ANN401 (Avro)
    """A number of more than ten bytes, a negative length, and more items than bytes are errors."""
    with pytest.raises(BadAvroError):
        name_behind(piece_of(kind), content + MUTATION + b"\x06")

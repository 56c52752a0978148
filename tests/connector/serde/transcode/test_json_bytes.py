"""JSON that is written directly from Avro has the same bytes as the codec's."""

import math
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connector.serde import Encoder
from headrace.connector.serde.codecs.json import JsonCodec, _finite
from headrace.connector.serde.conversion import piece_of
from headrace.connector.serde.shaping import Shaper
from headrace.connector.serde.transcode.json_bytes import JsonWriter
from headrace.connector.serde.transcode.walk import BadAvroError
from headrace.plugins import Encoding
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.recordings.batches import recorded_batches
from helpers.settings.native_modules import long

pytestmark = pytest.mark.hot

LONG = 1 << 63
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "n", "type": {"type": "long", "cqlType": "timestamp"}},
        {"name": "d", "type": "double"},
        {"name": "f", "type": "float"},
        {"name": "t", "type": ["null", "string"]},
        {"name": 'q"\\', "type": "bytes"},
        {"name": "x", "type": {"type": "fixed", "name": "F", "size": 5}},
        {"name": "b", "type": "boolean"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["one", "two"]}},
        {"name": "l", "type": {"type": "array", "items": ["null", "F"]}},
        {"name": "m", "type": {"type": "map", "values": "int"}},
        {"name": "r", "type": ["null", {"type": "record", "name": "none", "fields": []}]},
    ],
}
PARSED: Any = fastavro.parse_schema(SCHEMA, {})
VALUES = st.fixed_dictionaries(
    {
        "n": st.integers(-LONG, LONG - 1),
        "d": st.floats(),
        "f": st.floats(width=32),
        "t": st.none() | st.text(),
        'q"\\': st.binary(max_size=200),
        "x": st.binary(min_size=5, max_size=5),
        "b": st.booleans(),
        "e": st.sampled_from(["one", "two"]),
        "l": st.lists(st.none() | st.binary(min_size=5, max_size=5), max_size=3),
        "m": st.dictionaries(st.text(), st.integers(-5, 5), max_size=3),
        "r": st.none() | st.just({}),
    }
)


def avro(value: Any) -> bytes:  # noqa: ANN401 (what the schema describes)
    """Return a value in Avro."""
    out = BytesIO()
    fastavro.schemaless_writer(out, PARSED, value)
    return out.getvalue()


def oracle(value: Any) -> bytes:  # noqa: ANN401 (likewise)
    """Return the JSON of a value, as the codec makes it."""
    return msgspec.json.encode(_finite(value))


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_any_value(value: Any) -> None:  # noqa: ANN401 (likewise)
    """For any data both ways give the same bytes."""
    content = avro(value)
    read = fastavro.schemaless_reader(BytesIO(content), PARSED, None)

    assert oracle(read) == JsonWriter().text(piece_of(SCHEMA), content)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", "".join(map(chr, range(0x180)))),
        ("string", "plain, then \u20ac and \U0001f600" * 50),
        ("bytes", bytes(range(256)) * 300),
        *(("bytes", bytes(range(1, length))) for length in range(1, 8)),
        *(("long", number) for number in (0, -1, 9, 10, -10, LONG - 1, -LONG)),
        *(("long", 10**digits - less) for digits in range(1, 19) for less in (0, 1)),
        *(("double", number) for number in (1e16, 5e-324, -0.0, 1.0, math.nan, -math.inf)),
    ],
)
def test_edges(kind: str, value: Any) -> None:  # noqa: ANN401 (likewise)
    """Control characters, long values, the largest numbers, and NaN have the codec's bytes."""
    out = BytesIO()
    fastavro.schemaless_writer(out, kind, value)

    assert oracle(value) == JsonWriter().text(piece_of(kind), out.getvalue())


@pytest.mark.parametrize("around", ["x", "!", "#", "[", "]", "\x7f", "\x80", "\u20ac"])
def test_characters_that_are_escaped_are_found_at_any_place(around: str) -> None:
    """Strings are looked at 48 bytes at once if so many can be read, or eight."""
    kind = {"type": "array", "items": "string"}
    parsed: Any = fastavro.parse_schema(kind)
    for special in ("\x00", "\x1f", '"', "\\"):
        for at in range(50):
            texts = [around * at + special + around * 9, around * at, "z" * 48]
            out = BytesIO()
            fastavro.schemaless_writer(out, parsed, texts)
            assert oracle(texts) == JsonWriter().text(piece_of(kind), out.getvalue())


@pytest.mark.parametrize(
    "content", [b"", b"\x02", b"\x00\x00", b"\x05", b"\x04a", b"\x01" * 20, b"\xff" * 12]
)
def test_what_is_not_of_the_schema(content: bytes) -> None:
    """Bytes that are not Avro of the schema are refused by name."""
    with pytest.raises(BadAvroError):
        JsonWriter().text(piece_of({"type": "array", "items": "string"}), content + b"\x07")


def test_an_enum_has_no_such_number() -> None:
    """An enum's number without a symbol is refused."""
    with pytest.raises(BadAvroError):
        JsonWriter().text(piece_of({"type": "enum", "name": "E", "symbols": ["a"]}), b"\x02")


@pytest.mark.parametrize("envelope", ["cep44", "debezium", "flat"])
@pytest.mark.parametrize("name", ["5.0-ops", "5.0-types"])
@pytest.mark.parametrize("key_codec", ["avro", long("")])
def test_a_batch_is_written_as_its_records_are(name: str, envelope: str, key_codec: str) -> None:
    """O05: a whole batch has the same bytes as its records one by one."""
    wanted = Encoding(codec="json", key_codec=key_codec, envelope=envelope, headers=("op",))
    (batch,) = recorded_batches(name)
    made = Encoder(wanted, ORIGIN).encode(batch, token=1)
    shaper = Shaper(wanted, ORIGIN)
    encoded = batch.encode("avro")
    assert shaper.knows(batch, encoded)
    records, _ = shaper.records(encoded)

    codec = JsonCodec()
    assert [oracle(record.value) for record in records] == list(made.values)
    assert [codec.value(record) for record in records] == list(made.values)
    if not key_codec:
        assert [oracle(record.key) for record in records] == list(made.keys)
        assert [codec.key(record) for record in records] == list(made.keys)


def test_what_was_changed_is_written_anew() -> None:
    """The value of a transformed record is encoded again; those of the others are copied."""
    wanted = Encoding(codec="json", envelope="flat")
    (batch,) = recorded_batches("5.0-ops")
    shaper = Shaper(wanted, ORIGIN)
    encoded = batch.encode("avro")
    assert shaper.knows(batch, encoded)
    (first, second, *_), _ = shaper.records(encoded)
    changed = first.changed(value={**first.value, "__op": "MASKED"})
    codec = JsonCodec()

    assert oracle(changed.value) == codec.value(changed) != codec.value(first)
    assert oracle(second.value) == codec.value(second)

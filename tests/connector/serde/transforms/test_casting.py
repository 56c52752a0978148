"""Values are cast as Kafka Connect's Cast casts them, and fields get the types of the result."""

import math
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
import pytest

from headrace.connector.serde.transcode import octets
from headrace.connector.serde.transforms.casting import CastConfig, cast_of
from headrace.connector.serde.transforms.parts import TransformError
from headrace.plugins import ConfigError, Document, parse_config

DECIMAL: Document = {
    "type": "record",
    "name": "Decimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "unscaled", "type": "bytes"}],
}
KNOWN: Mapping[str, Document] = {"Decimal": DECIMAL}
SYMBOLS: Document = {"type": "enum", "name": "Size", "symbols": ["S", "M"]}
VARINT: Document = {"type": "bytes", "cqlType": "varint"}
MOST = 2**63 - 1


def decimal(unscaled: int, scale: int) -> Document:
    """Return a value of CQL's decimal."""
    size = unscaled.bit_length() // 8 + 1
    return {"scale": scale, "unscaled": unscaled.to_bytes(size, "big", signed=True)}


# In Java: a cast of a primitive, `parse…` of a string, or BigDecimal's `…Value`.
CASES: list[tuple[Any, object, str, object]] = [
    ("int", 300, "int8", 44),
    ("int", -129, "int8", 127),
    ("int", 32_768, "int16", -32_768),
    ("long", 2**31, "int32", -(2**31)),
    ("int", 7, "int64", 7),
    ("long", MOST, "float64", float(MOST)),
    ("int", 16_777_217, "float32", 16_777_216.0),
    ("long", 0, "boolean", False),
    ("long", -5, "boolean", True),
    ("long", -(2**63), "string", "-9223372036854775808"),
    ("double", 300.9, "int8", 44),
    ("double", -1.9, "int32", -1),
    ("double", 1e30, "int64", MOST),
    ("double", 1e30, "int32", 2**31 - 1),
    ("double", -1e30, "int16", 0),
    ("double", math.nan, "int64", 0),
    ("double", 0.9, "boolean", False),
    ("double", 1e300, "float32", math.inf),
    ("double", -1e300, "float32", -math.inf),
    ("double", 1.5, "string", "1.5"),
    ("double", math.inf, "string", "Infinity"),
    ("double", math.nan, "string", "NaN"),
    ("float", 0.5, "float64", 0.5),
    ("boolean", True, "int8", 1),
    ("boolean", False, "float32", 0.0),
    ("boolean", True, "string", "true"),
    ("boolean", False, "boolean", False),
    ("string", "-128", "int8", -128),
    ("string", "+7", "int64", 7),
    ("string", "1e3", "float64", 1_000.0),
    ("string", "-Infinity", "float64", -math.inf),
    ("string", "TRUE", "boolean", True),
    ("string", "yes", "boolean", False),
    ("string", "é", "string", "é"),
    ("bytes", b"\0\xff", "string", "AP8="),
    ({"type": "fixed", "name": "F", "size": 2}, b"\0\xff", "string", "AP8="),
    (SYMBOLS, "M", "string", "M"),
    (VARINT, b"\x01\x00", "int8", 0),
    (VARINT, b"\xff", "string", "-1"),
    (VARINT, (10**6_000).to_bytes(2_500, "big"), "string", "1" + "0" * 6_000),
    (DECIMAL, decimal(-1_999, 2), "int32", -19),
    ("Decimal", decimal(-1_999, 2), "float64", -19.99),
    ("Decimal", decimal(-1_999, 2), "string", "-19.99"),
    ("Decimal", decimal(5, -2), "int64", 500),
    ("Decimal", decimal(5, -5_000), "float64", math.inf),
    ("Decimal", decimal(5, 2_000_000_000), "int64", 0),
    ("Decimal", decimal(-(10**6_000), 0), "string", "-1" + "0" * 6_000),
]


@pytest.mark.parametrize(("avro_type", "value", "target", "expected"), CASES)
def test_a_value_is_cast_as_java_does(
    avro_type: Any,  # noqa: ANN401 (Avro's)
    value: object,
    target: str,
    expected: object,
) -> None:
    """As a value, and as bytes, which fastavro reads with the new type."""
    cast = cast_of(["null", avro_type], target, KNOWN, "f")
    parsed: Any = fastavro.parse_schema(KNOWN.get(str(avro_type), avro_type), {})
    out = BytesIO()
    fastavro.schemaless_writer(out, parsed, value)

    as_bytes = fastavro.schemaless_reader(
        BytesIO(cast.of_bytes(out.getvalue())), cast.avro_type, None
    )

    assert expected == cast.of_value(value) == as_bytes
    assert type(expected) is type(as_bytes)
    assert None is cast.of_value(None)
    if cast.becomes == octets.SAME:
        assert out.getvalue() == cast.of_bytes(out.getvalue())


@pytest.mark.parametrize("target", ["int8", "int16", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("text", ["", " 7", "7_0", "0x7", "7a", "²", "9" * 41 + "x"])
def test_a_text_that_is_no_number_is_an_error(target: str, text: str) -> None:
    """The error names the field, and does not show the value."""
    with pytest.raises(TransformError) as caught:
        cast_of("string", target, {}, "payload.card").of_value(text)

    assert "payload.card" == caught.value.place
    assert not text.strip() or text not in caught.value.message


@pytest.mark.parametrize(("target", "text"), [("int8", "128"), ("int64", "9" * 40)])
def test_a_text_beyond_the_type_is_an_error(target: str, text: str) -> None:
    """Java's parse refuses it, where a cast of a number keeps the lower bits."""
    with pytest.raises(TransformError, match="expected a whole number of"):
        cast_of("string", target, {}, "f").of_value(text)


@pytest.mark.parametrize(
    ("avro_type", "target"),
    [
        ("bytes", "int32"),
        ({"type": "fixed", "name": "F", "size": 2}, "float64"),
        ({"type": "array", "items": "int"}, "string"),
        ({"type": "record", "name": "R", "fields": []}, "string"),
    ],
)
def test_a_type_that_is_not_cast_is_an_error(
    avro_type: Any,  # noqa: ANN401 (Avro's)
    target: str,
) -> None:
    """It is found with the schema, before a record is."""
    with pytest.raises(TransformError, match="cannot cast a field of type"):
        cast_of(avro_type, target, {}, "f")


@pytest.mark.parametrize("spec", ["int32", "a", ":int32", "a:int", "a:"])
def test_a_wrong_specification_is_an_error(spec: str) -> None:
    """It is found with the configuration."""
    with pytest.raises(ConfigError) as caught:
        parse_config(CastConfig, {"spec": spec})

    (problem,) = caught.value.problems
    assert "spec" == problem.key

"""Masked values have the types of their fields."""

import io
from typing import Any

import fastavro
import pytest

from headrace.connector.serde.avro_types import definitions, without_logic
from headrace.connector.serde.transforms.masking import mask_at, masked
from headrace.connector.serde.transforms.parts import TransformError

UUID = {"type": "string", "logicalType": "uuid"}
NIL = "00000000-0000-0000-0000-000000000000"
SOME = "6f2c1d9e-1111-4222-8333-444455556666"
DECIMAL = {
    "type": "record",
    "name": "Decimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "unscaled", "type": "bytes"}],
}
ZERO = {"scale": 0, "unscaled": b"\0"}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "a", "type": UUID}, {"name": "b", "type": ["null", "string"]}],
}


@pytest.mark.parametrize(
    ("avro_type", "value", "expected"),
    [
        pytest.param("string", "x", "", id="text"),
        pytest.param("long", 5, 0, id="number"),
        pytest.param("double", 5.0, 0.0, id="fraction"),
        pytest.param("boolean", True, False, id="boolean"),
        pytest.param("bytes", b"x", b"", id="bytes"),
        pytest.param(["null", "string"], None, None, id="null stays"),
        pytest.param(["null", UUID], SOME, NIL, id="uuid"),
        pytest.param({"type": "int", "logicalType": "date"}, 9, 0, id="date"),
        pytest.param(
            {"type": "bytes", "logicalType": "decimal", "precision": 4},
            b"\x01",
            b"\0",
            id="decimal",
        ),
        pytest.param({"type": "bytes", "cqlType": "varint"}, b"\x01", b"\0", id="varint"),
        pytest.param({"type": "fixed", "name": "F", "size": 3}, b"abc", b"\0\0\0", id="fixed"),
        pytest.param({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "A", id="enum"),
        pytest.param({"type": "array", "items": "int"}, [1], [], id="list"),
        pytest.param({"type": "map", "values": "int"}, {"secret": 1}, {}, id="map"),
        pytest.param(DECIMAL, {"scale": 2, "unscaled": b"\7"}, ZERO, id="CQL's decimal"),
        pytest.param(INNER, {"a": SOME, "b": None}, {"a": NIL, "b": None}, id="record"),
    ],
)
def test_what_stands_there_is_of_the_fields_type(
    avro_type: Any,  # noqa: ANN401 (Avro's)
    value: object,
    expected: object,
) -> None:
    """A reader of the schema, with its logical types, reads the masked value."""
    found = masked(value, avro_type, definitions(avro_type), None)

    assert expected == found
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(without_logic(avro_type)), found)
    written.seek(0)
    fastavro.schemaless_reader(written, fastavro.parse_schema(avro_type), None)


def test_the_digits_alone_of_a_decimal_become_zero() -> None:
    """Masked digits of a decimal are zero, because Java cannot read empty digits."""
    fields = [{"name": "d", "type": ["null", DECIMAL]}, {"name": "unscaled", "type": "bytes"}]
    row = {"type": "record", "name": "Row", "fields": fields}
    of_decimal, of_row, of_none = (
        mask_at(row, path.split("."), definitions(row), None)
        for path in ("d.unscaled", "unscaled", "d.other")
    )

    assert of_decimal
    assert of_row
    assert (b"\0", b"", None) == (of_decimal(b"\7"), of_row(b"\7"), of_none)


@pytest.mark.parametrize(("text", "expected"), [(None, NIL), ("", NIL), (SOME.upper(), SOME)])
def test_a_uuid_is_replaced_by_another(text: str | None, expected: str) -> None:
    """A UUID is replaced by the nil UUID, unless another one is given."""
    assert expected == masked(NIL.replace("0", "1"), UUID, {}, text)


def test_a_replacement_that_does_not_fit_is_refused() -> None:
    """A replacement that does not fit the field's type is refused: readers would fail."""
    with pytest.raises(TransformError, match="does not fit a field of UUIDs"):
        masked(SOME, UUID, {}, "***")

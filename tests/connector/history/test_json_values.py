"""Values are those of change JSON, which is made of the bytes of cells, without Avro."""

from typing import Any

import pytest

from headrace.connector.history.json_values import json_value
from headrace.connector.history.rendering import Shape
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding
from helpers.recordings.batches import recorded_batches

COLUMNS_MIN = {"4.0-types": 300, "5.0-types": 300, "6.0-v9-types": 300, "5.0-random": 1_000}


@pytest.mark.parametrize("name", COLUMNS_MIN)
def test_values_are_those_of_change_json(name: str) -> None:
    """Of all types, in keys and in columns, frozen or not."""
    encoder = Encoder(Encoding(codec="avro", envelope="cep44"))
    shapes: dict[bytes, Shape] = {}
    count = 0
    for batch in recorded_batches(name):
        records = list(batch.records())
        encoded = encoder.encode(batch, token=1)
        for record, content in zip(records, encoded.values, strict=True):
            schema = record.schema
            if schema.schema_id not in shapes:
                shapes[schema.schema_id] = Shape(schema)
            shape = shapes[schema.schema_id]
            value, document = shape.read(content), record.document()
            partition = [value["payload"][n] for n in shape.view.key]
            assert shape.key(partition, []) == document["key"]
            if "columns" not in document:
                continue
            made = shape.change(value)
            assert made is not None
            assert made.keys() == document["columns"].keys()
            for column, written in document["columns"].items():
                assert simple(written) == made[column], column
                count += 1
    assert count > COLUMNS_MIN[name]


def simple(written: dict[str, Any]) -> Any:  # noqa: ANN401 (as JSON has it)
    """Return a column of change JSON without times."""
    if "mode" not in written:
        return written["value"]
    made = {"mode": written["mode"], "value": written["value"]}
    return made | ({"removed": written["removed"]} if written.get("removed") else {})


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ({"type": "long", "cqlType": "timestamp"}, -62_135_596_800_001, -62_135_596_800_001),
        ({"type": "long", "cqlType": "timestamp"}, -1, "1969-12-31 23:59:59.999Z"),
        ({"type": "int", "cqlType": "date"}, 2_932_897, 2_932_897 + (1 << 31)),
        ({"type": "int", "cqlType": "date"}, 2_932_896, "9999-12-31"),
        ({"type": "long", "cqlType": "time"}, 86_400_000_000_000, 86_400_000_000_000),
        ({"type": "bytes", "cqlType": "varint"}, b"\x01" * 1_701, "0x" + "01" * 1_701),
        ("float", 0.10000000149011612, 0.1),
        ("double", float("-inf"), "-Infinity"),
        (["null", "bytes"], b"", "0x"),
        (["null", "bytes"], None, None),
    ],
)
def test_values_at_the_bounds(kind: Any, value: Any, expected: Any) -> None:  # noqa: ANN401
    """What has no form in JSON is as it is stored."""
    assert expected == json_value(kind, value)

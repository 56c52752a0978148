"""Changing one field does not change the types of other fields."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
import pytest

from headrace.connector.serde.avro_types import definitions
from headrace.connector.serde.transforms.builtin import ReplaceField, TimestampConverter
from headrace.plugins import Document, Operation, Record, RecordSchema, Transform, parse_config

PLACE: Document = {"type": "record", "name": "Place", "fields": [{"name": "at", "type": "long"}]}
ADDRESS: Document = {
    "type": "record",
    "name": "Address",
    "fields": [{"name": "zip", "type": "int"}, {"name": "place", "type": PLACE}],
}
SCHEMA = RecordSchema.of(
    "shop.orders",
    "CREATE TABLE shop.orders (…)",
    key={},
    value={
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "home", "type": ["null", ADDRESS]},
            {"name": "work", "type": ["null", "Address"]},
            {"name": "others", "type": {"type": "array", "items": "Address"}},
        ],
    },
)
SAME = {"zip": 7, "place": {"at": 9}}
OTHER = {"zip": 7, "place": {"at": "1970"}}


@pytest.mark.parametrize(
    ("kind", "options", "changed", "names"),
    [
        pytest.param(
            ReplaceField,
            {"renames": "home.zip:z"},
            {"home": {"z": 7, "place": SAME["place"]}},
            {"Address_home"},
            id="the first",
        ),
        pytest.param(
            ReplaceField,
            {"exclude": "work.place"},
            {"work": {"zip": 7}},
            {"Address_work"},
            id="next",
        ),
        pytest.param(
            TimestampConverter,
            {"field": "work.place.at", "target.type": "string", "format": "%Y"},
            {"work": OTHER},
            {"Address_work", "Place_work_place"},
            id="deeper",
        ),
        pytest.param(
            ReplaceField,
            {"renames": "home.zip:z,work.zip:code"},
            {"home": {"z": 7, "place": {"at": 9}}, "work": {"code": 7, "place": {"at": 9}}},
            {"Address_home", "Address_work"},
            id="each",
        ),
    ],
)
def test_fields_of_one_type_are_changed_apart(
    kind: type[Transform], options: Mapping[str, str], changed: Document, names: set[str]
) -> None:
    """A changed field has a type named after its path; the others keep the old type."""
    transform = kind(parse_config(kind.config_class, options), "value")
    value = {"home": SAME, "work": SAME, "others": [SAME]}

    after = transform.schema(SCHEMA).value
    made = transform.one(record(value))

    assert made
    assert {**value, **changed} == read(after, written(after, made.value))
    assert {"Row", "Address", "Place"} | names == definitions(after).keys()


def test_a_type_that_is_used_once_keeps_its_name() -> None:
    """A type that is used once keeps its name, and an unchanged schema stays the same."""
    kept = ReplaceField(
        parse_config(ReplaceField.config_class, {"exclude": "work,others"}), "value"
    )
    alone = kept.schema(SCHEMA)
    renaming = parse_config(ReplaceField.config_class, {"renames": "home.zip:z"})

    assert SCHEMA == ReplaceField(parse_config(ReplaceField.config_class, {}), "value").schema(
        SCHEMA
    )
    assert {"Row", "Address", "Place"} == (
        definitions(ReplaceField(renaming, "value").schema(alone).value).keys()
    )


def record(value: Document) -> Record:
    """Return a record with the schema SCHEMA."""
    return Record(key=None, value=value, operation=Operation.INSERT, timestamp_us=0, schema=SCHEMA)


def written(schema: Document, value: Document) -> bytes:
    """Return a value in Avro."""
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(dict(schema)), value)
    return stream.getvalue()


def read(schema: Document, content: bytes) -> Any:  # noqa: ANN401 (any datum)
    """Return what a reader of *schema* finds."""
    return fastavro.schemaless_reader(BytesIO(content), fastavro.parse_schema(dict(schema)), None)

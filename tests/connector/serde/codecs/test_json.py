"""Keys and values of records as JSON."""

import json

import pytest

from headrace.connector.serde.codecs.json import JsonCodec
from headrace.plugins import Document, Operation, Record, RecordSchema

SCHEMA = RecordSchema.of("ks.t", "CREATE TABLE ks.t (…)", key={}, value={})


@pytest.mark.parametrize(
    ("key", "expected"), [({"id": 7, "é": "x"}, '{"id":7,"é":"x"}'.encode()), (None, None)]
)
def test_a_record_that_is_no_change_of_a_table(
    key: Document | None, expected: bytes | None
) -> None:
    """Its documents are written as they are; without a key there is none."""
    record = Record(
        key=key,
        value={"n": [1, None, 2.5]},
        operation=Operation.INSERT,
        timestamp_us=0,
        schema=SCHEMA,
    )

    assert expected == JsonCodec().key(record)
    assert record.document() == json.loads(JsonCodec().value(record))

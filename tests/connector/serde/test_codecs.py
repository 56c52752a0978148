"""Codecs turn records into bytes that readers of the format read back."""

import io
import json
import math
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde import codec
from headrace.plugins import (
    BadRecordError,
    Batch,
    ConfigError,
    Document,
    Headers,
    NumberPosition,
    Operation,
    Record,
    RecordBatch,
    RecordSchema,
)

SCHEMA = RecordSchema(
    table="shop.orders",
    text="CREATE TABLE shop.orders (id bigint PRIMARY KEY, name text)",
    schema_id=bytes(range(16)),
    key={"type": "record", "name": "key", "fields": [{"name": "id", "type": "long"}]},
    value={
        "type": "record",
        "name": "value",
        "fields": [{"name": "name", "type": ["null", "string"]}],
    },
)


def batch_of(*records: Record) -> Batch:
    """Return a batch of these records."""
    return RecordBatch(split="all", end=NumberPosition(0), size_bytes=0, made=records)


def record_of(key: object, name: object, headers: Headers = ()) -> Record:
    """Return an update of one row; *key* None is a record without key."""
    return Record(
        key=None if key is None else {"id": key},
        value={"name": name},
        operation=Operation.UPDATE,
        timestamp_us=5,
        schema=SCHEMA,
        headers=headers,
        origin={"node": "node1", "segment": 7},
    )


@given(
    rows=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text()), max_size=5)
)
def test_avro_is_read_back_without_framing(rows: list[tuple[int, str | None]]) -> None:
    """Key and value are schemaless Avro of the record's schema."""
    encoded = codec("avro").encode(batch_of(*(record_of(key, name) for key, name in rows)))

    def read(content: bytes | None, schema: Any) -> Any:  # noqa: ANN401 (any datum)
        assert content is not None
        stream = io.BytesIO(content)
        datum = fastavro.schemaless_reader(stream, schema, None)
        assert not stream.read()
        return datum

    assert [{"id": key} for key, _ in rows] == [read(key, SCHEMA.key) for key in encoded.keys]
    assert [{"name": name} for _, name in rows] == [read(v, SCHEMA.value) for v in encoded.values]
    assert [SCHEMA.table] * len(rows) == list(encoded.tables)


def test_json_is_the_document_on_one_line() -> None:
    """The value is the record's document, the key its member `key`, both without blanks."""
    encoded = codec("json").encode(batch_of(record_of(2**70, "é\n")))

    (key,), (value,) = encoded.keys, encoded.values
    assert key == b'{"id":1180591620717411303424}'
    assert b"\n" not in value
    assert json.loads(value) == {
        "table": "shop.orders",
        "op": "UPDATE",
        "key": {"id": 2**70},
        "timestamp": 5,
        "name": "é\n",
        "node": "node1",
        "segment": 7,
    }


def test_none_makes_no_bytes() -> None:
    """Every record has an empty value and no key."""
    encoded = codec("none").encode(batch_of(record_of(1, "a"), record_of(2, "b")))

    assert (None, None) == tuple(encoded.keys)
    assert (b"", b"") == tuple(encoded.values)


@pytest.mark.parametrize("name", ["avro", "json", "none"])
def test_headers_are_one_shared_object_per_schema(name: str) -> None:
    """The header list of a schema is the same object for all of its records."""
    special_headers = (("x", b"y"),)
    batch = batch_of(record_of(1, "a"), record_of(2, "b"), record_of(3, "c", special_headers))

    first, second, special = codec(name).encode(batch).headers

    assert (("schemaId", SCHEMA.schema_id),) == first
    assert first is second
    assert (("schemaId", SCHEMA.schema_id), *special_headers) == special


def test_a_record_without_key_has_none() -> None:
    """A record without a key has no key bytes."""
    assert [None] == list(codec("avro").encode(batch_of(record_of(None, "a"))).keys)
    assert [None] == list(codec("json").encode(batch_of(record_of(None, "a"))).keys)


@pytest.mark.parametrize(
    "name",
    [7, b"\xff", Decimal("1.5"), math.inf, object(), {"a": 1}],
    ids=["number", "bytes", "decimal", "infinity", "object", "mapping"],
)
def test_a_record_that_does_not_fit_is_quarantined_alone(name: object) -> None:
    """A record that does not fit fails alone, and is kept with its place, without values (I8)."""
    batch = batch_of(record_of(1, "a"), record_of(2, name), record_of(3, "c"))

    encoded = codec("avro").encode(batch)

    assert len(encoded) == 2
    (quarantined,) = encoded.quarantined
    assert quarantined.code == "unfit_record"
    assert quarantined.place == "node node1, segment 7"
    assert repr(name) not in quarantined.message
    assert b'"id":2' in quarantined.content


def test_a_document_that_is_not_json_is_quarantined() -> None:
    """A value that JSON cannot express fails only its record."""
    encoded = codec("json").encode(batch_of(record_of(1, object()), record_of(2, "b")))

    assert (1, 1) == (len(encoded), len(encoded.quarantined))


def test_a_record_without_a_document_is_quarantined_alone() -> None:
    """A record that cannot make its document keeps its own code and place; the next one is made."""

    class Torn(Record):
        def document(self) -> Document:
            raise BadRecordError("torn", place="in.jsonl, byte 7")

    torn = Torn(
        key=None, value={}, operation=Operation.INSERT, timestamp_us=0, schema=SCHEMA, origin={}
    )
    encoded = codec("json").encode(batch_of(torn, record_of(1, "a")))

    assert 1 == len(encoded)
    assert [("bad_record", "in.jsonl, byte 7")] == [(q.code, q.place) for q in encoded.quarantined]


def test_an_unknown_codec_is_named_with_its_neighbours() -> None:
    """A misspelt codec is refused, with the nearest name as a hint."""
    with pytest.raises(ConfigError) as caught:
        codec("arvo")

    assert caught.value.hint == "did you mean avro?"

"""What a sink asked for is what it gets, whichever way the bytes are made."""

from collections.abc import Sequence

import pytest

from headrace.connector.serde import Encoder, codec
from headrace.plugins import Batch, Encoding, Headers
from headrace.plugins.codecs import RECORD_HEADERS, header_problems
from recorded_batches import recorded_batches

TABLE = "shop.orders"


@pytest.fixture(scope="module")
def batches() -> Sequence[Batch]:
    """Return real changes of several tables."""
    return recorded_batches("4.1-ops")


def headers_of(batches: Sequence[Batch], *wanted: str, token: int = 7) -> list[Headers]:
    """Return the headers of all records."""
    encoder = Encoder(Encoding(codec="avro", headers=wanted))
    return [h for batch in batches for h in encoder.encode(batch, token=token).headers]


def test_constant_headers_are_one_object_per_table_and_lease(batches: Sequence[Batch]) -> None:
    """Records of a table share the very tuple, until the token changes."""
    encoder = Encoder(Encoding(codec="avro", headers=("schemaId", "keyspace", "table", "token")))
    encoded = [encoder.encode(batch, token=7) for batch in batches]
    by_table = {
        (table, id(headers))
        for each in encoded
        for table, headers in zip(each.tables, each.headers, strict=True)
    }
    tables = {table for table, _ in by_table}

    assert len(tables) > 1
    assert len(tables) == len(by_table)
    for table, made in zip(encoded[0].tables, encoded[0].headers, strict=True):
        keyspace = table.split(".")[0].encode()
        assert {"keyspace": keyspace, "table": table.encode(), "token": b"7"} == dict(made[1:])
    assert b"8" == dict(encoder.encode(batches[0], token=8).headers[0])["token"]


def test_a_sink_that_wants_no_header_gets_none(batches: Sequence[Batch]) -> None:
    """Not even the schema's id."""
    assert {()} == set(headers_of(batches))


def test_headers_of_a_record_say_what_its_envelope_says(batches: Sequence[Batch]) -> None:
    """Each is the fact of the change it stands on, as text."""
    made = headers_of(batches, *RECORD_HEADERS)
    records = [record for batch in batches for record in batch.records()]

    assert len(records) == len(made) > 0
    for headers, record in zip(made, records, strict=True):
        texts = {name: content.decode() for name, content in headers}
        trace, span = texts.pop("traceparent").split("-")[1:3]
        value = record.value
        assert (value["mutation"].hex(), 16) == (trace, len(span))
        assert texts == {
            "mutation": value["mutation"].hex(),
            "op": value["operationType"],
            "timestamp": str(value["timestampMicros"]),
            **{name: str(value[name]) for name in ("index", "of", "copies")},
            **{name: str(value[name]) for name in ("node", "segment", "position")},
        }


def test_headers_of_a_record_change_no_byte_of_it(batches: Sequence[Batch]) -> None:
    """Keys and values are those of a batch that encodes itself, and constant headers come first."""
    slow = Encoder(Encoding(codec="avro", headers=("token", "op")))
    for batch in batches:
        expected, found = batch.encode("avro"), slow.encode(batch, token=1)

        assert (expected.keys, expected.values) == (found.keys, found.values)
        assert {("token", "op")} == {tuple(name for name, _ in h) for h in found.headers}


def test_spans_of_a_mutation_differ(batches: Sequence[Batch]) -> None:
    """No two changes have the same traceparent."""
    made = headers_of(batches, "traceparent")

    assert len(made) == len(set(made))


def test_an_unknown_header_is_named() -> None:
    """A typo is one problem under its option."""
    (problem,) = header_problems(("schemaId", "tabel"))

    assert ("headers", "'tabel' is no header") == (problem.key, problem.message)


def test_documents_stay_documents(batches: Sequence[Batch]) -> None:
    """In JSON a record that got headers is the same document as one that did not."""
    encoder = Encoder(Encoding(codec="json", headers=("op",)))

    assert codec("json").encode(batches[0]).values == encoder.encode(batches[0], token=1).values

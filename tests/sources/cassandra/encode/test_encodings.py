"""What a sink asked for is what it gets, whichever way the bytes are made."""

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import fastavro
import pytest

from headrace.connector.serde import Encoder, codec
from headrace.connector.serde.codecs.records import KeptBatch, origin_of
from headrace.connector.serde.shaping import Shaper
from headrace.plugins import Batch, EncodedRecords, Encoding, Headers, Record
from headrace.plugins.records.codecs import header_problems, record_headers
from headrace.sources.cassandra.batch import MutationBatch
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.recordings.batches import recorded_batches

pytestmark = pytest.mark.hot

TABLE = "shop.orders"


@pytest.fixture(scope="module")
def batches() -> Sequence[Batch]:
    """Return real changes of several tables."""
    return recorded_batches("4.1-ops")


def headers_of(batches: Sequence[Batch], *wanted: str, token: int = 7) -> list[Headers]:
    """Return the headers of all records."""
    encoder = Encoder(Encoding(codec="avro", headers=wanted), ORIGIN)
    return [h for batch in batches for h in encoder.encode(batch, token=token).headers]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Encoding(codec="avro"), "avro"),
        (Encoding(codec="avro", envelope="flat"), "avro.flat"),
        (Encoding(codec="avro", envelope="cep44", key="primary"), "avro.primary"),
        (Encoding(codec="json", envelope="flat", key="primary"), "avro.flat.primary"),
        (Encoding(codec="json", key_codec="avro", envelope="cep44"), "avro"),
        (Encoding(codec="json"), "json"),
        (Encoding(codec="avro", envelope="flat", types="cep44"), "avro.starts"),
        (Encoding(codec="avro", envelope="flat", headers=("op",)), "avro.starts"),
        (Encoding(codec="avro", envelope="debezium"), "avro.starts"),
    ],
)
def test_a_batch_is_asked_for_the_form_that_is_wanted(
    wanted: Encoding, expected: str, batches: Sequence[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot write is made of its Avro, which then says where columns begin."""
    asked: list[str] = []
    given = MutationBatch.encode

    def encode(batch: MutationBatch, encoding: str) -> EncodedRecords:
        asked.append(encoding)
        return given(batch, encoding)

    monkeypatch.setattr(MutationBatch, "encode", encode)
    encoded = Encoder(wanted, ORIGIN).encode(batches[0], token=1)

    assert [expected] == asked
    assert len(encoded) > 0 == len(encoded.quarantined)


def test_a_kept_change_that_was_damaged_is_set_aside(batches: Sequence[Batch]) -> None:
    """In JSON, too, which is written from its bytes as they were kept."""
    record = next(batches[0].records())
    content, origin = batches[0].encode("avro").values[0], origin_of(TABLE, b"", None)
    encoder = Encoder(Encoding(codec="json", envelope="cep44"), ORIGIN)

    whole = encoder.encode(KeptBatch(content, origin, record.schema), token=1)
    cut = encoder.encode(KeptBatch(content[:-1], origin, record.schema), token=1)

    assert (1, 0) == (len(whole), len(whole.quarantined))
    assert ["bad_avro"] == [lost.code for lost in cut.quarantined]
    assert 0 == len(cut)


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
    """O03: each is the fact of the change it stands on, as text."""
    made = headers_of(batches, *record_headers(ORIGIN))
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
    assert batches
    for batch in batches:
        expected, found = batch.encode("avro"), slow.encode(batch, token=1)

        assert (expected.keys, expected.values) == (found.keys, found.values)
        assert {("token", "op")} == {tuple(name for name, _ in h) for h in found.headers}


def test_spans_of_a_mutation_differ(batches: Sequence[Batch]) -> None:
    """No two changes have the same traceparent."""
    made = headers_of(batches, "traceparent")

    assert 0 < len(made) == len(set(made))


def test_an_unknown_header_is_named() -> None:
    """A typo is one problem under its option."""
    (problem,) = header_problems(("schemaId", "tabel"))

    assert ("headers", "'tabel' is not a header") == (problem.key, problem.message)


def test_documents_stay_documents(batches: Sequence[Batch]) -> None:
    """In JSON a record that got headers is the same document as one that did not."""
    encoder = Encoder(Encoding(codec="json", headers=("op",)))

    assert codec("json").encode(batches[0]).values == encoder.encode(batches[0], token=1).values


def test_a_primary_key_has_the_clustering_columns_too(batches: Sequence[Batch]) -> None:
    """Its key is what the payload has, null where a change is of no single row."""
    shaper = Shaper(Encoding(codec="avro", envelope="cep44", key="primary"))
    encoder = Encoder(Encoding(codec="avro", envelope="cep44", key="primary"))
    clustered = 0
    for batch in batches:
        encoded = encoder.encode(batch, token=1)
        for key, record in zip(encoded.keys, batch.records(), strict=True):
            assert key is not None
            assert record.key is not None
            schema = shaper.schema(record.schema)
            names = [field["name"] for field in schema.key["fields"]]
            found: Any = fastavro.schemaless_reader(BytesIO(key), dict(schema.key), None)
            expected = {name: record.value["payload"][name] for name in names}
            assert {name: str(value) for name, value in found.items()} == {
                name: str(value) for name, value in expected.items()
            }
            clustered += len(names) > len(record.key)

    assert clustered > 0


def test_all_changes_of_a_row_have_one_primary_key(batches: Sequence[Batch]) -> None:
    """Inserts, updates and deletions of a row fall together, and those of other rows do not."""
    encoder = Encoder(Encoding(codec="json", envelope="cep44", key="primary"))
    rows: dict[bytes, set[str]] = {}
    for batch in batches:
        encoded = encoder.encode(batch, token=1)
        for key, table, record in zip(encoded.keys, encoded.tables, batch.records(), strict=True):
            document = record.document()
            row = json.dumps([document["key"], document["clustering"] or {}])
            rows.setdefault(table.encode() + (key or b""), set()).add(row)

    named = [names for names in rows.values() if len(names) > 1]
    # A static row, a range and a partition share the key whose clustering columns are null.
    assert [] == [names for names in named if not all("{}" in name for name in names)]


def test_what_is_deleted_whole_gets_a_tombstone(batches: Sequence[Batch]) -> None:
    """With the primary key that is a row, with the partition key a partition."""
    assert batches
    for mode in ("primary", "partition"):
        encoder = Encoder(Encoding(codec="avro", envelope="cep44", key=mode, tombstones=True))
        buried: list[tuple[str, bool]] = []
        for batch in batches:
            encoded = encoder.encode(batch, token=1)
            records = list(batch.records())
            buried += [_deletion(records[index]) for index in encoded.tombstones]
            others = set(range(len(records))) - set(encoded.tombstones)
            assert not {_deletion(records[index]) for index in others} & WHOLE[mode]

        assert set(buried)
        assert WHOLE[mode] >= set(buried)


WHOLE = {
    "primary": {("DELETE", True), ("DELETE", False), ("DELETE_PARTITION", False)},
    "partition": {("DELETE", False), ("DELETE_PARTITION", True), ("DELETE_PARTITION", False)},
}


def _deletion(record: Record) -> tuple[str, bool]:
    """Return the operation, and whether the table has clustering columns."""
    return record.operation.value, bool(record.schema.value["fields"][12]["type"]["clustering"])

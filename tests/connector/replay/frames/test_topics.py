"""Rows of Spark and records of a sink, converted both ways, without Spark."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.replay.columns import ARROW_SCHEMA, encoded_rows, record_batch
from headrace.connector.replay.comparing.messages import MessageReader
from headrace.connector.replay.frames.topics import TopicReader, TypedMessages
from headrace.connector.replay.frames.typed_columns import typed_batch
from headrace.plugins import ConfigError, EncodedRecords, Stored
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.testing.doubles import context
from headrace.sinks.null import NullConfig, NullSink
from helpers.logs.forged import SCHEMA, insert
from helpers.logs.node_logs import batches, forged_nodes, open_all, source
from helpers.recordings.arrow_words import in_words
from helpers.recordings.corpora import recording
from helpers.settings.seeds import soaked

LONG = pytest.mark.long
RECORDINGS = ("6.0-v9-types", "5.0-compact", "4.1-random", *soaked("4.0-types", "5.0-types"))
LOST = {"part": "p", "offset": 7, "key": b"k", "value": b"v", "schema_id": b"?"}


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Return a job into a file."""
    path = tmp_path / "job.yaml"
    sink = {"plugin": "files", "path": "out.jsonl"}
    source = {"plugin": "files", "path": "in/*.jsonl"}
    path.write_text(json.dumps({"job": "j", "state": "s.db", "source": source, "sink": sink}))
    return str(path)


def test_rows_are_records() -> None:
    """Records that became Arrow columns are the same when they are read back."""
    header = (("schemaId", b"id"),)
    records = EncodedRecords([b"k", None], [b"v", b"w"], [header, ()], ["t", "u"])

    assert records == encoded_rows(record_batch(records, ARROW_SCHEMA))


def test_unknown_options(job: str) -> None:
    """Unknown options of a topic are refused, not ignored."""
    with pytest.raises(ConfigError, match=r"operations: is not an option of headrace\.topic"):
        TopicReader({"job": job, "operations": "UPDATE"})


@pytest.mark.soak
@pytest.mark.parametrize("name", ["5.0-ops", *(pytest.param(n, marks=LONG) for n in RECORDINGS)])
def test_typed_columns_are_those_of_segments(name: str) -> None:
    """Typed columns of a table are the same from its messages as from its logs.

    A message that cannot be read is kept: it follows the others, with its bytes only.
    """
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    with closing(source(options | {"consistency": "ONE", "splits": 1})) as made:
        found = list(batches(open_all(made).values()))
        schemas = {each.schema_id: each for batch in found for each in batch.schemas()}
        reader = MessageReader(NullSink(NullConfig(), context()), made.origin, folder)
        reader.learn(schemas.values())
        texts = {schema_id: each.text for schema_id, each in schemas.items()}
        rows = 0
        for batch in found:
            whole = [
                Stored(7, b"k", b"v", ((SCHEMA_ID_HEADER, b"?"),)),
                *messages_of(batch.encode("avro")),
            ]
            for table in {schema.table for schema in schemas.values()}:
                target = made.table_type(table)
                changes = batch.typed(target, with_messages=True)
                wanted = typed_batch(changes, target, changes.encoded, made.origin)

                read = TypedMessages(target, made, texts).batch("p", whole, reader)

                assert wanted.schema.names == read.schema.names[2:]
                assert wanted.schema.types == read.schema.types[2:]
                assert in_words(wanted) == in_words(read.slice(0, wanted.num_rows))[2:]
                last = read.slice(wanted.num_rows).to_pylist()[0]
                assert LOST == {name: value for name, value in last.items() if value is not None}
                rows += wanted.num_rows

    assert 10 < rows


def messages_of(encoded: EncodedRecords) -> list[Stored]:
    """Return records as a topic has them, each third one followed by a tombstone."""
    found = []
    parts = zip(encoded.keys, encoded.values, encoded.headers, strict=True)
    for place, (key, value, headers) in enumerate(parts):
        found.append(Stored(place, key, value, headers))
        found += [Stored(place, key, None, ())] * (place % 3 == 0)
    return found


@pytest.mark.parametrize(
    ("table", "sink", "message"),
    [
        ("forged.nope", {}, "table: forged.nope is not in the schema"),
        ("forged.t", {"format": "json"}, "table: typed columns need Avro in cep44"),
        ("forged.t", {"envelope": "debezium"}, "this sink has avro, debezium, lossless"),
    ],
)
def test_tables_that_are_not_typed(
    tmp_path: Path, table: str, sink: dict[str, str], message: str
) -> None:
    """A missing table, and formats without typed columns, are named at once."""
    given = {"plugin": "kafka", "bootstrap.servers": "localhost:1", "topic": "t", **sink}
    nodes = forged_nodes(tmp_path, {"node1": [insert(b"1")]}, SCHEMA)
    job = {"job": "j", "state": "s.db", "source": {"plugin": "cassandra", **nodes}, "sink": given}
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(job))

    with pytest.raises(ConfigError, match=message):
        TopicReader({"job": str(path), "table": table})

"""What a commit appends does not depend on what else it has."""

from pathlib import Path

import msgspec
import pytest

from headrace.connector.history.config import SCOPES
from headrace.connector.history.query import Event, Query
from headrace.connector.serde.codecs.records import writer_of
from headrace.plugins import EncodedRecords, RecordSchema
from headrace.plugins.records.codecs import SCHEMA_ID_HEADER
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.histories.kept import FOREVER_MS, Kept, beside, fill, of_table, settled
from helpers.histories.rows import DDL, SCHEMA, TABLE, change, delivery
from helpers.recordings.batches import recorded_batches

NOW_US = 1_700_000_000_000_000


def events(kept: Kept) -> list[Event]:
    """Return the events of a history with all images, without their arrivals."""
    history = kept.history()
    pages = history.pages(Query(from_ms=0, scopes=frozenset(SCOPES), limit=1_000))
    found = [msgspec.structs.replace(event, arrival=0) for page in pages for event in page.events]
    history.close()
    return found


@pytest.mark.parametrize(
    ("name", "expands", "count"), [("4.1-schema", "false", 45), ("4.1-ops", "true", 1_038)]
)
def test_changes_of_one_commit_are_as_those_of_many(
    tmp_path: Path, name: str, expands: str, count: int
) -> None:
    """Also those of several schemas, and where deletions are expanded."""
    batches = recorded_batches(name)
    found = 0
    for number, table in enumerate(sorted({s.table for each in batches for s in each.schemas()})):
        deliveries = [of_table(batch, table) for batch in batches]
        options = {"table": table, "seed": "empty", "retention": "9d", "expand_deletes": expands}
        alone, together = (
            Kept(DrivenClock(), **beside(tmp_path / f"{way}{number}", **options)) for way in "ab"
        )
        fill(alone, deliveries, per_commit=1, step_ms=0)
        writer = together.writer()
        for each in deliveries:
            writer.submit(each, settled)
        assert writer.commit({}, FOREVER_MS)
        writer.close()
        expected = events(alone)
        assert expected == events(together)
        found += len(expected)
    assert count == found


def test_a_commit_can_have_changes_of_several_schemas(tmp_path: Path) -> None:
    """Of one row, which one schema gave a value that the other finds."""
    (table,) = parse_schema(DDL.replace("note text", "extra int, note text")).tables.values()
    key, value = key_schema(table), value_schema(table)
    wider = RecordSchema.of(table.qualified, table.text, key=key, value=value)
    kept = Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))
    writer = kept.writer()
    first = delivery(change(written_us=NOW_US, note="a", total=1))
    second = dict(change("UPDATE", written_us=NOW_US + 1, total=2))
    second["payload"] |= {"extra": 3}
    second |= {"schemaUuid": wider.schema_id, "updateFields": ["extra", "total"]}
    encoded = EncodedRecords(
        first.encoded.keys,
        [writer_of(wider.value)(second)],
        [((SCHEMA_ID_HEADER, wider.schema_id),)],
        [TABLE],
    )
    schemas = {each.schema_id: each for each in (SCHEMA, wider)}
    for each in (first.encoded, encoded):
        writer.submit(msgspec.structs.replace(first, encoded=each, schemas=schemas), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    *_, last = events(kept)
    assert {"extra": None, "note": "a", "total": 1} == last.pre
    assert {"extra": 3, "note": "a", "total": 2} == last.post == last.latest

"""Messages fold into the rows that the source's own fold shows, in any order."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

import pytest

from headrace.connector.rows.folding import TableView, collected, is_live, lives
from headrace.connector.serde import Encoder
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.streams.latest import LatestRows
from headrace.plugins import Encoding, RecordSchema
from headrace.sources.cassandra.encode.avro_schema import key_schema, value_schema
from headrace.sources.cassandra.mutation.changes import Change
from headrace.sources.cassandra.mutation.folding import Fold
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import TableSchema
from headrace.sources.cassandra.schema.types import CqlType
from helpers.recordings.batches import recorded_batches
from helpers.recordings.corpora import recording

NOW_S = 1_795_238_500
Message = tuple[bytes, dict[str, bytes]]


class Known:
    """The schemas of a recording."""

    def __init__(self, name: str) -> None:
        """Take them from its records."""
        batches = recorded_batches(name)
        self._found = {each.schema_id: each for b in batches for each in b.schemas()}

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return one."""
        return self._found[schema_id]

    def all(self) -> list[RecordSchema]:
        """Return all."""
        return list(self._found.values())


def messages(name: str) -> list[Message]:
    """Return what Kafka has of a recording."""
    encoder = Encoder(Encoding(codec="avro", envelope="cep44"))
    encoded = [encoder.encode(batch, token=1) for batch in recorded_batches(name)]
    return [
        (value, dict(headers))
        for each in encoded
        for value, headers in zip(each.values, each.headers, strict=True)
    ]


def changes(name: str) -> Sequence[Change]:
    """Return the changes of a recording."""
    return [
        record._change  # type: ignore[attr-defined]  # noqa: SLF001 (what the record is made of)
        for batch in recorded_batches(name)
        for record in batch.records()
    ]


def simple(table: TableSchema, row: Mapping[str, Any]) -> str:
    """Return what both forms have alike: numbers, strings, and which other columns are there.

    Of UDTs those with such fields.
    """
    alike = {c.name for c in table.columns if _is_alike(c.type)}
    made = {name: value if name in alike else value is not None for name, value in row.items()}
    return json.dumps(made, sort_keys=True)


def _is_alike(cql_type: CqlType) -> bool:
    inner = [*(each for _, each in cql_type.fields), *cql_type.arguments]
    if cql_type.is_udt or (cql_type.name == "list" and cql_type.frozen):
        return all(map(_is_alike, inner))
    return cql_type.name in ("text", "ascii", "int", "bigint")


def test_rows_are_those_of_the_sources_fold() -> None:
    """Of all tables of a recording, in three orders; each message comes twice."""
    name = "4.1-ops"
    tables = parse_schema((recording(name) / "schema.cql").read_text()).tables.values()
    expected: dict[TableSchema, list[str]] = {}
    for table in tables:
        fold = Fold(table)
        for change in changes(name):
            if change.table.qualified == table.qualified:
                fold.add(change)
        expected[table] = sorted(simple(table, row) for row in fold.rows(NOW_S))
    assert any(expected.values())
    readers: dict[bytes, Callable[[bytes], Any]] = {}  # Any: what the schema describes.
    for seed in range(3):
        rows, known = LatestRows({}), Known(name)
        sent = messages(name) * 2
        random.Random(seed).shuffle(sent)  # noqa: S311 (any order)
        for content, headers in sent:
            schema = known.get(headers["schemaId"])
            if schema.schema_id not in readers:
                readers[schema.schema_id] = reader_of(schema.value)
            rows.take(readers[schema.schema_id](content), schema)
        for table, wanted in expected.items():
            if wanted:
                found = rows.rows(table.qualified, NOW_S)
                assert wanted == sorted(simple(table, row) for row in found)


@pytest.mark.parametrize(("now_s", "is_there"), [(99, True), (100, False), (101, False)])
def test_what_expires_is_gone_from_that_second_on(now_s: int, *, is_there: bool) -> None:
    """As in Cassandra: a row or a value lives while now is before its local deletion time."""
    assert is_there == is_live({"live": [7, True, 100]}, 6, now_s)
    assert is_there == lives([7, 100, [None, b"v"]], 6, now_s)


def without_order(field: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a field of the envelope as earlier schemas had it."""
    kind = field["type"]
    if field["name"] == "payload":
        kind = {name: part for name, part in kind.items() if name != "clusteringOrder"}
    return {**field, "type": kind}


def test_addresses_are_compared_as_cassandra_does() -> None:
    """By their bytes, not as strings: in clustering columns, so in ranges, and in collections."""
    ddl = """
    CREATE KEYSPACE s WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
    CREATE TABLE s.t (k int, at inet, "to" inet, v set<inet>, PRIMARY KEY (k, at, "to"))
    WITH ID = 00000000-0000-1000-8000-000000000001 AND CLUSTERING ORDER BY (at ASC, "to" DESC);
    """
    (table,) = parse_schema(ddl).tables.values()
    key, value = key_schema(table), value_schema(table)
    schema = RecordSchema.of(table.qualified, table.text, key=key, value=value)
    view = TableView(schema)
    of_a_store = replace(schema, text="")  # It has the Avro schema alone.
    assert [False, True] == view.descending == TableView(of_a_store).descending
    fields: Any = value["fields"]
    earlier = {**value, "fields": [without_order(each) for each in fields]}
    assert [False, True] == TableView(replace(schema, value=earlier)).descending
    ascending = ["9.0.0.1", "10.0.0.1", "::1", "100.0.0.1", "ff::1"]
    ascending.sort(key=lambda text: ip_address(text).packed)
    assert sorted(ascending) != ascending
    firsts = [view.position([text], ["at"]) for text in ascending]
    seconds = [view.position(["::1", text], ["at", "to"]) for text in reversed(ascending)]
    assert sorted(firsts) == firsts
    assert sorted(seconds) == seconds
    cells = [[text, None] for text in reversed(ascending)]
    assert ascending == collected(view, "v", cells)


def test_kept_rows_are_shown_before_a_message_comes() -> None:
    """Another process with the same table, or with a partition of it, shows the same rows."""
    name = "4.1-ops"
    known, tables = Known(name), (dict[bytes, bytes](), dict[bytes, bytes]())
    readers: dict[bytes, Callable[[bytes], Any]] = {}  # Any: what the schema describes.
    for partition, table in enumerate(tables):
        rows = LatestRows(table)
        for content, headers in messages(name)[partition::2]:
            schema = known.get(headers["schemaId"])
            if schema.schema_id not in readers:
                readers[schema.schema_id] = reader_of(schema.value)
            rows.take(readers[schema.schema_id](content), schema, partition)
        names = {schema.table for schema in known.all()}
        before = {each: list(rows.rows(each, NOW_S)) for each in names}
        assert any(before.values())

        again = LatestRows(table)

        assert before == {each: list(again.rows(each, NOW_S)) for each in names}

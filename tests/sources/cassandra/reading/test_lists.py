"""`lists: read`: changes tell whole lists, as a query found them."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import structlog
from structlog.testing import capture_logs

from headrace.connector.serde import Encoder
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.serde.shaping import Shaper
from headrace.connector.streams.latest import LatestRows
from headrace.plugins import (
    Batch,
    ConfigError,
    EncodedRecords,
    Encoding,
    HeadraceError,
    RecordBatch,
    RecordSchema,
    parse_config,
)
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra import resources
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.encode.origin import ORIGIN
from headrace.sources.cassandra.reading import list_query
from headrace.sources.cassandra.reading.lists import (
    Found,
    Lists,
    ListsRefusedError,
    ListsUnreadError,
    ListValue,
    Wanted,
)
from helpers.logs.node_logs import batches, open_all, source
from helpers.recordings.batches import recorded_batches
from helpers.recordings.corpora import recording
from helpers.settings.seeds import soaked

OPS: Final = "5.0-ops"  # It appends to lists and replaces them, among much else.
STATICS: Final = "5.0-random"
LATER_US: Final = 1_900_000_000_000_000


class Table:
    """What a table has now: of each list its column's number of elements; or what fails."""

    def __init__(self, *failures: HeadraceError) -> None:
        """Fail for the first row, so often."""
        self.asked: list[Wanted] = []
        self.failures = list(failures)
        self.gone = False

    def read(self, rows: Sequence[Wanted]) -> Sequence[Found | HeadraceError]:
        """Return two numbers for each list of numbers, no other list at all."""
        self.asked += rows
        if self.gone:
            return [{c.name: ListValue(None) for c in row.columns} for row in rows]
        found: list[Found | HeadraceError] = [
            {
                c.name: ListValue(
                    numbers(7, len(self.asked)) if str(c.type) == "list<int>" else None, (None, 60)
                )
                for c in row.columns
            }
            for row in rows
        ]
        if self.failures:
            found[0] = self.failures.pop(0)
        return found

    def close(self) -> None:
        """Nothing is open."""


def numbers(*given: int) -> bytes:
    """Return a list of ints as a node sends it."""
    parts = [(4).to_bytes(4, "big") + each.to_bytes(4, "big") for each in given]
    return len(given).to_bytes(4, "big") + b"".join(parts)


class Clock(DrivenClock):
    """A clock whose wall is later than all that was recorded."""

    def wall_ms(self) -> int:
        """Return the time of the queries."""
        return LATER_US // 1_000 + self.monotonic_ms()


@pytest.fixture
def table() -> Table:
    """Return a table that answers; what the log has is read without it."""
    recorded_batches(OPS)
    return Table()


def batch_of(
    name: str, table: Table, monkeypatch: pytest.MonkeyPatch, unread: str = "fail"
) -> Batch:
    """Return what a job with `lists: read` reads of a recording; its queries go to *table*."""
    log = structlog.stdlib.get_logger()
    around = replace(context(Clock()), log=log)
    lists = Lists(table, around, unread=unread)
    monkeypatch.setattr(resources, "lists_of", lambda _config, _context: lists)
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    made = source(options | {"consistency": "ONE", "splits": 1})
    (batch,) = batches(open_all(made).values())  # The source is left open: its lists are read yet.
    return batch


def encoded(batch: Batch, **wanted: Any) -> EncodedRecords:  # noqa: ANN401
    """Return a batch's records in the wanted form."""
    return Encoder(Encoding(**wanted), ORIGIN).encode(batch, token=1)


def values(made: EncodedRecords, batch: Batch, **wanted: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield messages as a reader with their schemas sees them."""
    shaper = Shaper(Encoding(**wanted), ORIGIN)
    schemas: dict[bytes, RecordSchema] = {r.schema.schema_id: r.schema for r in batch.records()}
    readers = {i: reader_of(shaper.schema(schema).value) for i, schema in schemas.items()}
    for value, headers in zip(made.values, made.headers, strict=True):
        yield readers[dict(headers)["schemaId"]](value)


def test_a_change_tells_the_whole_list(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """C04: a change that wrote a list has all of it, deleted and written when it was read."""
    batch = batch_of(OPS, table, monkeypatch)
    made = encoded(batch, codec="avro")
    (plain,) = recorded_batches(OPS)
    before = encoded(plain, codec="avro")

    lists = 0
    for index, value in enumerate(values(made, batch, codec="avro")):
        if "li" not in value["updateFields"]:
            assert before.values[index] == made.values[index]
            assert "lists" not in dict(made.headers[index])
            continue
        lists += 1
        assert b"read" == dict(made.headers[index])["lists"]
        found = value["payload"]["li"]
        assert "replace" == found["mode"]
        assert LATER_US < found["deletedAt"] > value["timestampMicros"]
        assert [7] == [cell["value"] for cell in found["cells"]][:1]
        assert {found["deletedAt"] + 1} == {cell["timestampMicros"] for cell in found["cells"]}
        assert [None, 60] == [cell["ttl"] for cell in found["cells"]]
        assert sorted(c["key"] for c in found["cells"]) == [c["key"] for c in found["cells"]]
    assert 90 == lists
    assert before.keys == made.keys


def test_each_row_is_asked_for_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many changes of a batch wrote a row's lists, and however it is asked, one query."""
    batch = batch_of(OPS, table, monkeypatch)
    assert batch.ready() in {True, False}
    encoded(batch, codec="avro")
    encoded(batch, codec="json", envelope="flat")
    list(batch.records())

    assert {1} == set(Counter(row.name for row in table.asked).values())
    assert batch.ready()


FORMS: tuple[dict[str, Any], ...] = (
    {"codec": "avro"},
    {"codec": "avro", "envelope": "debezium"},
    {"codec": "avro", "envelope": "flat", "types": "cep44", "headers": ("schemaId", "op")},
    {"codec": "json"},
    {"codec": "json", "envelope": "cep44"},
    {"codec": "json", "envelope": "debezium", "key": "primary"},
)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *((STATICS if number % 2 else OPS, form) for number, form in enumerate(FORMS)),
        *soaked(*((OPS if number % 2 else STATICS, form) for number, form in enumerate(FORMS))),
    ],
)
def test_all_ways_give_the_same(
    name: str, form: dict[str, Any], table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Encoded at once or record by record, in every envelope, messages are the same bytes."""
    batch = batch_of(name, table, monkeypatch)
    fast = encoded(batch, **form)
    singly = RecordBatch(batch.split, batch.end, batch.size_bytes, list(batch.records()))
    slow = encoded(singly, **form)

    assert any("lists" in dict(headers) for headers in fast.headers)
    assert (slow.keys, slow.values, slow.headers) == (fast.keys, fast.values, fast.headers)


def test_debezium_has_the_list(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its consumers find a plain array, all of the list."""
    batch = batch_of(OPS, table, monkeypatch)
    form = {"codec": "avro", "envelope": "debezium"}
    found = [v["after"].get("li") for v in values(encoded(batch, **form), batch, **form)]

    assert 90 == sum(each is not None and each["value"][:1] == [7] for each in found)


def test_json_documents_say_that_it_was_read(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """In change JSON the list is a value, and the document says `lists`."""
    batch = batch_of(OPS, table, monkeypatch)
    documents = [json.loads(value) for value in encoded(batch, codec="json").values]
    found = [d for d in documents if "li" in d.get("columns", {})]

    assert 90 == len(found)
    assert {"read"} == {d["lists"] for d in found}
    assert {7} == {d["columns"]["li"]["value"][0] for d in found}
    assert all("lists" not in d for d in documents if d not in found)


def test_a_row_that_is_gone_has_no_list(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a row or list that was deleted since, the change says that nothing is there."""
    table.gone = True
    batch = batch_of(OPS, table, monkeypatch)
    lists = [
        v["payload"].get("li") for v in values(encoded(batch, codec="avro"), batch, codec="avro")
    ]

    assert 90 == sum(found is not None and found["cells"] == [] for found in lists)


def test_what_is_not_read_is_asked_for_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row whose lists could not be read is asked for again, the others are not."""
    table.failures = [ListsUnreadError("no answer"), ListsUnreadError("no answer")]
    batch = batch_of(OPS, table, monkeypatch)

    for _ in range(2):
        with pytest.raises(ListsUnreadError, match="no answer"):
            encoded(batch, codec="avro")
    made = encoded(batch, codec="avro")

    assert 90 == sum("lists" in dict(headers) for headers in made.headers)
    times = Counter(row.name for row in table.asked)
    assert [3] == [count for count in times.values() if count > 1]


def test_what_cannot_be_read_is_reported_as_logged(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `lists_unread: cells` such a change has what the log has, and does not say `lists`."""
    table.failures = [ListsUnreadError("no answer")]
    batch = batch_of(OPS, table, monkeypatch, unread="cells")
    with capture_logs() as logs:
        made = encoded(batch, codec="avro")
    (plain,) = recorded_batches(OPS)
    before = encoded(plain, codec="avro")

    marked = ["lists" in dict(headers) for headers in made.headers]
    same = [a == b for a, b in zip(made.values, before.values, strict=True)]
    assert ["lists_unread"] == [entry["event"] for entry in logs]
    assert 0 < 90 - sum(marked) < 10
    assert [not each for each in marked] == same


def test_what_is_refused_stops_the_split(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the right to read, nothing is reported as logged."""
    table.failures = [ListsRefusedError("no right")]
    batch = batch_of(OPS, table, monkeypatch, unread="cells")

    with pytest.raises(ListsRefusedError, match="no right"):
        encoded(batch, codec="avro")


def test_what_was_read_last_wins(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of messages, a consumer that folds by write time has the last list read."""
    batch = batch_of(OPS, table, monkeypatch)
    early = encoded(batch, codec="avro")
    late = encoded(batch_of(OPS, table, monkeypatch), codec="avro")
    rows = [folded(batch, late, early), folded(batch, early, late), folded(batch, late)]

    assert rows[2] == rows[0] == rows[1] != folded(batch, early)


def folded(batch: Batch, *all_made: EncodedRecords) -> list[object]:
    """Return the lists of the rows that a consumer has in the end."""
    schemas = {record.schema.schema_id: record.schema for record in batch.records()}
    readers = {i: reader_of(schema.value) for i, schema in schemas.items()}
    latest = LatestRows({})
    for made in all_made:
        for value, headers in zip(made.values, made.headers, strict=True):
            schema_id = dict(headers)["schemaId"]
            latest.take(readers[schema_id](value), schemas[schema_id])
    tables = sorted({schema.table for schema in schemas.values()})
    rows = [row for name in tables for row in latest.rows(name, now_s=1_700_000_000)]
    return sorted([row["li"] for row in rows if row.get("li") is not None], key=str)


def test_somebody_must_be_asked(tmp_path: Path) -> None:
    """Without contact points there is no node to read lists from."""
    options = {"nodes": {"node1": str(tmp_path)}, "schema": "schema.cql", "lists": "read"}

    with pytest.raises(ConfigError, match="contact_points: is required for lists: read"):
        parse_config(CassandraConfig, options)


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """The queries are made as the options say; their level is the job's unless it is given."""
    made: list[dict[str, object]] = []

    def query(_: object, **options: object) -> Table:
        made.append(options)
        return Table()

    monkeypatch.setattr(list_query, "CqlLists", query)
    given = {"nodes": {"node1": "cdc_raw"}, "contact_points": ["node1"], "lists": "read"}
    more = {
        "lists_consistency": "ALL",
        "lists_concurrency": 7,
        "lists_seconds_max": 3,
        "lists_unread": "cells",
    }
    plain, other, none = (
        resources.lists_of(parse_config(CassandraConfig, options), context())
        for options in (given, given | more, given | {"lists": "cells"})
    )

    assert [
        {"consistency": "QUORUM", "concurrency": 32, "seconds_max": 10.0},
        {"consistency": "ALL", "concurrency": 7, "seconds_max": 3.0},
    ] == made
    assert (plain and plain.unread, other and other.unread) == ("fail", "cells")
    assert none is None

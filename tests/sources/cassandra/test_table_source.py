"""The source of a table before it asks a node: options, ranges of tokens."""

import ssl
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel

from headrace.connector.replay.frames.typed_columns import typed_batch
from headrace.plugins import Batch, ConfigError, Demand, Done, NumberPosition, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra import table_source
from headrace.sources.cassandra.encode.change_record import ChangeRecord
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import Schema
from headrace.sources.cassandra.table_source import ChangeBatch, TableConfig, TableSource
from helpers.logs.node_logs import batches, open_all
from helpers.logs.node_logs import source as log_source
from helpers.recordings.arrow_words import in_words
from helpers.recordings.corpora import recording
from helpers.servers.authority import Authority
from helpers.servers.cql_node import TEXT, CqlNode, rows

SCHEMA = parse_schema("""
CREATE TABLE shop.orders (id int PRIMARY KEY, note text) WITH cdc = true
    AND ID = 4f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5a;
CREATE TABLE shop.counted (id int PRIMARY KEY, n counter)
    WITH ID = 4f0e0d0c-3b1e-11ef-9d2b-0f1e2d3c4b5b;
""")
WHOLE = (-(1 << 63), (1 << 63) - 1)


@pytest.fixture(autouse=True)
def _node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the network say what the schema is."""

    def said(contact: Contact) -> Schema:
        assert contact.points
        return SCHEMA

    monkeypatch.setattr(table_source, "read_live_schema", said)


def source(**options: object) -> TableSource:
    """Return the source of a table."""
    given = {"table": "shop.orders", "contact_points": ["node1:9042"], **options}
    return TableSource(parse_config(TableConfig, given), context())


def ranges(made: TableSource) -> list[tuple[int, int]]:
    """Return the ranges that a source plans."""
    parts = [split.split_id.partition(":") for split in made.plan()]
    return [(int(after), int(until)) for after, _, until in parts]


@pytest.mark.parametrize("name", ["5.0-ops", pytest.param("5.0-types", marks=pytest.mark.long)])
def test_typed_columns_of_a_page(name: str) -> None:
    """A page's changes become the columns that changes of logs become."""
    folder = recording(name)
    options = {"nodes": {"node1": str(folder / "segments")}, "schema": str(folder / "schema.cql")}
    rows = 0
    with closing(log_source(options | {"consistency": "ONE", "splits": 1})) as made:
        for batch in batches(open_all(made).values()):
            of_table: dict[str, list[ChangeRecord]] = {}
            for record in batch.records():
                assert isinstance(record, ChangeRecord)
                of_table.setdefault(record.schema.table, []).append(record)
            for table, records in of_table.items():
                target = made.table_type(table)
                of_logs = batch.typed(target, with_messages=False)
                wanted = typed_batch(of_logs, target, None, made.origin)

                page = ChangeBatch("0:1", NumberPosition(0), 0, records)
                of_rows = page.typed(target, with_messages=False)
                found = typed_batch(of_rows, target, None, made.origin)

                assert in_words(wanted) == in_words(found)
                rows += found.num_rows

    assert 10 < rows


def test_ranges_cover_the_ring() -> None:
    """Ranges follow one another from the lowest token to the highest."""
    found = ranges(source(splits=5))

    assert 5 == len(found)
    assert WHOLE == (found[0][0], found[-1][1])
    assert all(before[1] == after[0] for before, after in pairwise(found))


def test_ranges_that_are_asked_for() -> None:
    """Only these tokens are read, also where they end in the middle of a range."""
    made = source(splits=4)
    made.limit(tokens=[(-5, 1 << 62)])

    assert [(-5, 0), (0, 1 << 62)] == ranges(made)


def test_a_node_is_asked(tmp_path: Path) -> None:
    """By TLS, as someone, for a level and so many rows at a time, when that is said."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node"))
    version = rows({"release_version": TEXT}, [b"5.0.2"])
    answers = {"SELECT release_version": version, "SELECT token(": rows({"token": TEXT})}
    with CqlNode(users={"u": "p"}, tls=context, answers=answers) as node:
        access = {"username": "u", "password": "p", "tls_ca": str(authority.file)}
        made = source(contact_points=[node.point], read_consistency="ALL", page_rows=7, **access)
        reader = made.open(made.plan()[0], None)
        empty = reader.read(Demand())
        assert isinstance(reader.read(Demand()), Done)

    assert isinstance(empty, Batch)
    assert (1, 0) == (len(empty.schemas()), len(list(empty.records())))
    asked = {statement: level for statement, level in node.levels.items() if "token(" in statement}
    assert [ConsistencyLevel.ALL] == [*asked.values()]
    assert [7] == [node.page_rows[statement] for statement in asked]


def test_types_that_the_driver_does_not_know() -> None:
    """A node may name any type, also inside others: values are read as bytes."""
    name = b"o.a.c.db.marshal.VectorType(o.a.c.db.marshal.UserType(k,75,66:Int32Type) , 2)"
    custom = b"\x00\x00" + len(name).to_bytes(2, "big") + name
    field = b"\x00\x01f"
    types = {
        "v": custom,
        "l": b"\x00\x20" + custom,
        "m": b"\x00\x21" + TEXT + custom,
        "s": b"\x00\x22" + custom,
        "u": b"\x00\x30\x00\x01k\x00\x01u\x00\x02" + field + TEXT + field + custom,
        "t": b"\x00\x31\x00\x02" + TEXT + custom,
    }
    version = rows({"release_version": TEXT}, [b"5.0.2"])
    answers = {"SELECT release_version": version, "SELECT token(": rows({"token": TEXT} | types)}
    with CqlNode(answers=answers) as node:
        made = source(contact_points=[node.point])
        found = made.open(made.plan()[0], None).read(Demand())

    assert isinstance(found, Batch)
    assert not list(found.records())


@pytest.mark.parametrize(
    ("table", "message"),
    [("shop.nothing", "is not in the schema"), ("shop.counted", "holds counters")],
)
def test_tables_that_cannot_be_read(table: str, message: str) -> None:
    """A table that does not exist, or holds counters, is named."""
    with pytest.raises(ConfigError, match=message):
        source(table=table).plan()


def test_a_table_has_no_positions() -> None:
    """What is asked for up to a position is refused."""
    with pytest.raises(ConfigError, match="no positions"):
        source().limit(until=NumberPosition(1))

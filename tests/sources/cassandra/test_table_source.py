"""The source of a table before it asks a node: options, ranges of tokens."""

import ssl
from itertools import pairwise
from pathlib import Path

import pytest
from cassandra import ConsistencyLevel

from authority import Authority
from cql_node import TEXT, CqlNode, rows
from headrace.plugins import Batch, ConfigError, Demand, Done, NumberPosition, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra import table_source
from headrace.sources.cassandra.contact import Contact
from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.schema import Schema
from headrace.sources.cassandra.table_source import TableConfig, TableSource

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
    """By TLS, as somebody and for a level, when that is said."""
    authority = Authority(tmp_path, "ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("node"))
    version = rows({"release_version": TEXT}, [b"5.0.2"])
    answers = {"SELECT release_version": version, "SELECT token(": rows({"token": TEXT})}
    with CqlNode(users={"u": "p"}, tls=context, answers=answers) as node:
        access = {"username": "u", "password": "p", "tls_ca": str(authority.file)}
        made = source(contact_points=[node.point], read_consistency="ALL", **access)
        reader = made.open(made.plan()[0], None)
        empty = reader.read(Demand())
        assert isinstance(reader.read(Demand()), Done)

    assert isinstance(empty, Batch)
    assert (1, 0) == (len(empty.schemas()), len(list(empty.records())))
    asked = [level for statement, level in node.levels.items() if "token(" in statement]
    assert [ConsistencyLevel.ALL] == asked


@pytest.mark.parametrize(
    ("table", "message"),
    [("shop.nothing", "is not in the schema"), ("shop.counted", "holds counters")],
)
def test_tables_that_cannot_be_read(table: str, message: str) -> None:
    """A table that is not there, or holds counters, is named."""
    with pytest.raises(ConfigError, match=message):
        source(table=table).plan()


def test_a_table_has_no_positions() -> None:
    """What is asked for up to a position is refused."""
    with pytest.raises(ConfigError, match="no positions"):
        source().limit(until=NumberPosition(1))

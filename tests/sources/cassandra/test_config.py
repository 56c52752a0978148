"""What a source will not deliver of tables, by the schema that it is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.plugins import ConfigError
from headrace.plugins.testing.doubles import context
from headrace.sources.cassandra.config import CassandraConfig, warnings_of
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.source import CassandraSource
from helpers.logs.unlogged import HINT, ORDERS, SCHEMA

WARNINGS = [
    ("shop.orders", "table_skipped", ORDERS, HINT),
    (
        "shop.moving",
        "table_incomplete",
        (
            "table shop.moving: a part of its writes is in no commit log, and is not delivered "
            "(accord)"
        ),
        HINT,
    ),
    (
        "quiet.visits",
        "table_skipped",
        (
            "table quiet.visits is in a keyspace with durable_writes = false: its writes are in no "
            "commit log, so nothing of it is delivered (durable_writes)"
        ),
        "ALTER KEYSPACE … WITH durable_writes = true",
    ),
    (
        "shop.hits",
        "table_skipped",
        "table shop.hits holds counters, so nothing of it is delivered (counter)",
        "a log holds the totals of one node, neither what was added nor the count",
    ),
]


@pytest.mark.parametrize("expected", WARNINGS, ids=lambda expected: expected[0])
def test_warnings(expected: tuple[str, str, str, str]) -> None:
    """A warning has the code of the job's log event, the reason, and what can be done."""
    (found,) = warnings_of(parse_schema(SCHEMA), [expected[0]])

    assert expected[1:] == (found.code, found.message, found.hint)


def test_tracked_replication() -> None:
    """A keyspace whose replication is tracked is warned of by its reason."""
    option = "durable_writes = false"
    assert option in SCHEMA
    schema = parse_schema(SCHEMA.replace(option, "replication_type = 'tracked'"))

    (found,) = warnings_of(schema, ["quiet.visits"])

    assert "table_skipped" == found.code
    assert found.message.endswith("so nothing of it is delivered (tracked)")


def test_no_warnings() -> None:
    """A table whose writes are in commit logs has no warning."""
    assert [] == warnings_of(parse_schema(SCHEMA), ["shop.items"])


MISSING = {
    "shop.itmes": ("shop.itmes is not in the schema", "did you mean shop.items?"),
    "shop.items": ("shop.items has no CDC", "ALTER TABLE"),
}


@pytest.mark.parametrize("table", MISSING)
def test_a_table_that_cannot_be_delivered_yet(table: str) -> None:
    """A misspelt table and a table without CDC have a warning that says what to do."""
    option = "AND cdc = true"
    assert option in SCHEMA
    schema = parse_schema(SCHEMA if table == "shop.itmes" else SCHEMA.replace(option, ""))
    message, hint = MISSING[table]

    (found,) = warnings_of(schema, [table])

    assert ("table_missing", message) == (found.code, found.message)
    assert hint in found.hint


def test_source_needs_its_schema_alone(tmp_path: Path) -> None:
    """The source answers without a log, and raises when its schema cannot be read."""
    path = tmp_path / "schema.cql"
    path.write_text(SCHEMA)

    def asked() -> list[str]:
        config = CassandraConfig(nodes={"node1": str(tmp_path / "gone")}, schema=str(path))
        source = CassandraSource(config, replace(context(), read_only=True))
        return [found.code for found in source.check_tables(["shop.orders", "shop.moving"])]

    assert ["table_skipped", "table_incomplete"] == asked()
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        asked()

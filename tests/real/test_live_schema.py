"""The schema as a live node has it, read in two ways."""

from dataclasses import replace

import pytest
from cassandra.cluster import Session
from servers.cassandra import Cassandra

from headrace.sources.cassandra.contact import Contact
from headrace.sources.cassandra.ddl import parse_schema
from headrace.sources.cassandra.live import ClusterUnreachableError, read_live_schema
from headrace.sources.cassandra.schema import TableSchema

pytestmark = pytest.mark.real

STATEMENTS = (
    (
        "CREATE KEYSPACE two_ways WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    ),
    "CREATE TYPE two_ways.inner (a int, b frozen<map<text, int>>)",
    'CREATE TYPE two_ways.outer ("Odd name" frozen<inner>, c tuple<int, text>)',
    (
        "CREATE TABLE two_ways.wide (k1 uuid, k2 text, c1 int, c2 timestamp, s set<text> static, "
        'u outer, f frozen<outer>, "Mixed" vector<float, 3>, l list<frozen<inner>>, gone text, '
        "back text, PRIMARY KEY ((k1, k2), c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC) "
        "AND cdc = true"
    ),
    "ALTER TABLE two_ways.wide DROP gone",
    "ALTER TABLE two_ways.wide DROP back",
    "ALTER TABLE two_ways.wide ADD back text",
    "CREATE TABLE two_ways.counted (k text PRIMARY KEY, n counter) WITH cdc = true",
    "CREATE TABLE two_ways.plain (k text PRIMARY KEY)",
)


def test_describe_and_system_tables_give_the_same_schema(node: Cassandra, session: Session) -> None:
    """Tables, their ids and their schema ids do not depend on where the schema was read.

    Only the time of a drop does: a node's tables keep it in ms, DESCRIBE gives what came between.
    """
    for statement in STATEMENTS:
        session.execute(statement)
    described = session.execute("DESCRIBE KEYSPACE two_ways WITH INTERNALS")
    text = "\n".join(row.create_statement for row in described)

    from_text = parse_schema(text).tables
    live = read_live_schema(Contact((f"{node.host}:{node.port}",))).tables

    def summary(table: TableSchema) -> tuple[object, ...]:
        columns = [
            replace(column, dropped_us=column.dropped_us and column.dropped_us // 1000)
            for column in table.columns
        ]
        return table.text, table.schema_id, table.cdc, table.is_counter, columns

    ours = {key: table for key, table in live.items() if table.keyspace == "two_ways"}
    assert 3 == len(ours) == len(from_text)
    for table_id, table in from_text.items():
        assert summary(table) == summary(ours[table_id])


def test_a_port_without_a_node_is_named() -> None:
    """An unreachable contact point is an error of the environment, with a hint."""
    with pytest.raises(ClusterUnreachableError) as caught:
        read_live_schema(Contact(("127.0.0.1:1",)))

    assert caught.value.exit_status == 3
    assert caught.value.place == "contact_points 127.0.0.1:1"

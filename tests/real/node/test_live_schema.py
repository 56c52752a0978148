"""The schema as a live node has it, read in two ways."""

from pathlib import Path

import pytest
from cassandra.cluster import Session
from msgspec.structs import replace

from headrace.connector.commands.exec import main
from headrace.sources.cassandra.log import read_mutations
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.live import ClusterUnreachableError, read_live_schema
from headrace.sources.cassandra.schema.tables import TableSchema
from real.ring_jobs import wait_for
from real.servers.cassandra import Cassandra

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


UNLOGGED = (
    (
        "CREATE KEYSPACE quiet WITH replication = {'class': 'SimpleStrategy', "
        "'replication_factor': 1} AND durable_writes = false"
    ),
    "CREATE TABLE quiet.t (k int PRIMARY KEY, v text) WITH cdc = true",
    "CREATE KEYSPACE loud WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    "CREATE TABLE loud.fixed (k int PRIMARY KEY, v text) WITH COMPACT STORAGE AND cdc = true",
    (
        "CREATE TABLE loud.dense (k int, c text, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE "
        "AND cdc = true"
    ),
    (
        "CREATE TABLE loud.bare (k int, c text, PRIMARY KEY (k, c)) WITH COMPACT STORAGE "
        "AND cdc = true"
    ),
    "INSERT INTO quiet.t (k, v) VALUES (1, 'nowhere')",
    "INSERT INTO loud.fixed (k, v) VALUES (1, 'somewhere')",
)


def test_what_describe_comments_out_and_what_no_log_has(node: Cassandra, session: Session) -> None:
    """Compact tables are read from comments; nothing is logged where writes are not durable."""
    for statement in UNLOGGED:
        session.execute(statement)
    described = session.execute("DESCRIBE KEYSPACES").all()
    assert {"quiet", "loud"} <= {row.keyspace_name for row in described}
    rows = [
        row.create_statement
        for name in ("quiet", "loud")
        for row in session.execute(f"DESCRIBE KEYSPACE {name} WITH INTERNALS")
    ]
    text = "\n".join(rows)
    assert 3 == text.count("omitted because it has constructs not compatible with CQL")

    schema, live = parse_schema(text), read_live_schema(Contact((f"{node.host}:{node.port}",)))
    assert 4 == len(schema.tables)
    for table_id, table in schema.tables.items():
        assert table == live.tables[table_id]
    for found in (schema, live):
        durable = [found.keyspaces[name].durable_writes for name in ("quiet", "loud")]
        assert [False, True] == durable

    def logged() -> set[str]:
        names = set()
        for path in node.cdc_raw.glob("*.log"):
            with path.open("rb") as stream:
                read = read_mutations(stream, schema)
                names |= {each.table.qualified for mutation in read for each in mutation.updates}
        return names

    wait_for(lambda: "loud.fixed" in logged(), "nothing is logged")
    assert "quiet.t" not in logged()


def test_create_asks_a_live_node(
    node: Cassandra, session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CREATE DATA_SOURCE warns by the schema of a contact point, though nothing runs."""
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    for name, durable in (("hushed", "false"), ("spoken", "true")):
        options = f"replication = {replication} AND durable_writes = {durable}"
        session.execute(f"CREATE KEYSPACE {name} WITH {options}")
        session.execute(f"CREATE TABLE {name}.t (k int PRIMARY KEY) WITH cdc = true")
    file = tmp_path / "worker.yaml"
    file.write_text(
        f"state: state.db\nsource: {{plugin: cassandra, nodes: {{node1: {node.cdc_raw}}}, "
        f"contact_points: ['{node.host}:{node.port}']}}\n"
    )
    text = (
        "CREATE DATA_SINK f WITH 'file://out.jsonl'; CREATE DATA_SOURCE cdc ON TABLE spoken.t "
        "WITH f; CREATE DATA_SOURCE cdc ON TABLE hushed.t WITH f"
    )

    assert 0 == main(["--state", str(file), "-e", text])
    expected = (
        "warning [table_skipped]: table hushed.t is in a keyspace with durable_writes = false: "
        "its writes are in no commit log, so nothing of it is delivered (durable_writes)\n"
        "hint: ALTER KEYSPACE … WITH durable_writes = true\n"
    )
    assert ("", expected) == capsys.readouterr()


def test_a_port_without_a_node_is_named() -> None:
    """An unreachable contact point is an error of the environment, with a hint."""
    with pytest.raises(ClusterUnreachableError) as caught:
        read_live_schema(Contact(("127.0.0.1:1",)))

    assert caught.value.exit_status == 3
    assert caught.value.place == "contact_points 127.0.0.1:1"

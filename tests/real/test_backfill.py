"""A real table into the sink, and folded: it is the table."""

import json
import time
from pathlib import Path

import pytest
import yaml
from cassandra.cluster import Session
from servers.cassandra import Cassandra

from headrace.connector.cli import main
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, batches, opened
from headrace.sources.cassandra.batch import ChangeRecord
from headrace.sources.cassandra.folding import Fold
from headrace.sources.cassandra.schema import TableSchema

pytestmark = pytest.mark.real

ROWS = 300
STATEMENTS = (
    (
        "CREATE KEYSPACE filled WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    ),
    (
        "CREATE TABLE filled.t (k int, c int, v text, n int, tags set<text>, m map<text, int>, "
        "s text static, PRIMARY KEY (k, c)) WITH cdc = true"
    ),
)


def write(session: Session, first: int, count: int, text: str) -> None:
    """Write rows in every way there is."""
    for number in range(first, first + count):
        key, c = number % 40, number
        session.execute(
            "INSERT INTO filled.t (k, c, v, n, tags, m) VALUES (%s, %s, %s, %s, %s, %s)",
            (key, c, text, number, {"a", text}, {"x": number}),
        )
        if number % 3 == 0:
            session.execute("UPDATE filled.t SET v = %s WHERE k = %s AND c = %s", ("new", key, c))
            session.execute(
                "UPDATE filled.t SET tags = tags + {'b'} WHERE k = %s AND c = %s", (key, c)
            )
        if number % 5 == 0:
            session.execute("UPDATE filled.t SET s = %s WHERE k = %s", (text, key))
        if number % 7 == 0:
            session.execute("DELETE n FROM filled.t WHERE k = %s AND c = %s", (key, c))
        if number % 11 == 0:
            session.execute("INSERT INTO filled.t (k, c) VALUES (%s, %s)", (key, -c - 1))


def changes(spec: SourceSpec) -> tuple[TableSchema, list[ChangeRecord]]:
    """Read the table once through."""
    found: list[ChangeRecord] = []
    for shard in planned(spec, Selection(), shards=7).shards:
        with opened(shard) as source:
            for batch in batches(source, shard):
                found += [r for r in batch.records() if isinstance(r, ChangeRecord)]
    return found[0].change.table, found


def rows_of(fold: Fold) -> list[str]:
    """Return the rows of a fold, in an order."""
    return sorted(json.dumps(row, sort_keys=True) for row in fold.rows(int(time.time())))


def table_rows(session: Session) -> list[str]:
    """Return the rows of the table, in an order."""
    rows = [json.loads(row[0]) for row in session.execute("SELECT JSON * FROM filled.t")]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_backfill(node: Cassandra, session: Session, tmp_path: Path) -> None:
    """A table's changes fold to the table; an older snapshot that comes later changes nothing."""
    for statement in STATEMENTS:
        session.execute(statement)
    given = {
        "plugin": "cassandra-table",
        "table": "filled.t",
        "contact_points": [f"{node.host}:{node.port}"],
        "read_consistency": "ONE",
    }
    spec = SourceSpec(given=given, directory=str(tmp_path))
    write(session, 0, ROWS, "first")
    table, before = changes(spec)
    write(session, ROWS // 2, ROWS, "second")
    _, after = changes(spec)
    expected = table_rows(session)

    for order in ([*after], [*before, *after], [*after, *before]):
        fold = Fold(table)
        for record in order:
            fold.add(record.change)
        assert expected == rows_of(fold)


def test_backfill_command(node: Cassandra, session: Session, tmp_path: Path) -> None:
    """The command sends every row into the job's sink, once, and keeps a run."""
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": "nowhere"},
        "contact_points": [f"{node.host}:{node.port}"],
    }
    sink = {"plugin": "files", "path": "out.jsonl"}
    job = {"job": "filled", "state": "s.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    path = str(tmp_path / "job.yaml")

    assert 0 == main(["backfill", path, "filled.t", "--shards", "5", "--master", "none"])

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    inserted = {(line["key"]["k"], line["clustering"]["c"]) for line in lines if line["clustering"]}
    rows = {(row.k, row.c) for row in session.execute("SELECT k, c FROM filled.t")}
    assert rows == inserted
    assert 0 == main(["replay", "status", path])

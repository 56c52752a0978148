"""A real table into the sink, and folded: it is the table."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pytest
import yaml
from cassandra.cluster import Session

from headrace.connector.commands.cli import main
from headrace.connector.replay.shards import SourceSpec
from headrace.sources.cassandra.encode.change_record import ChangeRecord
from headrace.sources.cassandra.mutation.folding import Fold
from helpers.jobs.children import until_after
from real.logged import changes
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

ROWS = 300
RACED = (
    "CREATE TABLE raced.t (k int, c int, v text, n int, tags set<text>, m map<text, int>, "
    "PRIMARY KEY (k, c)) WITH cdc = true"
)
WRITES_MAX: Final = 4_000
SECONDS_MAX: Final = 600
TTL_SECONDS: Final = 4
JITTER_US: Final = 100_000  # Writes have times that are so far from their order.
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


def writes(first: int, count: int, text: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield writes of rows in every way there is, each of one change."""
    for number in range(first, first + count):
        key, c = number % 40, number
        yield (
            "INSERT INTO filled.t (k, c, v, n, tags, m) VALUES (%s, %s, %s, %s, %s, %s)",
            (key, c, text, number, {"a", text}, {"x": number}),
        )
        if number % 3 == 0:
            yield "UPDATE filled.t SET v = %s WHERE k = %s AND c = %s", ("new", key, c)
            yield "UPDATE filled.t SET tags = tags + {'b'} WHERE k = %s AND c = %s", (key, c)
        if number % 5 == 0:
            yield "UPDATE filled.t SET s = %s WHERE k = %s", (text, key)
        if number % 7 == 0:
            yield "DELETE n FROM filled.t WHERE k = %s AND c = %s", (key, c)
        if number % 11 == 0:
            yield "INSERT INTO filled.t (k, c) VALUES (%s, %s)", (key, -c - 1)


def held(node: Cassandra, table: str, folder: Path) -> SourceSpec:
    """Return the source of what a table holds."""
    points = [f"{node.host}:{node.port}"]
    given = {"plugin": "cassandra-table", "table": table, "contact_points": points}
    return SourceSpec(given={**given, "read_consistency": "ONE"}, directory=str(folder))


def logged(
    node: Cassandra, table: str, folder: Path, count: int, *, since_us: int = 0
) -> list[ChangeRecord]:
    """Return the changes in the log that were written then or later, when they are so many."""
    given = {
        "plugin": "cassandra",
        "tables": [table],
        "nodes": {"node1": str(node.cdc_raw)},
        "contact_points": [f"{node.host}:{node.port}"],
        "consistency": "ONE",
        "streamed": "publish",
    }
    spec = SourceSpec(given=given, directory=str(folder))
    until = time.monotonic() + SECONDS_MAX
    found: list[ChangeRecord] = []
    while len(found) < count and time.monotonic() < until:
        found = [each for each in changes(spec) if each.timestamp_us >= since_us]
    return found


def rows_of(records: Sequence[ChangeRecord]) -> list[str]:
    """Return the rows that changes fold to, in an order."""
    fold = Fold(records[0].change.table)
    for record in records:
        fold.add(record.change)
    return sorted(json.dumps(row, sort_keys=True) for row in fold.rows(int(time.time())))


def table_rows(session: Session, table: str = "filled.t") -> list[str]:
    """Return the rows of the table, in an order."""
    found = session.execute(f"SELECT JSON * FROM {table}")  # noqa: S608 (made here)
    return sorted(json.dumps(json.loads(row[0]), sort_keys=True) for row in found)


def test_backfill(node: Cassandra, session: Session, tmp_path: Path) -> None:
    """A table's changes fold to the table; with live ones an older snapshot may come later."""
    for statement in STATEMENTS:
        session.execute(statement)
    spec = held(node, "filled.t", tmp_path)
    first, second = (list(writes(*each)) for each in ((0, ROWS, "one"), (ROWS // 2, ROWS, "two")))
    for statement, values in first:
        session.execute(statement, values)
    before = changes(spec)
    for statement, values in second:
        session.execute(statement, values)
    after = changes(spec)
    live = logged(node, "filled.t", tmp_path, len(first) + len(second))
    expected = table_rows(session)

    assert len(live) == len(first) + len(second)
    for order in (after, [*before, *live, *after], [*after, *before, *live]):
        assert expected == rows_of(order)


def test_backfill_command(node: Cassandra, session: Session, tmp_path: Path) -> None:
    """N05, N06: the command sends every row into the job's sink, once, also when given again."""
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": "nowhere"},
        "contact_points": [f"{node.host}:{node.port}"],
    }
    sink = {"plugin": "files", "path": "out.jsonl"}
    job = {"job": "filled", "state": "s.db", "source": source, "sink": sink}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    path = str(tmp_path / "job.yaml")

    for _ in range(2):
        assert 0 == main(["backfill", path, "filled.t", "--shards", "5", "--master", "none"])

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    sent = [(line["key"]["k"], line["clustering"]["c"]) for line in lines if line["clustering"]]
    rows = [(row.k, row.c) for row in session.execute("SELECT k, c FROM filled.t")]
    assert sorted(rows) == sorted(sent)
    assert 0 == main(["replay", "status", path])


def test_snapshots_by_statements(
    node: Cassandra,
    session: Session,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new source sends all rows of its table, and on demand those of one partition again."""
    monkeypatch.chdir(tmp_path)
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": str(node.cdc_raw)},
        "contact_points": [f"{node.host}:{node.port}"],
        "consistency": "ONE",
        "disposal": "keep",
        "streamed": "publish",
        "gaps": "expire",
    }
    job = {"job": "snapped", "state": "s.db", "source": source}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    table = "cdc ON TABLE filled.t"
    new = f"CREATE DATA_SOURCE {table} WITH k AND job = 'snapped' AND snapshot = 'initial'"
    rows = [(row.k, row.c) for row in session.execute("SELECT k, c FROM filled.t")]
    partition = [row for row in rows if row[0] == 7]
    for statement, expected in (
        (f"CREATE DATA_SINK k WITH 'file://out.jsonl'; {new} AND snapshot.page.rows = 7", rows),
        (f"SNAPSHOT DATA_SOURCE {table} WHERE k = 7", partition),
    ):
        (tmp_path / "out.jsonl").unlink(missing_ok=True)
        assert 0 == main(["exec", "--state", "s.db", "-e", statement])
        assert 0 == main(["run", "job.yaml", "--until-idle"])
        lines = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
        read = [line for line in lines if line.get("node") == "table" and line["clustering"]]
        assert sorted(expected) == sorted((e["key"]["k"], e["clustering"]["c"]) for e in read)
    assert 5 < len(partition) < len(rows)
    capsys.readouterr()
    assert 0 == main(["verify", "job.yaml", "--json"])
    assert 2 == len(json.loads(capsys.readouterr().out)["snapshots"])


def statements(chance: random.Random) -> Iterator[str]:
    """Yield writes, each of one change, without end; their times are not in order."""
    while True:
        where = f"k = {chance.randrange(40)} AND c = {chance.randrange(7)}"
        at = f"USING TIMESTAMP {time.time_ns() // 1_000 - chance.randrange(JITTER_US)}"
        number = chance.randrange(100)
        expiring = f"UPDATE raced.t {at} AND TTL"
        update, delete = f"UPDATE raced.t {at} SET", f"FROM raced.t {at} WHERE {where}"
        yield chance.choice(
            (
                f"{update} v = 'v{number}', n = {number} WHERE {where}",
                f"{update} n = {number} WHERE {where}",
                f"{expiring} {TTL_SECONDS} SET n = {-number} WHERE {where}",
                f"{expiring} 86400 SET v = 'kept {number}' WHERE {where}",
                f"{update} tags = tags + {{'{number % 7}'}} WHERE {where}",
                f"{update} tags = tags - {{'{number % 7}'}} WHERE {where}",
                f"{update} tags = {{'{number % 7}', 'all'}} WHERE {where}",
                f"{update} m['{number % 7}'] = {number} WHERE {where}",
                f"DELETE m['{number % 7}'] {delete}",
                f"DELETE n {delete}",
                f"DELETE {delete}",
            )
        )


def with_values(rows: Sequence[str]) -> list[str]:
    """Return the rows that have a value: of a row alone nothing tells when it was written."""
    values = ("v", "n", "tags", "m")
    return [row for row in rows if any(json.loads(row)[name] is not None for name in values)]


def test_backfill_while_written(node: Cassandra, session: Session, tmp_path: Path) -> None:
    """N07: what is read amid writes, deletions and TTLs, and the log since, fold to the table."""
    session.execute(STATEMENTS[0].replace("filled", "raced"))
    session.execute(RACED)
    for number in range(ROWS):
        session.execute(
            "INSERT INTO raced.t (k, c, v, n) VALUES (%s, %s, 'old', 1)", (number % 40, number % 7)
        )
    begun_us = time.time_ns() // 1_000
    until_after((begun_us + JITTER_US) / 1_000_000)  # No write that follows is older.
    over, written = Event(), 0

    def keep_writing() -> None:
        nonlocal written
        for statement in statements(random.Random(7)):  # noqa: S311 (no secret)
            if over.is_set() or written == WRITES_MAX:
                return
            session.execute(statement)
            written += 1

    writer = Thread(target=keep_writing)
    writer.start()
    try:
        read = changes(held(node, "raced.t", tmp_path))
    finally:
        over.set()
        writer.join()
    ended_s = time.time()
    live = logged(node, "raced.t", tmp_path, written, since_us=begun_us)

    assert len(live) == written
    cells = [cell for r in read for column in r.change.columns for cell in column.cells]
    assert any(cell.timestamp_us >= begun_us for cell in cells)
    until_after(ended_s + TTL_SECONDS + 2)  # What expires has expired, also by whole seconds.
    expected = with_values(table_rows(session, "raced.t"))
    chance = random.Random(8)  # noqa: S311 (no secret)
    mixed = [*read, *live]
    others = [chance.sample(mixed, len(mixed)) for _ in range(5)]
    for order in (mixed, [*live, *read], *others):
        assert expected == with_values(rows_of(order))

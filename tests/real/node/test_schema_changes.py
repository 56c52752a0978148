"""A live Cassandra whose tables are altered while data flows: names are those of the time."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from cassandra.cluster import Session

from real.servers.cassandra import Cassandra
from real.stream import Worker

pytestmark = pytest.mark.real

SECONDS_MAX = 600
ROWS = 40  # Between two statements.
CREATE = (
    (
        "CREATE KEYSPACE moving WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    ),
    "CREATE TYPE moving.place (street text)",
    (
        "CREATE TABLE moving.orders (k int, c int, a text, p frozen<place>, PRIMARY KEY (k, c)) "
        "WITH cdc = true"
    ),
    "CREATE TABLE moving.quiet (k int PRIMARY KEY, a text)",
)
INSERT = "INSERT INTO moving.orders"
# Each: a statement, and what is inserted after it; %s is a number of its own.
STEPS = (
    ("", f"{INSERT} (k, c, a) VALUES (%s, 0, 'x')", {"a": "x"}),
    ("ALTER TABLE moving.orders ADD b int", f"{INSERT} (k, c, b) VALUES (%s, 1, 7)", {"b": 7}),
    (
        "ALTER TABLE moving.orders RENAME c TO cc",
        f"{INSERT} (k, cc, b) VALUES (%s, 2, 8)",
        {"b": 8},
    ),
    ("ALTER TABLE moving.orders DROP a", f"{INSERT} (k, cc, b) VALUES (%s, 3, 9)", {"b": 9}),
    (
        "ALTER TYPE moving.place ADD number int",
        f"{INSERT} (k, cc, p) VALUES (%s, 4, {{street: 's', number: 1}})",
        {"p": {"street": "s", "number": 1}},
    ),
    (
        "ALTER TYPE moving.place RENAME street TO road",
        f"{INSERT} (k, cc, p) VALUES (%s, 5, {{road: 'r', number: 2}})",
        {"p": {"road": "r", "number": 2}},
    ),
    (
        "ALTER TABLE moving.orders ADD a text",
        f"{INSERT} (k, cc, a) VALUES (%s, 6, 'y')",
        {"a": "y"},
    ),
    (
        "CREATE TABLE moving.later (k int PRIMARY KEY, z bigint) WITH cdc = true",
        "INSERT INTO moving.later (k, z) VALUES (%s, 3)",
        {"z": 3},
    ),
    (
        "ALTER TABLE moving.quiet WITH cdc = true",
        "INSERT INTO moving.quiet (k, a) VALUES (%s, 'loud')",
        {"a": "loud"},
    ),
    (
        "ALTER TABLE moving.quiet WITH cdc = false",
        "INSERT INTO moving.quiet (k, a) VALUES (%s, 'quiet')",
        None,
    ),
    ("DROP TABLE moving.later", f"{INSERT} (k, cc, b) VALUES (%s, 7, 1)", {"b": 1}),
    (
        "CREATE TABLE moving.later (k text PRIMARY KEY, y text) WITH cdc = true",
        "INSERT INTO moving.later (k, y) VALUES ('%s', 'again')",
        {"y": "again"},
    ),
)
KILLED_AFTER = (2, 5, 8)


def test_every_change_bears_the_names_of_its_time(
    node: Cassandra, session: Session, tmp_path: Path
) -> None:
    """Also when the worker is killed between, and reads on behind statements it had read before."""
    for statement in CREATE:
        session.execute(statement)
    out = tmp_path / "changes.jsonl"
    job = {
        "job": "moving",
        "state": str(tmp_path / "state.db"),
        "source": {
            "plugin": "cassandra",
            "contact_points": f"{node.host}:{node.port}",
            "streamed": "publish",
            "consistency": "ONE",
            "nodes": {"node1": str(node.cdc_raw)},
        },
        "sink": {"plugin": "files", "path": str(out)},
    }
    expected: Counter[str] = Counter()
    number = 0
    worker = Worker(job, tmp_path)
    for step, (statement, insert, columns) in enumerate(STEPS):
        if statement:
            session.execute(statement)
        for _ in range(ROWS):
            number += 1
            session.execute(insert % number)
            if columns is not None:
                expected[_fact(str(number), columns)] += 1
        if step in KILLED_AFTER:
            _await(out, expected.total() // 2)
            worker.__exit__()
            worker = Worker(job, tmp_path)
    with worker:
        _await(out, expected.total())
        assert worker.stop() == 0

    found = set(_found(out))
    assert found == set(expected)


def _await(out: Path, count: int) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while len(set(_found(out))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _found(out: Path) -> list[str]:
    if not out.exists():
        return []
    documents = [json.loads(line) for line in out.read_text().split("\n")[:-1]]
    return [
        _fact(
            str(document["key"]["k"]),
            {name: column["value"] for name, column in document["columns"].items()},
        )
        for document in documents
        if document["table"].startswith("moving.")
    ]


def _fact(key: str, columns: object) -> str:
    return json.dumps([key, columns], sort_keys=True)

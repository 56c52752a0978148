"""A Faust app in a process of its own: its table is what the server selects."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from cassandra.cluster import Session

from helpers.servers.pages import page_of
from helpers.servers.ports import free_ports
from real.servers.cassandra import Cassandra
from real.servers.process import ServerProcess
from real.stream import HEADRACE

pytestmark = pytest.mark.real

SECONDS_MAX = 600
TABLES = (
    "CREATE KEYSPACE rows WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    (
        "CREATE TABLE rows.t (k int, a int, b text, v text, n bigint, tags set<text>, "
        "attrs map<text, int>, items list<text>, s text static, PRIMARY KEY (k, a, b)) "
        "WITH CLUSTERING ORDER BY (a DESC, b ASC) AND cdc = true"
    ),
)
STATEMENTS = (
    "INSERT INTO rows.t (k, a, b, v, n) VALUES (1, 1, 'x', 'late', 1) USING TIMESTAMP 2000000",
    "INSERT INTO rows.t (k, a, b, v) VALUES (1, 1, 'x', 'early') USING TIMESTAMP 1000000",
    "UPDATE rows.t USING TIMESTAMP 3000000 SET n = 7 WHERE k = 1 AND a = 1 AND b = 'x'",
    "UPDATE rows.t USING TIMESTAMP 3000000 SET s = 'static' WHERE k = 1",
    (
        "INSERT INTO rows.t (k, a, b, tags, attrs, items) "
        "VALUES (1, 2, 'y', {'p', 'q'}, {'m': 1}, ['l'])"
    ),
    (
        "UPDATE rows.t SET tags = tags - {'p'}, attrs['n'] = 2, items = items + ['r'] "
        "WHERE k = 1 AND a = 2 AND b = 'y'"
    ),
    "UPDATE rows.t SET tags = tags + {'z'} WHERE k = 1 AND a = 2 AND b = 'y'",
    *(
        "INSERT INTO rows.t (k, a, b, v) VALUES (2, :a, 'x', 'v')".replace(":a", str(a))
        for a in range(6)
    ),
    "DELETE FROM rows.t WHERE k = 2 AND a > 1 AND a <= 3",
    "DELETE FROM rows.t WHERE k = 2 AND a = 0",
    "DELETE v FROM rows.t WHERE k = 2 AND a = 1 AND b = 'x'",
    "INSERT INTO rows.t (k, a, b, v) VALUES (3, 1, 'x', 'gone')",
    "DELETE FROM rows.t WHERE k = 3",
    "INSERT INTO rows.t (k, a, b, v) VALUES (4, 1, 'x', 'short') USING TTL 1",
    "UPDATE rows.t SET v = 'no liveness' WHERE k = 5 AND a = 1 AND b = 'x'",
)


@pytest.fixture
def job(tmp_path: Path, node: Cassandra, session: Session, bootstrap_servers: str) -> Path:
    """Return the job of a table that is there."""
    for statement in TABLES:
        session.execute(statement)
    source = {
        "plugin": "cassandra",
        "contact_points": f"{node.host}:{node.port}",
        "nodes": {"node1": str(node.cdc_raw)},
        "tables": "rows.t",
        "consistency": "ONE",
        "splits": 1,
        "streamed": "publish",
    }
    sink = {"plugin": "kafka", "bootstrap.servers": bootstrap_servers, "topic": "faust-rows"}
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"job": "r", "state": "s.db", "source": source, "sink": sink}))
    return path


def by_text(row: Any) -> str:  # noqa: ANN401 (JSON)
    """Return what rows are sorted by."""
    return json.dumps(row, sort_keys=True)


def shown(port: int) -> list[Any]:
    """Return the app's rows; none while it does not exist."""
    return sorted(page_of(port, "/rows/rows.t/") or [], key=by_text)


def selected(session: Session) -> Iterator[Any]:
    """Yield the server's rows as JSON."""
    for row in session.execute("SELECT JSON * FROM rows.t"):
        yield json.loads(row[0])


def kept_keys(folder: Path) -> int:
    """Return how many keys RocksDB has of the app's table, in the files of a stopped app."""
    counts = []
    for path in folder.rglob("rows-*.db"):
        store = rocksdict.Rdict(str(path), options=rocksdict.Options(raw_mode=True))
        counts.append(len([*store.keys()]))
        store.close()
    return sum(counts)


def test_its_table_is_what_select_shows(
    tmp_path: Path, job: Path, session: Session, bootstrap_servers: str
) -> None:
    """Write times, TTLs, deletions and collections are folded as Cassandra does, and kept.

    After a restart it shows the same rows, though no message comes.
    """
    for statement in STATEMENTS:
        session.execute(statement)
    (port,) = free_ports(1)
    app = [
        *(sys.executable, "-m", "headrace.connector.streams.app"),
        *("--bootstrap-servers", bootstrap_servers, "--topic", "faust-rows"),
        *("--state", str(tmp_path / "s.db"), "--port", str(port)),
        *("--folder", str(tmp_path / "faust"), "--store", "rocksdb"),
    ]
    run = [*HEADRACE, "run", str(job), "--until-idle"]
    deadline = time.monotonic() + SECONDS_MAX
    expected: list[Any] = []
    found: list[Any] = [None]
    (tmp_path / "app").mkdir()
    process: ServerProcess | None = None
    try:
        while found != expected or not expected:
            assert time.monotonic() < deadline, (found, expected)
            subprocess.run(run, check=True, cwd=tmp_path, timeout=SECONDS_MAX)  # noqa: S603 (ours)
            process = process or ServerProcess(app, tmp_path / "app")
            expected = sorted(selected(session), key=by_text)
            found = shown(port)
        assert process is not None
        process.stop()
        assert kept_keys(tmp_path / "faust")
        process = ServerProcess(app, tmp_path / "app")
        process.wait_until(lambda: shown(port) == expected)
    finally:
        if process is not None:
            process.stop()
    assert {1, 2, 5} == {row["k"] for row in found}

"""A table of a real node with 30 rows, and static columns of four partitions."""

from pathlib import Path
from typing import Final

import yaml
from cassandra.cluster import Session

from real.servers.cassandra import Cassandra

STATEMENTS: Final = (
    (
        "CREATE KEYSPACE IF NOT EXISTS framed WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    ),
    (
        "CREATE TABLE IF NOT EXISTS framed.t (k int, c int, v text, s text static, "
        "PRIMARY KEY (k, c)) WITH cdc = true"
    ),
)


def framed_table(folder: Path, node: Cassandra, session: Session) -> Path:
    """Fill `framed.t`, as often as it is called; return a job over the node."""
    for statement in STATEMENTS:
        session.execute(statement)
    for number in range(30):
        session.execute("INSERT INTO framed.t (k, c, v) VALUES (%s, %s, 'v')", (number % 4, number))
    for number in range(4):
        session.execute("UPDATE framed.t SET s = 'static' WHERE k = %s", (number,))
    source = {
        "plugin": "cassandra",
        "nodes": {"node1": str(node.cdc_raw)},
        "contact_points": [f"{node.host}:{node.port}"],
        "consistency": "ONE",
    }
    job = folder / "table.yaml"
    given = {"job": "table", "state": "s.db", "source": source, "sink": {"plugin": "null"}}
    job.write_text(yaml.safe_dump(given))
    return job

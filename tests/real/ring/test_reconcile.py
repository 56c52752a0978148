"""Logs and tables of a real ring, a real broker: differences are found, repaired, then clean."""

import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
import yaml
from cassandra.cluster import Session
from confluent_kafka import Message, Producer

from headrace.connector.commands.cli import main
from headrace.connector.replay.shards import SourceSpec
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.connector.streams.latest import LatestRows
from helpers.jobs.children import until, until_after
from helpers.jobs.deliveries import consume
from real.logged import changes
from real.servers.ring import Ring

pytestmark = pytest.mark.real

KEYS = 40
GRACE_SECONDS = 2
Names = set[tuple[str, int]]
STATEMENTS = (
    (
        "CREATE KEYSPACE reconciled WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 3}"
    ),
    (
        "CREATE TABLE reconciled.t (k int, c int, v text, n int, tags set<text>, s text static, "
        "PRIMARY KEY (k, c)) WITH cdc = true AND CLUSTERING ORDER BY (c DESC)"
    ),
)


@dataclass
class World:
    """A job's folder, its source, and where the broker is."""

    folder: Path
    session: Session
    source: Mapping[str, object]
    bootstrap_servers: str
    written: int = 0
    """Changes: each statement is one."""
    written_s: float = 0
    """When the last one was."""

    def execute(self, statement: str, values: Sequence[object] = ()) -> None:
        """Write a change."""
        self.session.execute(statement, values or None)
        self.written += 1
        self.written_s = time.time()

    def until_logged(self) -> None:
        """Wait until all that was written is in the log of each node."""
        spec = SourceSpec(given={**self.source, "consistency": "ALL"}, directory=str(self.folder))
        until(lambda: len(changes(spec)) >= self.written, "a log has less than was written")

    def job(self, topic: str) -> Path:
        """Return a job into *topic*."""
        given = {
            "job": "rec",
            "state": f"{topic}.db",
            "source": dict(self.source),
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": self.bootstrap_servers,
                "topic": topic,
            },
        }
        path = self.folder / f"{topic}.yaml"
        path.write_text(yaml.safe_dump(given))
        return path

    def run(self, topic: str) -> None:
        """Let a worker deliver what was written."""
        self.until_logged()
        assert 0 == main(["--log-level", "error", "run", "--until-idle", str(self.job(topic))])

    def messages(self, topic: str) -> list[Message]:
        """Return what is in a topic."""
        return consume(self.bootstrap_servers, topic)

    def reconcile(self, topic: str, *options: str) -> tuple[int, dict[str, Any], list[Any]]:
        """Compare; return the status, the report, and what differs."""
        self.until_logged()
        until_after(self.written_s + GRACE_SECONDS + 1)  # It counts whole seconds.
        folder = self.folder / f"{topic}.report"
        more = ("--master", "none", "--table-shards", "4", "--grace", str(GRACE_SECONDS))
        status = main(["reconcile", str(self.job(topic)), *more, "--report", str(folder), *options])
        report = json.loads((folder / "report.json").read_text())
        return status, report, pq.read_table(folder / "differences.parquet").to_pylist()


@pytest.fixture
def world(ring: Ring, bootstrap_servers: str, tmp_path: Path) -> Iterator[World]:
    """Make the table on the ring."""
    source = {
        "plugin": "cassandra",
        "nodes": {f"node{n}": str(node.cdc_raw) for n, node in enumerate(ring.nodes[:3], 1)},
        "contact_points": ring.contact_points,
        "tables": ["reconciled.t"],
        "splits": 2,
        "streamed": "suppress",
    }
    with ring.connected() as cluster:
        session = cluster.connect()
        session.execute("DROP KEYSPACE IF EXISTS reconciled")
        for statement in STATEMENTS:
            session.execute(statement)
        yield World(tmp_path, session, source, bootstrap_servers)
        session.execute("DROP KEYSPACE reconciled")


def write(world: World, first: int, count: int) -> None:
    """Write rows in every way there is."""
    for number in range(first, first + count):
        k, c = number % KEYS, number
        world.execute(
            "INSERT INTO reconciled.t (k, c, v, n, tags) VALUES (%s, %s, %s, %s, %s)",
            (k, c, f"v{number}", number, {"a", str(number)}),
        )
        if number % 3 == 0:
            world.execute("UPDATE reconciled.t SET v = 'new' WHERE k = %s AND c = %s", (k, c))
            world.execute(
                "UPDATE reconciled.t SET tags = tags - {'a'} WHERE k = %s AND c = %s", (k, c)
            )
        if number % 5 == 0:
            world.execute("UPDATE reconciled.t SET s = %s WHERE k = %s", (str(number), k))
        if number % 7 == 0:
            world.execute("DELETE n FROM reconciled.t WHERE k = %s AND c = %s", (k, c))
        if number % 11 == 0:
            world.execute("INSERT INTO reconciled.t (k, c) VALUES (%s, %s)", (k, -c - 1))
        if number % 13 == 0:
            world.execute("DELETE FROM reconciled.t WHERE k = %s AND c = %s", (k, c))
        if number % 17 == 0:
            world.execute("DELETE FROM reconciled.t WHERE k = %s AND c < %s", (k, c - 120))
        if number % 19 == 0:
            world.execute(
                "INSERT INTO reconciled.t (k, c, v) VALUES (%s, %s, 'short') USING TTL 1",
                (k, c + 5_000),
            )


def test_what_is_amiss_is_found_and_repaired(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a topic lost and what a worker did not bring is found, just that, and repaired."""
    write(world, 0, 260)
    world.run("rec-whole")
    before = world.messages("rec-whole")
    lost = copied(world, before, "rec-holes", without=100)
    write(world, 260, 50)

    status, report, found = world.reconcile("rec-holes", "--repair")

    world.run("rec-whole")
    past = names_of(world, world.messages("rec-whole")) - names_of(world, before)
    assert 4 == status, report
    reported = {r["difference"]: r for r in found if r["between"] == "logs and topic"}
    assert reported.keys() <= {"missing", "stale", "expired"}
    assert names_of(world, lost) | past == {
        (r["mutation"], r["index"]) for r in found if r["between"] == "logs and topic"
    }
    rows = Counter(r["difference"] for r in found if r["between"] == "topic and table")
    assert {"expired"} == rows.keys()
    assert report["rows_behind"] > 0

    capsys.readouterr()
    run = planned_run(world, "rec-holes", capsys)
    assert 0 == main(["replay", "run", str(world.job("rec-holes")), run, "--master", "none"])
    status, report, _ = world.reconcile("rec-holes")
    assert 0 == status, report
    assert report["rows_in_tables"] == report["rows_from_topic"]
    assert rows_of(world.session) == folded(world, "rec-holes")


def planned_run(world: World, topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the newest run of a job."""
    assert 0 == main(["replay", "status", str(world.job(topic))])
    return capsys.readouterr().out.split()[0]


def copied(world: World, messages: Sequence[Message], topic: str, *, without: int) -> list[Message]:
    """Copy messages without each so many-th; return what was left out."""
    left_out = []
    producer = Producer({"bootstrap.servers": world.bootstrap_servers})
    for number, message in enumerate(messages):
        if number % without == 7:
            left_out.append(message)
            continue
        partition = message.partition() or 0
        producer.produce(
            topic, message.value(), message.key(), partition, headers=message.headers()
        )
        producer.poll(0)
    producer.flush(30)
    # It knows the schemas of what it copied.
    (world.folder / f"{topic}.db").write_bytes((world.folder / "rec-whole.db").read_bytes())
    return left_out


def names_of(world: World, messages: Sequence[Message]) -> Names:
    """Return what names the changes of messages."""
    schemas = JobSchemas(world.folder / "rec-whole.db")
    found = set()
    for message in messages:
        headers = dict(message.headers() or ())
        schema_id = headers["schemaId"]
        assert isinstance(schema_id, bytes)
        schema: Any = dict(schemas.get(schema_id).value)
        value = fastavro.schemaless_reader(io.BytesIO(message.value() or b""), schema, None)
        assert isinstance(value, dict)
        found.add((value["mutation"].hex(), value["index"]))
    schemas.close()
    return found


def folded(world: World, topic: str) -> list[str]:
    """Return what a consumer makes of a topic, by the consumer kit."""
    schemas = JobSchemas(world.folder / "rec-whole.db")
    rows = LatestRows({})
    for message in world.messages(topic):
        headers: Any = dict(message.headers() or ())
        content = message.value()
        if content is not None:
            schema = schemas.get(headers["schemaId"])
            rows.take(reader_of(schema.value)(content), schema)
    found = sorted(json.dumps(row, sort_keys=True) for row in rows.rows("reconciled.t"))
    schemas.close()
    return found


def rows_of(session: Session) -> list[str]:
    """Return the rows of the table."""
    rows = [json.loads(row[0]) for row in session.execute("SELECT JSON * FROM reconciled.t")]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)

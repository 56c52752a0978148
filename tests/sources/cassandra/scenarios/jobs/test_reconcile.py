"""Logs against a topic: a worker fills it, the test removes records, reconcile finds them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message, Producer

from headrace.connector.commands.cli import main
from headrace.connector.replay.frames.topics import TopicReader
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.recordings.corpora import recording

pytestmark = pytest.mark.long

RING = "5.0-ring"
NODES = ("node1", "node2", "node3")
NOW = "--grace=0"


@dataclass
class World:
    """A job over the ring, and a broker with what a worker delivered."""

    folder: Path
    broker: EmbeddedBroker = field(default_factory=EmbeddedBroker)

    def job(self, topic: str) -> Path:
        """Return a job into *topic*."""
        folder = recording(RING)
        nodes = {node: str(folder / "segments" / node) for node in NODES}
        given = {
            "job": "ring",
            "state": f"{topic}.db",
            "source": {
                "plugin": "cassandra",
                "nodes": nodes,
                "schema": str(folder / "schema.cql"),
            },
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": self.broker.bootstrap_servers,
                "topic": topic,
            },
        }
        path = self.folder / f"{topic}.yaml"
        path.write_text(json.dumps(given))
        return path

    def copy(self, topic: str, other: str, *, without: int) -> list[Message]:
        """Copy *topic* to *other* without some of the messages; return the omitted ones."""
        left_out = []
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers})
        for number, message in enumerate(consume(self.broker.bootstrap_servers, topic)):
            if without and number % without == 7:
                left_out.append(message)
                continue
            producer.produce(
                other,
                message.value(),
                message.key(),
                message.partition() or 0,
                headers=message.headers(),
            )
            producer.poll(0)
        producer.flush(30)
        return left_out


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Let a worker fill the topic `whole`."""
    made = World(tmp_path_factory.mktemp("reconcile"))
    path = made.job("whole")
    assert 0 == main(["--log-level", "error", "run", "--until-idle", str(path)])
    yield made
    del made.broker


def reconciled(path: Path, *options: str) -> tuple[int, dict[str, object]]:
    """Reconcile; return the exit status and the report."""
    folder = path.with_suffix(".report")
    given = ["reconcile", str(path), "--master", "none", "--report", str(folder), *options]
    status = main(given)
    report: dict[str, object] = json.loads((folder / "report.json").read_text())
    return status, report


def test_what_a_worker_delivered_is_clean(world: World) -> None:
    """Logs and topic agree after an undisturbed run, with any number of splits."""
    status, report = reconciled(world.folder / "whole.yaml", NOW)

    assert 0 == status, report
    assert report["in_logs"] == report["in_topic"]
    assert not any(report["differences"].values())  # type: ignore[attr-defined]


def test_what_was_taken_away_is_found_and_repaired(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """If one record in a hundred is missing, exactly those are found and repaired."""
    path = world.job("holes")
    left_out = world.copy("whole", "holes", without=100)
    capsys.readouterr()

    status, report = reconciled(path, NOW, "--repair")

    differences: dict[str, int] = report["differences"]  # type: ignore[assignment]
    assert 4 == status
    assert len(left_out) == differences["missing"] + differences["stale"] + differences["expired"]
    assert 0 == differences["extra"] + differences["under_replicated"]
    run = capsys.readouterr().out.split()[-1]
    assert 0 == main(["replay", "run", str(path), run, "--master", "none"])
    assert (0, 0) == (reconciled(path, NOW)[0], differences["expired"])


def test_keys_are_hashed_unless_asked_for(world: World) -> None:
    """A report has hashes of keys, so that it can be shared; an option shows the keys."""
    path = world.job("few")
    left_out = world.copy("whole", "few", without=500)
    reconciled(path, NOW)
    file = path.with_suffix(".report") / "differences.parquet"
    hashed = pq.read_table(file).column("key").to_pylist()
    reconciled(path, NOW, "--plain-keys")
    plain = pq.read_table(file).column("key").to_pylist()

    keys = {bytes(message.key() or b"").hex() for message in left_out}
    assert keys == set(plain)
    assert not keys & set(hashed)
    assert "<svg" in (path.with_suffix(".report") / "report.html").read_text()


def test_missing_topic(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing topic is named, and nothing is compared."""
    path = world.job("nowhere")

    assert 0 != main(["reconcile", str(path), "--master", "none", NOW])
    assert "topic nowhere" in capsys.readouterr().err


def test_topic_as_rows(world: World) -> None:
    """Spark's reader of topics returns every message, decoded by the schema in its header."""
    reader = TopicReader({"job": str(world.folder / "whole.yaml")})

    rows = [
        row
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for row in batch.select(["offset", "table", "mutation", "key"]).to_pylist()
    ]

    messages = consume(world.broker.bootstrap_servers, "whole")
    assert {message.key() for message in messages} == {row["key"] for row in rows}
    assert len(messages) == len(rows)
    assert all(row["table"] and len(row["mutation"]) == 16 for row in rows)

"""A broker that dies and comes back costs nothing but duplicates."""

import time
from pathlib import Path
from shutil import copytree

import pytest
from servers.kafka import Kafka
from stream import Listener, Worker, fact_of

from corpora import recording

pytestmark = pytest.mark.real

SECONDS_MAX = 60
CHANGES = 6_451


def test_nothing_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    """What was not acknowledged comes again once the broker is back; the worker goes on alone."""
    ring = copytree(recording("5.0-ring"), tmp_path / "ring")
    with Kafka(tmp_path / "broker") as kafka:
        job = {
            "job": "outage",
            "state": str(tmp_path / "state.db"),
            "source": {
                "plugin": "cassandra",
                "schema": str(ring / "schema.cql"),
                "nodes": {node.name: str(node) for node in (ring / "segments").iterdir()},
            },
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": kafka.bootstrap_servers,
                "topic": "outage",
                "delivery.timeout.ms": 3_000,  # Shorter than the outage.
                "request.timeout.ms": 1_000,
            },
            "runtime": {
                "batch_records_max": 20,
                "outstanding_records_max": 200,
                "retry_seconds_max": 30,
            },
        }
        listener = Listener(kafka.bootstrap_servers, "outage", tmp_path / "state.db")
        received: set[bytes] = set()
        with Worker(job, tmp_path) as worker:
            deadline = time.monotonic() + SECONDS_MAX
            while not received:
                assert time.monotonic() < deadline, worker.log.read_text()[-2000:]
                received |= {fact_of(value) for value in listener.receive()}
            kafka.kill()
            listener.close()
            outage_ends = time.monotonic() + 5
            while time.monotonic() < outage_ends:
                assert worker.running(), worker.log.read_text()[-2000:]
            kafka.start()
            listener = Listener(kafka.bootstrap_servers, "outage", tmp_path / "state.db")
            deadline = time.monotonic() + SECONDS_MAX
            received.clear()
            while len(received) < CHANGES and time.monotonic() < deadline:
                received |= {fact_of(value) for value in listener.receive()}
            assert worker.stop() == 0
        listener.close()

    assert CHANGES == len(received)
    assert "split_pauses" in worker.log.read_text()

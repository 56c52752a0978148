"""A broker that dies and comes back costs nothing but duplicates; one that stops, no memory."""

import json
import re
import time
from collections import deque
from pathlib import Path
from shutil import copytree

import pytest

from helpers.jobs.children import JobFolder, until
from helpers.jobs.committed import committed
from helpers.recordings.corpora import recording
from real.servers.kafka import Kafka
from real.stream import Listener, Worker, fact_of

pytestmark = pytest.mark.real

SECONDS_MAX = 600
CHANGES = 6_451


def test_nothing_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    """K04: what was not acknowledged comes again; the worker continues alone."""
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
                "retry_seconds_max": SECONDS_MAX,
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
            until(lambda: "split_pauses" in worker.log.read_text(), "it noticed no outage")
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


LINES = 100_000
LINE = json.dumps({"text": "x" * 500}) + "\n"  # 50 MB in all.
GROWTH_BYTES_MAX = 30_000_000
LOOKS = 100  # In which one that waits reads nothing to speak of.
PAUSES = 6


def test_a_paused_broker_costs_no_memory(tmp_path: Path) -> None:
    """K06: one that takes bytes and never answers has the reading wait, and is waited for."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "in.jsonl").write_text(LINE * LINES)
    with Kafka(tmp_path / "broker") as kafka:
        document = {
            "job": "paused",
            "state": "state.db",
            "source": {"plugin": "files", "path": "in.jsonl"},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": kafka.bootstrap_servers,
                "topic": "paused",
                "format": "json",
            },
            "runtime": {"outstanding_bytes_max": 1_000_000, "commit_max_bytes": 2_000_000},
        }
        (tmp_path / "job" / "job.yaml").write_text(json.dumps(document))
        job = JobFolder(tmp_path / "job", str)
        with job.running() as child:
            until(lambda: len(committed(kafka.bootstrap_servers, "paused")) > 0, "it never began")
            before = resident_bytes(child.pid)
            kafka.pause()
            growth, looks = 0, deque([0] * LOOKS, maxlen=LOOKS)

            def reading_waits() -> bool:
                nonlocal growth
                growth = max(growth, resident_bytes(child.pid) - before)
                looks.append(read_bytes(child.pid))
                return looks[-1] - looks[0] < 10 * len(LINE)

            until(reading_waits, "it goes on reading")
            kafka.resume()
            until(
                lambda: len(committed(kafka.bootstrap_servers, "paused")) >= LINES,
                "something is missing",
            )

    assert growth < GROWTH_BYTES_MAX


def read_bytes(pid: int) -> int:
    """Return how much a process has read so far."""
    counters = Path(f"/proc/{pid}/io").read_text()
    (found,) = re.findall(r"^rchar: (\d+)$", counters, re.MULTILINE)
    return int(found)


def resident_bytes(pid: int) -> int:
    """Return what a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_broker_that_is_away_when_a_split_begins(tmp_path: Path, *, exactly_once: bool) -> None:
    """It is waited for, exactly once as otherwise: the split restarts amid the outage."""
    with Kafka(tmp_path / "broker") as kafka:
        (tmp_path / "in0.jsonl").write_text('{"file": 0}\n' * 100)
        job = {
            "job": "away",
            "state": str(tmp_path / "state.db"),
            "source": {"plugin": "files", "path": str(tmp_path / "in*.jsonl")},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": kafka.bootstrap_servers,
                "topic": "away",
                "format": "json",
                "exactly.once": exactly_once,
                "connect.timeout.ms": 1_000,
                "delivery.timeout.ms": 2_000,  # Much shorter than the outage.
                "request.timeout.ms": 1_000,
                "transaction.timeout.ms": 4_000,
            },
        }
        with Worker(job, tmp_path) as worker:
            until(lambda: len(committed(kafka.bootstrap_servers, "away")) == 100, "none came")
            kafka.kill()
            with (tmp_path / "in0.jsonl").open("a") as file:
                file.write('{"file": 1}\n' * 100)
            # The pauses grow from 0.1 s to 3.2 s: then the brokers would have aborted, too.
            until(
                lambda: worker.log.read_text().count('"split_pauses"') >= PAUSES,
                "it does not go on trying",
            )
            assert worker.running(), worker.log.read_text()[-2000:]
            kafka.start()
            until(lambda: len(committed(kafka.bootstrap_servers, "away")) >= 200, "it never came")
            assert worker.stop() == 0
            total = len(committed(kafka.bootstrap_servers, "away"))

    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if "{" in line[:1]]
    codes = {line["error_code"] for line in lines if line["event"] == "split_failed"}
    # The brokers abort a transaction that the outage outlasted, and fence its producer: the split
    # restarts, which repeats nothing.
    assert codes <= ({"fenced"} if exactly_once else set())
    assert total == 200 or not exactly_once

"""Topics that are deleted while a job writes to them: the message says what went, and what next."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import structlog
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs forget one.
from structlog.testing import LogCapture

from headrace.plugins import parse_config
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.watch import LOOK_MS
from helpers.jobs.children import JobFolder, until, write_lines
from helpers.jobs.committed import committed, counted
from helpers.jobs.deliveries import Results, context, delivery_of

pytestmark = pytest.mark.real

LINES = 50


class _Kafka:
    """The broker as a client with rights to all topics sees it."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, topic: str) -> None:
        self._admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic], operation_timeout=30, request_timeout=40)
        until(lambda: topic not in self._admin.list_topics(timeout=10).topics, "still there")


def test_a_topic_that_was_created_again_is_reported(bootstrap_servers: str) -> None:
    """Records continue into the new one as if nothing had been: its id is another."""
    kafka, topic = _Kafka(bootstrap_servers), f"again-{uuid4().hex}"
    kafka.create(topic)
    clock, capture, results = DrivenClock(), LogCapture(), Results()
    log = structlog.wrap_logger(None, processors=[capture])
    given = {"bootstrap.servers": bootstrap_servers, "topic": topic}
    writer = KafkaSink(
        parse_config(KafkaConfig, given), replace(context(), clock=clock, log=log)
    ).open()

    def deliver() -> bool:
        writer.submit(delivery_of((b"k", b"v")), results)
        until(lambda: writer.drain(clock.monotonic_ms()), "it was not delivered")
        clock.advance(LOOK_MS // 10)
        return any(entry["event"] == "topic_replaced" for entry in capture.entries)

    for _ in range(100):
        deliver()
    before = list(capture.entries)
    kafka.delete(topic)
    kafka.create(topic)
    until(deliver, "nobody noticed")
    writer.close()

    assert [] == before
    replaced = capture.entries[-1]  # It may have been seen while it was missing.
    assert ("topic_replaced", topic) == (replaced["event"], replaced["topic"])
    assert "What was delivered before is gone with the old topic" in replaced["hint"]
    assert not [failures for _, failures in results.all if failures]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_a_topic_that_is_deleted_in_a_run(
    bootstrap_servers: str, tmp_path: Path, *, exactly_once: bool
) -> None:
    """The run ends and says so; the next one, with the step it names, delivers the rest."""
    kafka, topic = _Kafka(bootstrap_servers), f"deleted-{uuid4().hex}"
    job = _job(tmp_path, bootstrap_servers, topic, exactly_once=exactly_once)
    with job.running() as child:
        until(lambda: 2 * LINES == _lines(bootstrap_servers, topic).total(), "none came")
        kafka.delete(topic)
        write_lines(tmp_path, 2, range(LINES, LINES + 10))
        status = child.wait(180)
    said = job.log()

    assert 1 == status, said
    assert '"event":"topic_missing"' in said
    assert f"topic {topic} was deleted while the job ran" in said
    assert "hint: start again, and headrace creates it. What was delivered before is gone" in said
    assert 0 == job.finish(), job.log()
    rest = {(name, n): 1 for name in range(2) for n in range(LINES, LINES + 10)}
    assert rest == _lines(bootstrap_servers, topic)


def _job(folder: Path, bootstrap_servers: str, topic: str, *, exactly_once: bool) -> JobFolder:
    write_lines(folder, 2, range(LINES))
    sink = {
        "plugin": "kafka",
        "bootstrap.servers": bootstrap_servers,
        "topic": topic,
        "topic.creation.enable": True,  # Else this broker would make it by itself.
        "format": "json",
        "exactly.once": exactly_once,
        "offsets.storage.topic": f"{topic}-positions",
        "transaction.timeout.ms": 5_000,
        "delivery.timeout.ms": 5_000,
    }
    job = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": sink,
        "runtime": {"tick_min_ms": 5, "commit_max_seconds": 0.05},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return JobFolder(folder, str)


def _lines(bootstrap_servers: str, topic: str) -> Counter[object]:
    found = committed(bootstrap_servers, topic)
    return counted(found, lambda value: tuple(json.loads(value).values()))

"""Kafka 3.9 over SASL_SSL, with access lists: what is allowed works, what is not says so."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # Its stubs forget them.
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.jobs.children import JobFolder, write_lines
from helpers.jobs.committed import committed, counted
from real.servers.kafka import RELEASE_3, Kafka

pytestmark = pytest.mark.real

LINES = 200
WRITER, PASSWORD = "writer", "writer-secret"
EVERYTHING = {(0, n): 1 for n in range(LINES)}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run a broker that knows one user, who may do nothing yet."""
    folder = tmp_path_factory.mktemp("kafka3") / "broker"
    with Kafka(folder, release=RELEASE_3, users={WRITER: PASSWORD}) as running:
        yield running


def allow(kafka: Kafka, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    """Let the writer do *operations* to what has *name*; transactional ids begin with it."""
    admin = AdminClient({"bootstrap.servers": kafka.internal_servers})
    begins = kind is ResourceType.TRANSACTIONAL_ID
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED if begins else ResourcePatternType.LITERAL,
            f"User:{WRITER}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    if bindings:
        for future in admin.create_acls(bindings).values():
            future.result(30)


def topic_of(kafka: Kafka, *operations: AclOperation, **settings: str) -> str:
    """Make a topic with which the writer may do *operations*."""
    name = f"access-{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.internal_servers})
    admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result(30)
    allow(kafka, ResourceType.TOPIC, name, *operations)
    return name


def job_of(
    kafka: Kafka, folder: Path, topic: str, password: str = PASSWORD, **sink: object
) -> JobFolder:
    """Return a job of the writer into *topic*."""
    write_lines(folder, 1, range(LINES))
    client = kafka.client(WRITER, "${env:KAFKA_PASSWORD}")
    job = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": {"plugin": "kafka", "topic": topic, "format": "json", **client, **sink},
        "runtime": {"tick_min_ms": 5, "commit_max_seconds": 0.05, "batch_records_max": 40},
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return JobFolder(folder, lambda line: str(line["n"]), {"KAFKA_PASSWORD": password})


def problems(folder: Path) -> list[str]:
    """Return what the status says of the job and of its split."""
    job = json.loads((folder / "job.yaml").read_text())["job"]
    with closing(SqliteStore.open(folder / "state.db", job)) as store:
        found = [store.problem(), *(row.problem for row in store.leases())]
        return [problem for problem in found if problem]


def written(kafka: Kafka, topic: str) -> object:
    """Return how often each line is in the topic."""
    found = committed(kafka.internal_servers, topic)
    return counted(found, lambda value: tuple(json.loads(value).values()))


@pytest.mark.parametrize("exactly_once", [False, True])
def test_who_may_write_writes(kafka: Kafka, tmp_path: Path, *, exactly_once: bool) -> None:
    """With the rights that the page on Kafka names, and no others."""
    topic = topic_of(kafka, AclOperation.WRITE, AclOperation.DESCRIBE)
    options: dict[str, Any] = {}  # Any: options of a sink.
    if exactly_once:
        options = {"exactly.once": True, "offsets.storage.topic": f"{topic}-positions"}
        rights = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        allow(kafka, ResourceType.TOPIC, f"{topic}-positions", *rights)
        own = (AclOperation.WRITE, AclOperation.DESCRIBE)
        allow(kafka, ResourceType.TRANSACTIONAL_ID, f"headrace-{topic}-", *own)
    job = job_of(kafka, tmp_path, topic, **options)

    assert 0 == job.finish(), job.log()
    assert written(kafka, topic) == EVERYTHING
    assert [] == problems(tmp_path)


def test_who_may_not_ask_how_large_records_may_be(kafka: Kafka, tmp_path: Path) -> None:
    """Exactly once, what the broker refuses is dead-lettered within moments, and nothing else is.

    librdkafka keeps a refused record until the transaction times out, after a minute. Only the
    first one ends transactions: that of its batch, and the one where it is alone.
    """
    rights = (AclOperation.WRITE, AclOperation.DESCRIBE)
    topic = topic_of(kafka, *rights, **{"max.message.bytes": "40000"})
    allow(kafka, ResourceType.TOPIC, f"{topic}-positions", AclOperation.ALL)
    allow(kafka, ResourceType.TRANSACTIONAL_ID, f"headrace-{topic}-", AclOperation.ALL)
    options: dict[str, Any] = {  # Any: options of a sink.
        "exactly.once": True,
        "offsets.storage.topic": f"{topic}-positions",
    }
    job = job_of(kafka, tmp_path, topic, **options)
    lines = (tmp_path / "in0.jsonl").read_text().splitlines()
    bad = range(10, LINES, 40)
    for n in bad:
        lines[n] = json.dumps({"file": 0, "n": n, "more": "x" * 160_000})
    (tmp_path / "in0.jsonl").write_text("\n".join(lines) + "\n")

    assert 0 == job.finish(), job.log()
    assert {key: 1 for key in EVERYTHING if key[1] not in bad} == written(kafka, topic)
    assert f'"dead_lettered":{len(bad)},' in job.log()
    assert 3 == job.log().count("split_started")


def test_who_may_not_see_the_topic_is_reported(kafka: Kafka, tmp_path: Path) -> None:
    """The job ends at once, and its status has the broker's words."""
    topic = topic_of(kafka)
    job = job_of(kafka, tmp_path, topic)

    assert 3 == job.finish(), job.log()
    (problem,) = problems(tmp_path)
    assert problem.startswith("kafka_topic: ")
    assert "Topic authorization failed" in problem


@pytest.mark.parametrize("exactly_once", [False, True])
def test_who_may_not_write_is_reported(kafka: Kafka, tmp_path: Path, *, exactly_once: bool) -> None:
    """The split stops, with the broker's words; nothing is repeated and nothing is lost."""
    topic = topic_of(kafka, AclOperation.DESCRIBE)
    options: dict[str, Any] = {}  # Any: options of a sink.
    if exactly_once:
        options = {"exactly.once": True, "offsets.storage.topic": f"{topic}-positions"}
        allow(kafka, ResourceType.TOPIC, f"{topic}-positions", AclOperation.ALL)
        allow(kafka, ResourceType.TRANSACTIONAL_ID, f"headrace-{topic}-", AclOperation.ALL)
    job = job_of(kafka, tmp_path, topic, **options)

    assert 1 == job.finish(), job.log()
    (problem,) = problems(tmp_path)
    assert problem.startswith("delivery_failed: ")
    assert "kafka_topic_authorization_failed" in problem
    allow(kafka, ResourceType.TOPIC, topic, AclOperation.WRITE)
    assert 0 == job.finish(), job.log()
    assert written(kafka, topic) == EVERYTHING


def test_who_may_not_use_transactions_is_reported(kafka: Kafka, tmp_path: Path) -> None:
    """The transactional id is named, by which the right can be given."""
    topic = topic_of(kafka, AclOperation.ALL)
    options: dict[str, Any] = {  # Any: options of a sink.
        "exactly.once": True,
        "offsets.storage.topic": f"{topic}-positions",
    }
    allow(kafka, ResourceType.TOPIC, f"{topic}-positions", AclOperation.ALL)
    job = job_of(kafka, tmp_path, topic, **options)

    assert job.finish() in (1, 3), job.log()
    (problem,) = problems(tmp_path)
    assert problem.startswith("kafka_transactions: ")
    assert f"transactional id headrace-{topic}-" in problem


def test_a_wrong_password_is_reported(kafka: Kafka, tmp_path: Path) -> None:
    """A permanent error is not waited for."""
    topic = topic_of(kafka, AclOperation.ALL)
    job = job_of(kafka, tmp_path, topic, PASSWORD[::-1], **{"connect.timeout.ms": 5_000})

    assert 3 == job.finish(), job.log()
    (problem,) = problems(tmp_path)
    assert "kafka_unreachable" in problem
    assert "sasl.password" in problem

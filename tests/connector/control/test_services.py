"""The Sidecar's keys do what its users expect, or are refused; its services make one job."""

from typing import Any

import pytest

from headrace.connector.control.catalogue import job_parts
from headrace.connector.control.commands import Commands
from headrace.connector.control.errors import NotFoundError
from headrace.connector.control.services import ROUTE, CdcService, service_job
from headrace.connector.foundation.states import Desired
from headrace.plugins import ConfigError, declared_options

KAFKA = {"bootstrap.servers": "h:9092", "acks": "all", "key.serializer": "x.StringSerializer"}
CDC = {"topic": "changes"}


def asked(**cdc: str) -> Any:  # noqa: ANN401 (parts of it are compared)
    """Return the job that `cdc` and Kafka ask for."""
    return service_job({"cdc": {**CDC, **cdc}, "kafka": KAFKA})


EFFECTS: list[tuple[str, str, Any]] = [
    ("cdc_enabled", "false", lambda job: job.enabled is False),
    ("topic", "x", lambda job: job.sink["topic"] == "x"),
    ("topic_format_type", "STATIC", lambda job: job.sink["topic"] == "changes"),
    ("jobid", "other", lambda job: job.job == "other"),
    ("datacenter", "dc2", lambda job: job.settings.datacenter == "dc2"),
    ("data_center", "dc2", lambda job: job.settings.datacenter == "dc2"),
    ("env", "prod", lambda job: job.sink["client.id"] == "headrace-prod"),
    ("watermark_seconds", "60", lambda job: job.settings.watermark_seconds == 60),
    ("micro_batch_delay_millis", "50", lambda job: job.runtime["tick_min_ms"] == 50),
    ("max_commit_logs", "9", lambda job: job.settings.max_commit_logs == 9),
    ("max_watermarker_size", "2000", lambda job: job.settings.max_watermarker_size == 2000),
    ("persist_state", "true", lambda job: job.enabled),
    ("persist_delay_millis", "250", lambda job: job.runtime["commit_max_seconds"] == 0.25),
    ("log_only", "true", lambda job: job.sink == {"plugin": "null"}),
    ("fail_kafka_errors", "true", lambda job: job.enabled),
    (
        "fail_kafka_too_large_errors",
        "true",
        lambda job: job.sink["errors.tolerance"] == "none",
    ),
]


@pytest.mark.parametrize(("key", "value", "shows"), EFFECTS, ids=[each[0] for each in EFFECTS])
def test_effects(key: str, value: str, shows: Any) -> None:  # noqa: ANN401 (a question)
    """Every key does what it says."""
    assert shows(asked(**{key: value}))


def test_every_key_has_an_effect() -> None:
    """O09: for every accepted key this module has a test of its effect."""
    assert set(declared_options(CdcService)) == {key for key, _, _ in EFFECTS}


@pytest.mark.parametrize(
    ("kind", "topic", "expected"),
    [
        ("KEYSPACE", "cdc-%s", "cdc-{keyspace}"),
        ("TABLE", "cdc-%s", "cdc-{table}"),
        ("KEYSPACETABLE", "%s.%s", "{keyspace}.{table}"),
    ],
)
def test_topics(kind: str, topic: str, expected: str) -> None:
    """A topic with placeholders becomes a pattern."""
    assert expected == asked(topic_format_type=kind, topic=topic).sink["topic"]


def test_serializers_are_left_out() -> None:
    """The Sidecar's serializer keys are not given to the sink; its other keys are."""
    expected = {"plugin": "kafka", "topic": "changes", "bootstrap.servers": "h:9092"}

    assert expected | {"acks": "all"} == asked().sink


@pytest.mark.parametrize(
    ("service", "config", "message"),
    [
        ("cdc", {"cdc_enabld": "true"}, "did you mean cdc_enabled?"),
        ("cdc", {"persist_state": "false"}, "cannot be false"),
        ("cdc", {"fail_kafka_errors": "false"}, "changes would be lost"),
        ("cdc", {"topic": "a-%s"}, "STATIC takes 0 times %s, found 1"),
        ("cdc", {"datacenter": "a", "data_center": "b"}, "differs from datacenter"),
        ("cdc", {"watermark_seconds": "1.5"}, "whole number"),
        ("cdc", {"micro_batch_delay_millis": "0"}, "at least 1"),
        ("cdc", {"jobid": " "}, "is not a job name"),
        ("kafka", {}, "bootstrap.servers: is required"),
        ("kafka", {**KAFKA, "acks": "1"}, "can only be all here"),
        ("kafka", {**KAFKA, "sasl.jaas.config": "x"}, "give sasl.username"),
        ("kafka", {**KAFKA, "sasl.password": "canary"}, "is a secret"),
        ("kafka", {**KAFKA, "plugin.library.paths": "/x.so"}, "is not an option"),
        ("schema_store", {"url": "http://h"}, "as in schema.store.url"),
    ],
)
def test_refused(commands: Commands, service: str, config: dict[str, str], message: str) -> None:
    """A key that is unknown, or that cannot be applied, changes nothing."""
    with pytest.raises(ConfigError, match=message) as caught:
        commands.put_service(service, config)

    assert "canary" not in str(caught.value)
    assert {} == commands.services()


@pytest.fixture
def commands(connection: Any) -> Commands:  # noqa: ANN401 (SQLite's)
    """Return the command service over a new state file."""
    return Commands(connection)


def test_one_job(commands: Commands, connection: Any) -> None:  # noqa: ANN401 (SQLite's)
    """The services make one job of all tables; deleting one stops it and keeps its position."""
    commands.put_service("cdc", CDC)
    assert ROUTE not in commands.statuses()
    commands.put_service("kafka", KAFKA)
    assert ("sidecar", Desired.RUNNING) == (
        commands.statuses()[ROUTE].job,
        commands.statuses()[ROUTE].desired,
    )
    parts = job_parts(connection, "sidecar")
    assert ("changes", None) == (parts.sink["topic"], parts.tables)
    before = commands.statuses()[ROUTE].generation
    commands.put_service("cdc", {**CDC, "topic": "others"})
    assert before + 1 == commands.statuses()[ROUTE].generation
    commands.put_service("cdc", {**CDC, "cdc_enabled": "false"})
    assert Desired.STOPPED is commands.statuses()[ROUTE].desired
    commands.put_service("cdc", CDC)
    commands.delete_service("kafka")
    assert Desired.STOPPED is commands.statuses()[ROUTE].desired
    commands.put_service("kafka", KAFKA)
    assert ("sidecar", Desired.RUNNING) == (
        commands.statuses()[ROUTE].job,
        commands.statuses()[ROUTE].desired,
    )
    assert [] == commands.sources()


def test_another_job(commands: Commands) -> None:
    """Another `jobid` is another job, which starts without positions."""
    commands.put_service("kafka", KAFKA)
    commands.put_service("cdc", CDC)
    commands.put_service("cdc", {**CDC, "jobid": "b"})

    assert "b" == commands.statuses()[ROUTE].job


@pytest.mark.parametrize("name", ["none", "", "~services"])
def test_unknown_service(commands: Commands, name: str) -> None:
    """There are three services."""
    with pytest.raises(NotFoundError):
        commands.put_service(name, {})
    with pytest.raises(NotFoundError):
        commands.delete_service(name)

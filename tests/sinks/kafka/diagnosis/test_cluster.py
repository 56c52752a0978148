"""A check says what is wrong with a cluster before anything is sent to it."""

import uuid
import weakref
from importlib.metadata import version

import pytest
from confluent_kafka.admin import PartitionMetadata, TopicMetadata  # type: ignore[attr-defined]  # Its stubs forget them.

from headrace.plugins import CheckResult, Finding, parse_config
from headrace.plugins.diagnosis import Examined
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.diagnosis.cluster import ClusterCheck, missing_finding, partition_findings
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import context

PASSED, FAILED, WARNED = CheckResult.PASSED, CheckResult.FAILED, CheckResult.WARNED


def check(**options: str) -> list[Finding]:
    """Return what a check of a sink with these options finds."""
    given = {key.replace("_", "."): value for key, value in options.items()}
    config = parse_config(KafkaConfig, {"connect.timeout.ms": "3000", "topic": "t", **given})
    return list(KafkaSink(config, context()).check())


def test_no_broker() -> None:
    """Where no one listens, the check ends there, with the reason."""
    (found,) = check(bootstrap_servers="127.0.0.1:1")

    assert ("connection", FAILED) == (found.check, found.result)
    assert "refused" in found.message


def test_no_topic(broker: EmbeddedBroker) -> None:
    """A missing topic is reported, and is not made by asking."""
    topic = f"check-{uuid.uuid4()}"
    for _ in range(2):
        connection, missing = check(bootstrap_servers=broker.bootstrap_servers, topic=topic)
        assert PASSED == connection.result
        assert (WARNED, f"topic {topic} does not exist") == (missing.result, missing.message)


def test_a_topic_that_will_be_made(broker: EmbeddedBroker) -> None:
    """A missing topic is fine where it may be made; a pattern names no topic."""
    topic = f"check-{uuid.uuid4()}"
    options = {"topic.creation.enable": "true", "topic.map.a.b": topic}
    found = check(bootstrap_servers=broker.bootstrap_servers, topic="x.{table}", **options)

    assert [PASSED, PASSED] == [finding.result for finding in found]


@pytest.mark.parametrize(
    ("is_created", "result"), [("true", PASSED), ("false", FAILED), (None, WARNED)]
)
def test_topics_that_brokers_create(is_created: str | None, result: CheckResult) -> None:
    """Where the brokers create topics on first use, a missing one is fine; else it is not."""
    found = missing_finding("orders", is_created)

    assert (result, "orders" in found.message) == (found.result, True)


def test_topics_of_tables(broker: EmbeddedBroker) -> None:
    """A diagnosis asks about the topic of each table too, and names the client's versions."""
    name = f"check-{uuid.uuid4()}"
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": name + ".{table}"}
    sink = KafkaSink(parse_config(KafkaConfig, options), context())
    libraries, brokers = sink.checks(Examined(tables=["s.t", "s.u"]))
    (client,) = libraries.run()
    _, *topics = brokers.run()

    known = f"confluent-kafka {version('confluent-kafka')}, librdkafka "
    assert (PASSED, True) == (client.result, client.message.startswith(known))
    assert [(WARNED, f"topic {name}.{table} does not exist") for table in "tu"] == [
        (found.result, found.message) for found in topics
    ]


@pytest.mark.parametrize(
    ("leader", "in_sync", "result"),
    [(1, [1, 2], None), (1, [1], CheckResult.WARNED), (-1, [], FAILED)],
)
def test_partitions(leader: int, in_sync: list[int], result: CheckResult | None) -> None:
    """A partition without a leader is a failure, one with replicas out of sync a warning."""
    topic, partition = TopicMetadata(), PartitionMetadata()
    partition.id, partition.leader, partition.isrs = 7, leader, in_sync
    partition.replicas = [1, 2]
    topic.partitions = {7: partition}
    found = list(partition_findings("t", topic))

    assert [result] * (result is not None) == [each.result for each in found]
    assert all("partitions 7" in each.message for each in found)


def test_refused_option() -> None:
    """A value that librdkafka refuses is a finding, too."""
    options = {"bootstrap.servers": "h:1", "security.protocol": "ssl", "ssl.ca.location": "/no/ca"}
    (found,) = check(**options)

    assert ("options", FAILED) == (found.check, found.result)


def test_a_check_that_is_over_holds_no_client() -> None:
    """Its client ends with it, threads and connections too, and waits for no collector."""
    config = parse_config(KafkaConfig, {"topic": "t", "bootstrap.servers": "127.0.0.1:1"})
    done = ClusterCheck(config)
    known = weakref.ref(done)

    del done

    assert known() is None

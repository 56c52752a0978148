"""A check says what is wrong with a cluster before anything is sent to it."""

import uuid
import weakref

from headrace.plugins import CheckResult, Finding, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.check import ClusterCheck
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import context

PASSED, FAILED = CheckResult.PASSED, CheckResult.FAILED


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
        assert (FAILED, f"there is no topic {topic}") == (missing.result, missing.message)


def test_a_topic_that_will_be_made(broker: EmbeddedBroker) -> None:
    """A missing topic is fine where it may be made; a pattern names no topic."""
    topic = f"check-{uuid.uuid4()}"
    options = {"topic.creation.enable": "true", "topic.map.a.b": topic}
    found = check(bootstrap_servers=broker.bootstrap_servers, topic="x.{table}", **options)

    assert [PASSED, PASSED] == [finding.result for finding in found]


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

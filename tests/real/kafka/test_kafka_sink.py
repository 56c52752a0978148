"""What only a real broker answers: refusals of whole batches, and of topics."""

from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # Its stubs forget them.

from headrace.plugins import Disposition, parse_config
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.failures import TopicMissingError
from helpers.jobs.deliveries import Results, consume, context, delivery_of, drained

pytestmark = pytest.mark.real


def test_a_broker_that_refuses_a_batch_gets_its_records_singly(bootstrap_servers: str) -> None:
    """Only the record beyond the topic's own limit is rejected, after its neighbours had theirs."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    name = f"small-{uuid4().hex}"
    topic = NewTopic(name, 1, 1, config={"max.message.bytes": "2000"})
    admin.create_topics([topic])[name].result(30)
    options = {"bootstrap.servers": bootstrap_servers, "topic": name}
    writer = KafkaSink(parse_config(KafkaConfig, options), context()).open()
    delivery = delivery_of((b"a", b"1"), (b"b", bytes(range(256)) * 20), (b"c", b"3"))
    results = Results()

    for _ in range(2):
        writer.submit(delivery, results)
        assert drained(writer)

    (first, first_failures), (second, second_failures) = results.all
    assert {0, 1, 2} == {*first, *(failure.index for failure in first_failures)}
    assert {Disposition.RETRY} == {failure.disposition for failure in first_failures}
    assert [(1, Disposition.REJECT)] == [(f.index, f.disposition) for f in second_failures]
    assert {0, 2} == second
    assert {b"1", b"3"} == {message.value() for message in consume(bootstrap_servers, name)}


def test_only_the_invalid_record_of_a_batch_is_rejected(bootstrap_servers: str) -> None:
    """A compacted topic takes no record without a key; librdkafka says it of the whole batch."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    name = f"compacted-{uuid4().hex}"
    topic = NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[name].result(30)
    options = {"bootstrap.servers": bootstrap_servers, "topic": name}
    writer = KafkaSink(parse_config(KafkaConfig, options), context()).open()
    delivery = delivery_of((b"a", b"1"), (None, b"2"), (b"c", b"3"))
    results = Results()

    for _ in range(2):
        writer.submit(delivery, results)
        assert drained(writer)

    _, (delivered, failures) = results.all
    assert {0, 2} == delivered
    assert [(1, Disposition.REJECT)] == [(f.index, f.disposition) for f in failures]
    assert {b"1", b"3"} == {message.value() for message in consume(bootstrap_servers, name)}


def test_a_topic_that_is_not_made_is_named(bootstrap_servers: str) -> None:
    """Without automatic creation a missing topic is a named error, in time."""
    options = {
        "bootstrap.servers": bootstrap_servers,
        "topic": "nowhere",
        "allow.auto.create.topics": "false",
        "connect.timeout.ms": "1000",
    }

    with pytest.raises(TopicMissingError, match="no topic nowhere within 1000 ms"):
        KafkaSink(parse_config(KafkaConfig, options), context()).open()


def test_topics_are_made_as_the_options_say(bootstrap_servers: str) -> None:
    """With their partitions and settings, also where the brokers would have made them otherwise."""
    options = {
        "bootstrap.servers": bootstrap_servers,
        "topic": "made.{table}",
        "topic.creation.enable": "true",
        "topic.creation.default.partitions": "5",
        "topic.creation.default.cleanup.policy": "compact",
    }
    writer = KafkaSink(parse_config(KafkaConfig, options), context()).open()
    results = Results()

    writer.submit(delivery_of((b"a", b"1")), results)
    assert drained(writer)

    assert [(range(1), [])] == results.all
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    assert 5 == len(admin.list_topics("made.t", timeout=10).topics["made.t"].partitions)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "made.t")
    (settings,) = admin.describe_configs([resource]).values()
    assert "compact" == settings.result(10)["cleanup.policy"].value
    assert [b"1"] == [message.value() for message in consume(bootstrap_servers, "made.t")]


def test_a_topic_that_cannot_be_made_is_named(bootstrap_servers: str) -> None:
    """The brokers' own words, and what to correct."""
    options = {
        "bootstrap.servers": bootstrap_servers,
        "topic": "unmade",
        "topic.creation.enable": "true",
        "topic.creation.default.replication.factor": "3",
    }

    with pytest.raises(TopicMissingError, match="unmade cannot be made") as caught:
        KafkaSink(parse_config(KafkaConfig, options), context()).open()

    assert "correct topic.creation.default.*" == caught.value.hint

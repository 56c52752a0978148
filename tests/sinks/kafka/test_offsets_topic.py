"""The topic of positions is read to its end, past all else that is in it."""

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError, Producer

from headrace.plugins import parse_config
from headrace.sinks.kafka import KafkaConfig
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.offsets_topic import OffsetsTopic
from helpers.jobs.deliveries import SystemClock
from helpers.servers.kafka_node import KafkaNode, Ordered, Transaction
from helpers.servers.mock_cluster import LIST_OFFSETS, MockCluster

PARTITION_BYTES = 5 << 20  # What the broker in this process keeps of a partition.


def topic_of(broker: EmbeddedBroker | KafkaNode | MockCluster, name: str) -> OffsetsTopic:
    """Return the topic *name*, looked at by one split."""
    given = {"bootstrap.servers": broker.bootstrap_servers, "topic": "t"}
    config = parse_config(KafkaConfig, given | {"offsets.storage.topic": name})
    topic = OffsetsTopic(config, SystemClock(), "job", "split")
    topic.partition = 0  # Which `prepare` says elsewhere; this broker reports no settings.
    return topic


def write(
    broker: EmbeddedBroker | MockCluster, topic: OffsetsTopic, *entries: tuple[bytes, bytes]
) -> None:
    """Write messages into the partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
    for key, value in entries:
        producer.produce(topic.name, value, key, topic.partition)
    assert not producer.flush(60)


def read(topic: OffsetsTopic) -> Mapping[str, bytes] | None:
    """Return the entries."""
    return topic.read(60_000)


def test_the_beginning_was_deleted(broker: EmbeddedBroker) -> None:
    """What is left is read: a topic that once deleted does not begin with its first message."""
    topic = topic_of(broker, "offsets-begun-later")
    old = [(b"old", bytes(900_000))] * (PARTITION_BYTES // 900_000 + 3)
    write(broker, topic, *old, (topic.key("head"), b"1"))

    assert {"head": b"1"} == read(topic)


def test_what_others_wrote(broker: EmbeddedBroker) -> None:
    """A key that only begins as ours do is passed over, and hides nothing behind it."""
    topic = topic_of(broker, "offsets-of-others")
    ours = topic.key("head")
    others = [ours[:-1], ours + b"x", ours.replace(b'"head"', b'"head","more"'), b"\xff", b""]
    others.append(ours.replace(b'"head"', b'"a",1'))
    write(broker, topic, *((key, b"x") for key in others), (ours, b"1"))

    assert {"head": b"1"} == read(topic)


def test_what_was_aborted_is_not_read() -> None:
    """A split that continued behind what its consumers never see would lose it (I7)."""
    with KafkaNode() as node:
        node.ordered["offsets-aborted"] = Ordered(1, 1, {})
        topic = topic_of(node, "offsets-aborted")
        node.transactions = [
            Transaction(topic.key("head"), b"committed"),
            Transaction(topic.key("head"), b"aborted", is_committed=False),
            Transaction(topic.key("other"), b"aborted", is_committed=False),
        ]

        assert {"head": b"committed"} == read(topic)


@pytest.mark.parametrize(
    "error", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_no_leader_yet(error: int) -> None:
    """It is read a little later: a topic that was just made has none, or one that moves."""
    with MockCluster() as cluster:
        topic = topic_of(cluster, "offsets-no-leader")
        write(cluster, topic, (topic.key("head"), b"1"))
        cluster.answer(error, request=LIST_OFFSETS)

        assert read(topic) is None
        assert {"head": b"1"} == read(topic)

"""The topic of signals as a consumer group reads it."""

from collections.abc import Sequence
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.plugins import ConfigError, Signal, Signals, parse_config
from headrace.plugins.testing.doubles import context
from headrace.sinks.kafka import KafkaConfig, KafkaSink
from headrace.sinks.kafka.embedded import EmbeddedBroker
from headrace.sinks.kafka.failures import TopicMissingError
from helpers.jobs.children import until


def _signals(broker: EmbeddedBroker, **given: str) -> Signals:
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": "records", **given}
    found = KafkaSink(parse_config(KafkaConfig, options), context()).signals()
    assert found is not None
    return found


def _client(broker: EmbeddedBroker) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}


def _send(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    producer = Producer(_client(broker))
    for value in values:
        producer.produce(topic, value, b"orders")
    assert 0 == producer.flush(60)


def _taken(signals: Signals, count: int) -> Sequence[Signal]:
    found: list[Signal] = []

    def come() -> bool:
        found.extend(signals.take(0.1))
        return len(found) >= count

    until(come, "they never came")
    return found


def test_what_was_followed_is_not_read_again(broker: EmbeddedBroker) -> None:
    """Signals from before the first start come in order; the next process begins behind `done`."""
    options = {"signal.topic": "signals", "signal.group.id": "signals-a"}
    _send(broker, "signals", b"1", b"2", b"3")
    with closing(_signals(broker, **options)) as signals:
        first = _taken(signals, 3)
        signals.done(first[0])
    partition = int(first[0].origin.split(":")[1])
    group = Consumer({**_client(broker), "group.id": "signals-a"})
    (place,) = group.committed([TopicPartition("signals", partition)], timeout=60)
    group.close()
    assert 1 == place.offset
    with closing(_signals(broker, **options)) as signals:
        second = _taken(signals, 2)

    assert [b"1", b"2", b"3"] == [each.value for each in first]
    assert first[1:] == second
    assert {b"orders"} == {each.key for each in first}
    assert 3 == len({each.origin for each in first})


def test_jobs_are_groups_of_their_own(broker: EmbeddedBroker) -> None:
    """Without `signal.group.id` each job reads all signals: its group has the job's name."""
    _send(broker, "shared-signals", b"1")
    for name in (None, "other"):
        given = {} if name is None else {"signal.group.id": name}
        with closing(_signals(broker, **{"signal.topic": "shared-signals", **given})) as signals:
            (found,) = _taken(signals, 1)
            signals.done(found)
    assert b"1" == found.value


def test_a_topic_that_is_missing(broker: EmbeddedBroker) -> None:
    """A topic that does not exist is an error with its name, and no topic is made."""
    with closing(_signals(broker, **{"signal.topic": "nowhere"})) as signals:

        def looks() -> bool:
            return not signals.take(0.1) and False

        with pytest.raises(TopicMissingError, match="topic=nowhere"):
            until(looks, "it never said so")


def test_without_a_topic_there_are_none(broker: EmbeddedBroker) -> None:
    """Without `signal.topic` no consumer is made."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "topic": "records"}
    assert KafkaSink(parse_config(KafkaConfig, options), context()).signals() is None


@pytest.mark.parametrize("topic", ["records", "a/b"])
def test_topics_that_cannot_be(topic: str) -> None:
    """A topic of records, or a name that Kafka does not take, is refused."""
    options = {"bootstrap.servers": "127.0.0.1:1", "topic": "records", "signal.topic": topic}
    with pytest.raises(ConfigError, match=r"signal\.topic"):
        parse_config(KafkaConfig, options)

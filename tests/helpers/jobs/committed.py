"""What a consumer with `isolation.level=read_committed` reads."""

import json
from collections import Counter
from collections.abc import Callable, Hashable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.sinks.kafka.reading import taken


def committed(bootstrap_servers: str, topic: str, **options: str) -> list[Message]:
    """Return all committed messages of *topic*; `_` in names of *options* stands for `.`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=180).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < len(partitions):
            for message in taken(consumer, 1):
                error = message.error()
                if error is None:
                    found.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error  # noqa: SLF001 (its own)
                    ended.add(message.partition())
        return found
    finally:
        consumer.close()


def change(value: bytes) -> Hashable:
    """Return what identifies a change in JSON: its mutation, and its number in the mutation."""
    said = json.loads(value)
    return said["mutation"], said["index"]


def counted(messages: list[Message], fact: Callable[[bytes], Hashable]) -> Counter[Hashable]:
    """Return how often each fact is in the messages."""
    return Counter(fact(message.value() or b"") for message in messages)

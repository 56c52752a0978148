"""What tests of sinks share: deliveries of given bytes, and a consumer of the topics."""

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from confluent_kafka import Consumer, Message, TopicPartition

from headrace.plugins import (
    Context,
    Delivery,
    EncodedRecords,
    Failure,
    Headers,
    NumberPosition,
    RecordBatch,
    Writer,
)
from headrace.plugins.testing import doubles

NO_BROKER = "127.0.0.1:1"


class SystemClock:
    """The real clock, which librdkafka uses too; it starts when this object is made."""

    def __init__(self) -> None:
        """Start at zero."""
        self._start_ns = time.monotonic_ns()

    def monotonic_ms(self) -> int:
        """Return the milliseconds since the start."""
        return (time.monotonic_ns() - self._start_ns) // 1_000_000

    def wall_ms(self) -> int:
        """Return the system's wall clock."""
        return time.time_ns() // 1_000_000


class Results:
    """Remembers the results of deliveries."""

    def __init__(self) -> None:
        """Start without results."""
        self.all: list[tuple[Collection[int], Sequence[Failure]]] = []

    def __call__(self, delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
        """Add a result."""
        self.all.append((delivered, failures))


def delivery_of(
    *pairs: tuple[bytes | None, bytes], headers: Headers = (("schemaId", bytes(16)),)
) -> Delivery:
    """Return a delivery of these keys and values."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    count = len(pairs)
    batch = RecordBatch(split="all", end=NumberPosition(0), size_bytes=0, made=[])
    return Delivery(batch, EncodedRecords(keys, values, [headers] * count, ["t"] * count))


def context() -> Context:
    """Return a sink's context with the real clock, which librdkafka uses too."""
    return replace(doubles.context(), clock=SystemClock())


def drained(writer: Writer) -> bool:
    """Wait until everything is settled, at most until the writer's clock shows two minutes."""
    return writer.drain(120_000)


def consume(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return all messages of *topic*, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=180).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in partitions]
        expected = sum(consumer.get_watermark_offsets(place, timeout=180)[1] for place in places)
        consumer.assign(places)
        found: list[Message] = []
        while len(found) < expected:
            found += consumer.consume(expected - len(found), timeout=180)
        return found
    finally:
        consumer.close()

"""What the tests of sinks share: deliveries of ready bytes, and a consumer of what came out."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import structlog
from confluent_kafka import Consumer, Message, TopicPartition

from headrace.plugins import (
    Batch,
    Context,
    Delivery,
    EncodedPosition,
    EncodedRecords,
    Failure,
    Headers,
    Position,
    Record,
    Writer,
)

NO_BROKER = "127.0.0.1:1"
Verdict = tuple[int, Sequence[Failure]]


class SystemClock:
    """The time that librdkafka lives in too."""

    def monotonic_ms(self) -> int:
        """Return the system's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return the system's wall clock."""
        return time.time_ns() // 1_000_000


class Nowhere(Position):
    """The position of batches that only a sink sees."""

    def encode(self) -> EncodedPosition:
        """Return nothing."""
        return EncodedPosition(b"")

    def describe(self) -> list[Any]:  # Any: an empty list of pairs.
        """Return nothing."""
        return []


class NoRecords(Batch):
    """A batch whose records were encoded already."""

    split = "all"
    end = Nowhere()
    size_bytes = 0

    def records(self) -> Iterator[Record]:
        """Return nothing."""
        return iter(())


def delivery_of(
    *pairs: tuple[bytes | None, bytes], headers: Headers = (("schemaId", bytes(16)),)
) -> Delivery:
    """Return a delivery of these keys and values."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    count = len(pairs)
    return Delivery(NoRecords(), EncodedRecords(keys, values, [headers] * count, ["t"] * count))


def context() -> Context:
    """Return what a sink is lent."""
    return Context(job="test", clock=SystemClock(), job_key=bytes(16), log=structlog.get_logger())


def drained(writer: Writer, *, seconds: int = 20) -> bool:
    """Wait until everything is settled, at most *seconds*."""
    return writer.drain(SystemClock().monotonic_ms() + seconds * 1000)


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
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        places = [TopicPartition(topic, partition, 0) for partition in partitions]
        expected = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        found: list[Message] = []
        while len(found) < expected:
            found += consumer.consume(expected - len(found), timeout=10)
        return found
    finally:
        consumer.close()

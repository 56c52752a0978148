"""Reads topics back, partition by partition, to their ends: for comparing, not for following.

A temporary consumer is assigned a partition and joins no group. The end is that reported by the
broker: offsets do not count messages, as transactions and compaction leave gaps.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.plugins import Headers, Stored
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import BrokerUnreachableError, TopicMissingError

KnownHeaders = dict[tuple[object, ...], Headers]

MESSAGES_MAX: Final = 500
WAIT_SECONDS: Final = 1.0
HEADERS_MAX: Final = 1_000  # Different headers kept, so that equal ones are one object.
SILENT_SECONDS_MAX: Final = 30  # Without a message, an error or the end.


def partitions(config: KafkaConfig, topics: Sequence[str]) -> Sequence[str]:
    """Return `topic:partition` for each partition of *topics*.

    Raises:
        BrokerUnreachableError: no broker answers.
        TopicMissingError: a topic does not exist.

    """
    consumer = _consumer(config)
    try:
        known = consumer.list_topics(timeout=config.connect_timeout_ms / 1000).topics
    except KafkaException as error:
        raise BrokerUnreachableError(error.args[0].str(), place=config.bootstrap_servers) from error
    finally:
        consumer.close()
    found = []
    for topic in topics:
        if topic not in known or known[topic].error is not None:
            raise TopicMissingError("does not exist", place=f"topic {topic}")
        found += [f"{topic}:{number}" for number in sorted(known[topic].partitions)]
    return found


def messages(config: KafkaConfig, part: str) -> Iterator[Sequence[Stored]]:
    """Yield the messages of `topic:partition` from its beginning to its end.

    Raises:
        BrokerUnreachableError: the broker does not answer, or reports an error.

    """
    topic, _, number = part.rpartition(":")
    consumer = _consumer(config)
    try:
        consumer.assign([TopicPartition(topic, int(number), 0)])
        silent_seconds = 0.0
        ended = False
        known: KnownHeaders = {}
        while not ended:
            came = taken(consumer, WAIT_SECONDS)
            silent_seconds = 0.0 if came else silent_seconds + WAIT_SECONDS
            if silent_seconds > SILENT_SECONDS_MAX:
                raise BrokerUnreachableError("the broker is silent", place=part)
            found = []
            for message in came:
                error = message.error()
                if error is None:
                    found.append(_stored(message, known))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's own)
                    ended = True
                elif not error.retriable():
                    raise BrokerUnreachableError(error.str(), place=part)
            if found:
                yield found
    finally:
        consumer.close()


def taken(consumer: Consumer, seconds: float) -> Sequence[Message]:
    """Return the available messages, including ends of partitions. Blocks up to *seconds*.

    `consume` alone would wait for more until the timeout, even at the end.
    """
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(MESSAGES_MAX - 1, timeout=0)]


def _stored(message: Message, known: KnownHeaders) -> Stored:
    headers: Headers = ()
    if given := message.headers():
        key = tuple(given)
        found = known.get(key)
        if found is None:
            pairs: list[tuple[str, bytes | None]] = list(given)  # type: ignore[arg-type]
            found = tuple((name, value or b"") for name, value in pairs)
            if len(known) >= HEADERS_MAX:
                known.clear()
            known[key] = found
        headers = found
    return Stored(message.offset() or 0, message.key(), message.value(), headers)


def _consumer(config: KafkaConfig) -> Consumer:
    return Consumer(
        {
            **config.admin_config(),
            "group.id": "headrace-reading",  # It is required; nothing is joined or committed.
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # A fetch that finds nothing for this time shows the end.
            "fetch.queue.backoff.ms": 10,  # With the default of 1 s, its full queue runs empty.
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )

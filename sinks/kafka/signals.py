"""Reads the topic of signals: messages with requests to a job.

All processes of a job are one consumer group, so each message is executed by one of them, in the
order of its partition. An offset is committed after its message was executed.
"""

from collections.abc import Sequence
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.plugins import ConfigError, Context, Problem, Signal, Signals
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import BrokerUnreachableError, TopicMissingError
from headrace.sinks.kafka.reading import taken

SESSION_MS: Final = 6_000  # A dead process keeps its partitions this long: the brokers' minimum.
COMMIT_HINT: Final = "allow this user to read the topic and the group"


def signal_group(config: KafkaConfig, job: str) -> str:
    """Return the consumer group of the processes of *job*."""
    return config.signal_group or f"headrace-signals-{job}"


class KafkaSignals(Signals):
    """The signals of one process of a job."""

    def __init__(self, config: KafkaConfig, topic: str, context: Context) -> None:
        """Subscribe to *topic*. Raises ConfigError if librdkafka rejects a value."""
        self._place = f"kafka://{config.bootstrap_servers}?topic={topic}"
        self._log = context.log
        self._ends: dict[str, TopicPartition] = {}
        try:
            self._consumer = Consumer(
                {
                    **config.admin_config(),
                    "group.id": signal_group(config, context.job),
                    "session.timeout.ms": SESSION_MS,
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",  # Messages from before the first start count.
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                }
            )
        except KafkaException as error:
            raise ConfigError([Problem("signal.topic", error.args[0].str())]) from error
        self._consumer.subscribe([topic])

    def take(self, seconds: float) -> Sequence[Signal]:
        """Implement `Signals.take`. Raises BrokerUnreachableError, TopicMissingError."""
        found, failed = [], None
        for message in taken(self._consumer, seconds):
            if (error := message.error()) is not None:
                failed = error
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None  # noqa: S101, PT018 (of a message without an error)
            origin = f"{topic}:{partition}:{offset}:{message.timestamp()[1]}"
            self._ends[origin] = TopicPartition(topic, partition, offset + 1)
            found.append(Signal(origin, message.key(), message.value()))
        if failed is not None and not found:
            self._raise(failed)
        return found

    def done(self, signal: Signal) -> None:
        """Implement `Signals.done`. A failed commit is logged: the message may be read again."""
        end = self._ends.pop(signal.origin)
        try:
            self._consumer.commit(offsets=[end], asynchronous=False)
        except KafkaException as error:
            said = error.args[0].str()
            self._log.warning("signal_not_committed", origin=signal.origin, error=said)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _raise(self, error: KafkaError) -> None:
        """Raise the error for *error*, unless librdkafka retries it."""
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            hint = "create the topic, or leave signal.topic out"
            raise TopicMissingError("does not exist", place=self._place, hint=hint)
        if not error.retriable():
            raise BrokerUnreachableError(error.str(), place=self._place, hint=COMMIT_HINT)

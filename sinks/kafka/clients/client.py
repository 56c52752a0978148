"""The interface of a Kafka producer for the sink, for both ways of calling librdkafka."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from confluent_kafka import KafkaError

from headrace.sinks.kafka.messages import Messages

FULL: Final = KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 (librdkafka's own errors have this prefix)
ASSIGNED_BY_KEY: Final = -1
OnError = Callable[[KafkaError], None]


class Cluster(NamedTuple):
    """The metadata of brokers, and the error of a topic, if any."""

    hosts: Sequence[str]
    error: KafkaError | None


class Reports(Protocol):
    """The messages of a delivery, and the receiver of their delivery reports."""

    messages: Messages
    times: bytearray
    """How often each message was reported, which the client counts before it calls `reported`."""

    def reported(self, count: int, failed: Sequence[tuple[int, KafkaError]]) -> None:
        """Receive *count* reports; *failed* are the messages that did not arrive."""


class Client(Protocol):
    """A producer. Every method is called on one thread.

    Reports, and errors of connections, are processed in `poll` and in transactional calls with a
    timeout.
    """

    def __len__(self) -> int:
        """Return the number of messages and reports in flight."""

    def produce(self, reports: Reports, begin: int, end: int) -> tuple[int, KafkaError | None]:
        """Produce the messages from *begin* up to, but not including, *end*.

        Returns the number of the first message that was not accepted, and why; *end* and None if
        all were.
        """

    def put(self, topic: str, value: bytes | None, key: bytes, partition: int) -> KafkaError | None:
        """Produce a message without a report. Return the error if it was not accepted."""

    def poll(self, wait_ms: int) -> None:
        """Process events. Blocks up to *wait_ms* for one."""

    def flush(self, wait_ms: int) -> None:
        """Poll until nothing is in flight, up to *wait_ms*; lingering messages are sent at once."""

    def cluster(self, topic: str | None, wait_ms: int) -> Cluster:
        """Query the metadata of the brokers, and of *topic*.

        Raises:
            KafkaException: no broker answered in time.

        """

    def purge(self, *, waits: bool) -> None:
        """Drop all messages; with *waits* the next poll has their reports."""

    def close(self) -> None:
        """Drop all messages, and end threads and connections. Safe to call twice."""

    def init_transactions(self, seconds: float) -> None:
        """Fence earlier producers with this transactional id.

        Raises:
            KafkaException: it failed, or timed out.

        """

    def begin_transaction(self) -> None:
        """Begin a transaction. Raises KafkaException."""

    def commit_transaction(self, seconds: float) -> None:
        """Commit the transaction. Raises KafkaException."""

    def abort_transaction(self, seconds: float) -> None:
        """Abort the transaction. Raises KafkaException."""

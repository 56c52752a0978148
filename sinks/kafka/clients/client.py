"""What the sink asks of a Kafka producer, whichever way librdkafka is called."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from confluent_kafka import KafkaError

from headrace.sinks.kafka.messages import Messages

FULL: Final = KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001 (librdkafka's own begin like this)
ASSIGNED_BY_KEY: Final = -1
OnError = Callable[[KafkaError], None]


class Cluster(NamedTuple):
    """What brokers said of themselves, and of a topic: why it cannot be used, if so."""

    hosts: Sequence[str]
    error: KafkaError | None


class Reports(Protocol):
    """The messages of a delivery, and what hears what became of them."""

    messages: Messages
    times: bytearray
    """How often each message was reported, which the client counts before it calls `reported`."""

    def reported(self, count: int, failed: Sequence[tuple[int, KafkaError]]) -> None:
        """Hear that *count* reports came; *failed* are the messages that did not arrive."""


class Client(Protocol):
    """A producer. Every method is called on one thread.

    Reports, and errors of connections, come in `poll` and in calls for transactions with a time.
    """

    def __len__(self) -> int:
        """Return how many messages and reports are on their way."""

    def produce(self, reports: Reports, begin: int, end: int) -> tuple[int, KafkaError | None]:
        """Produce the messages from *begin* on, and before *end*.

        Returns the number of the first that was not taken, and why; *end* and None if all were.
        """

    def put(self, topic: str, value: bytes | None, key: bytes, partition: int) -> KafkaError | None:
        """Produce a message of which nothing is reported; return why it was not taken."""

    def poll(self, wait_ms: int) -> None:
        """Take what came or comes within that time."""

    def flush(self, wait_ms: int) -> None:
        """Poll until nothing is on its way, at most so long; what waits to be sent does not."""

    def cluster(self, topic: str | None, wait_ms: int) -> Cluster:
        """Ask the brokers about themselves, and about *topic*.

        Raises:
            KafkaException: none answered in time.

        """

    def purge(self, *, waits: bool) -> None:
        """Give up all messages; with *waits* the next poll has their reports."""

    def close(self) -> None:
        """Give up all messages, and end threads and connections. Safe to call twice."""

    def init_transactions(self, seconds: float) -> None:
        """Fence the producers that had this transactional id before.

        Raises:
            KafkaException: it was not done, or not in time.

        """

    def begin_transaction(self) -> None:
        """Begin one. Raises KafkaException."""

    def commit_transaction(self, seconds: float) -> None:
        """Commit it. Raises KafkaException."""

    def abort_transaction(self, seconds: float) -> None:
        """Abort it. Raises KafkaException."""

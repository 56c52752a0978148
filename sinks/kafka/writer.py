"""Producing: the messages of a delivery, and their results; no thread of our own.

Reports are processed where this writer polls, on the thread that calls `submit` and `drain`: a
second thread would compete for the GIL. So a waiting thread calls `drain`, with a past deadline if
it does not want to block.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError
from msgspec.structs import replace

from headrace.plugins import Context, Delivery, Disposition, Failure, Settle, Writer
from headrace.sinks.kafka.clients import Client, new_client
from headrace.sinks.kafka.clients.client import FULL
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import (
    GONE,
    REFUSED,
    QueueFullError,
    WriterClosedError,
    code_of,
    hint_of,
)
from headrace.sinks.kafka.messages import Messages, messages_of
from headrace.sinks.kafka.outstanding import Outstanding, failure_of
from headrace.sinks.kafka.topics import Topics
from headrace.sinks.kafka.watch import TopicWatch, gone_hint

POLL_MS: Final = 100
EXCEEDS: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "exceeds large.bytes")


class KafkaWriter(Writer):
    """Writes deliveries. Every method is called on one thread."""

    def __init__(
        self, config: KafkaConfig, context: Context, watch: TopicWatch | None = None
    ) -> None:
        """Create the producer, which connects in the background.

        *watch* is shared with the other writers of a sink; this one calls it.

        Raises:
            ConfigError: librdkafka rejects a value.

        """
        self._config = config
        self._clock = context.clock
        self._log = context.log
        self._place = f"kafka://{config.bootstrap_servers}?topic={config.topic}"
        self._watch = watch or TopicWatch(config, context)
        self._topics = Topics(config, context.clock, self._place, self._watch)
        self._outstanding: dict[Outstanding, Settle] = {}
        self._last_error: KafkaError | None = None
        self._heard: set[int] = set()
        self._closed = False
        self._singly = False
        self._hurries = False
        self._renewal_due = False
        self._client = self._new_client()

    def connect(self) -> None:
        """Wait for a broker, and for the topic if all tables share one: `connect.timeout.ms`.

        Raises:
            BrokerUnreachableError: no broker answered.
            TopicMissingError: the topic is missing and is not created.

        """
        topic = self._topics.fixed
        if topic is None:
            self._topics.find_broker(self._client, self._last_heard)
        else:
            self._topics.make_ready([topic], self._client, self._last_heard)

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Pass every record to librdkafka.

        A full queue blocks it up to `submit.timeout.ms`; callbacks of earlier deliveries run
        meanwhile.

        Raises:
            QueueFullError: there was no room for the first record.
            BrokerUnreachableError: no broker reported a table's topic.
            TopicMissingError: it is missing and is not created.

        """
        if self._closed:
            raise WriterClosedError("the writer is closed", place=self._place)
        if self._renewal_due:
            self._renew()
        encoded = delivery.encoded
        if not len(encoded):
            settle(range(0))
            return
        self._topics.make_ready(self._topics.wanted(encoded), self._client, self._last_heard)
        messages = messages_of(
            encoded,
            topic_of=self._topics.of,
            chunk_bytes=self._config.chunk_bytes,
            is_chunked=self._config.is_chunked,
        )
        outstanding = Outstanding(
            messages, self._settle, singly=self._singly, make_failure=self._failure_of
        )
        self._outstanding[outstanding] = settle
        self._produce_all(outstanding)
        self._poll(0)

    def drain(self, deadline_ms: int) -> bool:
        """Poll until all is settled, or until *deadline_ms*. Return whether all is settled."""
        if self._closed:
            return True
        self._watch.look()
        self._poll(0)
        self._end_unreported()
        while self._outstanding:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            if self._hurries:
                self._client.flush(min(left_ms, POLL_MS))
            else:
                self._poll(min(left_ms, POLL_MS))
            self._end_unreported()
        self._watch.look()  # By now, its queries had time to be answered.
        return not self._outstanding

    def hurry(self, *, hurries: bool) -> None:
        """Let librdkafka linger or, with *hurries*, not while `drain` waits."""
        self._hurries = hurries

    def close(self) -> None:
        """Drop unsent messages; their deliveries are never settled."""
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        self._outstanding.clear()
        self._client.close()

    def _produce_all(self, outstanding: Outstanding) -> None:
        messages, begin = outstanding.messages, 0
        for number in self._too_large(messages):
            if not (
                self._produced(outstanding, begin, number)
                and self._passed_over(outstanding, number, EXCEEDS)
            ):
                return
            begin = number + 1
        self._produced(outstanding, begin, len(messages.values))

    def _too_large(self, messages: Messages) -> Iterator[int]:
        """Yield the messages above `large.bytes`, which are rejected: brokers may allow more.

        A record rejected for its size becomes a dead letter, and the topic for these accepts it.
        """
        bound = self._config.large_bytes
        if bound is None:
            return
        for number, value in enumerate(messages.values):
            is_large = value is not None and len(value) > bound
            if is_large and messages.topic(number) != self._config.errors_topic:
                yield number

    def _produced(self, outstanding: Outstanding, begin: int, end: int) -> bool:
        """Produce the messages from *begin* up to *end*, excluded. Return whether to continue.

        A full queue is polled until it has room, for a while.
        """
        waited_ms = 0
        while begin < end:
            reached, error = self._client.produce(outstanding, begin, end)
            waited_ms = 0 if reached > begin else waited_ms
            begin = reached
            if error is None:
                continue
            if error.code() != FULL.code():
                if not self._passed_over(outstanding, begin, error):
                    return False
                begin += 1
            elif waited_ms > self._config.submit_timeout_ms:
                self._give_up(outstanding, begin, None)
                return False
            else:
                self._poll(POLL_MS)
                waited_ms += POLL_MS
        return True

    def _passed_over(self, outstanding: Outstanding, number: int, error: KafkaError) -> bool:
        """Fail message *number*, which was not accepted. Return whether to try the next."""
        failure = self._failure_of(0, error, outstanding.messages.topic(number))
        if failure.disposition is not Disposition.REJECT:
            self._give_up(outstanding, number, failure)
            return False
        outstanding.fail(number, failure)
        return True

    def _failure_of(self, index: int, error: KafkaError, topic: str) -> Failure:
        if error.code() not in GONE and self._watch.is_missing(topic):
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)  # The cause of the timeout.
        failure = failure_of(index, error)
        if error.code() not in GONE:
            return failure
        text = f"topic {topic} was deleted while the job ran: {failure.message}"
        return replace(failure, message=text, hint=gone_hint(self._config, topic))

    def _give_up(self, outstanding: Outstanding, number: int, why: Failure | None) -> None:
        """Fail message *number* and all later ones (I4: none overtakes a failed one).

        *why* is the failure of the first; None: the queue was full.
        """
        text = f"the queue stayed full for {self._config.submit_timeout_ms} ms"
        if not number and why is None:
            del self._outstanding[outstanding]
            raise QueueFullError(text, place=self._place, hint=hint_of(self._last_error))
        failure = why or Failure(0, Disposition.RETRY, QueueFullError.code, text)
        for later in range(number, len(outstanding.messages.values)):
            outstanding.fail(later, failure)

    def _end_unreported(self) -> None:
        """Report the results of deliveries whose messages the client lost without a report."""
        if not len(self._client):
            for outstanding in list(self._outstanding):
                outstanding.end()

    def _settle(
        self, outstanding: Outstanding, delivered: Collection[int], failures: list[Failure]
    ) -> None:
        settle = self._outstanding.pop(outstanding, None)
        if settle is None:
            return
        if delivered:
            self._heard.clear()
        # A broker rejects a whole batch, with its valid records: when sent one by one, only the bad
        # ones fail again.
        refused = [f for f in failures if f.code in REFUSED and f.disposition is Disposition.RETRY]
        if refused:
            self._singly = self._renewal_due = True
            self._log.warning("kafka_batch_refused", place=self._place, error=refused[0].code)
        elif self._singly and outstanding.singly and not self._outstanding:
            self._singly = False  # The bad records are found.
            self._renewal_due = True
        settle(delivered, failures)

    def _renew(self) -> None:
        """Replace the producer, once the old one has nothing in flight."""
        if not self.drain(self._clock.monotonic_ms() + self._config.submit_timeout_ms):
            raise QueueFullError(
                "records of a failed producer have not come back yet",
                place=self._place,
                hint=hint_of(self._last_error),
            )
        self._client.close()
        self._client = self._new_client({"batch.num.messages": "1"} if self._singly else {})
        self._renewal_due = False

    def _client_options(self) -> dict[str, str]:
        return self._config.producer_config()

    def _new_client(self, more: Mapping[str, str] = MappingProxyType({})) -> Client:
        options = {**self._client_options(), **more}
        return new_client(options, self._on_error, place=self._place)

    def _last_heard(self) -> KafkaError | None:
        self._poll(0)
        return self._last_error

    def _poll(self, wait_ms: int) -> None:
        self._client.poll(wait_ms)

    def _on_error(self, error: KafkaError) -> None:
        """Remember an error of the connection; log it if it is new."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 (librdkafka's own)
            return  # The errors of each were reported before.
        self._last_error = error
        self._renewal_due |= error.fatal()
        if error.code() not in self._heard:
            self._heard.add(error.code())
            self._log.warning("kafka_error", error=code_of(error), message=error.str())

"""Producing: one `produce` per message, which has a callback of its own; no thread of our own.

Callbacks run where this writer polls, on the thread that calls `submit` and `drain`: a second
thread would fight for the interpreter once per record. So a thread that waits calls `drain`, with a
deadline in the past if it does not want to wait.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from operator import length_hint
from types import MappingProxyType
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from headrace.plugins import (
    ConfigError,
    Context,
    Delivery,
    Disposition,
    Failure,
    Headers,
    Problem,
    Settle,
    Writer,
)
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
from headrace.sinks.kafka.outstanding import Arrived, Outstanding, failure_of
from headrace.sinks.kafka.topics import Topics
from headrace.sinks.kafka.watch import TopicWatch, gone_hint

POLL_MS: Final = 100
_TOO_LARGE: Final = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "exceeds large.bytes")
HeaderList = list[tuple[str, str | bytes | None]]


def new_producer(options: Mapping[str, object], *, place: str) -> Producer:
    """Return a producer, which connects in the background.

    Raises:
        ConfigError: librdkafka refuses a value.

    """
    try:
        return Producer(dict(options))
    except KafkaException as error:
        problem = Problem("", error.args[0].str(), "librdkafka's CONFIGURATION.md lists values")
        raise ConfigError([problem], place=place) from error


class KafkaWriter(Writer):
    """Writes deliveries. Every method is called on one thread."""

    def __init__(
        self, config: KafkaConfig, context: Context, watch: TopicWatch | None = None
    ) -> None:
        """Make the producer; it connects in the background.

        *watch* is shared with the other writers of a sink, of which this one calls it.

        Raises:
            ConfigError: librdkafka refuses a value.

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
        self._renewal_due = False
        self._producer = self._new_producer()

    def connect(self) -> None:
        """Wait for a broker, and for the topic if all tables share one: `connect.timeout.ms`.

        Raises:
            BrokerUnreachableError: no broker answered.
            TopicMissingError: the topic is missing and is not created.

        """
        topic = self._topics.fixed
        if topic is None:
            self._topics.find_broker(self._producer, self._last_heard)
        else:
            self._topics.make_ready([topic], self._producer, self._last_heard)

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Hand every record to librdkafka.

        A full queue holds it up for at most `submit.timeout.ms`; callbacks of earlier deliveries
        run meanwhile.

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
        self._topics.make_ready(self._topics.wanted(encoded), self._producer, self._last_heard)
        messages = messages_of(
            encoded, chunk_bytes=self._config.value_bytes_max, is_chunked=self._config.is_chunked
        )
        outstanding = Outstanding(
            messages, self._settle, singly=self._singly, make_failure=self._failure_of
        )
        self._outstanding[outstanding] = settle
        self._produce_all(messages, outstanding)
        self._poll(0)

    def drain(self, deadline_ms: int) -> bool:
        """Poll until all is settled or the clock says *deadline_ms*; say whether all is."""
        if self._closed:
            return True
        self._watch.look()
        self._poll(0)
        self._end_unreported()
        while self._outstanding:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            self._poll(min(left_ms, POLL_MS))
            self._end_unreported()
        self._watch.look()  # Before this, what it asked for had time to come.
        return not self._outstanding

    def close(self) -> None:
        """Drop what was not sent; its deliveries are never settled."""
        if self._closed:
            return
        self._closed = True
        self._watch.close()
        self._outstanding.clear()
        self._producer.purge()
        del self._producer  # Now, not when memory is collected: it has threads and connections.

    def _produce_all(self, messages: Messages, outstanding: Outstanding) -> None:
        produce = self._producer.produce
        bounded = self._config.large_bytes is not None
        shared: Headers | None = None
        place: str | None = None
        headers: HeaderList = []
        topic = ""
        rest = iter(messages.values)
        reports = outstanding.reports()
        columns = zip(rest, messages.keys, messages.headers, messages.places, reports, strict=True)
        for value, key, given, where, arrived in columns:  # Not counted: that costs each record.
            if given is not shared:
                shared = given
                headers = list(given)
            if where is not place:
                place = where
                topic = where if messages.routed else self._topics.of(where)
            try:
                if bounded:
                    self._check_size(topic, value)
                produce(topic, value, key, -1, arrived, None, 0, headers)
            except BufferError:
                if not self._produce_with_retries(topic, value, key, arrived, headers):
                    self._give_up(messages, _last(messages, rest), outstanding, None)
                    return
            except KafkaException as error:
                if not self._passed_over(messages, _last(messages, rest), outstanding, error):
                    return

    def _check_size(self, topic: str, value: bytes | None) -> None:
        """Refuse, as the client does, what exceeds `large.bytes`: brokers may allow more.

        What was refused for it is a dead letter, and the topic for these takes it.
        """
        bound = self._config.large_bytes
        is_large = bound is not None and value and len(value) > bound
        if is_large and topic != self._config.errors_topic:
            raise KafkaException(_TOO_LARGE)

    def _passed_over(
        self, messages: Messages, number: int, outstanding: Outstanding, error: KafkaException
    ) -> bool:
        """Fail message *number*, which was not taken; say whether the next may be tried."""
        place = messages.places[number]
        topic = place if messages.routed else self._topics.of(place)
        failure = self._failure_of(0, error.args[0], topic)
        if failure.disposition is not Disposition.REJECT:
            self._give_up(messages, number, outstanding, failure)
            return False
        outstanding.fail(number, failure)
        return True

    def _failure_of(self, index: int, error: KafkaError, topic: str) -> Failure:
        if error.code() not in GONE and self._watch.is_missing(topic):
            error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)  # Why it timed out.
        failure = failure_of(index, error)
        if error.code() not in GONE:
            return failure
        text = f"topic {topic} was deleted while the job ran: {failure.message}"
        return replace(failure, message=text, hint=gone_hint(self._config, topic))

    def _produce_with_retries(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        arrived: Arrived,
        headers: HeaderList,
    ) -> bool:
        """Poll until the queue has room; say whether it had any in time."""
        for _ in range(0, self._config.submit_timeout_ms + 1, POLL_MS):
            self._poll(POLL_MS)
            try:
                self._producer.produce(topic, value, key, -1, arrived, None, 0, headers)
            except BufferError:
                continue
            return True
        return False

    def _give_up(
        self, messages: Messages, number: int, outstanding: Outstanding, why: Failure | None
    ) -> None:
        """Fail message *number* and all later ones (I4: nothing overtakes a failed one).

        *why* is the failure of the first; without it there was no room.
        """
        text = f"the queue stayed full for {self._config.submit_timeout_ms} ms"
        if not number and why is None:
            del self._outstanding[outstanding]
            raise QueueFullError(text, place=self._place, hint=hint_of(self._last_error))
        failure = why or Failure(0, Disposition.RETRY, QueueFullError.code, text)
        for later in range(number, len(messages.values)):
            outstanding.fail(later, failure)

    def _end_unreported(self) -> None:
        """Say the results of what the client has no message of any more, and gave no report."""
        if not len(self._producer):
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
        # A broker refuses a whole batch, with its valid records: sent again one by one, only the
        # bad ones fail again.
        refused = [f for f in failures if f.code in REFUSED and f.disposition is Disposition.RETRY]
        if refused:
            self._singly = self._renewal_due = True
            self._log.warning("kafka_batch_refused", place=self._place, error=refused[0].code)
        elif self._singly and outstanding.singly and not self._outstanding:
            self._singly = False  # The bad records are found.
            self._renewal_due = True
        settle(delivered, failures)

    def _renew(self) -> None:
        """Replace the producer, once nothing of the old one is left."""
        if not self.drain(self._clock.monotonic_ms() + self._config.submit_timeout_ms):
            raise QueueFullError(
                "records of a failed producer have not come back yet",
                place=self._place,
                hint=hint_of(self._last_error),
            )
        alone = {"batch.num.messages": 1} if self._singly else {}
        self._producer = self._new_producer(alone)
        self._renewal_due = False

    def _producer_options(self) -> dict[str, object]:
        return {**self._config.producer_config(), "error_cb": self._on_error}

    def _new_producer(self, more: Mapping[str, object] = MappingProxyType({})) -> Producer:
        return new_producer({**self._producer_options(), **more}, place=self._place)

    def _last_heard(self) -> KafkaError | None:
        self._poll(0)
        return self._last_error

    def _poll(self, wait_ms: int) -> None:
        try:
            self._producer.poll(wait_ms / 1000)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _on_error(self, error: KafkaError) -> None:
        """Remember what went wrong with the connection; log it when it is news."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 (librdkafka's own)
            return  # Their results were reported before.
        self._last_error = error
        self._renewal_due |= error.fatal()
        if error.code() not in self._heard:
            self._heard.add(error.code())
            self._log.warning("kafka_error", error=code_of(error), message=error.str())


def _last(messages: Messages, rest: Iterator[bytes | None]) -> int:
    """Return the number of the message taken last, when the values of *rest* are left."""
    return len(messages.values) - length_hint(rest) - 1

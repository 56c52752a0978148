"""Producing: one `produce` per record, one callback object per delivery, no thread of our own.

Callbacks run where this writer polls, on the thread that calls `submit` and `drain`: a second
thread would fight for the interpreter once per record. So whoever waits calls `drain`, with a
deadline in the past if it does not want to wait.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.plugins import (
    ConfigError,
    Context,
    Delivery,
    Disposition,
    EncodedRecords,
    Failure,
    Headers,
    Problem,
    Settle,
    Writer,
)
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import (
    BrokerUnreachableError,
    QueueFullError,
    TopicMissingError,
    WriterClosedError,
    code_of,
    disposition,
    hint_of,
)

POLL_MS: Final = 100
TOO_LARGE: Final = "kafka_msg_size_too_large"

# Answers about a topic that is being made.
_NOT_YET: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE})
HeaderList = list[tuple[str, str | bytes | None]]
Finish = Callable[["Outstanding", int, list[Failure]], None]


class Outstanding:
    """The records of one delivery that are not settled; librdkafka calls it once per record.

    A failure brings its message, not its index. Equal messages are interchangeable, so the index
    is looked up by content, and only when something failed.
    """

    __slots__ = ("_encoded", "_failed", "_failures", "_finish", "_left", "_singly")

    def __init__(
        self,
        encoded: EncodedRecords,
        finish: "Finish",
        *,
        singly: bool,
    ) -> None:
        """*finish* is called once, with the number delivered and the failures.

        *singly* says that every message travels alone, so that "too large" means this one.
        """
        self._encoded = encoded
        self._finish = finish
        self._singly = singly
        self._left = len(encoded)
        self._failed: list[tuple[KafkaError, bytes | None, bytes | None]] = []
        self._failures: list[Failure] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Count one record that came back."""
        if error is not None:
            self._failed.append((error, message.key(), message.value()))
        self._left -= 1
        if not self._left:
            self._end()

    def fail(self, failure: Failure) -> None:
        """Count one record that librdkafka did not take."""
        self._failures.append(failure)
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        failures = sorted(self._failures + self._resolved(), key=lambda failure: failure.index)
        self._finish(self, len(self._encoded) - len(failures), failures)

    def _resolved(self) -> list[Failure]:
        if not self._failed:
            return []
        refused = {failure.index for failure in self._failures}
        places: dict[tuple[bytes | None, bytes | None], list[int]] = defaultdict(list)
        for index in reversed(range(len(self._encoded))):
            if index not in refused:
                places[self._encoded.keys[index], self._encoded.values[index]].append(index)
        return [self._judged(places[key, value].pop(), error) for error, key, value in self._failed]

    def _judged(self, index: int, error: KafkaError) -> Failure:
        failure = failure_of(index, error)
        if failure.code == TOO_LARGE and not self._singly:
            return replace(failure, disposition=Disposition.RETRY)
        return failure


def failure_of(index: int, error: KafkaError) -> Failure:
    """Return what to tell the framework about record *index*."""
    return Failure(index, disposition(error), code_of(error), error.str())


class KafkaWriter(Writer):
    """Writes deliveries to one topic. Every method is called on one thread."""

    def __init__(self, config: KafkaConfig, context: Context) -> None:
        """Make the producer; it connects in the background.

        Raises:
            ConfigError: librdkafka refuses a value.

        """
        self._config = config
        self._clock = context.clock
        self._log = context.log
        self._place = f"kafka://{config.bootstrap_servers}?topic={config.topic}"
        self._outstanding: dict[Outstanding, Settle] = {}
        self._last_error: KafkaError | None = None
        self._heard: set[int] = set()
        self._closed = False
        self._singly = False
        self._renewal_due = False
        self._producer = self._new_producer()

    def connect(self) -> None:
        """Wait for a broker and the topic, at most `connect.timeout.ms`.

        Raises:
            BrokerUnreachableError: no broker answered.
            TopicMissingError: the topic is not there and is not made.

        """
        for left_ms in range(self._config.connect_timeout_ms, 0, -POLL_MS):
            try:
                found = self._producer.list_topics(self._config.topic, timeout=left_ms / 1000)
            except KafkaException:
                break
            error = found.topics[self._config.topic].error
            if error is None:
                return
            if error.code() not in _NOT_YET:
                raise TopicMissingError(
                    f"the topic cannot be used: {error.str()}",
                    place=self._place,
                    hint="correct its name, or give this user the right to write to it",
                )
            self._poll(POLL_MS)
        else:
            raise TopicMissingError(
                f"no such topic within {self._config.connect_timeout_ms} ms",
                place=self._place,
                hint="create the topic, or let the brokers create it on first use",
            )
        self._poll(0)
        heard = f": {self._last_error.str()}" if self._last_error else ""
        raise BrokerUnreachableError(
            f"no broker answered within {self._config.connect_timeout_ms} ms{heard}",
            place=self._place,
            hint=hint_of(self._last_error),
        )

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Hand every record to librdkafka.

        A full queue holds it up for at most `submit.timeout.ms`; callbacks of earlier deliveries
        run meanwhile.

        Raises:
            QueueFullError: there was no room for the first record.

        """
        if self._closed:
            raise WriterClosedError("the writer is closed", place=self._place)
        if self._renewal_due:
            self._renew()
        if not len(delivery.encoded):
            settle(delivered=0)
            return
        outstanding = Outstanding(delivery.encoded, self._settle, singly=self._singly)
        self._outstanding[outstanding] = settle
        self._produce_all(delivery.encoded, outstanding)
        self._poll(0)

    def drain(self, deadline_ms: int) -> bool:
        """Poll until all is settled or the clock says *deadline_ms*; say whether all is."""
        if self._closed:
            return True
        self._poll(0)
        while self._outstanding:
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            self._poll(min(left_ms, POLL_MS))
        return not self._outstanding

    def close(self) -> None:
        """Drop what was not sent; its deliveries are never settled."""
        if self._closed:
            return
        self._closed = True
        self._outstanding.clear()
        self._producer.purge()
        del self._producer  # Now, not when memory is collected: it has threads and connections.

    def _produce_all(self, encoded: EncodedRecords, outstanding: Outstanding) -> None:
        produce, topic = self._producer.produce, self._config.topic
        shared: Headers | None = None
        headers: HeaderList = []
        for index, value in enumerate(encoded.values):
            if encoded.headers[index] is not shared:
                shared = encoded.headers[index]
                headers = list(shared)
            key = encoded.keys[index]
            try:
                produce(topic, value, key, -1, outstanding, None, 0, headers)
            except BufferError:
                if not self._produce_patiently(value, key, outstanding, headers):
                    self._give_up(index, outstanding, len(encoded))
                    return
            except KafkaException as error:
                failure = failure_of(index, error.args[0])
                if failure.disposition is Disposition.REJECT:
                    outstanding.fail(failure)
                    continue
                for later in range(index, len(encoded)):  # I4: nothing overtakes a failed one.
                    outstanding.fail(failure_of(later, error.args[0]))
                return

    def _produce_patiently(
        self,
        value: bytes,
        key: bytes | None,
        outstanding: Outstanding,
        headers: HeaderList,
    ) -> bool:
        """Poll until the queue has room; say whether it had any in time."""
        for _ in range(0, self._config.submit_timeout_ms + 1, POLL_MS):
            self._poll(POLL_MS)
            try:
                self._producer.produce(
                    self._config.topic, value, key, -1, outstanding, None, 0, headers
                )
            except BufferError:
                continue
            return True
        return False

    def _give_up(self, index: int, outstanding: Outstanding, count: int) -> None:
        message = f"the queue stayed full for {self._config.submit_timeout_ms} ms"
        if not index:
            del self._outstanding[outstanding]
            raise QueueFullError(message, place=self._place, hint=hint_of(self._last_error))
        for later in range(index, count):
            outstanding.fail(Failure(later, Disposition.RETRY, QueueFullError.code, message))

    def _settle(self, outstanding: Outstanding, delivered: int, failures: list[Failure]) -> None:
        settle = self._outstanding.pop(outstanding, None)
        if settle is None:
            return
        if delivered:
            self._heard.clear()
        # A broker refuses a whole batch as too large, innocent records too: retried one by one,
        # only the guilty fail again.
        if any(f.code == TOO_LARGE and f.disposition is Disposition.RETRY for f in failures):
            self._singly = self._renewal_due = True
            self._log.warning("kafka_batch_too_large", place=self._place)
        settle(delivered=delivered, failures=failures)

    def _renew(self) -> None:
        """Replace the producer, once nothing of the old one is left."""
        if not self.drain(self._clock.monotonic_ms() + self._config.submit_timeout_ms):
            raise QueueFullError(
                "records of a failed producer have not come back yet",
                place=self._place,
                hint=hint_of(self._last_error),
            )
        self._producer = self._new_producer()
        self._renewal_due = False

    def _new_producer(self) -> Producer:
        options: dict[str, object] = {**self._config.producer_config(), "error_cb": self._on_error}
        if self._singly:
            options["batch.num.messages"] = 1
        try:
            return Producer(options)
        except KafkaException as error:
            problem = Problem("", error.args[0].str(), "librdkafka's CONFIGURATION.md lists values")
            raise ConfigError([problem], place=self._place) from error

    def _poll(self, wait_ms: int) -> None:
        try:
            self._producer.poll(wait_ms / 1000)
        except KafkaException as error:
            self._on_error(error.args[0])

    def _on_error(self, error: KafkaError) -> None:
        """Remember what went wrong with the connection; log it when it is news."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 (librdkafka's own)
            return  # What happened to each of them was told before.
        self._last_error = error
        self._renewal_due |= error.fatal()
        if error.code() not in self._heard:
            self._heard.add(error.code())
            self._log.warning("kafka_error", error=code_of(error), message=error.str())

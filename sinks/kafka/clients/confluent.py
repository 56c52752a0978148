"""Produces with confluent-kafka's `Producer`: a Python call and a callback per message."""

from collections.abc import Callable, Iterator, Mapping
from operator import length_hint
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.sinks.kafka.clients.client import ASSIGNED_BY_KEY, FULL, Cluster, OnError, Reports

_NO_TIMESTAMP: Final = 0  # The client's own time.
Arrived = Callable[[KafkaError | None, Message], None]
HeaderList = list[tuple[str, str | bytes | None]]


class ConfluentClient:
    """A client over confluent-kafka's producer."""

    def __init__(self, options: Mapping[str, str], on_error: OnError) -> None:
        """Connect in the background. Raises KafkaException if a value of *options* is rejected."""
        self._on_error = on_error
        self._calls: list[_Call] = []  # Calls of `produce` with unreported messages.
        self._producer = Producer({**options, "error_cb": on_error})

    def __len__(self) -> int:
        """Implement `Client.__len__`."""
        return len(self._producer)

    def produce(self, reports: Reports, begin: int, end: int) -> tuple[int, KafkaError | None]:
        """Implement `Client.produce`."""
        call = _Call(reports)
        reached, error = self._produce(call, begin, end)
        if reached > begin:
            call.left = reached - begin
            self._calls.append(call)
        return reached, error

    def _produce(self, call: "_Call", begin: int, end: int) -> tuple[int, KafkaError | None]:
        produce, messages = self._producer.produce, call.reports.messages
        shared: object = None
        place: str | None = None
        headers: HeaderList = []
        topic = ""
        rest = iter(messages.values[begin:end])
        columns = zip(
            rest,
            messages.keys[begin:end],
            messages.headers[begin:end],
            messages.places[begin:end],
            call.callbacks(begin, end),
            strict=True,
        )
        for value, key, given, where, arrived in columns:  # Not counted: that costs time.
            if given is not shared:
                shared = given
                headers = list(given)
            if where is not place:
                place = where
                topic = messages.topic_of(where)
            try:
                produce(topic, value, key, ASSIGNED_BY_KEY, arrived, None, _NO_TIMESTAMP, headers)
            except BufferError:
                return end - length_hint(rest) - 1, FULL
            except KafkaException as error:
                return end - length_hint(rest) - 1, error.args[0]
        return end, None

    def put(self, topic: str, value: bytes | None, key: bytes, partition: int) -> KafkaError | None:
        """Implement `Client.put`."""
        try:
            self._producer.produce(topic, value, key, partition)
        except BufferError:
            return FULL
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            return error
        return None

    def poll(self, wait_ms: int) -> None:
        """Implement `Client.poll`."""
        try:
            self._producer.poll(wait_ms / 1000)
        except KafkaException as error:  # Fatal errors are raised.
            self._on_error(error.args[0])
        self._take()

    def flush(self, wait_ms: int) -> None:
        """Implement `Client.flush`."""
        try:
            self._producer.flush(wait_ms / 1000)
        except KafkaException as error:  # Fatal errors are raised.
            self._on_error(error.args[0])
        self._take()

    def cluster(self, topic: str | None, wait_ms: int) -> Cluster:
        """Implement `Client.cluster`."""
        seconds = wait_ms / 1000
        if topic is None:
            found = self._producer.list_topics(timeout=seconds)
        else:
            found = self._producer.list_topics(topic, timeout=seconds)
        hosts = [broker.host for broker in found.brokers.values()]
        return Cluster(hosts, None if topic is None else found.topics[topic].error)

    def purge(self, *, waits: bool) -> None:
        """Implement `Client.purge`."""
        self._producer.purge(blocking=not waits)  # `blocking` means the opposite.

    def close(self) -> None:
        """Implement `Client.close`."""
        if hasattr(self, "_producer"):
            self._calls.clear()
            self._producer.purge()
            del self._producer  # Now, not at garbage collection: it has threads.

    def init_transactions(self, seconds: float) -> None:
        """Implement `Client.init_transactions`."""
        self._producer.init_transactions(seconds)

    def begin_transaction(self) -> None:
        """Implement `Client.begin_transaction`."""
        self._producer.begin_transaction()

    def commit_transaction(self, seconds: float) -> None:
        """Implement `Client.commit_transaction`."""
        try:
            self._producer.commit_transaction(seconds)
        finally:
            self._take()

    def abort_transaction(self, seconds: float) -> None:
        """Implement `Client.abort_transaction`."""
        try:
            self._producer.abort_transaction(seconds)
        finally:
            self._take()

    def _take(self) -> None:
        """Pass on the reports received since the last call."""
        for call in self._calls:
            call.pass_on()
        self._calls = [call for call in self._calls if call.left > 0]


class _Call:
    """The messages produced in one call."""

    def __init__(self, reports: Reports) -> None:
        """Start without reports."""
        self.reports = reports
        self.left = 0
        self._came: list[int] = []
        self._failed: list[tuple[int, KafkaError]] = []

    def callbacks(self, begin: int, end: int) -> Iterator[Arrived]:
        """Return the callback of each message, in order. librdkafka calls them in a poll."""
        came, failed = self._came, self._failed

        def arrived(number: int, error: KafkaError | None, message: Message) -> None:
            del message
            came.append(number)
            if error is not None:
                failed.append((number, error))

        # A bound method is created twice as fast as a `partial`, the next best way to pass a
        # number.
        return map(arrived.__get__, range(begin, end))

    def pass_on(self) -> None:
        """Pass on the reports received since the last call."""
        count, failed = len(self._came), self._failed.copy()
        times = self.reports.times
        for number in self._came:
            times[number] += 1
        self._came.clear()
        self._failed.clear()
        if count:
            self.left -= count
            self.reports.reported(count, failed)

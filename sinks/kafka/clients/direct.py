"""Produces with librdkafka's own API: whole deliveries in one call, their reports in another."""

from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError, KafkaException

from headrace.sinks.kafka.clients.client import FULL, Cluster, OnError, Reports
from headrace.sinks.kafka.clients.librdkafka import CallError, Handle


class DirectClient:
    """A client over librdkafka's own API."""

    def __init__(self, options: Mapping[str, str], on_error: OnError) -> None:
        """Connect in the background. Raises KafkaException if a value of *options* is rejected."""
        try:
            self._handle = Handle(options)
        except CallError as error:
            raise _exception(error) from None
        self._on_error = on_error
        self._closed = False

    def __len__(self) -> int:
        """Implement `Client.__len__`."""
        return len(self._handle)

    def produce(self, reports: Reports, begin: int, end: int) -> tuple[int, KafkaError | None]:
        """Implement `Client.produce`."""
        reached, code = self._handle.produce(reports, begin, end)
        return reached, _refusal(code)

    def put(self, topic: str, value: bytes | None, key: bytes, partition: int) -> KafkaError | None:
        """Implement `Client.put`."""
        return _refusal(self._handle.put(topic, value, key, partition))

    def poll(self, wait_ms: int) -> None:
        """Implement `Client.poll`."""
        self._handle.poll(wait_ms)
        self._take()

    def flush(self, wait_ms: int) -> None:
        """Implement `Client.flush`."""
        self._handle.flush(wait_ms)
        self._take()

    def cluster(self, topic: str | None, wait_ms: int) -> Cluster:
        """Implement `Client.cluster`."""
        try:
            hosts, code = self._handle.metadata(topic, wait_ms)
        except CallError as error:
            raise _exception(error) from None
        return Cluster(hosts, KafkaError(code) if code else None)

    def purge(self, *, waits: bool) -> None:
        """Implement `Client.purge`."""
        self._handle.purge(waits=waits)

    def close(self) -> None:
        """Implement `Client.close`."""
        if not self._closed:
            self._closed = True
            self._handle.purge(waits=False)
            self._handle.close()

    def init_transactions(self, seconds: float) -> None:
        """Implement `Client.init_transactions`."""
        self._call(lambda: self._handle.init_transactions(_ms(seconds)))

    def begin_transaction(self) -> None:
        """Implement `Client.begin_transaction`."""
        try:
            self._handle.begin_transaction()
        except CallError as error:
            raise _exception(error) from None

    def commit_transaction(self, seconds: float) -> None:
        """Implement `Client.commit_transaction`."""
        self._call(lambda: self._handle.commit_transaction(_ms(seconds)))

    def abort_transaction(self, seconds: float) -> None:
        """Implement `Client.abort_transaction`."""
        self._call(lambda: self._handle.abort_transaction(_ms(seconds)))

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except CallError as error:
            raise _exception(error) from None
        finally:
            self._take()

    def _take(self) -> None:
        """Pass on the errors and reports received since the last call."""
        for code, text, is_fatal in self._handle.errors():
            self._on_error(KafkaError(code, text, is_fatal))
        for reports, count, failed in self._handle.reported():
            reports.reported(count, [(number, KafkaError(code)) for number, code in failed])


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _refusal(code: int) -> KafkaError | None:
    """Return the error of a message that was not accepted, in confluent-kafka's words."""
    if not code or code == FULL.code():
        return FULL if code else None
    return KafkaError(code, f"Unable to produce message: {KafkaError(code).str()}")


def _exception(error: CallError) -> KafkaException:
    code, text, is_fatal, is_retriable, requires_abort = error.args
    return KafkaException(KafkaError(code, text or None, is_fatal, is_retriable, requires_abort))

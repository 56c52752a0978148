"""Exactly once: the writer of one split, which commits records and states together.

The transactional id of a split never changes, so that `begin` fences every earlier writer. A
failure in a transaction ends it: librdkafka accepts nothing more until it is aborted.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace

from headrace.plugins import (
    AbortedError,
    Context,
    Delivery,
    Disposition,
    Failure,
    FencedError,
    HeadraceError,
    Settle,
    TransactionalWriter,
)
from headrace.sinks.kafka.bounds import SETTING, TopicBounds, size_of
from headrace.sinks.kafka.clients.client import FULL
from headrace.sinks.kafka.config import KafkaConfig
from headrace.sinks.kafka.failures import (
    REFUSED,
    TRANSACTION_REFUSALS,
    StateTooLargeError,
    TransactionsRefusedError,
)
from headrace.sinks.kafka.offsets_topic import OffsetsTopic
from headrace.sinks.kafka.outstanding import INVALID, TOO_LARGE, Outstanding, failure_of
from headrace.sinks.kafka.watch import TopicWatch
from headrace.sinks.kafka.writer import EXCEEDS, POLL_MS, KafkaWriter

TIMEOUT_MS: Final = 60_000
BEGIN_MS_MAX: Final = 1_000  # The longest time that `begin` blocks the other splits of its thread.
ABORT_SECONDS_AT_CLOSE: Final = 1.0
_NUMBERED: Final = re.compile(r"[0-9]+-of-[0-9]+", re.ASCII)
_NO_BOUND: Final = 1 << 62
_LOOK_MS: Final = 100
_PURGED: Final = frozenset({"kafka_purge_queue", "kafka_purge_inflight"})


def transactional_id(prefix: str, job: str, split: str) -> str:
    """Return the transactional id of a split."""
    return f"{prefix}-{_id_of(job, split)}"


def _id_of(job: str, split: str) -> str:
    """Return an id that no other job and split have: joined by a dash, marked if ambiguous.

    The readable part comes first, so that a right by prefix covers all of a job. An id without a
    mark must never get one: brokers do not fence a producer with another id.
    """
    joined = f"{job}-{split}"
    if joined.count("-") == 1 or _NUMBERED.fullmatch(split):  # The split's start is unambiguous.
        return joined
    mark = hashlib.sha256(json.dumps([job, split]).encode()).hexdigest()[:16]
    return f"{joined}-{mark}"


class _Phase(Enum):
    NEW = "new"
    """No former writer is fenced yet."""
    READY = "ready"
    OPEN = "open"
    BROKEN = "broken"
    """It can only be aborted."""
    DECIDING = "deciding"
    """The commit was asked for, and not answered yet."""
    DEAD = "dead"


class KafkaTransactions(KafkaWriter, TransactionalWriter):
    """The writer of one split. Every method is called on one thread."""

    def __init__(
        self,
        config: KafkaConfig,
        context: Context,
        split: str,
        watch: TopicWatch | None = None,
        bounds: TopicBounds | None = None,
    ) -> None:
        """Create the producer, which connects in the background.

        *watch* and *bounds* are shared with the other splits of a sink.

        Raises:
            ConfigError: librdkafka rejects a value.

        """
        self._id = transactional_id(config.transactional_id_prefix, context.job, split)
        self._offsets = OffsetsTopic(config, context.clock, context.job, split)
        self._phase = _Phase.NEW
        self._why = ""
        self._end: HeadraceError | None = None
        self._refused: dict[tuple[bytes | None, bytes | None], Failure] = {}  # By key and value.
        self._spent = False  # Whether the producer cannot be used for another transaction.
        self._refusing = False  # Whether the open transaction continues without some records.
        self._bounds = bounds or TopicBounds(config, context.clock)
        self._looked_ms = 0
        self._entered: set[str] = set()  # The entries already in the open transaction.
        super().__init__(config, context, watch)
        self.place = self._offsets.place
        self.renewal = "set offsets.storage.topic to the name of a new topic"
        self._timeout_ms = int(config.librdkafka.get("transaction.timeout.ms", TIMEOUT_MS))
        self.window_ms = self._timeout_ms

    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """Implement `TransactionalWriter.begin`.

        Raises:
            FencedError: a later writer has started.
            OffsetsTopicError: the topic of states cannot be used.
            TransactionsRefusedError: the brokers do not allow transactions to this user.

        """
        self._check_alive()
        deadline_ms = min(deadline_ms, self._clock.monotonic_ms() + BEGIN_MS_MAX)
        self.awaited = f"the brokers about topic {self._offsets.name}"
        if not self._offsets.prepare(deadline_ms):
            return None
        self.awaited = f"the coordinator of transactional id {self._id}"
        while self._phase is not _Phase.READY or self._spent:
            self._offsets.stop_reading()
            if self._phase is _Phase.READY:
                self._replace_producer()
            if not self._made_ready(deadline_ms):
                return None
        self.awaited = (
            f"the leader of topic {self._offsets.name}, partition {self._offsets.partition}"
        )
        return self._offsets.read(deadline_ms)

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Implement `Writer.submit`; the first one since a commit opens a transaction.

        Raises:
            AbortedError: the transaction is broken.
            FencedError: a later writer has started.

        """
        self._open()
        super().submit(delivery, settle)

    def drain(self, deadline_ms: int) -> bool:
        """Implement `Writer.drain`."""
        settled = super().drain(deadline_ms)
        if not settled:
            self._call_back()
        return settled

    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Implement `TransactionalWriter.commit`."""
        if self._phase is not _Phase.DECIDING:
            self._open()
            if not (self._enter(entries, deadline_ms) and self._flushed(deadline_ms)):
                return False
            self._phase = _Phase.DECIDING
        if not self._done(self._client.commit_transaction, deadline_ms):
            return False
        self._phase = _Phase.READY
        self._singly = False
        self._refused.clear()
        if not self._refusing:
            self.window_ms = self._timeout_ms
        self._refusing = False
        return True

    def close(self) -> None:
        """Abort the open transaction, so that no consumer waits for it."""
        if self._closed:
            return
        self._offsets.stop_reading()
        self._bounds.close()
        if self._phase in (_Phase.OPEN, _Phase.BROKEN):
            with contextlib.suppress(KafkaException):
                self._client.abort_transaction(ABORT_SECONDS_AT_CLOSE)
        super().close()

    def _client_options(self) -> dict[str, str]:
        options = super()._client_options()
        if "delivery.timeout.ms" not in self._config.librdkafka:
            del options["delivery.timeout.ms"]  # It becomes that of the transaction.
        options.setdefault("transaction.timeout.ms", str(TIMEOUT_MS))
        return {**options, "transactional.id": self._id}

    def _replace_producer(self) -> None:
        """Continue with a new producer, which must still fence the old one.

        After an abort, librdkafka continues the sequence after a message that the brokers rejected,
        and so breaks the next transaction, too.
        """
        self._client.close()
        self._client = self._new_client()
        self._phase, self._spent = _Phase.NEW, False

    def _made_ready(self, deadline_ms: int) -> bool:
        """Enter the phase READY. Return whether that succeeded in time."""
        if self._phase is _Phase.NEW:
            done = self._done(self._client.init_transactions, deadline_ms)
        elif self._phase is _Phase.DECIDING:
            done = self._done(self._client.commit_transaction, deadline_ms)
        else:
            done = self._done(self._client.abort_transaction, deadline_ms)
        if done:
            self._phase = _Phase.READY
        return done

    def _open(self) -> None:
        self._check_alive()
        if self._phase is _Phase.OPEN:
            return
        if self._phase is not _Phase.READY:
            raise AbortedError(f"the transaction was broken: {self._why}", place=self._place)
        try:
            self._client.begin_transaction()
        except KafkaException as error:
            raise self._error_of(error.args[0]) from error
        self._phase = _Phase.OPEN
        self._entered.clear()

    def _done(self, call: Callable[[float], None], deadline_ms: int) -> bool:
        """Make one of librdkafka's calls. Return whether it completed in time."""
        left_ms = max(POLL_MS, deadline_ms - self._clock.monotonic_ms())
        try:
            call(left_ms / 1000)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.retriable():
                return False
            raise self._error_of(error) from raised
        return True

    def _error_of(self, error: KafkaError) -> HeadraceError:
        """Return the error to raise for an error that retrying the call does not resolve."""
        self._why = error.str()
        if error.txn_requires_abort():
            self._phase = _Phase.BROKEN
            return AbortedError(self._why, place=self._place)
        self._phase = _Phase.DEAD
        self._end = FencedError(self._why, place=self._place)
        hint = self._hint(error)
        if hint:
            self._end = TransactionsRefusedError(self._why, place=self._place, hint=hint)
        return self._end

    def _hint(self, error: KafkaError) -> str:
        """Return a hint for when the brokers reject transactions with these settings."""
        if error.code() in TRANSACTION_REFUSALS:
            return f"give this user the right to write and describe transactional id {self._id}"
        if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return "lower transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms"
        return ""

    def _check_alive(self) -> None:
        if self._end is not None:
            raise self._end

    def _enter(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """Produce each of *entries* once, over all attempts. Return whether all are."""
        for name in entries.keys() - self._entered:
            if not self._put(self._offsets.key(name), entries[name], deadline_ms):
                return False
            self._entered.add(name)
        return True

    def _put(self, key: bytes, content: bytes | None, deadline_ms: int) -> bool:
        """Produce an entry. Return whether there was room for it in time."""
        while True:
            error = self._client.put(self._offsets.name, content, key, self._offsets.partition)
            if error is None:
                return True
            if error.code() == FULL.code():
                if self._clock.monotonic_ms() >= deadline_ms:
                    return False
                self._poll(POLL_MS)
                continue
            if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                size = len(content or b"")
                raise StateTooLargeError(
                    f"{size} bytes of state do not fit into a message",
                    place=self.place,
                    hint="raise message.max.bytes",
                )
            raise self._error_of(error)

    def _flushed(self, deadline_ms: int) -> bool:
        """Wait until nothing is in flight; callbacks run where errors do not disturb them."""
        while len(self._client):
            if self._clock.monotonic_ms() >= deadline_ms:
                return False
            self._poll(POLL_MS)
            self._call_back()
        return True

    def _call_back(self) -> None:
        """Make unsent records of a broken transaction return now, before they time out.

        librdkafka also keeps the record that brokers rejected, and reports only the cause.
        """
        now_ms = self._clock.monotonic_ms()
        if self._phase is not _Phase.OPEN or now_ms - self._looked_ms < _LOOK_MS:
            return
        self._looked_ms = now_ms
        if self._reason().txn_requires_abort():
            self._client.purge(waits=True)

    def _produce_all(self, outstanding: Outstanding) -> None:
        messages = outstanding.messages
        topics = {messages.topic_of(place) for place in set(messages.places)}
        narrow, beyond = self._bounds.narrow(topics), self._bounds.refused(topics)
        without_key = None in messages.keys and self._bounds.compacted(topics)
        if narrow or beyond or without_key or self._singly or self._refused:
            self._produce_carefully(outstanding, narrow, beyond)
        else:
            super()._produce_all(outstanding)

    def _produce_carefully(
        self, outstanding: Outstanding, narrow: Mapping[str, int], beyond: Mapping[str, int]
    ) -> None:
        """Produce so that brokers reject no batch because of one bad record in it.

        Records that they are known to reject are not sent. The records in flight together fit into
        one batch of the topic with the lowest limit; after a rejected batch, each record is sent
        alone.
        """
        most = 0 if self._singly else min(narrow.values(), default=_NO_BOUND)
        if most < _NO_BOUND:
            self._flush()  # Records of another delivery in flight.
        under_way, messages = 0, outstanding.messages
        too_large = set(self._too_large(messages))
        columns = zip(messages.values, messages.keys, messages.headers, strict=True)
        for number, (value, key, headers) in enumerate(columns):
            topic = messages.topic(number)
            size = size_of(key, value, headers)
            known = self._refused.get((key, value))
            self._refusing |= known is not None
            refused = beyond.get(topic, _NO_BOUND)
            if known is None and (size >= refused or self._bounds.is_beyond(topic, size)):
                least = self._bounds.least_size(key, value, headers)
                known = self._beyond(topic, least, size, refused)
            if known is None and key is None and self._bounds.needs_key(topic):
                text = f"topic {topic} is compacted, and takes no record without a key"
                known = Failure(0, Disposition.REJECT, INVALID, text)
            if known is not None:
                outstanding.fail(number, known)
                continue
            if under_way and under_way + size > most:
                self._flush()
                under_way = 0
            under_way += size
            if size > most:
                outstanding.alone.add(number)
            if number in too_large:
                taken = self._passed_over(outstanding, number, EXCEEDS)
            else:
                taken = self._produced(outstanding, number, number + 1)
            if not taken:
                return

    def _flush(self) -> None:
        self._flushed(self._clock.monotonic_ms() + self._config.submit_timeout_ms)

    def _beyond(self, topic: str, least: int, size: int, refused: int) -> Failure | None:
        """Return why a record of *size* is not sent, of which brokers would see *least* bytes.

        They rejected one of *refused* bytes.
        """
        text = f"a record of {size} bytes is larger than {SETTING} of topic {topic}"
        if not self._bounds.is_beyond(topic, least):
            if least < refused:
                return None
            packed = "" if least == size else f" (at least {least} compressed)"
            text = f"a record of {size} bytes{packed} is not sent: "
            text += f"topic {topic} refused one of {refused} bytes within the last minute"
        return Failure(0, Disposition.REJECT, TOO_LARGE, text)

    def _settle(
        self, outstanding: Outstanding, delivered: Collection[int], failures: list[Failure]
    ) -> None:
        """Report the result; a failure in flight broke the transaction."""
        settle = self._outstanding.pop(outstanding, None)
        if settle is None:
            return
        messages, returned = outstanding.messages, outstanding.returned()
        for number, topic, found in returned:
            failure = found
            if found.code in _PURGED and self._phase is _Phase.OPEN:
                failure = outstanding.blamed(number, failure_of(0, self._reason()))
            if failure.code not in REFUSED:
                continue
            self._spent = True
            if failure.disposition is Disposition.REJECT:
                key, value = messages.keys[number], messages.values[number]
                self._refused[key, value] = failure
                self.window_ms = 0  # Commit the repeated records soon: fewer are repeated again.
                if failure.code == TOO_LARGE:
                    least = self._bounds.least_size(key, value, messages.headers[number])
                    self._bounds.refuse(topic, least)
            else:
                self._singly = True  # The next attempt shows which one it was.
        if returned:
            failures = self._broken(failures)
        settle(delivered, failures)

    def _broken(self, failures: list[Failure]) -> list[Failure]:
        """Return the result after a failure: the whole transaction is sent again."""
        reason = failure_of(0, self._reason()) if self._phase is _Phase.OPEN else failures[0]
        reason = next((f for f in failures if f.code == reason.code), reason)  # It has more detail.
        if reason.disposition is Disposition.FATAL:
            return [replace(reason, index=f.index) for f in failures]
        at_once = reason.code in REFUSED  # It is found, or searched for, when it is sent again.
        return [
            f
            if f.disposition is Disposition.FATAL
            else replace(f, disposition=Disposition.RETRY, at_once=at_once)
            for f in failures
        ]

    def _reason(self) -> KafkaError:
        """Return the error that broke the open transaction: any first call reports it."""
        try:
            self._client.begin_transaction()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            return error
        raise AssertionError("a transaction started within another")

    def _on_error(self, error: KafkaError) -> None:
        super()._on_error(error)
        if error.fatal():
            self._renewal_due = False  # A new producer requires a new claim.
            self._error_of(error)

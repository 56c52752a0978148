"""The unacknowledged messages of one delivery, and the result of its records."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from confluent_kafka import KafkaError
from msgspec.structs import replace

from headrace.plugins import Disposition, Failure
from headrace.sinks.kafka.failures import code_of, disposition
from headrace.sinks.kafka.messages import Messages

TOO_LARGE: Final = "kafka_msg_size_too_large"
INVALID: Final = "kafka_invalid_record"
Finish = Callable[["Outstanding", Collection[int], list[Failure]], None]
MakeFailure = Callable[[int, KafkaError, str], Failure]
# A record of several messages has the disposition of its worst failure.
_SEVERITY: Final = (Disposition.REJECT, Disposition.RETRY, Disposition.FATAL)


def failure_of(index: int, error: KafkaError, topic: str = "") -> Failure:
    """Return the failure of record *index*, which was sent to *topic*."""
    del topic  # Only used by other implementations.
    return Failure(index, disposition(error), code_of(error), error.str())


class Outstanding:
    """Collects the report of each message, by its number, and reports the result of the records."""

    __slots__ = (
        *("_failed", "_failures", "_finish", "_left", "_make_failure"),
        *("alone", "messages", "singly", "times"),
    )

    def __init__(
        self,
        messages: Messages,
        finish: Finish,
        *,
        singly: bool,
        make_failure: MakeFailure = failure_of,
    ) -> None:
        """*finish* is called once, with the records delivered and the failures.

        *singly*: every message is sent alone, so that a rejection concerns this one.
        """
        self.messages = messages
        self._finish = finish
        self._make_failure = make_failure
        self.singly = singly
        self.alone: set[int] = set()  # These are sent alone, too.
        self.times = bytearray(len(messages.values))  # The number of reports of each message.
        self._left = len(messages.values)
        self._failed: list[tuple[int, KafkaError]] = []
        self._failures: dict[int, Failure] = {}

    def reported(self, count: int, failed: Sequence[tuple[int, KafkaError]]) -> None:
        """Receive *count* reports, already counted in `times`; *failed* messages did not arrive."""
        self._failed += failed
        self._left -= count
        if self._left <= 0:
            self.end()

    def fail(self, number: int, failure: Failure) -> None:
        """Note that librdkafka did not accept message *number*."""
        self._note(replace(failure, index=self.messages.owner(number)))
        self.times[number] += 1
        self.reported(1, ())

    def returned(self) -> Sequence[tuple[int, str, Failure]]:
        """Return number, topic and failure of each undelivered message."""
        found = ((number, error, self.messages.topic(number)) for number, error in self._failed)
        return [
            (number, topic, self.blamed(number, self._make_failure(0, error, topic)))
            for number, error, topic in found
        ]

    def blamed(self, number: int, failure: Failure) -> Failure:
        """Return *failure* of a message, as a retry if another message may be the cause."""
        alone = self.singly or number in self.alone
        if failure.disposition is Disposition.REJECT and not alone:
            return replace(failure, disposition=Disposition.RETRY)
        return failure

    def end(self) -> None:
        """Report the result; messages without a report are left out."""
        for number, _, failure in self.returned():
            self._note(replace(failure, index=self.messages.owner(number)))
        failures = [self._failures[index] for index in sorted(self._failures)]
        self._finish(self, self._delivered(), failures)

    def _delivered(self) -> Collection[int]:
        """Return the records whose messages were each reported once, and none as failed."""
        messages, times, whole = self.messages, self.times, range(self.messages.records)
        if not self._failures and times.count(1) == len(times):
            return whole
        once = {messages.owner(number) for number, count in enumerate(times) if count == 1}
        others = {messages.owner(number) for number, count in enumerate(times) if count != 1}
        return once - others - self._failures.keys()

    def _note(self, failure: Failure) -> None:
        known = self._failures.get(failure.index)
        if known is None or _severity(failure) > _severity(known):
            self._failures[failure.index] = failure


def _severity(failure: Failure) -> int:
    return _SEVERITY.index(failure.disposition)

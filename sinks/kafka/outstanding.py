"""The messages of one delivery that are not acknowledged yet, and the result of its records."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, Message

from headrace.plugins import Disposition, Failure, Headers
from headrace.sinks.kafka.failures import code_of, disposition
from headrace.sinks.kafka.messages import Messages

TOO_LARGE: Final = "kafka_msg_size_too_large"
INVALID: Final = "kafka_invalid_record"
Arrived = Callable[[KafkaError | None, Message], None]
Finish = Callable[["Outstanding", int, list[Failure]], None]
MakeFailure = Callable[[int, KafkaError, str], Failure]
Pair = tuple[bytes | None, bytes | None]  # Key and value, which identify a message.
# What to do about a record of several messages is what the worst of their failures asks for.
_SEVERITY: Final = (Disposition.REJECT, Disposition.RETRY, Disposition.FATAL)


def failure_of(index: int, error: KafkaError, topic: str = "") -> Failure:
    """Return what to tell the framework about record *index*, which was sent to *topic*."""
    del topic  # Said by those who know more of it.
    return Failure(index, disposition(error), code_of(error), error.str())


class Outstanding:
    """Hears of each message once.

    A failure brings its message, not its number. Equal messages are interchangeable, so the number
    is looked up by content, and only when something failed.
    """

    __slots__ = (
        *("_failed", "_failures", "_finish", "_make_failure"),
        *("_left", "_messages", "_untaken", "alone", "singly"),
    )

    def __init__(
        self,
        messages: Messages,
        finish: Finish,
        *,
        singly: bool,
        make_failure: MakeFailure = failure_of,
    ) -> None:
        """*finish* is called once, with the number of records delivered and the failures.

        *singly* says that every message travels alone, so that a refusal means this one.
        """
        self._messages = messages
        self._finish = finish
        self._make_failure = make_failure
        self.singly = singly
        self.alone: set[Pair] = set()  # They travel alone, too.
        self._left = len(messages.values)
        self._failed: list[tuple[KafkaError, str, bytes | None, bytes | None]] = []
        self._failures: dict[int, Failure] = {}
        self._untaken: set[int] = set()

    def arrived(self, error: KafkaError | None, message: Message) -> None:
        """Count one message that came back. Called by librdkafka, in a poll."""
        if error is not None:
            self._failed.append((error, message.topic() or "", message.key(), message.value()))
        self._left -= 1
        if not self._left:
            self._end()

    def fail(self, number: int, failure: Failure) -> None:
        """Count message *number*, which librdkafka did not take."""
        self._untaken.add(number)
        self._note(replace(failure, index=self._messages.owner(number)))
        self._left -= 1
        if not self._left:
            self._end()

    def returned(self) -> Sequence[tuple[str, bytes | None, bytes | None, Failure]]:
        """Return topic, key, value and failure of each message that came back undelivered."""
        return [
            (topic, k, v, self.blamed(self._make_failure(0, error, topic), k, v))
            for error, topic, k, v in self._failed
        ]

    def headers_of(self, key: bytes | None, value: bytes | None) -> Sequence[Headers]:
        """Return the headers of each message with that key and value."""
        messages = self._messages
        rows = zip(messages.keys, messages.values, messages.headers, strict=True)
        return [headers for k, v, headers in rows if (k, v) == (key, value)]

    def blamed(self, failure: Failure, key: bytes | None, value: bytes | None) -> Failure:
        """Return *failure* of a message, to be tried again where another one may be the cause."""
        alone = self.singly or (key, value) in self.alone
        if failure.disposition is Disposition.REJECT and not alone:
            return replace(failure, disposition=Disposition.RETRY)
        return failure

    def _end(self) -> None:
        for failure in self._resolved():
            self._note(failure)
        failures = [self._failures[index] for index in sorted(self._failures)]
        self._finish(self, self._messages.records - len(failures), failures)

    def _note(self, failure: Failure) -> None:
        known = self._failures.get(failure.index)
        if known is None or _severity(failure) > _severity(known):
            self._failures[failure.index] = failure

    def _resolved(self) -> Sequence[Failure]:
        if not self._failed:
            return ()
        messages = self._messages
        places: dict[Pair, list[int]] = defaultdict(list)
        for number in reversed(range(len(messages.values))):
            if number not in self._untaken:
                places[messages.keys[number], messages.values[number]].append(number)
        return [
            self.blamed(self._make_failure(messages.owner(places[k, v].pop()), error, topic), k, v)
            for error, topic, k, v in self._failed
        ]


def _severity(failure: Failure) -> int:
    return _SEVERITY.index(failure.disposition)

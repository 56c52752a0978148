"""The messages of one delivery that have not come back yet, and the verdict on its records."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, Message

from headrace.plugins import Disposition, Failure
from headrace.sinks.kafka.failures import code_of, disposition
from headrace.sinks.kafka.messages import Messages

TOO_LARGE: Final = "kafka_msg_size_too_large"
Arrived = Callable[[KafkaError | None, Message], None]
Finish = Callable[["Outstanding", int, list[Failure]], None]
# What to do about a record of several messages is what the worst of their failures asks for.
_SEVERITY: Final = (Disposition.REJECT, Disposition.RETRY, Disposition.FATAL)


class Outstanding:
    """Hears of each message once.

    A failure brings its message, not its number. Equal messages are interchangeable, so the number
    is looked up by content, and only when something failed.
    """

    __slots__ = ("_failed", "_failures", "_finish", "_left", "_messages", "_untaken", "singly")

    def __init__(self, messages: Messages, finish: Finish, *, singly: bool) -> None:
        """*finish* is called once, with the number of records delivered and the failures.

        *singly* says that every message travels alone, so that "too large" means this one.
        """
        self._messages = messages
        self._finish = finish
        self.singly = singly
        self._left = len(messages.values)
        self._failed: list[tuple[KafkaError, bytes | None, bytes | None]] = []
        self._failures: dict[int, Failure] = {}
        self._untaken: set[int] = set()

    def arrived(self, error: KafkaError | None, message: Message) -> None:
        """Count one message that came back. Called by librdkafka, in a poll."""
        if error is not None:
            self._failed.append((error, message.key(), message.value()))
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

    def returned(self) -> Sequence[tuple[bytes | None, bytes | None, Failure]]:
        """Return key, value and failure of each message that came back undelivered."""
        return [(key, value, self._judged(0, error)) for error, key, value in self._failed]

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
        places: dict[tuple[bytes | None, bytes | None], list[int]] = defaultdict(list)
        for number in reversed(range(len(messages.values))):
            if number not in self._untaken:
                places[messages.keys[number], messages.values[number]].append(number)
        return [self._judged(places[key, value].pop(), error) for error, key, value in self._failed]

    def _judged(self, number: int, error: KafkaError) -> Failure:
        failure = failure_of(self._messages.owner(number), error)
        if failure.code == TOO_LARGE and not self.singly:
            return replace(failure, disposition=Disposition.RETRY)
        return failure


def failure_of(index: int, error: KafkaError) -> Failure:
    """Return what to tell the framework about record *index*."""
    return Failure(index, disposition(error), code_of(error), error.str())


def _severity(failure: Failure) -> int:
    return _SEVERITY.index(failure.disposition)

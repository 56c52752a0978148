"""The messages of one delivery that have not come back yet, and the verdict on its records."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, Message

from headrace.plugins import Disposition, EncodedRecords, Failure
from headrace.sinks.kafka.failures import code_of, disposition

TOO_LARGE: Final = "kafka_msg_size_too_large"
Finish = Callable[["Outstanding", int, list[Failure]], None]
# What to do about a record and its tombstone is what the worse of their failures asks for.
_SEVERITY: Final = (Disposition.REJECT, Disposition.RETRY, Disposition.FATAL)


class Outstanding:
    """librdkafka calls it once per message.

    A failure brings its message, not its index. Equal messages are interchangeable, so the index
    is looked up by content, and only when something failed.
    """

    __slots__ = ("_encoded", "_failed", "_failures", "_finish", "_left", "_untaken", "singly")

    def __init__(self, encoded: EncodedRecords, finish: Finish, *, singly: bool) -> None:
        """*finish* is called once, with the number of records delivered and the failures.

        *singly* says that every message travels alone, so that "too large" means this one.
        """
        self._encoded = encoded
        self._finish = finish
        self.singly = singly
        self._left = len(encoded) + len(encoded.tombstones)
        self._failed: list[tuple[KafkaError, bytes | None, bytes | None]] = []
        self._failures: dict[int, Failure] = {}
        self._untaken: set[tuple[int, bool]] = set()

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Count one message that came back."""
        if error is not None:
            self._failed.append((error, message.key(), message.value()))
        self._left -= 1
        if not self._left:
            self._end()

    def fail(self, failure: Failure, *, tombstone: bool = False) -> None:
        """Count one message that librdkafka did not take: a record, or its tombstone."""
        self._failures[failure.index] = failure
        self._untaken.add((failure.index, tombstone))
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        for failure in self._resolved():
            known = self._failures.get(failure.index)
            if known is None or _severity(failure) > _severity(known):
                self._failures[failure.index] = failure
        failures = [self._failures[index] for index in sorted(self._failures)]
        self._finish(self, len(self._encoded) - len(failures), failures)

    def _resolved(self) -> Sequence[Failure]:
        if not self._failed:
            return ()
        encoded = self._encoded
        places: dict[tuple[bytes | None, bytes | None], list[int]] = defaultdict(list)
        for index in reversed(range(len(encoded))):
            if (index, False) not in self._untaken:
                places[encoded.keys[index], encoded.values[index]].append(index)
        for index in reversed(encoded.tombstones):
            if (index, True) not in self._untaken:
                places[encoded.keys[index], None].append(index)
        return [self._judged(places[key, value].pop(), error) for error, key, value in self._failed]

    def _judged(self, index: int, error: KafkaError) -> Failure:
        failure = failure_of(index, error)
        if failure.code == TOO_LARGE and not self.singly:
            return replace(failure, disposition=Disposition.RETRY)
        return failure


def failure_of(index: int, error: KafkaError) -> Failure:
    """Return what to tell the framework about record *index*."""
    return Failure(index, disposition(error), code_of(error), error.str())


def _severity(failure: Failure) -> int:
    return _SEVERITY.index(failure.disposition)

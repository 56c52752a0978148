"""The dead letters of a job in their topic: a typed record for each message."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.connector.streams.changes import GivenHeaders, headers_of
from headrace.connector.streams.job_sink import sink_of
from headrace.plugins import ConfigError, Problem, Sink
from headrace.plugins.config.sink_options import DEAD_LETTERS_KEY
from headrace.plugins.records.codecs import CONNECT_ERRORS, OWN_ERRORS


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record that a job could not deliver, and why; strings without a header are empty.

    `number` is the same as for `headrace dlq`; `kind` is `dead_letter` or `quarantined`: not made
    into a record. `lost_ms` is the time, since 1970. `value_bytes` is the size of a value that the
    topic refused, so that only `headrace dlq` has it; `destination` is then its target. `headers`
    are those of the record itself.
    """

    topic: str
    partition: int
    offset: int
    job: str
    split: str
    number: int | None
    kind: str
    stage: str
    code: str
    reason: str = field(repr=False)
    place: str
    table: str
    lost_ms: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Mapping[str, bytes] = field(repr=False)
    value_bytes: int | None = None
    refused: str = ""
    destination: str = ""

    @classmethod
    def of(  # noqa: PLR0913 (what a message has)
        cls,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: GivenHeaders,
        *,
        offset: int = -1,
    ) -> Self:
        """Return the dead letter of a message; every message of the topic is one."""
        given = headers_of(headers)
        found = {name: _text(given, (OWN_ERRORS, CONNECT_ERRORS), name) for name in _NAMES}
        own = {
            name: content
            for name, content in given.items()
            if not name.startswith((OWN_ERRORS, CONNECT_ERRORS))
        }
        code = found["code"] or found["exception.class.name"]
        return cls(
            topic=topic,
            partition=partition,
            offset=offset,
            job=found["connector.name"],
            split=found["task.id"],
            number=_number(found["number"]),
            kind=found["kind"],
            stage=found["stage"],
            code=code,
            reason=found["exception.message"],
            place=found["place"],
            table=found["table"] or own.get("table", b"").decode(errors="replace"),
            lost_ms=_number(found["time"]),
            key=key,
            value=value,
            headers=own,
            value_bytes=_number(found["value.bytes"]),
            refused=found["value.refused"],
            destination=found["topic"],
        )

    @property
    def name(self) -> bytes:
        """An identifier that all messages of this dead letter have, and no others."""
        if self.number is None:  # Without these headers each message counts.
            return f"{self.topic}/{self.partition}/{self.offset}".encode()
        return f"{self.job}/{self.number}/{self.lost_ms}".encode()


_NAMES = (
    *("connector.name", "task.id", "stage", "exception.class.name", "exception.message"),
    *("kind", "code", "place", "table", "time", "number"),
    *("value.bytes", "value.refused", "topic"),
)


def _text(given: Mapping[str, bytes], prefixes: Iterable[str], name: str) -> str:
    found = (given[prefix + name] for prefix in prefixes if prefix + name in given)
    return next(found, b"").decode(errors="replace")


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def dead_letter_sink(options: Mapping[str, Any]) -> Sink:
    """Return a sink whose topic contains the dead letters of a sink with these *options*.

    Raises:
        ConfigError: they do not name that topic.

    """
    topic = options.get(DEAD_LETTERS_KEY)
    if not topic:
        hint = "the job's sink must name a topic; without one, `headrace dlq` has the dead letters"
        raise ConfigError([Problem(DEAD_LETTERS_KEY, "is required", hint)])
    sink, _ = sink_of({**options, "topic": topic})
    return sink

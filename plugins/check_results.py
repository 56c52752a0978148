"""Values that sources and sinks report about themselves."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from headrace.plugins.errors import Disposition


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """The durable data of one part of a split after a position: bytes, and number of files.

    `partition` is as in `Position.describe`. With a `problem` the part cannot be read now, and the
    numbers have no meaning.
    """

    partition: Mapping[str, str]
    size_bytes: int
    files: int
    problem: str = ""


class LogSpace(msgspec.Struct, frozen=True, kw_only=True):
    """The disk space of one log; None where a value is unknown.

    `partition` is as in `Position.describe`. The log may grow up to `limit_bytes`, as far as
    `free_bytes` allow; `growth` is its recent growth in bytes per second.
    """

    partition: Mapping[str, str]
    used_bytes: int
    limit_bytes: int | None = None
    free_bytes: int | None = None
    growth: float | None = None

    @property
    def room_bytes(self) -> int | None:
        """How many bytes it can still grow."""
        rooms = [] if self.free_bytes is None else [self.free_bytes]
        if self.limit_bytes is not None:
            rooms.append(max(0, self.limit_bytes - self.used_bytes))
        return min(rooms, default=None)

    @property
    def full_in_seconds(self) -> float | None:
        """How long its space lasts; None if it does not grow."""
        room = self.room_bytes
        return room / self.growth if self.growth and room is not None else None


class CheckResult(StrEnum):
    """The result of a check.

    WARNED does not stop a job, but changes may be lost or delayed; UNKNOWN could not be determined.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check of a source or a sink; after a failure, the hint says what to do."""

    check: str
    result: CheckResult
    message: str
    hint: str = ""


class TableWarning(msgspec.Struct, frozen=True):
    """Changes of a table that a source accepts but does not deliver; the hint says what to do."""

    code: str
    message: str
    hint: str = ""


class Nearness(msgspec.Struct, frozen=True):
    """What a source reads without a network: `here`, among the places in `shares`.

    `shares` is, by split and place, the part of a split that can be read at a place, from 0 to 1.
    """

    here: Sequence[str] = ()
    shares: Mapping[str, Mapping[str, float]] = msgspec.field(default_factory=dict)


class Failure(msgspec.Struct, frozen=True):
    """Record *index* of a delivery was not delivered, and how to handle it.

    With *at_once* it is sent again without a wait: the writer then rejects it. *hint* says what to
    do if it is fatal.
    """

    index: int
    disposition: Disposition
    code: str
    message: str
    at_once: bool = False
    hint: str = ""

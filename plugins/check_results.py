"""What sources and sinks report about themselves: values only."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from headrace.plugins.errors import Disposition


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What one part of a split has after a position: durable bytes, and the files they are in.

    `partition` is as in `Position.describe`. With a `problem` the part cannot be read now, and
    the numbers mean nothing.
    """

    partition: Mapping[str, str]
    size_bytes: int
    files: int
    problem: str = ""


class LogSpace(msgspec.Struct, frozen=True, kw_only=True):
    """What one log takes of its disk; None where something is not known.

    `partition` is as in `Position.describe`. It may grow up to `limit_bytes`, and as far as
    `free_bytes` allow; `growth` is what was added lately, in bytes a second.
    """

    partition: Mapping[str, str]
    used_bytes: int
    limit_bytes: int | None = None
    free_bytes: int | None = None
    growth: float | None = None

    @property
    def room_bytes(self) -> int | None:
        """How much more it can take."""
        rooms = [] if self.free_bytes is None else [self.free_bytes]
        if self.limit_bytes is not None:
            rooms.append(max(0, self.limit_bytes - self.used_bytes))
        return min(rooms, default=None)

    @property
    def full_in_seconds(self) -> float | None:
        """How long its room lasts; None if it does not grow."""
        room = self.room_bytes
        return room / self.growth if self.growth and room is not None else None


class CheckResult(StrEnum):
    """How a check ended.

    WARNED does not stop a job, but may lose or delay something; UNKNOWN could not be determined.
    """

    PASSED = "passed"
    WARNED = "warned"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Finding(msgspec.Struct, frozen=True):
    """What one check of a source or a sink found out; a hint says what to do where it failed."""

    check: str
    result: CheckResult
    message: str
    hint: str = ""


class TableWarning(msgspec.Struct, frozen=True):
    """What a source does not deliver of a table, though it accepts it; the hint says what to do."""

    code: str
    message: str
    hint: str = ""


class Nearness(msgspec.Struct, frozen=True):
    """What a source reads without a network: `here`, of the places that `shares` are of.

    `shares` says, by split and place, which part of a split can be read at a place, from 0 to 1.
    """

    here: Sequence[str] = ()
    shares: Mapping[str, Mapping[str, float]] = msgspec.field(default_factory=dict)


class Failure(msgspec.Struct, frozen=True):
    """Record *index* of a delivery was not delivered, and what to do about it.

    With *at_once* it is sent again without a wait: the writer rejects it then.
    *hint* says what to do where it is fatal.
    """

    index: int
    disposition: Disposition
    code: str
    message: str
    at_once: bool = False
    hint: str = ""

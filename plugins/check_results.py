"""What sources and sinks report about themselves: values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.plugins.errors import Disposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What one part of a split has after a position: durable bytes, and the files they are in.

    `partition` is as in `Position.describe`. With a `problem` the part cannot be read now, and
    the numbers mean nothing.
    """

    partition: Mapping[str, str]
    size_bytes: int
    files: int
    problem: str = ""


class CheckResult(StrEnum):
    """How a check ended; UNKNOWN where it could not be determined."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check of a source or a sink found out; a hint says what to do where it failed."""

    check: str
    result: CheckResult
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TableWarning:
    """What a source does not deliver of a table, though it accepts it; the hint says what to do."""

    code: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Nearness:
    """What a source reads without a network: `here`, of the places that `shares` are of.

    `shares` says, by split and place, which part of a split can be read at a place, from 0 to 1.
    """

    here: Sequence[str] = ()
    shares: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
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

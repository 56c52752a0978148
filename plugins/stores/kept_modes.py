"""The modes of a job's logs, as its store keeps them with the positions of its splits."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

ALL_LOGS: Final = ""
"""Instead of the name of a log, in a request about all of them."""
NO_SUCH_LOG: Final = "no_such_log"
"""The reason for refusing a request about a log that is not read."""
Place = Mapping[str, int | str]
"""Where a split is in a log, as a position describes it."""


class ModeOutcome(StrEnum):
    """The outcome of a request, for one log."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FELL_BACK = "fell_back"
    """The buffer was full before the backlog was read, or has no room for it."""
    SUPERSEDED = "superseded"
    """Another request came first."""
    REFUSED = "refused"
    """The log cannot be read in this mode."""
    FAILED = "failed"
    """The splits stopped."""


class AskedMode(msgspec.Struct, frozen=True):
    """A requested mode. The requests of a job have growing numbers."""

    request: int
    mode: str


class ModeAnswer(msgspec.Struct, frozen=True):
    """An outcome: why, when (ms since 1970), and the committed position of the log then."""

    outcome: ModeOutcome = ModeOutcome.PENDING
    reason: str = ""
    ended_ms: int | None = None
    place: Place = msgspec.field(default_factory=dict)


class LogMode(msgspec.Struct, frozen=True, kw_only=True):
    """How the owner of a split reads a log, and its `answer` to the last request about it.

    `reason` is why it has this mode, since `since_ms`; both are empty before the first change.
    """

    mode: str
    reason: str = ""
    since_ms: int | None = None
    request: int = 0
    answer: ModeAnswer = ModeAnswer()


class KeptModes(msgspec.Struct, frozen=True):
    """The requested modes, by log or for `ALL_LOGS`, and the mode of each log."""

    asked: Mapping[str, AskedMode]
    logs: Mapping[str, LogMode]

    def after(self, before: "KeptModes | None", places: Mapping[str, Place]) -> "KeptModes":
        """Return these modes for storing in a split, whose stored modes are *before*.

        An existing answer stays; a new one gets the committed *places*.
        """
        known = before.logs if before else {}
        return KeptModes(
            self.asked,
            {
                log: _answered(mode, known.get(log), places.get(log, {}))
                for log, mode in self.logs.items()
            },
        )


def _answered(mode: LogMode, before: LogMode | None, place: Place) -> LogMode:
    if before is not None and before.request >= mode.request and _has_ended(before):
        return replace(mode, request=before.request, answer=before.answer)
    return replace(mode, answer=replace(mode.answer, place=place)) if _has_ended(mode) else mode


def _has_ended(mode: LogMode) -> bool:
    return mode.answer.outcome is not ModeOutcome.PENDING


class ModeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request about the log `node`, or about `ALL_LOGS`.

    `places` is the committed position of each log then. `answers` are those that existed when the
    next request came; the answers to the last one are with the splits.
    """

    request: int
    node: str
    mode: str
    asked_ms: int
    places: Mapping[str, Place] = msgspec.field(default_factory=dict)
    answers: Mapping[str, ModeAnswer] = msgspec.field(default_factory=dict)


def last_kept(kept: Iterable[KeptModes | None]) -> KeptModes | None:
    """Return, of the modes of several splits, those that answer the last request."""
    found = [each for each in kept if each is not None]
    return max(found, key=lambda each: last_request(each.asked), default=None)


def last_request(asked: Mapping[str, AskedMode]) -> int:
    """Return the number of the last request; 0 if there was none."""
    return max((each.request for each in asked.values()), default=0)


def asked_of(asked: Mapping[str, AskedMode], log: str) -> AskedMode | None:
    """Return the last request about a log."""
    found = [asked[name] for name in (log, ALL_LOGS) if name in asked]
    return max(found, key=lambda each: each.request, default=None)


def newest(first: Mapping[str, AskedMode], second: Mapping[str, AskedMode]) -> dict[str, AskedMode]:
    """Return the requests of both that still count."""
    found = dict(first)
    for name, asked in second.items():
        if name not in found or found[name].request < asked.request:
            found[name] = asked
    least = found[ALL_LOGS].request if ALL_LOGS in found else 0
    return {name: asked for name, asked in found.items() if asked.request >= least}

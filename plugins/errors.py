"""Every error that headrace raises, grouped by how the framework handles it.

A message says where, what was found and what was expected; the hint says what to do. The code is
stable: logs, REST responses and the documentation use it. No plugin is mentioned here.
"""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar

import msgspec


class Disposition(StrEnum):
    """How to handle a record that was not delivered."""

    RETRY = "retry"
    REJECT = "reject"
    FATAL = "fatal"


class HeadraceError(Exception):
    """Base of all named errors; `code` names it, `exit_status` is the process's (1 to 4).

    `restartable`: the failed work may succeed when it is restarted later.
    """

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = 1
    restartable: ClassVar[bool] = False

    def __init__(self, message: str, *, place: str = "", hint: str = "") -> None:
        """*place* is a file and byte, a line and column, or a config key."""
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        """Return `place: message`, then the hint on its own line."""
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text}\nhint: {self.hint}" if self.hint else text


class RetriableError(HeadraceError):
    """The same call may succeed later: the framework waits and repeats it, within its budget."""

    code = "retriable"
    restartable = True


class AbortedError(RetriableError):
    """Records submitted since the last commit were dropped: continue from that commit.

    `at_once` says that no wait is needed: the record that caused it is rejected next time.
    """

    code = "aborted"
    at_once = False


class FatalError(HeadraceError):
    """Repeating is useless: the split stops and reports why."""

    code = "fatal"


class FencedError(FatalError):
    """A later writer of the split has started: a worker must claim it again to continue."""

    code = "fenced"
    restartable = True


class MiscountError(FatalError):
    """Log entries were read but counted wrongly: none of them is committed."""

    code = "entries_missing"
    exit_status = 4

    def __init__(self, message: str, *, place: str = "") -> None:
        """Set the hint, which is the same for all."""
        super().__init__(
            message,
            place=place,
            hint="nothing of them was delivered; it is a fault of headrace or of the source: "
            "report it, with the job and the version, and keep the segments",
        )


class BadRecordError(HeadraceError):
    """One record cannot be processed: it is quarantined with its bytes, the rest continue (I8)."""

    code = "bad_record"


class LeaseLostError(HeadraceError):
    """Another owner has the split now: discard its state, submit nothing more (I2)."""

    code = "lease_lost"


class MissingRequirementError(HeadraceError):
    """Something is missing on the machine: a file right, a program, a reachable server."""

    code = "environment"
    exit_status = 3
    restartable = True


class Problem(msgspec.Struct, frozen=True):
    """One mistake in a configuration; *key* is the option's name, or empty for the whole."""

    key: str
    message: str
    hint: str = ""


def meant(given: str, known: Iterable[str] | Mapping[str, str], otherwise: str = "") -> str:
    """Return a hint that suggests one of *known* for *given*, or else *otherwise*.

    A mapping has the written form of each.
    """
    near = difflib.get_close_matches(given, list(known), n=1)
    if not near:
        return otherwise
    return f"did you mean {known[near[0]] if isinstance(known, Mapping) else near[0]}?"


class ConfigError(HeadraceError):
    """An unusable configuration, with every mistake found in it."""

    code = "config"
    exit_status = 2

    def __init__(self, problems: Iterable[Problem | str] | str, *, place: str = "") -> None:
        """*problems* has at least one; *place* names the job file, statement or request.

        A single string is a mistake without a key.
        """
        given = [problems] if isinstance(problems, str) else problems
        self.problems = tuple(Problem("", p) if isinstance(p, str) else p for p in given)
        lines = [f"{p.key}: {p.message}" if p.key else p.message for p in self.problems]
        hints = [p.hint for p in self.problems if p.hint]
        super().__init__("; ".join(lines), place=place, hint="; ".join(hints))


def error_text(error: HeadraceError) -> str:
    """Return the text that commands print: a line per mistake, and its hint on another."""
    problems = [Problem("", error.message, error.hint)]
    if isinstance(error, ConfigError):
        problems = list(error.problems)
    lines = []
    for problem in problems:
        parts = [part for part in (error.place, problem.key, problem.message) if part]
        lines.append(f"error [{error.code}]: {': '.join(parts)}\n")
        lines += [f"hint: {problem.hint}\n"] if problem.hint else []
    return "".join(lines)


def install_hint(extra: str) -> str:
    """Return the command to install an extra of headrace, which is in no package index."""
    return (
        f"in a clone: pip install -e '.[{extra}]'; "
        f"from a wheel: pip install 'headrace-….whl[{extra}]'"
    )

"""Where reading stopped and resumes: positions, as sources make them and stores keep them."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.plugins.errors import ConfigError, Problem

# The states of a gap that the framework distinguishes.
OPEN: Final = "open"
ACCEPTED: Final = "accepted"
PASSED: Final = "passed"


class EncodedPosition(msgspec.Struct, frozen=True):
    """A position as bytes: a head, and immutable chunks that the head refers to by name.

    A store writes only the chunks it does not have, then replaces the head, then drops the chunks
    the new head no longer lists. The same name always stands for the same bytes within one split.
    Of the chunks named in `kept` only the split's own state in the store must have the bytes: a
    position has such chunks only after a `Reader.release`. A store refuses a commit that keeps
    chunks that do not exist (StateLostError). What it returns is whole.
    """

    head: bytes
    chunks: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    kept: frozenset[str] = frozenset()

    @property
    def names(self) -> Sequence[str]:
        """The names of all its chunks."""
        return (*self.chunks, *self.kept.difference(self.chunks))


class TokenRange(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a split: 64-bit numbers from *first* to the one before *behind*.

    *number* is that of the split, from 1: CEP-44's table `cdc_state` has it.
    """

    number: int
    first: int
    behind: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a source that was lost before it was read (I10).

    `partition`, `begin` and `end` are as `Position.describe` has them. `state` is `open` while it
    stops the split, `accepted` by a user, `passed`, `mended`: the part was found again, or
    `covered`: other parts of the source have what it held. `policy` is how it was passed.
    `size_bytes` is how much was lost, 0 if that is unknown. Gaps of several splits with one `name`
    are the same.
    """

    name: str
    partition: Mapping[str, str]
    begin: Mapping[str, int | str]
    end: Mapping[str, int | str]
    kind: str
    state: str
    policy: str
    noticed_ms: int
    size_bytes: int = 0

    @property
    def is_open(self) -> bool:
        """Whether a user must decide: it stops the splits that met it."""
        return self.state == OPEN

    @property
    def is_lost(self) -> bool:
        """Whether the job continues, or may continue, without what it held."""
        return self.state in (ACCEPTED, PASSED)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was read, and is not published because copies of it are missing.

    `copies` say, by the name of a part, where those lie that were read; `missing` are the parts
    that have none, of which `needed` copies in all are enough.
    """

    subject: str
    copies: Mapping[str, str]
    missing: Sequence[str]
    needed: str
    seconds: int


class Position(ABC):
    """Where to resume: "after here". Opaque to the framework, made by a reader, never changed."""

    size_bytes: int = 0
    """About how much memory it holds until it is durable; large ones are committed early."""

    @abstractmethod
    def encode(self) -> EncodedPosition:
        """Return the bytes that the source's `decode_position` reads back."""

    @abstractmethod
    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return pairs of a partition map and an offset map, as Kafka Connect shows offsets."""

    def moved(
        self,
        partition: Mapping[str, str],  # noqa: ARG002 (for those that override this)
        offset: Mapping[str, int | str] | None,  # noqa: ARG002
    ) -> "Position":
        """Return this position with a part that `describe` shows moved to *offset*.

        None moves the part to where a new split begins. Numbers may come as strings.

        Raises:
            ConfigError: the part is unknown, or *offset* is not one of its offsets.

        """
        raise ConfigError([Problem("offset", "positions of this source cannot be moved")])

    def books(self) -> Mapping[str, int]:
        """Return the source's own counters as of here (I3); names are dotted, lower case."""
        return {}

    def began(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str] | None]]:
        """Return, as `describe` does, where reading started; None is the beginning."""
        return ()

    def contradictions(self) -> Sequence[str]:
        """Return in words what this position holds that its own `books` deny (I3)."""
        return ()

    def waiting(self) -> Sequence[Waiting]:
        """Return what waits for copies as of here, the longest waiting first."""
        return ()

    def gaps(self) -> Sequence[Gap]:
        """Return the gaps that were met on the way here, the newest last; old ones go."""
        return ()

    def without_gaps(
        self,
        names: Collection[str],  # noqa: ARG002 (for those that override this)
        policy: str,  # noqa: ARG002
    ) -> "Position":
        """Return this position behind its open gaps of these *names*, to be passed by *policy*."""
        return self


@dataclass(frozen=True, slots=True)
class NumberPosition(Position):
    """A position that is one number: bytes, lines or rows already read."""

    number: int

    def encode(self) -> EncodedPosition:
        """Return the number in decimal."""
        return EncodedPosition(b"%d" % self.number)

    @classmethod
    def decode(cls, encoded: EncodedPosition) -> "NumberPosition":
        """Read the number back."""
        return cls(int(encoded.head))

    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return the number as an offset."""
        return [({}, {"offset": self.number})]

    def moved(
        self, partition: Mapping[str, str], offset: Mapping[str, int | str] | None
    ) -> "NumberPosition":
        """Take another number."""
        if partition:
            raise ConfigError([Problem("partition", f"has no part {dict(partition)}")])
        return NumberPosition(offset_numbers(offset or {"offset": 0}, "offset")[0])


def offset_numbers(offset: Mapping[str, int | str], *names: str) -> Sequence[int]:
    """Return the numbers of an offset map, which has just these names.

    Raises:
        ConfigError: with what is missing, unknown or no whole number from 0 to 2^63 - 1.

    """
    problems = [Problem(name, "is required") for name in names if name not in offset]
    problems += [Problem(name, "is not known here") for name in offset if name not in names]
    numbers = []
    for name in names:
        text = str(offset.get(name, 0))
        if not re.fullmatch(r"[0-9]{1,19}", text) or int(text) >= 1 << 63:
            problems.append(Problem(name, f"expected a whole number, found {text[:48]!r}"))
        else:
            numbers.append(int(text))
    if problems:
        raise ConfigError(problems)
    return numbers

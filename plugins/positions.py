"""Positions, where reading stopped and resumes, as sources make them and stores keep them."""

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
    that the new head no longer lists. Within one split, a name always means the same bytes. For the
    chunks named in `kept`, only the split's own state in the store must have the bytes: a position
    has such chunks only after a `Reader.release`. A store rejects a commit that keeps chunks that
    do not exist (StateLostError). The positions that it returns are complete.
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

    *number* is that of the split, from 1, as in CEP-44's table `cdc_state`.
    """

    number: int
    first: int
    behind: int


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a source that was lost before it was read (I10).

    `partition`, `begin` and `end` are as in `Position.describe`. `state` is `open` while it stops
    the split, `accepted` by a user, `passed`, `mended`: the part was found again, or `covered`:
    other parts of the source have its content. `policy` is how it was passed. `size_bytes` is the
    size of the loss, 0 if unknown. Gaps of several splits with one `name` are the same.
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
        """Whether the job continues, or may continue, without the lost content."""
        return self.state in (ACCEPTED, PASSED)


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was read, and is not published because copies of it are missing.

    `copies` are the places of the copies that were read, by the name of a part; `missing` are the
    parts without a copy. In all, `needed` copies are enough.
    """

    subject: str
    copies: Mapping[str, str]
    missing: Sequence[str]
    needed: str
    seconds: int


class Position(ABC):
    """Where to resume: "after here". Opaque to the framework, made by a reader, immutable."""

    size_bytes: int = 0
    """About how much memory it holds until it is durable; large ones are committed early."""

    @abstractmethod
    def encode(self) -> EncodedPosition:
        """Return the bytes for the source's `decode_position`."""

    @abstractmethod
    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return pairs of a partition map and an offset map, as Kafka Connect shows offsets."""

    def moved(
        self,
        partition: Mapping[str, str],  # noqa: ARG002 (for overrides)
        offset: Mapping[str, int | str] | None,  # noqa: ARG002
    ) -> "Position":
        """Return this position with a part that `describe` shows moved to *offset*.

        None moves the part to the start of a new split. Numbers may be strings.

        Raises:
            ConfigError: the part is unknown, or *offset* is not one of its offsets.

        """
        raise ConfigError([Problem("offset", "positions of this source cannot be moved")])

    def books(self) -> Mapping[str, int]:
        """Return the source's own counters at this position (I3); names are dotted, lower case."""
        return {}

    def began(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str] | None]]:
        """Return where reading started, as in `describe`; None is the beginning."""
        return ()

    def contradictions(self) -> Sequence[str]:
        """Return descriptions of contradictions between this position and its own `books` (I3)."""
        return ()

    def waiting(self) -> Sequence[Waiting]:
        """Return the changes that wait for copies at this position, the longest waiting first."""
        return ()

    def gaps(self) -> Sequence[Gap]:
        """Return the gaps met so far, the newest last; old ones are dropped."""
        return ()

    def without_gaps(
        self,
        names: Collection[str],  # noqa: ARG002 (for overrides)
        policy: str,  # noqa: ARG002
    ) -> "Position":
        """Return this position after its open gaps of these *names*, to be passed by *policy*."""
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
        """Decode the number."""
        return cls(int(encoded.head))

    def describe(self) -> Sequence[tuple[Mapping[str, str], Mapping[str, int | str]]]:
        """Return the number as an offset."""
        return [({}, {"offset": self.number})]

    def moved(
        self, partition: Mapping[str, str], offset: Mapping[str, int | str] | None
    ) -> "NumberPosition":
        """Return a position with another number."""
        if partition:
            raise ConfigError([Problem("partition", f"has no part {dict(partition)}")])
        return NumberPosition(offset_numbers(offset or {"offset": 0}, "offset")[0])


def offset_numbers(offset: Mapping[str, int | str], *names: str) -> Sequence[int]:
    """Return the numbers of an offset map, which must have exactly these names.

    Raises:
        ConfigError: it lists what is missing, unknown or not a whole number from 0 to 2^63 - 1.

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

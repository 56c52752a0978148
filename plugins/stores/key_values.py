"""Where a store keeps its rows: a small key-value interface with conditional writes.

The domain store, `headrace.connector.stores.keyed.store`, is written once over this. A backend
implements `KeyValues` and passes `headrace.plugins.testing.KeyValueSuite`.

A row has a partition and a name. There are two kinds of partitions, and no row is ever in both:

- A *decided* partition: rows are written by `change` only. All processes see one order of changes.
- A *plain* partition: rows are written by `put` and as `first` and `then` of a change; the last
  write counts. Rows that matter are written once, and removed once.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

_STAMP_BITS = 62  # A positive number that a signed integer of 64 bits holds.


class Partition(NamedTuple):
    """Rows that a change can replace together. No two partitions have the same text."""

    text: str
    is_plain: bool = False


class Key(NamedTuple):
    """What identifies a row."""

    partition: Partition
    name: str


class Entry(NamedTuple):
    """A row: its stamp, which every change replaces (0 in a plain partition), and its value."""

    stamp: int
    value: bytes


def new_stamp() -> int:
    """Return a stamp that no row has had."""
    return 1 + secrets.randbits(_STAMP_BITS)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A conditional write to the rows of one decided partition, all of it or nothing.

    It applies if each row in `expected` has that stamp; None: if the row does not exist. `rows` are
    the new values, None removes one; these rows carry `stamp` afterwards.

    `first` are rows of plain partitions. They are durable before the change is; they may stay when
    it is refused. `then` are rows of plain partitions that are removed after it was applied; after
    a crash they may stay. `is_commit` says that it replaces a position: there tests kill the
    process.
    """

    partition: Partition
    expected: Mapping[str, int | None]
    rows: Mapping[str, bytes | None]
    first: Mapping[Key, bytes] = msgspec.field(default_factory=dict)
    then: Collection[Key] = ()
    is_commit: bool = False
    stamp: int = msgspec.field(default_factory=new_stamp)


class KeyValues(ABC):
    """A connection to the rows. It belongs to one thread; another thread opens another one.

    Any call may raise StoreUnavailableError. It can be repeated then.
    """

    config_class: ClassVar[type]
    noun: ClassVar[str]
    """What holds the rows, as a hint says it: `state file`, `keyspace`."""

    @classmethod
    @abstractmethod
    def open(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        *,
        create: bool = True,
    ) -> Self:
        """Connect, and make what is missing, unless *create* is False.

        Raises:
            MissingRequirementError: it cannot be used from here.

        """

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the rows are, as errors name it."""

    @abstractmethod
    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """Return those rows that there are. No older value of a decided row is ever returned."""

    def row(self, key: Key) -> Entry | None:
        """Return a row, if it exists. See `read`."""
        return self.read([key]).get(key)

    @abstractmethod
    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """Return all rows of *partitions*, which must be small, by name.

        Rows of a change that is under way may be old.
        """

    @abstractmethod
    def names(self, partition: Partition) -> Sequence[str]:
        """Return the names of the rows of a partition, in order, without reading the values."""

    @abstractmethod
    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """Write rows of plain partitions, in no order; None removes a row."""

    @abstractmethod
    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """Apply changes, each whole or not at all; say which. No two of them expect the same row.

        None: it is not known whether it was applied. *before* are rows of plain partitions that are
        written first, also if the changes do not apply.
        """

    def grouped(self) -> AbstractContextManager[None]:
        """Make one write of what the block writes, if the backend can: all of it or nothing.

        No other connection writes during that time.
        """
        return nullcontext()

    def check(self) -> None:  # noqa: B027 (nothing to check by default)
        """Raise StateLostError if what was opened was removed or replaced since."""

    def flush(self) -> None:  # noqa: B027 (what was written is safe by default)
        """Put what was written where the loss of the last writes leaves it."""

    @abstractmethod
    def close(self) -> None:
        """Give back the connection. Safe to call twice."""

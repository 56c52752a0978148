"""The storage of a store's rows: a small key-value interface with conditional writes.

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

_STAMP_BITS = 62  # A positive number that fits a signed 64-bit integer.


class Partition(NamedTuple):
    """Rows that one change can replace. No two partitions have the same text."""

    text: str
    is_plain: bool = False


class Key(NamedTuple):
    """The identity of a row."""

    partition: Partition
    name: str


class Entry(NamedTuple):
    """A row: its stamp, which every change replaces (0 in a plain partition), and its value."""

    stamp: int
    value: bytes


def new_stamp() -> int:
    """Return a stamp that no row had before."""
    return 1 + secrets.randbits(_STAMP_BITS)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A conditional write to rows of one decided partition, all or nothing.

    It applies if each row in `expected` has that stamp; None: if the row does not exist. `rows` are
    the new values, None removes one; these rows get `stamp`.

    `first` are rows of plain partitions. They are durable before the change is; they may stay when
    it is rejected. `then` are rows of plain partitions that are removed after it was applied; after
    a crash they may stay. `is_commit`: it replaces a position; there, tests kill the process.
    """

    partition: Partition
    expected: Mapping[str, int | None]
    rows: Mapping[str, bytes | None]
    first: Mapping[Key, bytes] = msgspec.field(default_factory=dict)
    then: Collection[Key] = ()
    is_commit: bool = False
    stamp: int = msgspec.field(default_factory=new_stamp)


class KeyValues(ABC):
    """A connection to the rows. It belongs to one thread; another thread opens its own.

    Any call may raise StoreUnavailableError. It can then be repeated.
    """

    config_class: ClassVar[type]
    noun: ClassVar[str]
    """The place of the rows, as hints name it: `state file`, `keyspace`."""

    @classmethod
    @abstractmethod
    def open(
        cls,
        config: Any,  # noqa: ANN401 (a config_class)
        *,
        create: bool = True,
    ) -> Self:
        """Connect, and create what is missing, unless *create* is False.

        Raises:
            MissingRequirementError: the backend cannot be used from here.

        """

    @property
    @abstractmethod
    def place(self) -> str:
        """The place of the rows, for errors."""

    @abstractmethod
    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """Return the existing rows of *keys*. Never returns an old value of a decided row."""

    def row(self, key: Key) -> Entry | None:
        """Return a row, or None if it does not exist. See `read`."""
        return self.read([key]).get(key)

    @abstractmethod
    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """Return all rows of *partitions*, which must be small, by name.

        Rows of a change in progress may be old.
        """

    @abstractmethod
    def names(self, partition: Partition) -> Sequence[str]:
        """Return the names of the rows of a partition, in order, without reading the values."""

    @abstractmethod
    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """Write rows of plain partitions, in any order; None removes a row."""

    @abstractmethod
    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """Apply changes, each all or nothing. Return which. No two of them expect the same row.

        None: it is unknown whether it was applied. *before* are rows of plain partitions that are
        written first, even if the changes do not apply.
        """

    def grouped(self) -> AbstractContextManager[None]:
        """Combine the writes of the block into one, all or nothing, if the backend can.

        No other connection writes during that time.
        """
        return nullcontext()

    def check(self) -> None:  # noqa: B027 (nothing to check by default)
        """Raise StateLostError if the opened rows were removed or replaced since."""

    def flush(self) -> None:  # noqa: B027 (what was written is safe by default)
        """Make all writes durable, even against the loss of the last writes."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Safe to call twice."""

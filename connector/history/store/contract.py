"""The store interface for a history's sink and readers.

All writers of a history commit one after the other, in each kind of store. Each assigns arrivals
while it writes, so a change that commits later never precedes what a reader has seen.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from headrace.connector.history import arrival
from headrace.connector.rows.folding import NEVER
from headrace.plugins import Origin, RecordSchema
from headrace.plugins.records.record import OPERATIONS

GONE: Final = len(OPERATIONS)  # The number of an event for a row whose last value expired,
LESS: Final = GONE + 1  # and for lost values; always used for static columns.
PARTITION: Final = b""  # The row name of a partition's own state.

Name = tuple[bytes, bytes]
"""The key of a partition, and the name of a row in it."""


class Epoch(NamedTuple):
    """What is stored for changes from the arrival `since` on.

    The states of rows have everything written after `states_since_us`; None means no states.
    """

    since: int
    scopes: frozenset[str]
    states_since_us: int | None


class Seed(NamedTuple):
    """A snapshot that `run` reads. The logs have everything written after `begun_us`.

    All rows are known from the arrival `done` on; it is None until all are read.
    """

    run: str
    begun_us: int
    done: int | None
    rows: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """A stored change: `row` is the name of its row, `before` the result of `images.packed`.

    `schema` is a number, and so is `operation`, from `images.KEPT`.
    """

    arrival: int
    bucket: int
    schema: int
    operation: int
    written_us: int
    key: bytes
    row: bytes
    change: bytes
    before: bytes | None


@dataclass(slots=True)
class Columns:
    """Changes with consecutive arrivals: for each field of a `Change`, all values.

    A missing key is b"". `rows` or `befores` are empty if all changes omit them.
    """

    schemas: list[int] = field(default_factory=list)
    operations: list[int] = field(default_factory=list)
    written_us: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    changes: list[bytes] = field(default_factory=list)
    befores: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.changes)

    def cut(self, begin: int, end: int) -> "Columns":
        """Return the changes from *begin* on and before *end*."""
        return Columns(*(getattr(self, each)[begin:end] for each in self.__slots__))


class Range(NamedTuple):
    """Which changes are wanted: arrivals from `begin` to before `end`, and other conditions.

    An empty set, or None, means all.
    """

    begin: int
    end: int
    buckets: frozenset[int] = frozenset()
    operations: frozenset[int] = frozenset()
    written_from_us: int | None = None
    written_to_us: int | None = None
    key: bytes | None = None


class HistoryStore(ABC):
    """An open history of one table; for one thread at a time.

    It has one part, or several, each of which is written separately. Outside `reading` and
    `writing`, each call sees the last commit.
    """

    place: str
    """The place of the history, as errors name it."""
    table: str
    buckets: int

    @property
    @abstractmethod
    def parts(self) -> "Sequence[HistoryPart]":
        """Its parts: a bucket is in the part with the bucket's number modulo their count."""

    @abstractmethod
    def close(self) -> None:
        """Close the history. Safe to call twice."""

    @abstractmethod
    def purge(self) -> None:
        """Remove the whole history, and close it."""

    @abstractmethod
    def writing(self, split: str = "", *, begins: bool = False) -> AbstractContextManager[None]:
        """Run the block, and then write everything at once, or nothing.

        For a history with several parts, this writes the common data. Other processes do not write
        in the meantime. A writer of a *split* that *begins* does not wait for an earlier one of
        this split; without a split, it does not wait for any.

        Raises:
            HistoryBusyError: nothing was written: another writes, or writing is impossible now.

        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Run the block with one snapshot. Raises as `writing`."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that changes when another connection commits, or soon afterwards."""

    @abstractmethod
    def last(self) -> int:
        """Return the last arrival that was assigned, or promised never to be assigned."""

    @abstractmethod
    def settle(self, until_ms: int) -> None:
        """Promise that no more changes arrive before *until_ms*; durable at return.

        If writing is impossible, no promise is made.

        Raises:
            HistoryBusyError: a commit is running.

        """

    @abstractmethod
    def catch_up(self) -> None:
        """Update `last` to the latest commit, if idle parts hold it back.

        Raises:
            HistoryBusyError: a commit is running.

        """

    @abstractmethod
    def floor(self) -> int:
        """Return the first arrival from which all changes are stored."""

    @abstractmethod
    def removed(self) -> int:
        """Return the last arrival of a written change that was removed, or 0."""

    @abstractmethod
    def extent(self) -> tuple[int, int, int]:
        """Return the first and last stored arrival, and the number of changes."""

    @abstractmethod
    def size_behind(self, behind: int) -> int:
        """Return the bytes of the changes after an arrival, without their states."""

    @abstractmethod
    def origin(self) -> Origin:
        """Return the origin that the source gave for the changes."""

    @abstractmethod
    def keep_origin(self, origin: Origin) -> None:
        """Store the origin that the source gives for the changes. Raises as `writing`."""

    @abstractmethod
    def epochs(self) -> list[Epoch]:
        """Return the epochs in order: each ends where the next one begins."""

    @abstractmethod
    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """Begin an epoch with these scopes, unless the last one has the same.

        With *states*, the states of rows are stored, from now on or from where the last epoch
        started them; *is_empty* says that the table has no rows before the first epoch. Without
        *states*, existing states become incomplete and are removed. Raises as `writing`.
        """

    @abstractmethod
    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return the seed of the states stored since that time, or None without a run."""

    @abstractmethod
    def writer(self, split: str) -> int:
        """Return the epoch of a split's last writer, or 0."""

    @abstractmethod
    def set_writer(self, split: str, epoch: int) -> None:
        """Refuse later commits of the split's earlier writers. Within `writing`."""

    @abstractmethod
    def entries(self, split: str) -> dict[str, bytes]:
        """Return the stored entries of a split."""

    @abstractmethod
    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Replace some of a split's entries; None removes one. Within `writing`."""

    @abstractmethod
    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """Yield changes in order of arrival, up to *count_max* unless that is negative.

        Within `reading`.
        """

    @abstractmethod
    def count(self, wanted: Range) -> int:
        """Return the number of changes. Within `reading`."""

    @abstractmethod
    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return the arrivals at which parts of *size* changes begin, except the first.

        Within `reading`.
        """

    @abstractmethod
    def has_partitions(self) -> bool:
        """Return whether a partition may have its own state."""

    @abstractmethod
    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield the key, row and state of each row of *names* that has a state.

        Raises:
            BadStateError: a state is damaged.

        """

    @abstractmethod
    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas of all changes by number; numbers ascend from 1."""

    @abstractmethod
    def schema_number(self, schema: RecordSchema) -> int:
        """Return the number of a schema, which is stored if it is new. Within `writing`."""


class HistoryPart(HistoryStore):
    """A history that is written as a whole, or a part of one."""

    @property
    def parts(self) -> "Sequence[HistoryPart]":
        """The history itself."""
        return (self,)

    def catch_up(self) -> None:
        """Do nothing: each commit sets `last`."""

    @abstractmethod
    def settling(self) -> AbstractContextManager[None]:
        """Do the same as `writing` for a reader, which waits less for a running commit."""

    @abstractmethod
    def can_write(self) -> bool:
        """Return whether this process may write, as far as known."""

    def next_arrival(self, now_ms: int) -> int:
        """Return the arrival of the next change that `append` receives, at *now_ms*."""
        return arrival.next_after(self.last(), now_ms)

    @abstractmethod
    def retain(self, retention_ms: int, now_ms: int, appended: int) -> None:
        """Remove changes that arrived longer than *retention_ms* ago, sooner or later.

        The floor passes all of them, so that an answer is never incomplete. It is called at the end
        of each `writing`, which *appended* this number of changes.
        """

    @abstractmethod
    def keep_epoch(self, epoch: Epoch, *, keeps_states: bool) -> None:
        """Add an epoch, or replace the one with the same begin. Within `writing`.

        Unless it *keeps_states*, existing states are removed.
        """

    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """Store scopes, as described for `HistoryStore.keep_scopes`."""
        known = self.epochs()
        if known and known[-1].scopes == scopes:
            return  # Not written: an attempt that died may still be in the head.
        with self.writing(begins=True):  # A running commit would store what is no longer wanted.
            epochs = self.epochs()
            last = epochs[-1] if epochs else None
            if last is not None and last.scopes == scopes:
                return
            since = self.next_arrival(now_ms) if epochs else 0
            begun_us = NEVER if is_empty and last is None else now_ms * 1_000
            if last is not None and last.states_since_us is not None:
                begun_us = last.states_since_us
            keeps = last is not None and states and last.states_since_us is not None
            self.keep_epoch(Epoch(since, scopes, begun_us if states else None), keeps_states=keeps)

    @abstractmethod
    def keep_seed(self, states_since_us: int | None, seed: Seed) -> None:
        """Store the progress of a seed. Within `writing`."""

    @abstractmethod
    def append(self, columns: Columns, now_ms: int) -> None:
        """Append changes that arrive at *now_ms*, consecutively, within `writing`."""

    @abstractmethod
    def states_of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """Return the names and states of all rows of a partition. Raises as `states`."""

    @abstractmethod
    def keep_states(self, states: dict[Name, bytes], expiries: dict[Name, int]) -> None:
        """Replace the states of rows, in a `writing` in which `states` was called for them.

        Some may be singles (`rows.byte_folding`), unless they expire; reading folds them.
        *expiries* are the seconds at which `due` returns them; those without an entry never expire.
        """

    @abstractmethod
    def due(self, until_s: int, count_max: int) -> list[tuple[bytes, bytes, bytes, int]]:
        """Return states that expire by then, in order: key, row, state and second."""

    @abstractmethod
    def set_expiries(self, expiries: Mapping[Name, int]) -> None:
        """Set when states are due again, 0 for never. In the `writing` of `due`."""

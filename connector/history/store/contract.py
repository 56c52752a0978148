"""What the sink and the readers of a history need of a store of its changes.

All writers of a history commit one after the other, in each kind of store. Each gives its changes
their arrivals while it writes, so what a reader has seen is never preceded by what comes later.
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

GONE: Final = len(OPERATIONS)  # The number of the event of a row whose last value expired,
LESS: Final = GONE + 1  # and of one that lost values; of static columns always this.
PARTITION: Final = b""  # The row that a partition's own state has.

Name = tuple[bytes, bytes]
"""The key of a partition, and the name of a row in it."""


class Epoch(NamedTuple):
    """What is kept of changes from the arrival `since` on.

    The states of rows have all that was written since `states_since_us`; None, if none are kept.
    """

    since: int
    scopes: frozenset[str]
    states_since_us: int | None


class Seed(NamedTuple):
    """A snapshot that `run` reads. The logs have all that was written since `begun_us`.

    All rows are known from the arrival `done` on; None as long as some were not read.
    """

    run: str
    begun_us: int
    done: int | None
    rows: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """A change as it is kept: `row` is the name of its row, `before` what `images.packed` packs.

    `schema` is a number, and so is `operation`, of `images.KEPT`.
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
    """Changes that arrive one behind the other: of each field of a `Change` all values.

    A key without bytes is b"". `rows` or `befores` are empty if all changes are without them.
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
    """Which changes are wanted: by arrival from `begin` on and before `end`, and by what they have.

    Empty sets, and None, want all.
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

    It has one part, or several, each of which is written by itself. Outside of `reading` and
    `writing` each call sees what was committed last.
    """

    place: str
    """Where it is, as errors name it."""
    table: str
    buckets: int

    @property
    @abstractmethod
    def parts(self) -> "Sequence[HistoryPart]":
        """Its parts: a bucket is in the one whose number is the bucket's modulo their count."""

    @abstractmethod
    def close(self) -> None:
        """Close it. Safe to call twice."""

    @abstractmethod
    def purge(self) -> None:
        """Remove all that it has, and close it."""

    @abstractmethod
    def writing(self, split: str = "", *, begins: bool = False) -> AbstractContextManager[None]:
        """Run the block, and write all of it at once behind the block, or nothing.

        Of a history with several parts, what it has besides them. No other process writes
        meanwhile. A writer of a *split* that *begins* does not wait for a former one of this split,
        and without a split for no other.

        Raises:
            HistoryBusyError: nothing was written: another writes, or it cannot be written now.

        """

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Run the block on one snapshot. Raises as `writing`."""

    @abstractmethod
    def version(self) -> int:
        """Return a number that changes when another connection commits, or soon after."""

    @abstractmethod
    def last(self) -> int:
        """Return the last arrival that was given, or promised not to be given any more."""

    @abstractmethod
    def settle(self, until_ms: int) -> None:
        """Promise that no change arrives before *until_ms* any more; durable when it returns.

        Where nothing can be written, nothing is promised.

        Raises:
            HistoryBusyError: a commit is under way.

        """

    @abstractmethod
    def catch_up(self) -> None:
        """Let `last` be that of the latest commit, where it is behind because parts rest.

        Raises:
            HistoryBusyError: a commit is under way.

        """

    @abstractmethod
    def floor(self) -> int:
        """Return the first arrival of which all changes are kept."""

    @abstractmethod
    def removed(self) -> int:
        """Return the last arrival of a change that was written, and removed; 0, if none was."""

    @abstractmethod
    def extent(self) -> tuple[int, int, int]:
        """Return the first and the last arrival that is kept, and the number of changes."""

    @abstractmethod
    def size_behind(self, behind: int) -> int:
        """Return how many bytes the changes behind an arrival have, without their states."""

    @abstractmethod
    def origin(self) -> Origin:
        """Return what the source of the changes says of where it read them."""

    @abstractmethod
    def keep_origin(self, origin: Origin) -> None:
        """Keep what the source of the changes says of where it reads them. Raises as `writing`."""

    @abstractmethod
    def epochs(self) -> list[Epoch]:
        """Return the epochs, the first first: each ends where the next one begins."""

    @abstractmethod
    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """Begin an epoch with these scopes, unless they are those of the last one.

        With *states* those of rows are kept, from now on or from where the last epoch started them;
        *is_empty* says that the table has no rows before the first epoch. Without *states* those
        that there are miss what comes now, and are removed. Raises as `writing`.
        """

    @abstractmethod
    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return the seed of the states that are kept since then; None where no run was named."""

    @abstractmethod
    def writer(self, split: str) -> int:
        """Return the epoch of a split's last writer; 0, if there was none."""

    @abstractmethod
    def set_writer(self, split: str, epoch: int) -> None:
        """Refuse what earlier writers of the split commit from now on. Within `writing`."""

    @abstractmethod
    def entries(self, split: str) -> dict[str, bytes]:
        """Return what is kept of a split besides its changes."""

    @abstractmethod
    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Replace some of a split's entries; None removes one. Within `writing`."""

    @abstractmethod
    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """Yield changes in the order of their arrival, up to *count_max* if that is not negative.

        Within `reading`.
        """

    @abstractmethod
    def count(self, wanted: Range) -> int:
        """Return how many changes there are. Within `reading`."""

    @abstractmethod
    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return the arrivals at which parts of *size* changes begin, without the first one.

        Within `reading`.
        """

    @abstractmethod
    def has_partitions(self) -> bool:
        """Say whether a partition may have a state of its own."""

    @abstractmethod
    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield the key, row and state of each row of *names* that has a state.

        Raises:
            BadStateError: a state is damaged.

        """

    @abstractmethod
    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas of all changes, by their numbers, which ascend from 1."""

    @abstractmethod
    def schema_number(self, schema: RecordSchema) -> int:
        """Return the number of a schema, which is kept from now on. Within `writing`."""


class HistoryPart(HistoryStore):
    """A history that is written as a whole, or the part of one that is."""

    @property
    def parts(self) -> "Sequence[HistoryPart]":
        """Itself."""
        return (self,)

    def catch_up(self) -> None:
        """Do nothing: each commit sets `last`."""

    @abstractmethod
    def settling(self) -> AbstractContextManager[None]:
        """Be as `writing`, for a reader, which waits less for a commit that is under way."""

    @abstractmethod
    def can_write(self) -> bool:
        """Say whether this process may write, as far as it is known."""

    def next_arrival(self, now_ms: int) -> int:
        """Return the arrival of the change that `append` is given next, at *now_ms*."""
        return arrival.next_after(self.last(), now_ms)

    @abstractmethod
    def retain(self, retention_ms: int, now_ms: int, appended: int) -> None:
        """Let changes go that arrived longer ago than *retention_ms*, sooner or later.

        The floor passes all of them, so that no query answers with a part. At the end of each
        `writing` that *appended* so many changes, or none.
        """

    @abstractmethod
    def keep_epoch(self, epoch: Epoch, *, keeps_states: bool) -> None:
        """Add an epoch, or replace that of the same begin. Within `writing`.

        Unless it *keeps_states*, those that there are go.
        """

    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """See `HistoryStore.keep_scopes`."""
        known = self.epochs()
        if known and known[-1].scopes == scopes:
            return  # Without a write: one that died may still be named as under way.
        with self.writing(begins=True):  # What is under way keeps what is not wanted any more.
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
        """Keep what a seed has reached. Within `writing`."""

    @abstractmethod
    def append(self, columns: Columns, now_ms: int) -> None:
        """Append changes that arrive at *now_ms*, one behind the other, within `writing`."""

    @abstractmethod
    def states_of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """Return the names and the states of all rows of a partition. Raises as `states`."""

    @abstractmethod
    def keep_states(self, states: dict[Name, bytes], expiries: dict[Name, int]) -> None:
        """Replace the states of rows, within `writing` in which `states` has looked for them.

        Some may be singles (`rows.byte_folding`), unless they expire; what is read is folded.
        *expiries* are seconds at which `due` returns them; those that it does not name are never.
        """

    @abstractmethod
    def due(self, until_s: int, count_max: int) -> list[tuple[bytes, bytes, bytes, int]]:
        """Return states that expire by then, the first first: key, row, state and second."""

    @abstractmethod
    def set_expiries(self, expiries: Mapping[Name, int]) -> None:
        """Set when states are due again; 0: never. Within `writing`, of what `due` returned."""

"""The deciding rows of a history in tables: documents of one partition of a store.

Each commit replaces the row `head` twice. The other rows, one for each split and for each window of
time with changes, are replaced together with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.store.contract import Seed
from headrace.connector.stores.keyed.rows import pack, unpack
from headrace.plugins import Origin
from headrace.plugins.stores.key_values import Entry, Key, KeyValues

HEAD: Final = "head"
_WINDOW: Final = "window/"
_WRITER: Final = "writer/"
_WINDOWS_PER_RETENTION: Final = 128
_WINDOW_MS_MIN: Final = 1_000
_WINDOW_MS_MAX: Final = 3_600_000
SKEW_MS: Final = 3_600_000  # The maximum difference of clocks: rows of changes live longer by it.


class Pending(msgspec.Struct, frozen=True):
    """The running commit of a split, or of none, and its start by its clock.

    `patience_ms` is how long others must wait for it.
    """

    attempt: int
    split: str
    begun_ms: int
    patience_ms: int = 0


class EpochRow(msgspec.Struct, frozen=True):
    """A stored `Epoch`."""

    since: int
    scopes: list[str]
    states_since_us: int | None


class SeedRow(msgspec.Struct, frozen=True):
    """A stored `Seed`, and the states to which it belongs."""

    states_since_us: int | None
    seed: Seed


class SchemaRow(msgspec.Struct, frozen=True):
    """A stored `RecordSchema`; `key` and `value` are JSON. It is a separate plain row."""

    table: str
    text: str
    schema_id: bytes
    key: str
    value: str


class Head(msgspec.Struct, kw_only=True):
    """The data that are common to the whole history.

    `name` and `states` are the first part of the keys of changes and of states; they are unique
    among histories, and removed states have another name than later ones. `attempts` counts
    commits, including those without effect. The states of the commit `unapplied` may still be only
    in plain rows. Rows written by an attempt in `abandoned` do not count; its entry also has the
    time, in ms, before which its changes arrived. `expiry_day` is the first day that may have due
    rows. `removing` is the remaining range of the keys of all histories in which states of this one
    with another name than `states` are being removed; None if there are none.
    """

    table: str
    buckets: int
    name: str
    states: str
    window_ms: int
    retention_ms: int
    attempts: int = 0
    last: int = 0
    floor: int = 0
    removed: int = 0
    has_partitions: bool = False
    expiry_day: int = 0
    origin: Origin = Origin()
    epochs: list[EpochRow] = []
    seeds: list[SeedRow] = []
    schemas: list[str] = []
    pending: Pending | None = None
    unapplied: int = 0
    abandoned: list[tuple[int, int]] = []
    removing: tuple[int, int] | None = None

    def end_pending(self, now_ms: int) -> None:
        """Abandon the running commit: its rows, present or future, do not count."""
        if self.pending is not None:
            until_ms = max(arrival.ms_of(self.last), now_ms, self.pending.begun_ms) + SKEW_MS
            self.abandoned.append((self.pending.attempt, until_ms))
            self.pending = None

    def window_of(self, at: int) -> int:
        """Return the begin of an arrival's window, in ms."""
        at_ms = arrival.ms_of(at)
        return at_ms - at_ms % self.window_ms


class Window(msgspec.Struct):
    """The changes that arrived in a window of time and expire together.

    `written` is the arrival of the last one that is not an expiry.
    """

    first: int
    last: int
    count: int
    size_bytes: int
    written: int
    ends_ms: int


class Writer(msgspec.Struct):
    """The last writer of a split, and the names of the plain rows with its entries."""

    epoch: int = 0
    entries: dict[str, str] = {}


def window_ms_for(retention_ms: int) -> int:
    """Return the length of a history's windows, in ms."""
    return max(_WINDOW_MS_MIN, min(_WINDOW_MS_MAX, retention_ms // _WINDOWS_PER_RETENTION))


@dataclass(slots=True)
class Snapshot:
    """All rows of the partition at one time. A commit changes its own snapshot."""

    stamp: int
    head: Head
    windows: dict[int, Window]
    writers: dict[str, Writer]

    @classmethod
    def of(cls, found: Mapping[Key, Entry], values: KeyValues) -> "Snapshot | None":
        """Read the rows; return None without a head. Raises StateLostError."""
        head, stamp = None, 0
        windows: dict[int, Window] = {}
        writers: dict[str, Writer] = {}
        for key, entry in found.items():
            if key.name == HEAD:
                head, stamp = unpack(Head, key, entry, values), entry.stamp
            elif key.name.startswith(_WINDOW):
                begin_ms = int(key.name.removeprefix(_WINDOW))
                windows[begin_ms] = unpack(Window, key, entry, values)
            else:
                split = key.name.removeprefix(_WRITER)
                writers[split] = unpack(Writer, key, entry, values)
        return None if head is None else cls(stamp, head, windows, writers)

    def rows(self) -> dict[str, bytes | None]:
        """Return all rows by name, in the form in which they are written."""
        return {
            HEAD: pack(self.head),
            **{f"{_WINDOW}{begin_ms}": pack(each) for begin_ms, each in self.windows.items()},
            **{f"{_WRITER}{split}": pack(each) for split, each in self.writers.items()},
        }

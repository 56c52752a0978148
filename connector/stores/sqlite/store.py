"""The default store: one SQLite file, shared by the worker processes of one machine."""

import contextlib
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from headrace.connector.foundation import crash
from headrace.connector.stores import (
    ALL_JOBS,
    QUARANTINE_BYTES_MAX,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.sqlite.file import StateConnection, connect, named_errors
from headrace.connector.stores.sqlite.place import identity_of
from headrace.connector.stores.sqlite.shape import RESTORE
from headrace.plugins import option
from headrace.plugins.stores.key_values import Change, Entry, Key, KeyValues, Partition

_STAMP: Final = "SELECT stamp FROM rows WHERE partition = ? AND name = ?"
_ROW: Final = "SELECT stamp, value FROM rows WHERE partition = ? AND name = ?"
_ROWS: Final = "SELECT name, stamp, value FROM rows WHERE partition = ? ORDER BY name"
_NAMES: Final = "SELECT name FROM rows WHERE partition = ? ORDER BY name"
_PUT: Final = (
    "INSERT INTO rows VALUES (?, ?, ?, ?) ON CONFLICT (partition, name) "
    "DO UPDATE SET stamp = excluded.stamp, value = excluded.value"
)
_UPDATE: Final = (
    "UPDATE rows SET stamp = ?, value = ? WHERE partition = ? AND name = ? AND stamp = ?"
)
_STAMPS: Final = "SELECT name, stamp FROM rows WHERE partition = ?"
_REPLACE: Final = "UPDATE rows SET stamp = ?, value = ? WHERE partition = ? AND name = ?"
_TOGETHER_MIN: Final = 4  # Changes in one partition are batched from this count on.
_REMOVE: Final = "DELETE FROM rows WHERE partition = ? AND name = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteConfig:
    """The options of the store `sqlite`."""

    path: str = option("The SQLite file.")


class SqliteValues(KeyValues):
    """The rows of a state file. The changes of one call are one transaction."""

    config_class = SqliteConfig
    noun = "state file"

    def __init__(self, connection: StateConnection) -> None:
        """Own *connection*, which `connect` made on this thread."""
        self._connection = connection

    @classmethod
    def open(cls, config: SqliteConfig, *, create: bool = True) -> Self:
        """See `KeyValues.open`. Raises StateFileError."""
        return cls(connect(config.path, create=create))

    @property
    def place(self) -> str:
        """See `KeyValues.place`."""
        return self._connection.path

    def read(self, keys: Collection[Key]) -> Mapping[Key, Entry]:
        """See `KeyValues.read`."""
        return {
            key: self._entry(key, *row)
            for key in keys
            for row in self._select(_ROW, key.partition.text, key.name)
        }

    def scan(self, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
        """See `KeyValues.scan`."""
        found: dict[Key, Entry] = {}
        for partition in partitions:
            for name, stamp, value in self._select(_ROWS, partition.text):
                key = Key(partition, self._name(partition, name))
                found[key] = self._entry(key, stamp, value)
        return found

    def names(self, partition: Partition) -> Sequence[str]:
        """See `KeyValues.names`."""
        return [self._name(partition, name) for (name,) in self._select(_NAMES, partition.text)]

    def _select(self, query: str, *values: str) -> Sequence[tuple[object, ...]]:
        """Return the rows of a query. Raises as `named_errors`."""
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error:
            with named_errors(self.place):
                raise

    def _entry(self, key: Key, stamp: object, value: object) -> Entry:
        """Return a row. Values are checked here, not when the file is opened."""
        if isinstance(stamp, int) and isinstance(value, bytes):
            return Entry(stamp, value)
        raise self._unreadable(f"{key.partition.text}, {key.name}: found a value")

    def _name(self, partition: Partition, name: object) -> str:
        if isinstance(name, str):
            return name
        raise self._unreadable(f"{partition.text}: found a name")

    def _unreadable(self, found: str) -> StateLostError:
        what = f"table rows, {found} of another kind, or none"
        return StateLostError(what, place=self.place, hint=RESTORE)

    def put(self, rows: Mapping[Key, bytes | None]) -> None:
        """See `KeyValues.put`."""
        with self.grouped():
            self._put(rows.items())

    def change(
        self, changes: Sequence[Change], before: Mapping[Key, bytes] | None = None
    ) -> Sequence[bool | None]:
        """See `KeyValues.change`."""
        applied: list[bool] = []
        try:
            with self.grouped():
                self._put((before or {}).items())
                applied += self._apply_all(changes)
                if any(change.is_commit for change in changes):
                    crash.reached("commit_heads")
        except StoreUnavailableError:
            if len(applied) < len(changes) or not self._was_applied(changes, applied):
                raise
        return applied

    def _apply_all(self, changes: Sequence[Change]) -> list[bool]:
        """Apply changes in the open transaction; batched, because leases come by the hundred.

        Reads all stamps at once of a partition in which many rows are replaced.
        """
        applied: dict[int, bool] = {}
        together: dict[str, list[int]] = {}
        for at, change in enumerate(changes):
            if _is_single(change):
                together.setdefault(change.partition.text, []).append(at)
        for partition, places in together.items():
            names = {name for at in places for name in changes[at].rows}
            if len(names) < len(places) or len(places) < _TOGETHER_MIN:
                continue
            stamps = dict(self._connection.execute(_STAMPS, (partition,)).fetchall())
            rows = []
            for at in places:
                ((name, value),) = changes[at].rows.items()
                applied[at] = stamps.get(name) == changes[at].expected[name]
                if applied[at]:
                    rows.append((changes[at].stamp, value, partition, name))
            self._connection.executemany(_REPLACE, rows)
        return [applied[at] if at in applied else self._apply(c) for at, c in enumerate(changes)]

    def _apply(self, change: Change) -> bool:
        """Apply one change in the open transaction, if its condition holds."""
        if not self._replace(change):
            return False
        self._put(change.first.items())
        if change.is_commit:
            crash.reached("commit_chunks")
        for key in change.then:
            self._connection.execute(_REMOVE, (key.partition.text, key.name))
        return True

    def _replace(self, change: Change) -> bool:
        """Replace the rows of a change, if its condition holds; a single row by one statement."""
        execute, partition = self._connection.execute, change.partition.text
        (name, value), *more = change.rows.items()
        if not more and change.expected.keys() == {name}:
            stamp = change.expected[name]
            if value is not None and stamp is not None:
                values = (change.stamp, value, partition, name, stamp)
                return bool(execute(_UPDATE, values).rowcount)
        for each, stamp in change.expected.items():
            row = execute(_STAMP, (partition, each)).fetchone()
            if stamp != (row and row[0]):
                return False
        for each, new in change.rows.items():
            if new is None:
                execute(_REMOVE, (partition, each))
            else:
                execute(_PUT, (partition, each, change.stamp, new))
        return True

    def _put(self, rows: Iterable[tuple[Key, bytes | None]]) -> None:
        execute = self._connection.execute
        for key, value in rows:
            if value is None:
                execute(_REMOVE, (key.partition.text, key.name))
            else:
                execute(_PUT, (key.partition.text, key.name, 0, value))

    def _was_applied(self, changes: Sequence[Change], applied: Sequence[bool]) -> bool:
        """Return whether a transaction that failed took effect nevertheless.

        It had all changes, so one row with a new stamp shows that all were applied.
        """
        if self._connection.in_transaction:  # Its rows are not durable.
            return False
        written = [
            (Key(change.partition, name), change.stamp)
            for change, done in zip(changes, applied, strict=True)
            for name, value in change.rows.items()
            if done and value is not None
        ]
        found = self.read([key for key, _ in written])
        return any(key in found and found[key].stamp == stamp for key, stamp in written)

    @contextlib.contextmanager
    def grouped(self) -> Iterator[None]:
        """See `KeyValues.grouped`. A nested block is a part of the outer one.

        Raises:
            StoreUnavailableError: the file is locked for long, or its disk is full.
            StateLostError: it is damaged.

        """
        execute, is_part = self._connection.execute, self._connection.in_transaction
        try:
            if not is_part:
                execute("BEGIN IMMEDIATE")
            yield
            if not is_part:
                execute("COMMIT")
        except BaseException:
            if not is_part and self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # The first error is the one to report.
                    execute("ROLLBACK")
            with named_errors(self.place):
                raise

    def check(self) -> None:
        """See `KeyValues.check`: the file that is open still has its name."""
        try:
            there = identity_of(Path(self.place))
        except FileNotFoundError:
            found = "nothing is there any more"
        except OSError:  # Unknown without access.
            return
        else:
            if there == self._connection.file:
                return
            found = "another file is there now"
        raise StateLostError(
            f"the state file was removed, moved or replaced while it was in use: {found}",
            place=self.place,
            hint="put the file back, with its -wal; what was delivered since is not in it, and is "
            "delivered again",
        )

    def flush(self) -> None:
        """See `KeyValues.flush`: all is in the file itself, not only in its write-ahead log.

        As far as readers permit: it does not wait for other processes.
        """
        with named_errors(self.place):
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """See `KeyValues.close`."""
        self._connection.close()


class SqliteStore(Store):
    """The state of one job in a SQLite file; see `Store`."""

    config_class = SqliteConfig
    values_class = SqliteValues

    @classmethod
    def open(
        cls,
        path: str | Path,
        job: str,
        *,
        create: bool = True,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> Self:
        """Connect to the file at *path*. Raises StateFileError."""
        config = SqliteConfig(path=str(path))
        return cls.open_job(config, job, create=create, quarantine_bytes_max=quarantine_bytes_max)

    @classmethod
    def scratch(cls, path: Path, job: str) -> Self:
        """Connect to a file that need not outlive this process: no commit waits for the disk."""
        connection = connect(path)
        connection.execute("PRAGMA synchronous = OFF")
        return cls(SqliteValues(connection), job)

    @classmethod
    def open_notes(
        cls,
        config: SqliteConfig,
        *,
        beside: Path,
        file: Path | None = None,
        create: bool = True,
        space: str = ALL_JOBS,
    ) -> NoteCopy:
        """See `Store.open_notes`. Those of another *space* have a file beside the state file.

        So a process that often changes them does not block writers of the state file.
        """
        path = Path(config.path)
        if space != ALL_JOBS:
            path = path.with_name(f"{path.name}.{space}")
        values = SqliteValues(connect(path, create=create, check_same_thread=False))
        return NoteCopy(values, space, partial(cls, values), beside=beside, file=file)


def _is_single(change: Change) -> bool:
    """Return whether a change replaces one existing row, and nothing else."""
    if change.is_commit or change.first or change.then or len(change.rows) != 1:
        return False
    ((name, value),) = change.rows.items()
    return value is not None and change.expected.get(name) is not None and len(change.expected) == 1

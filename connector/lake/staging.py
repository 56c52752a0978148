"""The file of a lake's positions: the commits of each split, and staged rows.

One transaction of the file decides a commit: it has the positions after the changes, and their
staged rows. These are then added to the tables under the number of the commit, with retries: a
table that has the number has the rows.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headrace.connector.lake.errors import LakeBusyError, LakeFileError

BUSY_SECONDS: Final = 30.0  # How long a writer waits until others have folded their changes.
ADDING_SECONDS: Final = 30.0  # The same, until they have added their rows.
_SHAPE: Final = """
CREATE TABLE IF NOT EXISTS writers (
    split TEXT PRIMARY KEY, epoch INTEGER NOT NULL, number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (
    split TEXT NOT NULL, name TEXT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (split, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS staged (
    split TEXT NOT NULL, number INTEGER NOT NULL, table_name TEXT NOT NULL, rows BLOB NOT NULL,
    keys TEXT NOT NULL, PRIMARY KEY (split, table_name)
) STRICT;
CREATE TABLE IF NOT EXISTS states (
    name BLOB PRIMARY KEY, partition BLOB NOT NULL, state BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS states_of_partition ON states (partition);
"""


class Staged(NamedTuple):
    """Staged rows, in Arrow's stream format. `keys` names the key of rows to replace.

    Without `keys` rows are added.
    """

    number: int
    table: str
    rows: bytes
    keys: Sequence[str]


class CommitsFile:
    """The file, open. For one thread at a time; several processes of one machine may share it."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it. Raises LakeFileError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
            )
            self._run = self._connection.execute
            try:
                self._run("PRAGMA journal_mode = WAL")
                self._run("PRAGMA synchronous = FULL")
                self._connection.executescript(_SHAPE)
            except sqlite3.Error:
                self._connection.close()
                raise
        except (OSError, sqlite3.Error) as error:
            hint = "name a file on a local disk that may be written"
            raise LakeFileError(str(error), place=str(path), hint=hint) from error

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block as one transaction. Raises LakeBusyError: nothing was done."""
        try:
            self._run("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._run("ROLLBACK")
                raise
            self._run("COMMIT")
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            hint = "is the disk full, or another process stopped amid a commit?"
            raise LakeBusyError(str(error), place=str(self.path), hint=hint) from error

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Run the block while no other process adds rows to the tables. Raises LakeBusyError."""
        place = self.path.with_name(f"{self.path.name}.lock")
        lock = sqlite3.connect(place, isolation_level=None, timeout=ADDING_SECONDS)
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock.close()
            hint = "a process that adds rows to the same tables takes long, or is stopped"
            raise LakeBusyError(str(error), place=str(place), hint=hint) from error
        try:
            yield
        finally:
            lock.close()

    def writer(self, split: str) -> tuple[int, int]:
        """Return the epoch of the newest writer of *split*, and the number of its last commit."""
        found = self._run("SELECT epoch, number FROM writers WHERE split = ?", (split,)).fetchone()
        return found or (0, 0)

    def set_writer(self, split: str, epoch: int, number: int) -> None:
        """Set epoch and number of a writer."""
        self._run("INSERT OR REPLACE INTO writers VALUES (?, ?, ?)", (split, epoch, number))

    def forget(self, split: str) -> None:
        """Remove a writer that never comes back."""
        self._run("DELETE FROM writers WHERE split = ?", (split,))

    def entries(self, split: str) -> dict[str, bytes]:
        """Return the entries of the last commit of *split*."""
        return dict(self._run("SELECT name, content FROM entries WHERE split = ?", (split,)))

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Replace entries; None removes one."""
        for name, content in entries.items():
            if content is None:
                self._run("DELETE FROM entries WHERE split = ? AND name = ?", (split, name))
            else:
                given = (split, name, content)
                self._run("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", given)

    def stage(self, split: str, staged: Staged) -> None:
        """Keep rows until `unstage`."""
        given = (split, staged.number, staged.table, staged.rows, "\n".join(staged.keys))
        self._run("INSERT INTO staged VALUES (?, ?, ?, ?, ?)", given)

    def staged(self, split: str) -> list[Staged]:
        """Return the staged rows of *split*."""
        query = "SELECT number, table_name, rows, keys FROM staged WHERE split = ?"
        return [
            Staged(number, table, rows, keys.split("\n") if keys else ())
            for number, table, rows, keys in self._run(query, (split,))
        ]

    def unstage(self, split: str) -> None:
        """Remove the staged rows of *split*: the tables have them."""
        self._run("DELETE FROM staged WHERE split = ?", (split,))

    def state(self, name: bytes) -> bytes | None:
        """Return the state of a row or a partition."""
        found = self._run("SELECT state FROM states WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])

    def rows_of(self, partition: bytes) -> list[bytes]:
        """Return the names of the rows of a partition."""
        query = "SELECT name FROM states WHERE partition = ?"
        return [bytes(name) for (name,) in self._run(query, (partition,))]

    def keep_states(self, states: Iterable[tuple[bytes, bytes, bytes]]) -> None:
        """Set states: the name of each, that of its partition, and the state."""
        query = "INSERT OR REPLACE INTO states VALUES (?, ?, ?)"
        self._connection.executemany(query, states)

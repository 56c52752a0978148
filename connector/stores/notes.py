"""The notes of a store that machines share: a copy in memory, as new as what it is a copy of.

What statements made and what is wanted of jobs is little, and is asked for in many ways: so whoever
asks has all of it in SQLite, in memory. What a transaction changes is written to the store in one
conditional write, which is refused when somebody else wrote meanwhile; then nothing was changed.
"""

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from headrace.connector.stores import Notes, Store, StoreUnavailableError
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.state_copies import CopyingStore
from headrace.plugins.notes import NoteKey

FRESH_SECONDS: Final = 0.2  # What was compared with the store so recently is taken for new.
SERVICE: Final = "service."  # Before the name of a service, in its setting's.


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of notes: the names of its columns, and which of them are its key."""

    name: str
    columns: Sequence[str]
    key: Sequence[int]

    def key_of(self, row: Sequence[object]) -> NoteKey:
        """Return what names a row of it."""
        return self.name, json.dumps([row[number] for number in self.key])


class SharedNotes(sqlite3.Connection):
    """A connection to the copy. Read and write it as the state file, within `transaction`."""

    file: Path
    """The worker's file, which names the store."""
    beside: Path
    """The state file of this machine, which keeps nothing; the audit lies beside it."""
    _notes: Notes
    _tables: Sequence[_Table]
    _version: int = 0
    _rows: Mapping[NoteKey, str]
    _looked: float = 0.0

    @classmethod
    def over(
        cls, notes: Notes, script: str, *, file: Path, beside: Path, check_same_thread: bool
    ) -> Self:
        """Make the copy, with the tables that *script* makes. It owns *notes*."""
        made = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=check_same_thread, factory=cls
        )
        made.file, made.beside = file, beside
        made.follow(notes, script)
        return made

    def follow(self, notes: Notes, script: str) -> None:
        """Make the tables of *script*, and keep them equal to *notes* from now on."""
        self.executescript(script)
        ask = super().execute
        found = ask("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        self._tables = [_table(ask(f"PRAGMA table_info({name})"), name) for (name,) in found]
        self._notes, self._rows = notes, {}

    def store(self, job: str) -> Store:
        """Return the store of a job, which is not to be closed."""
        return self._notes.store(job)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 (as SQLite has it)
        """Execute *sql* on the newest notes.

        Raises:
            StoreUnavailableError: the store did not answer, or at the end of a transaction somebody
                else had changed something meanwhile. Nothing was changed.

        """
        if sql == "COMMIT":
            self._push()
        elif not self.in_transaction and (
            sql.startswith("BEGIN") or time.monotonic() - self._looked > FRESH_SECONDS
        ):
            self._pull()
        return super().execute(sql, parameters)

    def close(self) -> None:
        """Give back the store's connection too."""
        self._notes.close()
        super().close()

    def _pull(self) -> None:
        if self._notes.version() != self._version or not self._looked:
            version, rows = self._notes.rows()
            self._take(rows)
            self._version, self._rows = version, rows
        self._looked = time.monotonic()

    def _take(self, rows: Mapping[NoteKey, str]) -> None:
        """Make the copy equal *rows*; what is of no table of ours stays with the store."""
        tables = {table.name: table for table in self._tables}
        super().execute("BEGIN IMMEDIATE")
        for kind, name in self._rows.keys() - rows.keys():
            if kind in tables:
                where = " AND ".join(f"{tables[kind].columns[n]} IS ?" for n in tables[kind].key)
                super().execute(f"DELETE FROM {kind} WHERE {where}", json.loads(name))  # noqa: S608 (names of ours)
        for (kind, name), text in rows.items():
            if kind in tables and self._rows.get((kind, name)) != text:
                values = json.loads(text)
                marks = ", ".join("?" * len(values))
                super().execute(f"INSERT OR REPLACE INTO {kind} VALUES ({marks})", values)  # noqa: S608 (names of ours)
        super().execute("COMMIT")

    def _push(self) -> None:
        now = dict(self._written())
        ours = {table.name for table in self._tables}
        gone = {key for key in self._rows if key[0] in ours and key not in now}
        changes: dict[NoteKey, str | None] = dict.fromkeys(gone)
        changes |= {key: text for key, text in now.items() if self._rows.get(key) != text}
        if not changes:
            return
        if not self._notes.replace(self._version, changes):
            raise StoreUnavailableError(
                "somebody else changed something at the same time",
                hint="nothing was changed: repeat it",
            )
        self._version += 1
        self._rows = {k: t for k, t in self._rows.items() if k not in gone} | now
        self._show(changes)

    def _written(self) -> Iterable[tuple[NoteKey, str]]:
        for table in self._tables:
            for row in super().execute(f"SELECT * FROM {table.name}"):  # noqa: S608 (names of ours)
                yield table.key_of(row), json.dumps(row)

    def _show(self, changes: Mapping[NoteKey, str | None]) -> None:
        for (kind, key), text in changes.items():
            name = json.loads(key)[0]
            if kind == "settings" and name.startswith(SERVICE):
                config = None if text is None else json.loads(json.loads(text)[1])
                self._notes.show_service(name.removeprefix(SERVICE), config)


def job_store(connection: sqlite3.Connection, job: str) -> Store:
    """Return the store of a job over the connection that keeps the notes; not to be closed."""
    if isinstance(connection, SharedNotes):
        return connection.store(job)
    return SqliteStore(connection, job)


def behind(connection: sqlite3.Connection, job: str) -> frozenset[str]:
    """Return the splits of which a sink may have a newer position; see `StateCopies.behind`."""
    store = job_store(connection, job)
    return store.state_copies().behind() if isinstance(store, CopyingStore) else frozenset()


def _table(found: sqlite3.Cursor, name: str) -> _Table:
    columns = found.fetchall()
    key = sorted((place, number) for number, _, _, _, _, place in columns if place)
    return _Table(name, [column[1] for column in columns], [number for _, number in key])

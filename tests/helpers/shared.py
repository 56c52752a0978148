"""Notes that several share, without a server, over a state file that keeps the jobs."""

import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.connector.control import catalogue
from headrace.connector.stores import Store, StoreUnavailableError, board, joins
from headrace.connector.stores.notes import SharedNotes
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins.notes import NoteKey, Notes


@dataclass(slots=True)
class Kept:
    """What all of them see."""

    path: Path
    version: int = 0
    rows: dict[NoteKey, str] = field(default_factory=dict)
    services: dict[str, Mapping[str, str]] = field(default_factory=dict)
    away: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryNotes(Notes):
    """One connection to them; see `Notes`."""

    def __init__(self, kept: Kept) -> None:
        """Share *kept*."""
        self._kept = kept
        self._connection = connect(kept.path)

    def version(self) -> int:
        """See `Notes.version`."""
        if self._kept.away:
            raise StoreUnavailableError("is away")
        return self._kept.version

    def rows(self) -> tuple[int, Mapping[NoteKey, str]]:
        """See `Notes.rows`."""
        return self.version(), dict(self._kept.rows)

    def replace(self, seen: int, changes: Mapping[NoteKey, str | None]) -> bool:
        """See `Notes.replace`."""
        with self._kept.lock:
            if seen != self.version():
                return False
            self._kept.version += 1
            for key, text in changes.items():
                if text is None:
                    del self._kept.rows[key]
                else:
                    self._kept.rows[key] = text
            return True

    def show_service(self, name: str, config: Mapping[str, str] | None) -> None:
        """See `Notes.show_service`."""
        self._kept.services.pop(name, None)
        if config is not None:
            self._kept.services[name] = config

    def store(self, job: str) -> Store:
        """See `Notes.store`."""
        return SqliteStore(self._connection, job)

    def close(self) -> None:
        """See `Notes.close`."""
        self._connection.close()


def shared_notes(
    kept: Kept, tables: str = board.TABLES + catalogue.TABLES + joins.TABLES
) -> sqlite3.Connection:
    """Return one more connection to *kept*, which has *tables*."""
    return SharedNotes.over(
        MemoryNotes(kept),
        tables,
        file=kept.path.with_name("worker.yaml"),
        beside=kept.path,
        check_same_thread=True,
    )

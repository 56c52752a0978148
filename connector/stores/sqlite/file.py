"""The state file: opens it safely, defines its table, and translates SQLite's errors."""

import contextlib
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.connector.stores import (
    StateFileError,
    StateLockedError,
    StateLostError,
    StateNewerError,
    StoreUnavailableError,
)
from headrace.connector.stores.sqlite.place import check_place, identity_of
from headrace.connector.stores.sqlite.shape import RESTORE, check_shape

APPLICATION_ID: Final = 0x68647263  # "hdrc"
BUSY_TIMEOUT_MS: Final = 5_000
CACHE_KIB: Final = 512  # A connection never reads its own writes.
WAL_ATTEMPTS_MAX: Final = 100
WAL_PAUSE_SECONDS: Final = 0.02

TABLES: Final = """
CREATE TABLE rows (
    partition TEXT NOT NULL, name TEXT NOT NULL, stamp INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (partition, name)
) STRICT;
"""
VERSION: Final = 11  # 1 to 10 were before the first release.
# SQLite's errors for a damaged file. Retrying does not help.
_DAMAGE: Final = frozenset(
    (
        *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
        *(sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH),
    )
)
_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))
_PRIMARY: Final = 0xFF  # The primary code of an extended one.


class StateConnection(sqlite3.Connection):
    """A connection to the state file at `path`, which is absolute and has no links.

    `file` distinguishes the file from a replacement.
    """

    path = ""
    file: tuple[int, int] | None = None


class _NoDatabaseError(Exception):
    """The file is not an SQLite database."""


def connect(
    path: str | Path, *, create: bool = True, check_same_thread: bool = True
) -> StateConnection:
    """Open the state file in WAL mode with synchronous=FULL; make it if it is missing.

    The connection is in autocommit mode and belongs to the calling thread; without
    *check_same_thread*, another one may close it.

    Raises:
        StateFileError: the file, its directory or its file system is unsuitable.
        StateLockedError: another process keeps it locked.
        StateNewerError: a newer headrace wrote it.
        StateLostError: it is a state file with a damaged table, column or value; or it was emptied.

    """
    place = Path(path)
    check_place(place, create=create)
    if create and not place.exists():
        _make(place)
    return _open(place, check_same_thread=check_same_thread)


def _make(place: Path) -> None:
    """Make a new state file. It gets its name after its tables: one without them is damaged."""
    target = Path(os.path.realpath(place))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        temporary.touch(mode=0o600, exist_ok=False)  # It will hold the job's secret key.
        _open(temporary).close()
        with contextlib.suppress(FileExistsError):  # Another process was faster.
            os.link(temporary, target)
    except OSError as error:
        raise StateFileError(f"cannot be made: {error.strerror}", place=str(place)) from error
    finally:
        for ending in ("", "-wal", "-shm"):
            temporary.with_name(temporary.name + ending).unlink(missing_ok=True)


def _open(place: Path, *, check_same_thread: bool = True) -> StateConnection:
    try:
        connection = sqlite3.connect(
            f"{place.absolute().as_uri()}?mode=rw",
            timeout=BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            check_same_thread=check_same_thread,
            factory=StateConnection,
            uri=True,
        )
        connection.path, connection.file = os.path.realpath(place), identity_of(place)
    except (OSError, sqlite3.Error) as error:
        raise StateFileError(f"cannot be opened: {error}", place=str(place)) from error
    try:
        with named_errors(str(place)):
            _prepare(connection, place)
    except _NoDatabaseError as error:
        connection.close()
        raise StateFileError(
            f"cannot be used as a state file: {error}",
            place=str(place),
            hint="`state` names the SQLite file that headrace makes: restore it from a backup, or "
            "give a path of its own",
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def named_errors(place: str) -> Iterator[None]:
    """Convert SQLite's errors about the file at *place* to named ones, but for our own mistakes.

    Raises:
        StoreUnavailableError: a later attempt may succeed.
        StateLockedError: another process does not finish a write.
        StateLostError: the file is damaged; no attempt will succeed.

    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.Error as error:
        if _code_of(error) in _DAMAGE:
            what = f"the state file is damaged: {error}"
            raise StateLostError(what, place=place, hint=RESTORE) from error
        if is_busy(error):
            raise locked(place, BUSY_TIMEOUT_MS / 1000) from error
        raise StoreUnavailableError(
            f"the state file cannot be used: {error}",
            place=place,
            hint="look at disk space and permissions",
        ) from error


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another process keeps a file locked."""
    return _code_of(error) in _BUSY


def locked(place: str, seconds: float) -> StateLockedError:
    """Return the error of a file that was locked for *seconds*."""
    return StateLockedError(
        f"another process has kept the state file locked for {seconds:g} s",
        place=place,
        hint="the file is whole. Look for a process that has it open and hangs or is "
        "stopped (`fuser -v` on the file; state T in `ps`), and end it or let it continue",
    )


def _code_of(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & _PRIMARY


def _prepare(connection: sqlite3.Connection, place: Path) -> None:
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    # In this order: a process that makes the tables meanwhile sets the application id with them.
    try:
        empty = not connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone()
    except sqlite3.DatabaseError as error:
        if _code_of(error) == sqlite3.SQLITE_NOTADB:
            raise _NoDatabaseError(str(error)) from error
        raise
    application, version = _identity(connection)
    if application not in (0, APPLICATION_ID) or (not application and not empty):
        raise StateFileError(
            "is another program's SQLite database",
            place=str(place),
            hint="`state` names the SQLite file that headrace makes; give a path of its own",
        )
    if version > VERSION:
        raise StateNewerError(
            f"has version {version}, this headrace knows {VERSION}",
            place=str(place),
            hint="run the newer headrace, or give another `state`",
        )
    if application and version < VERSION:
        raise StateFileError(
            f"has version {version}, from before the first release; this headrace knows {VERSION}",
            place=str(place),
            hint="begin with another `state`",
        )
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    if version < VERSION:  # Else no write: readers do not wait for writers.
        _bring_up(connection)
    check_shape(connection, place, TABLES)


def _bring_up(connection: sqlite3.Connection) -> None:
    """Make the tables of this version in the file."""
    connection.execute("BEGIN IMMEDIATE")
    version = _identity(connection)[1]  # Read again: another process may have done it.
    if version < VERSION:
        connection.execute(TABLES)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _identity(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to WAL. Waits for a process that does the same, because SQLite does not."""
    for attempt in range(1, WAL_ATTEMPTS_MAX + 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if attempt == WAL_ATTEMPTS_MAX:
                raise
            time.sleep(WAL_PAUSE_SECONDS)
        else:
            return

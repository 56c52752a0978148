"""The file of a history: a SQLite file with the changes, the state of each row, and the clock.

All writers of a history commit through its lock, one after the other. Each gives its changes their
arrivals within its transaction, so what a reader has seen is never preceded by what comes later.
What the sink and the readers need of a store of changes is this class; they have no SQL.
"""

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryFileError,
    HistoryMissingError,
)
from headrace.connector.rows.folding import NEVER
from headrace.connector.stores.sqlite.place import remote_file_system
from headrace.plugins import HeadraceError, Origin, RecordSchema
from headrace.plugins.records.record import OPERATIONS

APPLICATION_ID: Final = 0x68646869  # "hdhi"
VERSION: Final = 4
BUSY_TIMEOUT_MS: Final = 5_000
SETTLE_TIMEOUT_MS: Final = 250
GONE: Final = len(OPERATIONS)  # The number of the event of a row whose last value expired,
LESS: Final = GONE + 1  # and of one that lost values; of static columns always this.
LOOK_UP_MAX: Final = 500  # States that one statement reads.
CACHE_KIB: Final = 16_384
PAGE_BYTES: Final = 8_192  # More make a change cheaper, and a small commit larger.
_PRIMARY: Final = 0xFF  # Of an extended error code.
_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))

# A partition's own state has the row x''. New states are appended, and only their index is in the
# order of keys: one commit writes fewer pages. `before` is what `images.packed` packs. `expires` is
# when a state loses a value next, in seconds, for `images.Expiries`; or 0.
_TABLES: Final = """
CREATE TABLE about (
    one INTEGER PRIMARY KEY CHECK (one = 1), table_name TEXT NOT NULL, buckets INTEGER NOT NULL,
    last INTEGER NOT NULL, floor INTEGER NOT NULL, removed INTEGER NOT NULL, origin TEXT NOT NULL,
    has_partitions INTEGER NOT NULL
) STRICT;
CREATE TABLE epochs (
    since INTEGER PRIMARY KEY, scopes TEXT NOT NULL, states_since_us INTEGER
) STRICT;
CREATE TABLE schemas (
    number INTEGER PRIMARY KEY, schema_id BLOB NOT NULL UNIQUE, table_name TEXT NOT NULL,
    text TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL
) STRICT;
CREATE TABLE changes (
    arrival INTEGER PRIMARY KEY, bucket INTEGER NOT NULL, schema INTEGER NOT NULL,
    operation INTEGER NOT NULL, written_us INTEGER NOT NULL, key BLOB NOT NULL, row BLOB NOT NULL,
    change BLOB NOT NULL, before BLOB
) STRICT;
CREATE INDEX changes_of_key ON changes (key);
CREATE TABLE states (
    number INTEGER PRIMARY KEY, key BLOB NOT NULL, row BLOB NOT NULL, state BLOB NOT NULL,
    expires INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX states_of_row ON states (key, row);
CREATE INDEX states_by_expiry ON states (expires) WHERE expires > 0;
CREATE TABLE seeds (
    states_since_us INTEGER PRIMARY KEY, run TEXT NOT NULL, begun_us INTEGER NOT NULL,
    done INTEGER, row_count INTEGER NOT NULL
) STRICT;
CREATE TABLE writers (split TEXT PRIMARY KEY, epoch INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE entries (
    split TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (split, name)
) STRICT, WITHOUT ROWID;
"""


Blob = bytes | bytearray
"""What is written as a blob; of bytes, Python's sqlite3 looks up how to adapt them: a µs each."""


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


class Change(NamedTuple):
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


_COLUMNS: Final = ", ".join(Change._fields)
_MARKS: Final = ", ".join("?" * (len(Change._fields) - 1))


class HistoryFile:
    """An open file; for one thread at a time."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use `opened` or `made`."""
        self.path = path
        self.run = connection.execute
        self.run_many = connection.executemany
        self._connection = connection
        self.table, self.buckets = self.run("SELECT table_name, buckets FROM about").fetchone()

    @classmethod
    def opened(cls, path: Path) -> "HistoryFile":
        """Open a file that exists.

        Raises:
            HistoryMissingError: it does not exist.
            HistoryFileError: it is not the file of a history, or cannot be used.

        """
        if not path.exists():
            raise HistoryMissingError(
                "there is no history here",
                place=str(path),
                hint="a worker makes it when it runs the history's job: `headrace worker`",
            )
        with named_errors(path):
            connection = _connect(path)
            try:
                _check(connection, path)
                return cls(path, connection)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def made(cls, path: Path, table: str, buckets: int) -> "HistoryFile":
        """Open the file; make it where there is none. Raises as `opened`."""
        with named_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if remote := remote_file_system(path):
            raise HistoryFileError(
                f"lies on a network file system ({remote}), where SQLite's locks cannot be trusted",
                place=str(path),
                hint="put `path` on a local disk",
            )
        if not path.exists():
            _make(path, table, buckets)
        found = cls.opened(path)
        if (found.table, found.buckets) != (table, buckets):
            found.close()
            raise HistoryFileError(
                f"is the history of {found.table} in {found.buckets} buckets, expected {table} in "
                f"{buckets}",
                place=str(path),
                hint="neither can be changed: give the history another `path`",
            )
        return found

    def close(self) -> None:
        """Close it. Safe to call twice."""
        self._connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Run the block as one transaction: all of it is durable behind the block, or nothing.

        Raises:
            HistoryBusyError: nothing was written: the file is locked, or the disk is full.

        """
        with named_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Run the block on one snapshot. Raises as `writing`."""
        with named_errors(self.path), self._transaction("BEGIN"):
            yield

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self.run(begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # The first error is the one to report.
                    self.run("ROLLBACK")
            raise

    def last(self) -> int:
        """Return the last arrival that was given, or promised not to be given any more."""
        return int(self.run("SELECT last FROM about").fetchone()[0])

    def floor(self) -> int:
        """Return the first arrival of which all changes are kept."""
        return int(self.run("SELECT floor FROM about").fetchone()[0])

    def removed(self) -> int:
        """Return the last arrival of a change that was written, and removed; 0, if none was."""
        return int(self.run("SELECT removed FROM about").fetchone()[0])

    def origin(self) -> Origin:
        """Return what the source of the changes says of where it read them."""
        (text,) = self.run("SELECT origin FROM about").fetchone()
        return msgspec.json.decode(text, type=Origin)

    def keep_origin(self, origin: Origin) -> None:
        """Keep what the source of the changes says of where it reads them. Raises as `writing`."""
        with self.writing():
            text = msgspec.json.encode(origin).decode()
            self.run("UPDATE about SET origin = ?", (text,))

    def has_partitions(self) -> bool:
        """Say whether a partition may have a state of its own."""
        return bool(self.run("SELECT has_partitions FROM about").fetchone()[0])

    def note_partitions(self) -> None:
        """Note that a partition has a state of its own. Within `writing`."""
        self.run("UPDATE about SET has_partitions = 1")

    def size_behind(self, behind: int) -> int:
        """Return how many bytes the changes behind an arrival have, without their states."""
        found = self.run("SELECT sum(length(change)) FROM changes WHERE arrival > ?", (behind,))
        return int(found.fetchone()[0] or 0)

    def extent(self) -> tuple[int, int, int]:
        """Return the first and the last arrival that is kept, and the number of changes."""
        first, last, count = self.run(
            "SELECT min(arrival), max(arrival), count(*) FROM changes"
        ).fetchone()
        return first or 0, last or 0, count

    def set_last(self, last: int) -> None:
        """Give only later arrivals from now on. Within `writing`."""
        self.run("UPDATE about SET last = ?", (last,))

    def settle(self, until_ms: int) -> None:
        """Promise that no change arrives before *until_ms* any more; durable when it returns.

        Where the file cannot be written, nothing is promised.

        Raises:
            HistoryBusyError: a commit is under way.

        """
        promised = arrival.first_of(until_ms) - 1
        if self.last() < promised and self.can_write():
            with self.settling():
                self.run("UPDATE about SET last = max(last, ?)", (promised,))

    def can_write(self) -> bool:
        """Say whether this process may write the file."""
        return os.access(self.path, os.W_OK)

    @contextlib.contextmanager
    def settling(self) -> Iterator[None]:
        """Be as `writing`, for a reader, which waits less for a commit that is under way."""
        self.run(f"PRAGMA busy_timeout = {SETTLE_TIMEOUT_MS}")
        try:
            with self.writing():
                yield
        finally:
            self.run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    def version(self) -> int:
        """Return a number that changes when another connection commits."""
        return int(self.run("PRAGMA data_version").fetchone()[0])

    def epochs(self) -> list[Epoch]:
        """Return the epochs, the first first: each ends where the next one begins."""
        found = self.run("SELECT since, scopes, states_since_us FROM epochs ORDER BY since")
        return [Epoch(since, frozenset(scopes.split()), at) for since, scopes, at in found]

    def keep_scopes(
        self, scopes: frozenset[str], now_ms: int, *, states: bool, is_empty: bool
    ) -> None:
        """Begin an epoch with these scopes, unless they are those of the last one.

        With *states* those of rows are kept, from now on or from where the last epoch started them;
        *is_empty* says that the table has no rows before the first epoch. Without *states* those
        that there are miss what comes now, and are removed. Raises as `writing`.
        """
        with self.writing():
            epochs = self.epochs()
            last = epochs[-1] if epochs else None
            if last is not None and last.scopes == scopes:
                return
            since = arrival.next_after(self.last(), now_ms) if epochs else 0
            begun_us = NEVER if is_empty and last is None else now_ms * 1_000
            if last is not None and last.states_since_us is not None:
                begun_us = last.states_since_us
            row = since, " ".join(sorted(scopes)), begun_us if states else None
            self.run("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?)", row)
            if last is None or not states or last.states_since_us is None:
                self.run("DELETE FROM states")
                self.run("UPDATE about SET has_partitions = 0")

    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return the seed of the states that are kept since then; None where no run was named."""
        found = self.run(
            "SELECT run, begun_us, done, row_count FROM seeds WHERE states_since_us = ?",
            (states_since_us,),
        )
        return next((Seed(*row) for row in found), None)

    def keep_seed(self, states_since_us: int | None, seed: Seed) -> None:
        """Keep what a seed has reached. Within `writing`."""
        self.run("INSERT OR REPLACE INTO seeds VALUES (?, ?, ?, ?, ?)", (states_since_us, *seed))

    def writer(self, split: str) -> int:
        """Return the epoch of a split's last writer; 0, if there was none."""
        found = self.run("SELECT epoch FROM writers WHERE split = ?", (split,))
        return next((int(epoch) for (epoch,) in found), 0)

    def set_writer(self, split: str, epoch: int) -> None:
        """Refuse what earlier writers of the split commit from now on. Within `writing`."""
        self.run("INSERT OR REPLACE INTO writers VALUES (?, ?)", (split, epoch))

    def entries(self, split: str) -> dict[str, bytes]:
        """Return what is kept of a split besides its changes."""
        found = self.run("SELECT name, value FROM entries WHERE split = ?", (split,))
        return dict(found.fetchall())

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Replace some of a split's entries; None removes one. Within `writing`."""
        gone = [(split, name) for name, value in entries.items() if value is None]
        new = [(split, name, value) for name, value in entries.items() if value is not None]
        self.run_many("DELETE FROM entries WHERE split = ? AND name = ?", gone)
        self.run_many("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", new)

    def append(self, changes: Iterable[Sequence[Any]], *, has_before: bool) -> None:
        """Append changes, each the fields of a `Change`, perhaps without `before`, in `writing`."""
        before = "?" if has_before else "NULL"  # To bind None takes a µs, too.
        self.run_many(f"INSERT INTO changes VALUES ({_MARKS}, {before})", changes)  # noqa: S608 (marks)

    def append_plain(self, changes: Iterable[Sequence[Any]]) -> None:
        """Append changes without `row` and `before`; for `bucket`, each has a hash. As `append`."""
        self.run_many(
            f"INSERT INTO changes VALUES (?, ? % {self.buckets}, ?, ?, ?, ?, x'', ?, NULL)",  # noqa: S608 (a number)
            changes,
        )

    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """Yield changes in the order of their arrival, up to *count_max* if that is not negative.

        Within `reading`.
        """
        which, values = _conditions(wanted)
        order = "DESC" if descending else "ASC"
        text = f"SELECT {_COLUMNS} FROM {which} ORDER BY arrival {order} LIMIT ?"  # noqa: S608 (all parts are ours)
        return map(Change._make, self.run(text, (*values, count_max)))

    def count(self, wanted: Range) -> int:
        """Return how many changes there are."""
        which, values = _conditions(wanted)
        return int(self.run(f"SELECT count(*) FROM {which}", values).fetchone()[0])  # noqa: S608 (likewise)

    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return the arrivals at which parts of *size* changes begin, without the first one."""
        which, values = _conditions(wanted)
        numbered = f"SELECT arrival, row_number() OVER (ORDER BY arrival) AS number FROM {which}"  # noqa: S608 (likewise)
        text = f"SELECT arrival FROM ({numbered}) WHERE number > 1 AND number % ? = 1 % ?"  # noqa: S608 (likewise)
        return [cut for (cut,) in self.run(text, (*values, size, size))]

    def states(
        self, names: Sequence[tuple[bytes, bytes]]
    ) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """Yield the number, key, row and state of each row of *names* that has a state."""
        for begin in range(0, len(names), LOOK_UP_MAX):
            part = names[begin : begin + LOOK_UP_MAX]
            marks = ", ".join(["(?, ?)"] * len(part))
            yield from self.run(
                f"WITH wanted (of, name) AS (VALUES {marks}) SELECT number, key, row, state "  # noqa: S608 (marks)
                "FROM wanted CROSS JOIN states ON key = of AND row = name",
                [bytearray(each) for name in part for each in name],
            )

    def states_of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """Return the names and the states of all rows of a partition."""
        return self.run("SELECT row, state FROM states WHERE key = ?", (key,)).fetchall()

    def keep_states(
        self,
        known: Iterable[tuple[Blob, int, int]],
        new: Iterable[tuple[Blob, Blob, Blob, int]],
    ) -> None:
        """Replace states by their numbers, and add new ones, each of a row. Within `writing`.

        Each has the second at which `due` returns it, or 0.
        """
        self.run_many("UPDATE states SET state = ?, expires = ? WHERE number = ?", known)
        self.run_many("INSERT INTO states (key, row, state, expires) VALUES (?, ?, ?, ?)", new)

    def due(self, until_s: int, count_max: int) -> list[tuple[int, bytes, bytes, bytes, int]]:
        """Return states that expire by then, the first first, with numbers, names and seconds."""
        text = (
            "SELECT number, key, row, state, expires FROM states WHERE 0 < expires "
            "AND expires <= ? ORDER BY expires, number LIMIT ?"
        )
        return self.run(text, (until_s, count_max)).fetchall()

    def set_expiries(self, expiries: Iterable[tuple[int, int]]) -> None:
        """Set when states are due again, by their numbers. Within `writing`."""
        self.run_many("UPDATE states SET expires = ? WHERE number = ?", expiries)

    def newest_schema(self) -> int:
        """Return the number of the schema that came last; 0, as long as there is no change."""
        return int(self.run("SELECT ifnull(max(number), 0) FROM schemas").fetchone()[0])

    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas of all changes, by their numbers."""
        rows = self.run("SELECT number, table_name, text, schema_id, key, value FROM schemas")
        return {
            number: RecordSchema(table, text, schema_id, json.loads(key), json.loads(value))
            for number, table, text, schema_id, key, value in rows
        }

    def schema(self, schema_id: bytes) -> RecordSchema | None:
        """Return a schema that is kept."""
        return next((s for s in self.schemas().values() if s.schema_id == schema_id), None)

    def schema_number(self, schema: RecordSchema) -> int:
        """Return the number of a schema, which is kept from now on. Within `writing`."""
        shapes = json.dumps(schema.key), json.dumps(schema.value)
        self.run(
            "INSERT OR IGNORE INTO schemas (schema_id, table_name, text, key, value) "
            "VALUES (?, ?, ?, ?, ?)",
            (schema.schema_id, schema.table, schema.text, *shapes),
        )
        found = self.run("SELECT number FROM schemas WHERE schema_id = ?", (schema.schema_id,))
        return int(found.fetchone()[0])

    def remove_before(self, first: int, count_max: int) -> None:
        """Remove up to *count_max* changes that arrived before *first*. Within `writing`.

        The floor passes all of them, so that no query answers with a part.
        """
        oldest = self.run("SELECT min(arrival) FROM changes").fetchone()[0]
        if oldest is None or oldest >= first:
            return
        found = self.run(
            "SELECT arrival, operation FROM changes WHERE arrival < ? ORDER BY arrival LIMIT ?",
            (first, count_max),
        ).fetchall()
        # A source, which leaves out what expired, has not passed such an event.
        written = max((each for each, operation in found if operation < GONE), default=0)
        self.run(
            "UPDATE about SET floor = max(floor, ?), removed = max(removed, ?)", (first, written)
        )
        self.run("DELETE FROM changes WHERE arrival <= ?", (found[-1][0],))


def _conditions(wanted: Range) -> tuple[str, list[int | bytes]]:
    """Return which rows of the file are wanted, and the values of conditions."""
    conditions = ["arrival >= ?", "arrival < ?"]
    values: list[int | bytes] = [wanted.begin, wanted.end]
    for column, numbers in (("bucket", wanted.buckets), ("operation", wanted.operations)):
        if numbers:
            conditions.append(f"{column} IN ({', '.join('?' * len(numbers))})")
            values += sorted(numbers)
    for sign, bound in ((">=", wanted.written_from_us), ("<", wanted.written_to_us)):
        if bound is not None:
            conditions.append(f"written_us {sign} ?")
            values.append(bound)
    by_key = ""
    if wanted.key is not None:
        by_key = " INDEXED BY changes_of_key"
        conditions.append("key = ?")
        values.append(wanted.key)
    return f"changes{by_key} WHERE {' AND '.join(conditions)}", values


def _make(path: Path, table: str, buckets: int) -> None:
    """Make a new file. It has its name when it has its tables: no process sees one without."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with named_errors(path):
            made.touch(mode=0o600, exist_ok=False)  # It has the values of rows.
            with contextlib.closing(_connect(made)) as connection:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN")
                for statement in _TABLES.split(";\n")[:-1]:
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO about VALUES (1, ?, ?, 0, 0, 0, '{}', 0)", (table, buckets)
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute("COMMIT")
            with contextlib.suppress(FileExistsError):  # Another process was faster.
                os.link(made, path)
    finally:
        for ending in ("", "-wal", "-shm"):
            made.with_name(made.name + ending).unlink(missing_ok=True)


@contextlib.contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Turn the errors of SQLite and of the file system about *path* into named ones."""
    try:
        yield
    except HeadraceError:
        raise
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if code in _BUSY:
            raise HistoryBusyError(
                f"another process kept the file locked for {BUSY_TIMEOUT_MS // 1000} s",
                place=str(path),
                hint="look for a process that has it open and hangs: `fuser -v` on the file",
            ) from error
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise HistoryBusyError(
                f"cannot be written now: {error}", place=str(path), hint="look at disk space"
            ) from error
        raise HistoryFileError(
            f"cannot be used: {error}",
            place=str(path),
            hint="`path` names the file that headrace makes: restore it, or give another path",
        ) from error
    except OSError as error:
        raise HistoryFileError(f"cannot be used: {error.strerror}", place=str(path)) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise HistoryFileError(
            "is not the file of a history",
            place=str(path),
            hint="`path` names the file that headrace makes: give a path of its own",
        )
    if version != VERSION:
        raise HistoryFileError(
            f"has version {version}, this headrace knows {VERSION}", place=str(path)
        )

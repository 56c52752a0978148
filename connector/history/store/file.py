"""A history in a file: a SQLite database of changes, states of rows, and the clock.

Because of its lock, writers commit one after the other, each in a transaction.
"""

import contextlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, starmap
from pathlib import Path
from typing import Final, Self
from zlib import crc32

import msgspec

from headrace.connector.history import arrival
from headrace.connector.history.errors import (
    HistoryBusyError,
    HistoryFileError,
    HistoryMissingError,
)
from headrace.connector.history.store import key_runs
from headrace.connector.history.store.blocks import BlockReader, blocks_of
from headrace.connector.history.store.contract import (
    Change,
    Columns,
    Epoch,
    HistoryPart,
    Name,
    Range,
    Seed,
)
from headrace.connector.history.store.key_runs import KeyRuns, entries_of
from headrace.connector.history.store.ordering import by_hash
from headrace.connector.history.store.singles import Singles
from headrace.connector.history.store.state_rows import new_rows
from headrace.connector.stores.sqlite.place import remote_file_system
from headrace.plugins import HeadraceError, Origin, RecordSchema

APPLICATION_ID: Final = 0x68646869  # "hdhi"
VERSION: Final = 7
BUSY_TIMEOUT_MS: Final = 5_000
SETTLE_TIMEOUT_MS: Final = 250
LOOK_UP_MAX: Final = 500  # States that one statement reads,
INSERT_MAX: Final = 128  # and new states that one statement writes.
CACHE_KIB: Final = 16_384
PAGE_BYTES: Final = 8_192  # Larger pages make a change cheaper, and a small commit larger.
_PRIMARY: Final = 0xFF  # Of an extended error code.
_BUSY: Final = frozenset((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL))

# The row name of a partition's own state is x''. New states are appended, and only their index is
# in the order of hashes, so that a commit writes fewer pages. The content is the key, the name of
# the row, and the state. `expires` is the second at which the state next loses a value, for
# `images.Expiries`, or 0.
_TABLES: Final = f"""
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
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY, first INTEGER NOT NULL, count INTEGER NOT NULL,
    written INTEGER NOT NULL, size_bytes INTEGER NOT NULL, content BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX blocks_by_arrival ON blocks (first);{key_runs.TABLES}CREATE TABLE states (
    number INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key_bytes INTEGER NOT NULL,
    row_bytes INTEGER NOT NULL, content BLOB NOT NULL, expires INTEGER NOT NULL
) STRICT;
CREATE INDEX states_of_row ON states (hash);
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

REMOVED_PER_CHANGE: Final = 4  # Retention removes up to this many changes for each appended one,
REMOVED_MIN: Final = 1_000  # or this many, rounded up to whole blocks.
_ROW_BITS: Final = 31
_LATER: Final = 1 << 62
_STATE: Final = "key_bytes, row_bytes, content"
_INSERT: Final = "INSERT INTO states (hash, key_bytes, row_bytes, content, expires) VALUES "
_ROW: Final = "(?, ?, ?, ?, ?)"


class HistoryFile(HistoryPart):
    """An open file with a history, as described for `HistoryStore`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Keep the connection; callers use `opened` or `made`."""
        self.path = path
        self.place = str(path)
        self.run = connection.execute
        self.run_many = connection.executemany
        self._connection = connection
        self._keys = KeyRuns(self)
        self._singles = Singles(self.schemas)
        self._numbers: dict[Name, int] = {}  # Of states that the transaction has read,
        self._hashes: dict[Name, int] = {}  # and of names it looked for, until states are stored.
        self.table, self.buckets = self.run("SELECT table_name, buckets FROM about").fetchone()

    @classmethod
    def opened(cls, path: Path, version: int = VERSION) -> Self:
        """Open an existing file of a *version*.

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
                _check(connection, path, version)
                return cls(path, connection)
            except BaseException:
                connection.close()
                raise

    @classmethod
    def made(cls, path: Path, table: str, buckets: int) -> "HistoryFile":
        """Open the file, and make it first if it does not exist. Raises as `opened`."""
        make(path, table, buckets)
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
        """Close the file, as described for `HistoryStore.close`."""
        self._connection.close()

    def purge(self) -> None:
        """Remove the file, as described for `HistoryStore.purge`."""
        self.close()
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)

    @contextlib.contextmanager
    def writing(self, split: str = "", *, begins: bool = False) -> Iterator[None]:
        """Run the block as one transaction, as described for `HistoryStore.writing`."""
        del split, begins  # The lock of a dead process is released.
        with named_errors(self.path), self._transaction("BEGIN IMMEDIATE"):
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Read one snapshot, as described for `HistoryStore.reading`."""
        with named_errors(self.path), self._transaction("BEGIN"):
            yield

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._numbers, self._hashes = {}, {}
        self.run(begin)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # The first error is the relevant one.
                    self.run("ROLLBACK")
            raise

    def last(self) -> int:
        """Return the last arrival, as described for `HistoryStore.last`."""
        return int(self.run("SELECT last FROM about").fetchone()[0])

    def floor(self) -> int:
        """Return the floor, as described for `HistoryStore.floor`."""
        return int(self.run("SELECT floor FROM about").fetchone()[0])

    def removed(self) -> int:
        """Return the last removed arrival, as described for `HistoryStore.removed`."""
        return int(self.run("SELECT removed FROM about").fetchone()[0])

    def origin(self) -> Origin:
        """Return the origin, as described for `HistoryStore.origin`."""
        (text,) = self.run("SELECT origin FROM about").fetchone()
        return msgspec.json.decode(text, type=Origin)

    def keep_origin(self, origin: Origin) -> None:
        """Store the origin, as described for `HistoryStore.keep_origin`."""
        with self.writing():
            text = msgspec.json.encode(origin).decode()
            self.run("UPDATE about SET origin = ?", (text,))

    def has_partitions(self) -> bool:
        """Check for partitions, as described for `HistoryStore.has_partitions`."""
        return bool(self.run("SELECT has_partitions FROM about").fetchone()[0])

    def size_behind(self, behind: int) -> int:
        """Return a size, as described for `HistoryStore.size_behind`."""
        found = self.run("SELECT sum(size_bytes) FROM blocks WHERE first > ?", (behind,))
        size_bytes = int(found.fetchone()[0] or 0)
        begun = self._blocks(Range(behind, behind + 1))  # Its block may have later changes, too.
        return size_bytes + sum(each.bytes_behind(behind) for each in begun)

    def extent(self) -> tuple[int, int, int]:
        """Return the extent, as described for `HistoryStore.extent`."""
        first, last, count = self.run(
            "SELECT min(first), max(first + count - 1), sum(count) FROM blocks"
        ).fetchone()
        return first or 0, last or 0, count or 0

    def settle(self, until_ms: int) -> None:
        """Settle, as described for `HistoryStore.settle`."""
        promised = arrival.first_of(until_ms) - 1
        if self.last() < promised and self.can_write():
            with self.settling():
                self.run("UPDATE about SET last = max(last, ?)", (promised,))

    def can_write(self) -> bool:
        """Return whether writing is allowed, as described for `HistoryPart.can_write`."""
        return os.access(self.path, os.W_OK)

    @contextlib.contextmanager
    def settling(self) -> Iterator[None]:
        """Write for a reader, as described for `HistoryPart.settling`."""
        self.run(f"PRAGMA busy_timeout = {SETTLE_TIMEOUT_MS}")
        try:
            with self.writing():
                yield
        finally:
            self.run(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")

    def version(self) -> int:
        """Return the version, as described for `HistoryStore.version`."""
        return int(self.run("PRAGMA data_version").fetchone()[0])

    def epochs(self) -> list[Epoch]:
        """Return the epochs, as described for `HistoryStore.epochs`."""
        found = self.run("SELECT since, scopes, states_since_us FROM epochs ORDER BY since")
        return [Epoch(since, frozenset(scopes.split()), at) for since, scopes, at in found]

    def keep_epoch(self, epoch: Epoch, *, keeps_states: bool) -> None:
        """Store an epoch, as described for `HistoryPart.keep_epoch`."""
        row = epoch.since, " ".join(sorted(epoch.scopes)), epoch.states_since_us
        self.run("INSERT OR REPLACE INTO epochs VALUES (?, ?, ?)", row)
        if not keeps_states:
            self.run("DELETE FROM states")
            self.run("UPDATE about SET has_partitions = 0")

    def seed(self, states_since_us: int | None) -> Seed | None:
        """Return a seed, as described for `HistoryStore.seed`."""
        found = self.run(
            "SELECT run, begun_us, done, row_count FROM seeds WHERE states_since_us = ?",
            (states_since_us,),
        )
        return next((Seed(*row) for row in found), None)

    def keep_seed(self, states_since_us: int | None, seed: Seed) -> None:
        """Store a seed, as described for `HistoryPart.keep_seed`."""
        self.run("INSERT OR REPLACE INTO seeds VALUES (?, ?, ?, ?, ?)", (states_since_us, *seed))

    def writer(self, split: str) -> int:
        """Return a writer's epoch, as described for `HistoryStore.writer`."""
        found = self.run("SELECT epoch FROM writers WHERE split = ?", (split,))
        return next((int(epoch) for (epoch,) in found), 0)

    def set_writer(self, split: str, epoch: int) -> None:
        """Store a writer's epoch, as described for `HistoryStore.set_writer`."""
        self.run("INSERT OR REPLACE INTO writers VALUES (?, ?)", (split, epoch))

    def entries(self, split: str) -> dict[str, bytes]:
        """Return entries, as described for `HistoryStore.entries`."""
        found = self.run("SELECT name, value FROM entries WHERE split = ?", (split,))
        return dict(found.fetchall())

    def keep_entries(self, split: str, entries: Mapping[str, bytes | None]) -> None:
        """Store entries, as described for `HistoryStore.keep_entries`."""
        gone = [(split, name) for name, value in entries.items() if value is None]
        new = [(split, name, value) for name, value in entries.items() if value is not None]
        self.run_many("DELETE FROM entries WHERE split = ? AND name = ?", gone)
        self.run_many("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", new)

    def append(self, columns: Columns, now_ms: int) -> None:
        """Append blocks and the places of keys, as described for `HistoryPart.append`."""
        if not columns:
            return
        first = self.next_arrival(now_ms)
        begin = number = self._last_block() + 1
        rows, entries = [], []
        for block, hashes in blocks_of(first, columns):
            rows.append((number, *block))
            entries += entries_of(hashes, number)
            number += 1
        self.run_many("INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._keys.append(entries, begin, number - 1)
        self.run("UPDATE about SET last = ?", (first + len(columns) - 1,))

    def _last_block(self, end: int = _LATER) -> int:
        """Return the number of the last block that begins before *end*, or 0."""
        text = "SELECT number FROM blocks WHERE first < ? ORDER BY first DESC LIMIT 1"
        return next((int(number) for (number,) in self.run(text, (end,))), 0)

    def changes(
        self, wanted: Range, *, descending: bool = False, count_max: int = -1
    ) -> Iterator[Change]:
        """Yield changes, as described for `HistoryStore.changes`."""
        found = chain.from_iterable(
            each.changes(wanted, descending=descending)
            for each in self._blocks(wanted, descending=descending)
        )
        return islice(found, None if count_max < 0 else count_max)

    def count(self, wanted: Range) -> int:
        """Count changes, as described for `HistoryStore.count`."""
        return sum(map(len, self._arrivals(wanted)))

    def cuts(self, wanted: Range, size: int) -> list[int]:
        """Return cuts, as described for `HistoryStore.cuts`."""
        found: list[int] = []
        passed = 0
        for arrivals in self._arrivals(wanted):
            found += arrivals[-passed % size :: size]
            passed += len(arrivals)
        return found[1:]

    def arrivals(self, wanted: Range) -> Iterator[int]:
        """Yield the arrivals of wanted changes, ascending. Within `reading`."""
        return chain.from_iterable(self._arrivals(wanted))

    def _arrivals(self, wanted: Range) -> Iterator[Sequence[int]]:
        """Yield the arrivals of the wanted changes of each block."""
        if wanted != Range(wanted.begin, wanted.end):
            for block in self._blocks(wanted):
                yield block.arrivals(wanted)
            return
        text = "SELECT first, count FROM blocks WHERE number >= ? AND number <= ? ORDER BY number"
        for first, count in self.run(text, self._numbers_of(wanted)):
            yield range(max(first, wanted.begin), min(first + count, wanted.end))

    def _blocks(self, wanted: Range, *, descending: bool = False) -> Iterator[BlockReader]:
        """Yield the blocks that may have wanted changes."""
        order = "DESC" if descending else "ASC"
        first, last = self._numbers_of(wanted)
        text = "SELECT first, count, content FROM blocks WHERE "
        found: Iterable[tuple[int, int, bytes]]
        if wanted.key is None:
            text += f"number >= ? AND number <= ? ORDER BY number {order}"
            found = self.run(text, (first, last))
        else:
            numbers = self._keys.blocks(wanted.key, first, last, descending=descending)
            found = chain.from_iterable(self.run(f"{text} number = ?", (n,)) for n in numbers)
        for first, count, content in found:
            yield BlockReader(first, count, content, self.buckets)

    def _numbers_of(self, wanted: Range) -> tuple[int, int]:
        """Return the numbers of the first and the last block of a range."""
        return self._last_block(wanted.begin + 1), self._last_block(wanted.end)

    def states(self, names: Sequence[Name]) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Yield states, as described for `HistoryStore.states`."""
        mine = _hashes_of(names)
        self._hashes = self._hashes | mine if self._hashes else mine
        hashes = [*mine.values()]
        for begin in range(0, len(hashes), LOOK_UP_MAX):
            part = hashes[begin : begin + LOOK_UP_MAX]
            marks = ", ".join("?" * len(part))
            text = f"SELECT number, {_STATE} FROM states WHERE hash IN ({marks})"  # noqa: S608 (marks)
            for number, key_bytes, row_bytes, content in self.run(text, part):
                key, row, state = self._parts(key_bytes, row_bytes, content)
                if (key, row) in mine:
                    self._numbers[key, row] = number
                    yield key, row, state

    def states_of(self, key: bytes) -> list[tuple[bytes, bytes]]:
        """Return a partition's states, as described for `HistoryPart.states_of`."""
        first = crc32(key) << _ROW_BITS
        text = f"SELECT {_STATE} FROM states WHERE hash >= ? AND hash < ?"  # noqa: S608 (ours)
        found = self.run(text, (first, first + (1 << _ROW_BITS))).fetchall()
        return [(row, state) for of, row, state in starmap(self._parts, found) if of == key]

    def keep_states(self, states: dict[Name, bytes], expiries: dict[Name, int]) -> None:
        """Store states, as described for `HistoryPart.keep_states`."""
        known = self._numbers
        groups, left, has_partition = new_rows(self._hashes, known, states, expiries, INSERT_MAX)
        if has_partition:
            self.run("UPDATE about SET has_partitions = 1")
        updated = [name for name in known if name in states]
        join = bytearray().join  # For bytes, sqlite3 looks up an adapter each time.
        rows = ((join((*n, states[n])), expiries.get(n, 0), known[n]) for n in updated)
        self.run_many("UPDATE states SET content = ?, expires = ? WHERE number = ?", rows)
        # Running a statement costs about as much as one of its rows.
        self.run_many(_INSERT + ", ".join([_ROW] * INSERT_MAX), groups)
        self.run_many(_INSERT + _ROW, left)
        self._numbers, self._hashes = {}, {}

    def due(self, until_s: int, count_max: int) -> list[tuple[bytes, bytes, bytes, int]]:
        """Return due states, as described for `HistoryPart.due`."""
        found = self.run(
            f"SELECT number, expires, {_STATE} FROM states WHERE 0 < expires "  # noqa: S608 (ours)
            "AND expires <= ? ORDER BY expires, number LIMIT ?",
            (until_s, count_max),
        )
        made = [(number, (*self._parts(*parts), at_s)) for number, at_s, *parts in found]
        self._numbers |= {each[:2]: number for number, each in made}
        return [each for _, each in made]

    def set_expiries(self, expiries: Mapping[Name, int]) -> None:
        """Set expiries, as described for `HistoryPart.set_expiries`."""
        found = ((at_s, self._numbers[name]) for name, at_s in expiries.items())
        self.run_many("UPDATE states SET expires = ? WHERE number = ?", found)

    def _parts(self, key_bytes: int, row_bytes: int, content: bytes) -> tuple[bytes, bytes, bytes]:
        """Return the key, the row and the state of a row of the table `states`."""
        at = key_bytes + row_bytes
        return content[:key_bytes], content[key_bytes:at], self._singles.folded(content[at:])

    def schemas(self) -> dict[int, RecordSchema]:
        """Return the schemas, as described for `HistoryStore.schemas`."""
        rows = self.run("SELECT number, table_name, text, schema_id, key, value FROM schemas")
        return {
            number: RecordSchema(table, text, schema_id, json.loads(key), json.loads(value))
            for number, table, text, schema_id, key, value in rows
        }

    def schema_number(self, schema: RecordSchema) -> int:
        """Return a schema's number, as described for `HistoryStore.schema_number`."""
        shapes = json.dumps(schema.key), json.dumps(schema.value)
        self.run(
            "INSERT OR IGNORE INTO schemas (schema_id, table_name, text, key, value) "
            "VALUES (?, ?, ?, ?, ?)",
            (schema.schema_id, schema.table, schema.text, *shapes),
        )
        found = self.run("SELECT number FROM schemas WHERE schema_id = ?", (schema.schema_id,))
        return int(found.fetchone()[0])

    def retain(self, retention_ms: int, now_ms: int, appended: int) -> None:
        """Remove more changes than were appended, as described for `HistoryPart.retain`."""
        first = arrival.first_of(max(0, now_ms - retention_ms))
        count_max = max(REMOVED_MIN, REMOVED_PER_CHANGE * appended)
        oldest = self.run("SELECT min(first) FROM blocks").fetchone()[0]
        if oldest is None or oldest >= first:
            return
        self.run("UPDATE about SET floor = max(floor, ?)", (first,))
        text = "SELECT number, first + count, count, written FROM blocks ORDER BY number LIMIT ?"
        end = written = count = 0
        for number, behind, of_block, of_written in self.run(text, (count_max,)):
            count += of_block
            if behind > first or (end and count > count_max):
                break
            end = number + 1
            # A source omits expiries, so it has not passed this event.
            written = max(written, of_written)
        if end:
            self.run("UPDATE about SET removed = max(removed, ?)", (written,))
            self.run("DELETE FROM blocks WHERE number < ?", (end,))
            self._keys.forget(end)


def _hashes_of(names: Sequence[Name]) -> dict[Name, int]:
    """Return hashes that identify states almost uniquely, in the order of the index.

    The order of rows in one partition is not defined.
    """
    return by_hash(list(names), crc32)


def make(
    path: Path, table: str, buckets: int, version: int = VERSION, also: Sequence[str] = ()
) -> None:
    """Make a file if it is missing, and execute *also* in it. Raises HistoryFileError."""
    with named_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if remote := remote_file_system(path):
        raise HistoryFileError(
            f"lies on a network file system ({remote}), where SQLite's locks cannot be trusted",
            place=str(path),
            hint="put `path` on a local disk",
        )
    if not path.exists():
        _make(path, table, buckets, version, also)


def version_of(path: Path) -> int:
    """Return the version of a file, or 0 if it is missing or not SQLite's.

    SQLite reads it, because a process that closes its own descriptor of the file loses all its
    locks on it, so that another process could remove the log that this one writes. Raises as
    `HistoryFile.opened`.
    """
    if not path.exists():
        return 0
    with named_errors(path):
        try:
            with contextlib.closing(_connect(path)) as connection:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                return int(version)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
                raise
            return 0


def _make(path: Path, table: str, buckets: int, version: int, also: Sequence[str]) -> None:
    """Make a new file. It is renamed when it has its tables, so it is never seen without."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with named_errors(path):
            made.touch(mode=0o600, exist_ok=False)  # It contains the values of rows.
            with contextlib.closing(_connect(made)) as connection:
                connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("BEGIN")
                for statement in (*_TABLES.split(";\n")[:-1], *also):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO about VALUES (1, ?, ?, 0, 0, 0, '{}', 0)", (table, buckets)
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {version}")
                connection.execute("COMMIT")
            with contextlib.suppress(FileExistsError):  # Another process was first.
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
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    except sqlite3.Error:  # For example, it is not a database.
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path, expected: int) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise HistoryFileError(
            "is not the file of a history",
            place=str(path),
            hint="`path` names the file that headrace makes: give a path of its own",
        )
    if version != expected:
        raise HistoryFileError(
            f"has version {version}, this headrace knows {expected}", place=str(path)
        )

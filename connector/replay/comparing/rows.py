"""Rows in a form in which a folded topic and a table can be compared.

Folding needs all changes of a row, so a task keeps the states of its rows in a file of its own, and
its memory use does not grow with them. Only the envelope `cep44` in Avro has enough information.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

import msgspec

from headrace.connector.replay.comparing.messages import plain
from headrace.connector.rows.folding import (
    NEVER,
    State,
    TableView,
    Value,
    collected,
    deleted_until,
    is_live,
    lives,
    partition_key,
    row_key,
)
from headrace.plugins import Document, RecordSchema

CACHE_KIB: Final = 64 * 1024  # Memory for a task's file of rows.
_HASHED: Final = msgspec.msgpack.Encoder(order="deterministic")
_UNPACK: Final = msgspec.msgpack.Decoder()
_HASH_BYTES: Final = 8
_NAME_BYTES: Final = 16
_BEGINNING: Final = 0  # Before anything expires.


class CellState(NamedTuple):
    """A column's value: its write time in µs, its hash, and its expiry.

    A column with many values, such as a set, has no time. A deletion has an empty hash.
    """

    time_us: int | None
    content: bytes
    expires_s: int | None = None

    def lives(self, at_s: int) -> bool:
        """Return whether there is a value at *at_s*."""
        return bool(self.content) and (self.expires_s is None or self.expires_s > at_s)


class RowState(NamedTuple):
    """A row, or the static columns of a partition, by CQL names of columns; `key` is a message's.

    `deleted_us` is the newest deletion of the whole row; `shown` says whether SELECT shows it.
    """

    table: str
    key: bytes
    name: bytes
    cells: Mapping[str, CellState]
    deleted_us: int
    shown: bool

    @property
    def newest_us(self) -> int:
        """The newest write time that is known; 0 if none is."""
        return max([c.time_us for c in self.cells.values() if c.time_us is not None], default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """The compared values: written from `from_us` on and before `to_us`, and alive at `at_s`."""

    from_us: int | None = None
    to_us: int | None = None
    at_s: int = 0

    def within(self, row: RowState) -> RowState | None:
        """Return *row* with its values that live and count; None if there are none."""
        cells = {
            name: cell
            for name, cell in row.cells.items()
            if cell.lives(self.at_s) and (cell.time_us is None or self.counts(cell.time_us))
        }
        if not row.shown or (not cells and self.from_us is not None):
            return None
        return row._replace(cells=cells)

    def counts(self, time_us: int) -> bool:
        """Return whether a value with this write time is compared."""
        return (self.from_us is None or time_us >= self.from_us) and not self.is_recent(time_us)

    def is_recent(self, time_us: int) -> bool:
        """Return whether a value with this write time may not have arrived yet."""
        return self.to_us is not None and time_us >= self.to_us


class RowReader:
    """Reads rows of tables by their current schemas; columns that these do not have are ignored."""

    def __init__(self, tables: Mapping[str, RecordSchema], at_s: int) -> None:
        """Rows are shown as they are at *at_s*."""
        self._tables = tables
        self._now = {name: TableView(schema) for name, schema in tables.items()}
        self._views: dict[bytes, TableView] = {}
        self._at_s = at_s

    def view(self, schema_id: bytes, value: Document, table: str) -> TableView | None:
        """Return the view of messages of a schema; None for a table that is not compared."""
        view = self._views.get(schema_id)
        if view is None and table in self._tables:
            schema = replace(self._tables[table], schema_id=schema_id, value=value)
            view = self._views[schema_id] = TableView(schema)
        return view

    def of_one(self, view: TableView, document: Document, key: bytes) -> RowState:
        """Return the row of a single change: an INSERT, or static columns."""
        name = row_key(document, view)
        state: State = _UNPACK.decode(view.folded(None, document))
        return self.row(name, key, state, None)

    def row(self, packed: bytes, key: bytes, state: State, partition: State | None) -> RowState:
        """Return the row of a state, whose partition's state is *partition*."""
        table, _, clustering = _UNPACK.decode(packed)
        view = self._now[table]
        if clustering is None:
            after, live = state["deleted"], False
        else:
            after = deleted_until(view, clustering, state, partition)
            live = is_live(state, after, self._at_s)
        cells = {
            view.names[name]: self._cell(view, name, column, after)
            for name, column in state["columns"].items()
            if name in view.names
        }
        shown = live or any(cell.lives(self._at_s) for cell in cells.values())
        return RowState(table, key, _hash(packed, _NAME_BYTES), cells, after, shown)

    def _cell(self, view: TableView, name: str, column: Any, after: int) -> CellState:  # noqa: ANN401 (plain data)
        if not isinstance(column, Mapping):
            written, expires, content = column
            if written <= after or content is None:
                return CellState(max(written, after), b"")
            return CellState(written, _hash_of(content[1]), expires)
        since = max(after, column["deleted"])
        cells = column["cells"].values()
        found = [c for c in cells if lives(c, since, self._at_s)]
        was = found or [c for c in cells if lives(c, since, _BEGINNING)]
        if not was:
            return CellState(None if since == NEVER else since, b"")
        expires = min((each[1] for each in was if each[1] is not None), default=None)
        shown = collected(view, name, [content for _, _, content in was])
        return CellState(None, _hash_of(shown), expires)

    def has_expired(self, row: RowState) -> bool:
        """Return whether a row that is not shown was shown before it expired."""
        return not row.shown and any(cell.lives(_BEGINNING) for cell in row.cells.values())


class FoldedRows:
    """Folds the changes of a task to rows. For one thread; use it in a `with`."""

    def __init__(self, reader: RowReader) -> None:
        """Open a temporary file."""
        self._reader = reader
        self._file = sqlite3.connect("", isolation_level=None)
        self._file.execute("PRAGMA journal_mode = OFF")
        self._file.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        self._file.execute(
            "CREATE TABLE rows (name BLOB PRIMARY KEY, key BLOB, state BLOB) WITHOUT ROWID"
        )

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the file."""
        self._file.close()

    def add(self, view: TableView, document: Document, key: bytes) -> None:
        """Fold one more change."""
        name = row_key(document, view)
        state = view.folded(self._state(name), document)
        self._file.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", (name, key, state))

    def rows(self) -> Iterator[RowState]:
        """Yield all rows, including those that are not shown, but no ranges of a partition."""
        with closing(self._file.execute("SELECT name, key, state FROM rows")) as found:
            for name, key, state in found:
                table, partition, clustering = _UNPACK.decode(name)
                whole = None
                if clustering is not None:
                    whole = self._state(partition_key(table, partition))
                of_partition = None if whole is None else _UNPACK.decode(whole)
                yield self._reader.row(name, key, _UNPACK.decode(state), of_partition)

    def _state(self, name: bytes) -> bytes | None:
        found = self._file.execute("SELECT state FROM rows WHERE name = ?", (name,)).fetchone()
        return None if found is None else bytes(found[0])


def digest(row: RowState) -> bytes:
    """Return the name of a row with exactly these values and times."""
    cells = sorted((name, cell.time_us, cell.content) for name, cell in row.cells.items())
    return _hash(_HASHED.encode([row.table, row.name, cells]), _NAME_BYTES)


def _hash_of(value: Value) -> bytes:
    return _hash(_HASHED.encode(plain(value)), _HASH_BYTES)


def _hash(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()

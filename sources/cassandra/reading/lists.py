"""Lists that are not frozen, as the table shows them: `lists: read`.

A log identifies elements by ids, and only Cassandra knows their places in a list. Here a list that
a change wrote is replaced by the whole list, as a query returned it after the change: in mode
`replace`, deleted and written at the time of the read, so that the last read wins.

The queries run on a separate thread, those of one batch together. Everything else runs on the data
thread, which polls whether they are done, and meanwhile continues with other splits.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.plugins import Context, FatalError, HeadraceError, RetriableError
from headrace.sources.cassandra.encode.list_modes import CELLS
from headrace.sources.cassandra.mutation.changes import Change, ClusteringValues
from headrace.sources.cassandra.mutation.snapshot import list_as_read
from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema

BYTES_MAX: Final = 256 << 20  # Of the lists of one batch.
ROWS_MAX: Final = 1_000  # Maximum entries of a batch, to limit its lists.
_US_PER_MS: Final = 1_000
_US_PER_S: Final = 1_000_000


class ListsUnreadError(RetriableError):
    """A list could not be read: the query timed out, or too few replicas answered."""

    code = "lists_unread"


class ListsRefusedError(FatalError):
    """Cassandra refuses to read a list, or the lists do not fit into memory."""

    code = "lists_refused"


class RowName(NamedTuple):
    """The row that contains a list; a static row has no clustering."""

    table_id: UUID
    key: tuple[bytes, ...]
    clustering: ClusteringValues | None


class Wanted(msgspec.Struct, frozen=True):
    """The columns to read of one row."""

    table: TableSchema
    name: RowName
    columns: tuple[ColumnSchema, ...]


class ListValue(msgspec.Struct, frozen=True):
    """A list as the node serialises it, or None; *ttls_s* are of its elements, if known."""

    raw: bytes | None
    ttls_s: tuple[int | None, ...] = ()


Found = Mapping[str, ListValue]  # By column name.


class ListQuery(Protocol):
    """Reads lists. Called on one thread, not the data thread; it may block."""

    def read(self, rows: Sequence[Wanted]) -> Sequence[Found | HeadraceError]:
        """Return each row's lists, or the error. A deleted row has no list."""

    def close(self) -> None:
        """Disconnect. Called on another thread; running queries fail."""


class Lists:
    """Reads lists for all splits; *unread* is the value of the option `lists_unread`."""

    def __init__(self, query: ListQuery, context: Context, *, unread: str) -> None:
        """Start with nothing read."""
        self.unread = unread
        self.log = context.log
        self._query = query
        self._clock = context.clock
        self._read_us = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lists")

    def of(self, changes: Iterable[Change]) -> "Reading":
        """Return a reading of the lists that *changes* wrote, one query per row."""
        columns: dict[RowName, dict[str, ColumnSchema]] = {}
        tables: dict[RowName, TableSchema] = {}
        for change in changes:
            name = row_of(change)
            tables[name] = change.table
            written = columns.setdefault(name, {})
            written.update({c.name: c.schema for c in change.columns if c.schema.is_list})
        rows = [Wanted(tables[n], n, tuple(written.values())) for n, written in columns.items()]
        return Reading(self, [row for row in rows if row.columns])

    def ask(self, rows: Sequence[Wanted]) -> "tuple[int, Future[Sequence[Found | HeadraceError]]]":
        """Start to read *rows*; return the start time in µs, which is unique."""
        self._read_us = max(self._clock.wall_ms() * _US_PER_MS, self._read_us + 1)
        return self._read_us, self._thread.submit(self._query.read, rows)

    def close(self) -> None:
        """Disconnect; running reads are abandoned."""
        self._query.close()
        self._thread.shutdown(wait=True, cancel_futures=True)


class Reading:
    """The lists of one batch: call `ready` until it returns True, then `applied`."""

    def __init__(self, lists: Lists, rows: Sequence[Wanted]) -> None:
        """Keep *rows* without querying yet."""
        self._lists = lists
        self._missing = list(rows)
        self._asked: Future[Sequence[Found | HeadraceError]] | None = None
        self._asked_us = 0
        self._found: dict[RowName, tuple[int, Found]] = {}
        self.size_bytes = 0

    def ready(self) -> bool:
        """Return whether everything is read; otherwise make sure that reading has started.

        Raises:
            ListsUnreadError: some could not be read; the next call reads these again.
            ListsRefusedError: some cannot be read at all.

        """
        if self._missing and self._asked is None:
            self._asked_us, self._asked = self._lists.ask(self._missing)
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            self._take(asked.result())
        return not self._missing

    def wait(self) -> None:
        """Block until the queries are answered."""
        if self._asked is not None:
            self._asked.exception()

    def applied(self, change: Change) -> Change | None:
        """Return *change* with the lists that were read, or None if there were none."""
        if not any(column.schema.is_list for column in change.columns):
            return None
        asked_us, found = self._found.get(row_of(change), (0, {}))
        if not found:
            return None
        columns = [
            list_as_read(
                column.schema,
                found[column.name].raw,
                found[column.name].ttls_s,
                read_us=max(asked_us, change.timestamp_us),
                now_s=asked_us // _US_PER_S,
            )
            if column.schema.is_list
            else column
            for column in change.columns
        ]
        return replace(change, columns=tuple(columns))

    def _take(self, results: Sequence[Found | HeadraceError]) -> None:
        errors: list[HeadraceError] = []
        missing: list[Wanted] = []
        for row, result in zip(self._missing, results, strict=True):
            if not isinstance(result, HeadraceError):
                self._found[row.name] = self._asked_us, result
                self.size_bytes += sum(len(value.raw or b"") for value in result.values())
            else:
                errors.append(result)
                missing.append(row)
        self._missing = missing
        if self.size_bytes > BYTES_MAX:
            hint = "lower runtime.batch_records_max"
            said = f"the lists of {len(self._found)} rows are more than {BYTES_MAX} bytes"
            raise ListsRefusedError(said, hint=hint)
        refused = [e for e in errors if not isinstance(e, RetriableError)]
        if refused or (errors and self._lists.unread != CELLS):
            raise (refused or errors)[0]
        if errors:
            self._lists.log.warning("lists_unread", rows=len(errors), error=str(errors[0]))
            self._missing = []


def row_of(change: Change) -> RowName:
    """Return the row that a change belongs to."""
    clustering = None if change.is_static else change.clustering
    return RowName(change.table.table_id, change.key, clustering)

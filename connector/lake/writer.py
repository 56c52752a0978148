"""Writes changes into the tables of a lake, exactly once for each split.

A commit first stages its rows together with the positions, then adds them to the tables. The next
writer finishes an incomplete commit.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from headrace import plugins
from headrace.connector.foundation import crash
from headrace.connector.lake.config import UPSERT
from headrace.connector.lake.errors import LakeSchemaError
from headrace.connector.lake.folding import Change, folded
from headrace.connector.lake.rows import GONE, Row, TableShape, joined, table_of
from headrace.connector.lake.staging import CommitsFile, Staged
from headrace.plugins.records.codecs import CONTROL_TABLE, SCHEMA_ID_HEADER

ROWS_MAX: Final = 20_000  # Rows of a snapshot in one commit.
_WINDOW_MS: Final = 86_400_000 * 365  # Nothing is dropped for its age.


class Lake(Protocol):
    """The tables of a lake, by the names of the source's tables. For one thread; blocking.

    Each method raises RetriableError if others commit to the same table at the same time, or the
    lake cannot be reached.
    """

    place: str

    def schema(self, table: str) -> pa.Schema | None:
        """Return the columns of a table; None if it does not exist."""

    def widen(self, table: str, schema: pa.Schema) -> None:
        """Make a table with these columns, or add those that it does not have."""

    def committed(self, table: str, writer: str) -> int:
        """Return the number of the last commit of *writer* to a table; 0 if there is none."""

    def append(self, table: str, rows: pa.Table, writer: str, number: int) -> None:
        """Add rows, as the commit *number* of *writer*."""

    def upsert(  # noqa: PLR0913 (what is written, and as what)
        self,
        table: str,
        rows: pa.Table,
        gone: pa.Table,
        *,
        keys: Sequence[str],
        writer: str,
        number: int,
    ) -> None:
        """Replace or add *rows* and remove *gone*, by the columns *keys*, as one commit."""

    def close(self) -> None:
        """Close the connections. May be called twice."""


class LakeTransactions(plugins.TransactionalWriter):
    """See `TransactionalWriter`. Submitted changes stay in memory until they are committed."""

    window_ms = _WINDOW_MS
    renewal = "remove the sink's file of positions, and its tables"

    def __init__(
        self, lake: Lake, file: CommitsFile, split: str, mode: str, context: plugins.Context
    ) -> None:
        """Write to *lake*; the writer closes it, and *file*."""
        self.place = str(file.path)
        self._lake = lake
        self._file = file
        self._split = f"{context.job}/{split}"
        self._upserts = mode == UPSERT
        self._context = context
        self._epoch = 0
        self._number = 0
        self._decided = False
        self._changes: list[Change] = []
        self._shapes: dict[bytes, TableShape] = {}
        # By table: changes with an older schema may come late, without newer columns.
        self._widest: dict[str, TableShape] = {}

    def begin(self, deadline_ms: int) -> Mapping[str, bytes] | None:
        """See `TransactionalWriter.begin`."""
        del deadline_ms  # SQLite has its own deadline.
        self._changes, self._decided = [], False
        try:
            with self._file.writing():
                epoch, self._number = self._file.writer(self._split)
                if epoch > self._epoch > 0:
                    raise self._fenced()
                self._epoch = epoch + 1
                self._file.set_writer(self._split, self._epoch, self._number)
                entries = self._file.entries(self._split)
            self._add_staged()
        except plugins.RetriableError as error:
            self.awaited = f"{error.place}: {error.message}"
            return None
        return entries

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Keep *delivery* until `commit`.

        Raises:
            LakeSchemaError: a change names an unknown schema.

        """
        encoded = delivery.encoded
        for table, content, headers in zip(
            encoded.tables, encoded.values, encoded.headers, strict=True
        ):
            if table != CONTROL_TABLE:
                shape = self._shape(dict(headers).get(SCHEMA_ID_HEADER, b""), delivery)
                self._changes.append((shape, content, shape.read(content)))
        settle(range(len(encoded)))

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (nothing is ever unsettled)
        """Return True."""
        return True

    def commit(self, entries: Mapping[str, bytes | None], deadline_ms: int) -> bool:
        """See `TransactionalWriter.commit`.

        Raises also:
            LakeSchemaError: a table has a column of another type. Nothing was committed.

        """
        del deadline_ms
        if not self._decided:
            try:
                made = () if self._upserts else self._added()  # Others need not wait for it.
                with self._file.writing():
                    if self._file.writer(self._split)[0] != self._epoch:
                        raise self._fenced()
                    for staged in self._folded() if self._upserts else made:
                        self._file.stage(self._split, staged)
                    self._file.keep_entries(self._split, entries)
                    self._file.set_writer(self._split, self._epoch, self._number + 1)
            except plugins.RetriableError as error:
                raise plugins.AbortedError(
                    error.message, place=error.place, hint=error.hint
                ) from error
            self._number += 1
            self._changes, self._decided = [], True
            crash.reached("lake_staged")
        try:
            self._add_staged()
        except plugins.RetriableError as error:
            self._context.log.warning("lake_commit_delayed", place=error.place, why=error.message)
            return False
        self._decided = False
        return True

    def close(self) -> None:
        """Close the tables and the file; discards uncommitted changes."""
        self._changes = []
        self._lake.close()
        self._file.close()

    def forget(self) -> None:
        """Remove this writer's data from the file; it never comes back."""
        with self._file.writing():
            self._file.forget(self._split)

    def _fenced(self) -> plugins.FencedError:
        return plugins.FencedError(
            f"split {self._split} has a later writer", place=self.place, hint="claim it again"
        )

    def _shape(self, schema_id: bytes, delivery: plugins.Delivery) -> TableShape:
        known = self._shapes.get(schema_id)
        if known is None:
            schema = delivery.schemas.get(schema_id)
            if schema is None:
                said = f"a change names an unknown schema, {schema_id.hex()}"
                raise LakeSchemaError(said, place=self._lake.place)
            known = self._shapes[schema_id] = TableShape(schema, self._context.origin)
            widest = self._widest.setdefault(schema.table, known)
            if len(known.of_rows) >= len(widest.of_rows):
                self._widest[schema.table] = known
        return known

    def _folded(self) -> Sequence[Staged]:
        """Fold all submitted changes; return the changed rows of each table."""
        now_s = self._context.clock.wall_ms() // 1_000
        states = folded(self._file, self._changes, self._widest, now_s)
        widest = self._widest
        return [
            self._staged(table, rows, [widest[table].of_rows], widest[table].keys)
            for table, rows in states.items()
        ]

    def _added(self) -> Sequence[Staged]:
        """Return a row for each submitted change, by table."""
        made: dict[str, list[Row]] = {}
        shapes: dict[str, dict[TableShape, None]] = {}
        for shape, _, document in self._changes:
            made.setdefault(shape.view.table, []).append(shape.change(document))
            shapes.setdefault(shape.view.table, {})[shape] = None
        return [
            self._staged(table, rows, [shape.of_changes for shape in shapes[table]], ())
            for table, rows in made.items()
        ]

    def _staged(
        self, table: str, rows: Sequence[Row], schemas: Sequence[pa.Schema], keys: Sequence[str]
    ) -> Staged:
        place = f"{self._lake.place}, table {table}"
        there = self._lake.schema(table)
        for schema in schemas if there is not None else ():
            joined(there, schema, place)
        found = table_of(rows, schemas, place)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)
        return Staged(self._number + 1, table, sink.getvalue().to_pybytes(), keys)

    def _add_staged(self) -> None:
        """Add staged rows to the tables that do not have them; then remove them."""
        if not self._file.staged(self._split):
            return
        with self._file.adding():
            for each in self._file.staged(self._split):  # A later writer may have added it.
                if self._lake.committed(each.table, self._split) < each.number:
                    self._add(each)
            crash.reached("lake_added")
            with self._file.writing():
                self._file.unstage(self._split)

    def _add(self, staged: Staged) -> None:
        with pa.ipc.open_stream(staged.rows) as reader:
            rows = reader.read_all()
        lake, table, number = self._lake, staged.table, staged.number
        if not staged.keys:
            lake.widen(table, rows.schema)
            lake.append(table, rows, self._split, number)
            return
        gone = rows.column(GONE)
        kept = rows.filter(pc.invert(gone)).drop_columns([GONE])
        lake.widen(table, kept.schema)
        removed = rows.filter(gone).select(list(staged.keys))
        lake.upsert(table, kept, removed, keys=staged.keys, writer=self._split, number=number)


class LakeWriter(plugins.Writer):
    """Writes records without a split, such as rows of a snapshot: at least once.

    Submitted records are settled when the tables have them.
    """

    def __init__(self, lake: Lake, file: CommitsFile, mode: str, context: plugins.Context) -> None:
        """Write to *lake*; the writer closes it, and *file*."""
        self._own = LakeTransactions(lake, file, str(uuid4()), mode, context)
        self._waiting: list[tuple[plugins.Delivery, plugins.Settle]] = []
        self._taken = 0  # How many are in the current commit.
        self._rows = 0
        self._begun = False

    def submit(self, delivery: plugins.Delivery, settle: plugins.Settle) -> None:
        """Keep *delivery* until there are enough rows, or `drain` is called."""
        self._waiting.append((delivery, settle))
        self._rows += len(delivery.encoded)
        if self._rows >= ROWS_MAX:
            self._flush()

    def drain(self, deadline_ms: int) -> bool:  # noqa: ARG002 (the lake's libraries have their own)
        """Commit submitted records, and settle them."""
        return self._flush()

    def close(self) -> None:
        """Close the file; uncommitted records stay unsettled."""
        if self._begun:
            self._begun = False
            self._own.forget()
        self._own.close()

    def _flush(self) -> bool:
        while self._waiting:
            if not self._taken and not self._take():
                return False
            try:
                if not self._own.commit({}, 0):
                    return False
            except plugins.AbortedError:
                self._taken = 0
                return False
            for delivery, settle in self._waiting[: self._taken]:
                settle(range(len(delivery.encoded)))
                self._rows -= len(delivery.encoded)
            del self._waiting[: self._taken]
            self._taken = 0
        return True

    def _take(self) -> bool:
        """Put all waiting records into a new commit, which replaces an aborted one."""
        if self._own.begin(0) is None:
            return False
        self._begun = True
        for delivery, _ in self._waiting:
            self._own.submit(delivery, lambda *_: None)
        self._taken = len(self._waiting)
        return True

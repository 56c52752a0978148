"""Agreed mutations to columns in Arrow's layout: their messages, and one table's typed values.

Separate from the transcoder, whose walk it is: what it writes goes into `ValueColumn`s, and no
object is made for a message. For one thread.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from headrace.plugins import EncodedRecords, Facts
from headrace.plugins.columns import (
    CELLS_TYPE,
    UNFIT_TYPE,
    ColumnKind,
    ColumnType,
    Pieces,
    TableType,
    TypedChanges,
)
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.avro_schema import payload_columns
from headrace.sources.cassandra.intake import Outbox
from headrace.sources.cassandra.schema import TableSchema
from headrace.sources.cassandra.table_plan import EpochSource, TablePlan
from headrace.sources.cassandra.transcode import Transcoder
from headrace.sources.cassandra.types import CqlType
from headrace.sources.cassandra.value_columns import ValueColumn

_NOWHERE = -1
_PATH_BYTES = 2  # Of a UDT's field position.


class TypedColumns:
    """The columns of one table's changes, and what values do not say."""

    def __init__(self, target: TableType) -> None:
        """Begin with no change."""
        self.target = target
        self.row = ValueColumn(target.row)
        self.cells = ValueColumn(CELLS_TYPE)
        self.unfit = ValueColumn(UNFIT_TYPE)
        self.has_bounds = target.bounds is not None
        self.bounds = ValueColumn(target.bounds)
        self.cell: ValueColumn = self.cells.children[0]
        self.cell.children[1].bind(CqlType("blob"))
        self.misfit: ValueColumn = self.unfit.children[0]
        self.fields: list[ValueColumn] = []
        self.absent: list[ValueColumn] = []
        self.names: list[bytes] = []

    def begin(self) -> None:
        """Begin anew."""
        for column in (self.row, self.cells, self.unfit, self.bounds):
            column.begin()

    def truncate(self, count: int) -> None:
        """Take back what was written behind the first *count* changes."""
        for column in (self.row, self.cells, self.unfit, self.bounds):
            column.truncate(count)

    def bind(self, table: TableSchema) -> None:
        """Take changes of *table* from now on; `fields` are by the place in its payload."""
        names = [name for name, _ in self.target.row.fields]
        columns = payload_columns(table)
        self.names = [column.name.encode() for column in columns]
        self.fields = []
        for column in columns:
            known = column.name in names
            field = self.row.children[names.index(column.name)] if known else ValueColumn(None)
            field.bind(column.type)
            self.fields.append(field)
        own = {column.name for column in columns}
        self.absent = [c for n, c in zip(names, self.row.children, strict=True) if n not in own]
        for side in self.bounds.children:
            for column, value in zip(table.clustering, side.children[0].children, strict=True):
                value.bind(column.type)

    def changes(self, facts: Facts, encoded: EncodedRecords | None) -> TypedChanges:
        """Return what was written, in memory that stays as it is, and begin anew."""
        made = TypedChanges(
            self.row.buffers(),
            self.cells.buffers(),
            self.unfit.buffers(),
            self.bounds.buffers() if self.has_bounds else None,
            facts,
            encoded,
        )
        self.begin()
        return made

    def note_unfit(self, column: int) -> int:
        """Say that the value of a column is null only because its type cannot hold it."""
        return self.misfit.constant(self.names[column])

    def close_row(self) -> int:
        """End a change."""
        for column in self.absent:
            column.null()
        self.row.finish()
        self.cells.finish()
        return self.unfit.finish()


class MessageColumns(Transcoder):
    """Encodes outboxes; all keys lie side by side in memory, and all values."""

    def __init__(self, epochs: EpochSource) -> None:
        """Encode each mutation with what *epochs* gives for its epoch."""
        super().__init__(epochs)
        self.key_column = ValueColumn(ColumnType(ColumnKind.BYTES))
        self.value_column = ValueColumn(ColumnType(ColumnKind.BYTES))

    def joined(self, outbox: Outbox, nodes: Sequence[str]) -> EncodedRecords:
        """Encode every mutation, as `encode` does; keys and values are `Pieces`."""
        self.key_column.truncate(0)
        self.value_column.truncate(0)
        encoded = self.encode(outbox, nodes)
        keys = Pieces(self.key_column.buffers())
        values = Pieces(self.value_column.buffers())
        self.key_column.begin()
        self.value_column.begin()
        return replace(encoded, keys=keys, values=values)

    def _undo(self) -> None:
        Transcoder._undo(self)  # noqa: SLF001 (super() is slow in C)
        self.key_column.truncate(self.made)
        self.value_column.truncate(self.made)

    def _finish(self, tail: int, tail_end: int) -> None:
        out = self.out
        column = self.value_column
        begin = 0
        for i in range(self.end_count):
            end = self.ends[i]
            column.join(out.out, begin, end, tail, tail_end)
            self.bodies.append(b"")
            begin = end

    def _keep(self, plan: TablePlan, operation: int, timestamp: int) -> None:
        Transcoder._keep(  # noqa: SLF001 (super() is slow in C)
            self, plan, operation, timestamp
        )
        self.key_column.constant(self.key)


class ColumnWriter(MessageColumns):
    """Encodes outboxes; only changes of one table are kept."""

    def __init__(
        self,
        epochs: EpochSource,
        tables_of: Callable[[int], Sequence[TableSchema]],
        target: TableType,
        *,
        with_messages: bool,
    ) -> None:
        """Write what *target* says; *tables_of* gives an epoch's tables, in the order of plans."""
        super().__init__(epochs)
        self.takes_plain = 0  # Columns are written from operations.
        self.tables_of = tables_of
        self.name = target.table
        self.with_messages = with_messages
        self.typed = TypedColumns(target)
        self.by_plan: dict[TablePlan, TableSchema] = {}
        self.bound: TablePlan | None = None
        self.other: TablePlan | None = None
        self.fields: list[ValueColumn] = []
        self.cell_column = self.typed.cell

    def write(self, outbox: Outbox, nodes: Sequence[str]) -> EncodedRecords:
        """Write every change of the table; as messages too, or else only what was quarantined."""
        typed = self.typed
        typed.truncate(0)
        for column in (typed.row, typed.cells, typed.bounds):
            column.attach(outbox.data)
        return self.joined(outbox, nodes)

    def _enter(self, outbox: Outbox, epoch: int) -> None:
        Transcoder._enter(self, outbox, epoch)  # noqa: SLF001 (super() is slow in C)
        self.by_plan = {}
        for i, table in enumerate(self.tables_of(epoch)):
            plan = self.plans[i]
            if plan.delivered and table.qualified == self.name:
                self.by_plan[plan] = table
        self.bound = self.other = None

    def _undo(self) -> None:
        MessageColumns._undo(self)  # noqa: SLF001 (super() is slow in C)
        self.typed.truncate(self.made)

    def _is_wanted(self, plan: TablePlan) -> int:
        table = self.by_plan.get(plan)
        if table is None:
            self.other = plan
            return 0
        self.typed.bind(table)
        self.fields = self.typed.fields
        self.bound = plan
        return 1

    def _write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> None:
        if plan is self.bound or (plan is not self.other and self._is_wanted(plan)):
            if self.with_messages:
                Transcoder._write(  # noqa: SLF001 (super() is slow in C)
                    self, plan, operation, timestamp, row, ended
                )
            else:
                self._keep_facts(len(self.bodies), timestamp, operation, self.index - 1, self.at)
                self.bodies.append(b"")
            self._write_columns(plan, operation, timestamp, row, ended)

    def _write_columns(
        self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int
    ) -> None:
        is_row = operation <= codes.OP_DELETE
        flags = self.words[row + codes.FLAGS] if is_row else 0
        ttl = 0
        expires = -1
        if operation == codes.OP_INSERT and flags & codes.HAS_TTL:
            ttl = self.words[row + codes.TTL]
            expires = self.words[row + codes.LDT]
            self._note(_NOWHERE, 0, _NOWHERE, timestamp, ttl, expires, 0)
        self._write_key(plan, row if is_row and not flags & codes.ROW_STATIC else _NOWHERE)
        rich = 0
        for column in range(plan.first_cell, plan.payload_count):
            field = self.fields[column]
            cell = self.where[column] if self.column_count else _NOWHERE
            if cell < 0:
                field.null()
                continue
            if plan.complex[column]:
                rich = 1
                unfit = self._write_elements(plan, field, column, cell)
            elif self.words[cell + codes.FLAGS] & codes.IS_DELETED:
                unfit = field.null()
            else:
                unfit = field.value(self.words[cell + codes.START], self.words[cell + codes.LENGTH])
            if unfit:
                self.typed.note_unfit(column)
        if self.column_count and (
            rich
            or self.special
            or expires >= 0
            or self.newest_simple > timestamp
            or self.oldest_simple < timestamp
        ):
            self._write_cells(plan, timestamp, ttl, expires)
        self.typed.close_row()
        if self.typed.has_bounds:
            self._write_bounds(plan, row, ended)

    def _write_key(self, plan: TablePlan, row: int) -> None:
        """Write the columns of the primary key; without *row* the clustering columns are null."""
        if plan.key_count == 1:
            field = self.fields[0]
            if field.value(self.key_start, self.key_length):
                self.typed.note_unfit(0)
        else:
            at = self.key_start
            for i in range(plan.key_count):
                length = self._part_length(plan, at, self.key_start + self.key_length)
                field = self.fields[i]
                if field.value(at + 2, length):
                    self.typed.note_unfit(i)
                at += length + 3
        at = row + codes.WIDTH
        for i in range(plan.key_count, plan.first_cell):
            field = self.fields[i]
            if row >= 0 and at < self.end and self.words[at] == codes.VALUE:
                if field.value(self.words[at + codes.START], self.words[at + codes.LENGTH]):
                    self.typed.note_unfit(i)
                at += codes.WIDTH
            else:
                field.null()

    def _write_elements(self, plan: TablePlan, field: ValueColumn, column: int, at: int) -> int:
        """Write what live cells of a complex column hold; null where there is none."""
        kind = plan.kind[column]
        if not field.takes_parts():
            return field.refuse()
        at += codes.WIDTH
        if kind == codes.COMPLEX_UDT:
            return self._write_fields(field, at)
        is_set = kind == codes.COMPLEX_SET
        width = len(field.children)
        count = unfit = 0
        while self._is_path_cell(at):
            flags = self.words[at + codes.FLAGS]
            if not flags & (codes.HIDDEN | codes.IS_DELETED):
                count += 1
                child = field.children[0]
                if field.is_map or is_set:
                    unfit |= child.value(
                        self.words[at + codes.PATH], self.words[at + codes.PATH_LENGTH]
                    )
                    child = field.children[width - 1]
                if not is_set:
                    unfit |= child.value(
                        self.words[at + codes.START], self.words[at + codes.LENGTH]
                    )
            at += codes.WIDTH
        if not count:
            return field.null()
        if field.is_map:
            return field.close_map(unfit)
        field.finish()
        return unfit

    def _write_fields(self, field: ValueColumn, at: int) -> int:
        """Write the fields of a UDT that live cells give; null where there is none."""
        begin = at
        live = 0
        while self._is_path_cell(at):
            live += not self.words[at + codes.FLAGS] & (codes.HIDDEN | codes.IS_DELETED)
            at += codes.WIDTH
        if not live:
            return field.null()
        unfit = 0
        for i in range(len(field.order)):
            child = field.order[i]
            found = self._field_cell(begin, at, i)
            if found < 0:
                child.null()
            else:
                unfit |= child.value(
                    self.words[found + codes.START], self.words[found + codes.LENGTH]
                )
        field.close_fields()
        return unfit

    def _field_cell(self, at: int, end: int, number: int) -> int:
        """Return the live cell of the UDT's field *number*; -1 where there is none."""
        while at < end:
            path = self.words[at + codes.PATH]
            if (
                not self.words[at + codes.FLAGS] & (codes.HIDDEN | codes.IS_DELETED)
                and self.words[at + codes.PATH_LENGTH] == _PATH_BYTES
                and (self.buf[path] << 8 | self.buf[path + 1]) == number
            ):
                return at
            at += codes.WIDTH
        return _NOWHERE

    # ---- what values do not say ----

    def _write_cells(self, plan: TablePlan, timestamp: int, ttl: int, expires: int) -> None:
        for i in range(self.column_count):
            column = self.columns[i]
            at = self.where[column]
            if not plan.complex[column]:
                self._write_cell(column, at, timestamp, ttl, expires)
                continue
            if self.words[at + codes.FLAGS] & 1:
                written = self.words[at + codes.TIMESTAMP]
                self._note(column, 0, _NOWHERE, written, 0, _NOWHERE, 1)
            at += codes.WIDTH
            while self._is_path_cell(at):
                if not self.words[at + codes.FLAGS] & codes.HIDDEN:
                    self._write_cell(column, at, timestamp, ttl, expires)
                at += codes.WIDTH

    def _write_cell(self, column: int, at: int, timestamp: int, ttl: int, expires: int) -> None:
        flags = self.words[at + codes.FLAGS]
        deleted = flags & codes.IS_DELETED
        written = self.words[at + codes.TIMESTAMP]
        own_ttl = 0
        own_expires = -1
        if flags & codes.IS_EXPIRING:
            own_ttl = self.words[at + codes.TTL]
            own_expires = self.words[at + codes.LDT]
        if deleted or written != timestamp or own_ttl != ttl or own_expires != expires:
            path, length = self.words[at + codes.PATH], self.words[at + codes.PATH_LENGTH]
            self._note(column, path, length, written, own_ttl, own_expires, deleted)

    def _note(  # noqa: PLR0913, PLR0917 (C: a cell's fields)
        self,
        column: int,
        path: int,
        length: int,
        timestamp: int,
        ttl: int,
        expires: int,
        deleted: int,
    ) -> None:
        """Say of a cell, or of the row (*column* -1), what its value does not."""
        parts = self.cell_column.children
        name = parts[0]
        element = parts[1]
        written = parts[2]
        lives = parts[3]
        ends = parts[4]
        gone = parts[5]
        if column < 0:
            name.null()
        else:
            name.constant(self.typed.names[column])
        element.value(path, length)
        written.number(timestamp)
        if expires < 0:
            lives.null()
            ends.null()
        else:
            lives.number(ttl)
            ends.number(expires)
        gone.flag(deleted)
        self.cell_column.finish()

    def _write_bounds(self, plan: TablePlan, begin: int, ended: int) -> None:
        bounds = self.typed.bounds
        if ended < 0:
            bounds.null()
        else:
            kind = self.words[begin + codes.FLAGS]
            inclusive = kind in (codes.INCL_START, codes.EXCL_END_INCL_START)
            self._write_bound(plan, bounds.children[0], begin, inclusive)
            kind = self.words[ended + codes.FLAGS]
            inclusive = kind in (codes.INCL_END, codes.INCL_END_EXCL_START)
            self._write_bound(plan, bounds.children[1], ended, inclusive)
            bounds.finish()

    def _write_bound(self, plan: TablePlan, side: ValueColumn, at: int, inclusive: int) -> None:
        count = self.words[at + codes.COLUMN]
        if not count:
            side.null()
        else:
            values = side.children[0]
            for i in range(plan.first_cell - plan.key_count):
                value = values.children[i]
                at += codes.WIDTH
                if i < count:
                    value.value(self.words[at + codes.START], self.words[at + codes.LENGTH])
                else:
                    value.null()
            values.finish()
            number = side.children[1]
            number.number(count)
            flag = side.children[2]
            flag.flag(inclusive)
            side.finish()

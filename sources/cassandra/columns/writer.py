"""Writes agreed mutations as Arrow columns: their messages, and one table's typed values.

The transcoder reads the rows of the mutations and passes them on; values go into `ValueColumn`s,
and no object is made per message. For one thread.
"""

from collections.abc import Callable, Sequence

import msgspec

from headrace.plugins import EncodedRecords, Facts
from headrace.plugins.records.columns import (
    CELLS_TYPE,
    UNFIT_TYPE,
    ColumnKind,
    ColumnType,
    Pieces,
    TableType,
    TypedChanges,
)
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.columns.value_columns import ValueColumn
from headrace.sources.cassandra.encode.avro_bytes import AvroBytes
from headrace.sources.cassandra.encode.avro_schema import payload_columns
from headrace.sources.cassandra.encode.outputs import ChangeOutput, MessageOutput
from headrace.sources.cassandra.encode.table_plan import EpochSource, TablePlan
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.schema.tables import TableSchema
from headrace.sources.cassandra.schema.types import CqlType


class TypedColumns:
    """The columns of one table's changes, and of facts besides their values."""

    def __init__(self, target: TableType) -> None:
        """Start without changes."""
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
        """Start over."""
        for column in (self.row, self.cells, self.unfit, self.bounds):
            column.begin()

    def truncate(self, count: int) -> None:
        """Remove the changes after the first *count*."""
        for column in (self.row, self.cells, self.unfit, self.bounds):
            column.truncate(count)

    def bind(self, table: TableSchema) -> None:
        """Accept changes of *table* from now on; `fields` are by the place in its payload."""
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
        """Return the content, in memory that does not change afterwards, and start over."""
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
        """Record that a column's value is null only because it does not fit its type."""
        return self.misfit.constant(self.names[column])

    def close_row(self) -> int:
        """End a change."""
        for column in self.absent:
            column.null()
        self.row.finish()
        self.cells.finish()
        return self.unfit.finish()


class MessageColumns(MessageOutput):
    """Encodes agreed mutations; all keys are adjacent in memory, and all values."""

    def __init__(self, epochs: EpochSource, changes: ChangeOutput | None = None) -> None:
        """Encode each mutation with the plans of its epoch, from *epochs*; see `Transcoder`."""
        self.transcoder = Transcoder(epochs, self, changes)
        self.keys = ValueColumn(ColumnType(ColumnKind.BYTES))
        self.values = ValueColumn(ColumnType(ColumnKind.BYTES))

    def joined(
        self,
        agreed: AgreedMutations,
        nodes: Sequence[str],
        flat: int = 0,
        primary: int = 0,
        with_starts: int = 0,
    ) -> EncodedRecords:
        """Encode every mutation, as `Transcoder.encode` does; keys and values are `Pieces`."""
        self.keep_first(0)
        encoded = self.transcoder.encode(agreed, nodes, flat, primary, with_starts)
        keys = Pieces(self.keys.buffers())
        values = Pieces(self.values.buffers())
        self.keys.begin()
        self.values.begin()
        return msgspec.structs.replace(encoded, keys=keys, values=values)

    def add_key(self, key: bytes) -> int:
        """Implement `MessageOutput.add_key`."""
        return self.keys.constant(key)

    def add_value(self, out: AvroBytes, begin: int, end: int, tail: int, tail_end: int) -> int:
        """Implement `MessageOutput.add_value`."""
        return self.values.join(out.out, begin, end, tail, tail_end)

    def keep_first(self, count: int) -> int:
        """Implement `MessageOutput.keep_first`."""
        self.keys.truncate(count)
        self.values.truncate(count)
        return 0


class ColumnWriter(ChangeOutput):
    """Writes the changes of one table in agreed mutations to typed columns."""

    def __init__(
        self,
        epochs: EpochSource,
        tables_of: Callable[[int], Sequence[TableSchema]],
        target: TableType,
        *,
        with_messages: bool,
    ) -> None:
        """Write columns of *target*; *tables_of* returns an epoch's tables in plan order."""
        self.messages = MessageColumns(epochs, self)
        self.reader = self.messages.transcoder.reader
        self.tables_of = tables_of
        self.name = target.table
        self.wanted = constants.WITH_MESSAGE if with_messages else constants.WITHOUT_MESSAGE
        self.typed = TypedColumns(target)
        self.by_plan: dict[TablePlan, TableSchema] = {}
        self.bound: TablePlan | None = None
        self.other: TablePlan | None = None
        self.fields: list[ValueColumn] = []
        self.cell_column = self.typed.cell

    def columns(self, agreed: AgreedMutations, nodes: Sequence[str]) -> EncodedRecords:
        """Write every change of the table. Return the messages, or only the quarantined changes."""
        typed = self.typed
        typed.truncate(0)
        for column in (typed.row, typed.cells, typed.bounds):
            column.attach(agreed.data)
        return self.messages.joined(agreed, nodes)

    def enter(self, plans: list[TablePlan], epoch: int) -> int:
        """Implement `ChangeOutput.enter`."""
        self.by_plan = {}
        for i, table in enumerate(self.tables_of(epoch)):
            plan = plans[i]
            if plan.delivered and table.qualified == self.name:
                self.by_plan[plan] = table
        self.bound = self.other = None
        return 0

    def keep_first(self, count: int) -> int:
        """Implement `ChangeOutput.keep_first`."""
        self.typed.truncate(count)
        return 0

    def wants(self, plan: TablePlan) -> int:
        """Implement `ChangeOutput.wants`."""
        if plan is self.bound or (plan is not self.other and self._bind(plan)):
            return self.wanted
        return constants.UNWANTED

    def _bind(self, plan: TablePlan) -> int:
        table = self.by_plan.get(plan)
        if table is None:
            self.other = plan
            return 0
        self.typed.bind(table)
        self.fields = self.typed.fields
        self.bound = plan
        return 1

    def write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> int:
        """Implement `ChangeOutput.write`."""
        is_row = operation <= constants.OP_DELETE
        flags = self.reader.words[row + constants.FLAGS] if is_row else 0
        ttl = 0
        expires = -1
        if operation == constants.OP_INSERT and flags & constants.HAS_TTL:
            ttl = self.reader.words[row + constants.TTL]
            expires = self.reader.words[row + constants.LDT]
            self._note(constants.NOWHERE, 0, constants.NOWHERE, timestamp, ttl, expires, 0)
        self._write_key(
            plan, row if is_row and not flags & constants.ROW_STATIC else constants.NOWHERE
        )
        rich = 0
        for column in range(plan.first_cell, plan.payload_count):
            field = self.fields[column]
            cell = self.reader.where[column] if self.reader.column_count else constants.NOWHERE
            if cell < 0:
                field.null()
                continue
            if plan.complex[column]:
                rich = 1
                unfit = self._write_elements(plan, field, column, cell)
            elif self.reader.words[cell + constants.FLAGS] & constants.IS_DELETED:
                unfit = field.null()
            else:
                unfit = field.value(
                    self.reader.words[cell + constants.START],
                    self.reader.words[cell + constants.LENGTH],
                )
            if unfit:
                self.typed.note_unfit(column)
        if self.reader.column_count and (
            rich
            or self.reader.special
            or expires >= 0
            or self.reader.newest_simple > timestamp
            or self.reader.oldest_simple < timestamp
        ):
            self._write_cells(plan, timestamp, ttl, expires)
        self.typed.close_row()
        if self.typed.has_bounds:
            self._write_bounds(plan, row, ended)
        return 0

    def finish(self, number: int, count: int) -> int:  # noqa: ARG002 (the facts have both)
        """Implement `ChangeOutput.finish`."""
        return 0

    def _write_key(self, plan: TablePlan, row: int) -> None:
        """Write the columns of the primary key; without *row* the clustering columns are null."""
        if plan.key_count == 1:
            field = self.fields[0]
            if field.value(self.reader.key_start, self.reader.key_length):
                self.typed.note_unfit(0)
        else:
            at = self.reader.key_start
            for i in range(plan.key_count):
                length = self.reader.part_length(
                    plan, at, self.reader.key_start + self.reader.key_length
                )
                field = self.fields[i]
                if field.value(at + 2, length):
                    self.typed.note_unfit(i)
                at += length + 3
        at = row + constants.WIDTH
        for i in range(plan.key_count, plan.first_cell):
            field = self.fields[i]
            if row >= 0 and at < self.reader.end and self.reader.words[at] == constants.VALUE:
                if field.value(
                    self.reader.words[at + constants.START],
                    self.reader.words[at + constants.LENGTH],
                ):
                    self.typed.note_unfit(i)
                at += constants.WIDTH
            else:
                field.null()

    def _write_elements(self, plan: TablePlan, field: ValueColumn, column: int, at: int) -> int:
        """Write the values of a complex column's live cells; null if there are none."""
        kind = plan.kind[column]
        if not field.takes_parts():
            return field.refuse()
        at += constants.WIDTH
        if kind == constants.COMPLEX_UDT:
            return self._write_fields(field, at)
        is_set = kind == constants.COMPLEX_SET
        width = len(field.children)
        count = unfit = 0
        while self.reader.is_path_cell(at):
            flags = self.reader.words[at + constants.FLAGS]
            if not flags & (constants.HIDDEN | constants.IS_DELETED):
                count += 1
                child = field.children[0]
                if field.is_map or is_set:
                    unfit |= child.value(
                        self.reader.words[at + constants.PATH],
                        self.reader.words[at + constants.PATH_LENGTH],
                    )
                    child = field.children[width - 1]
                if not is_set:
                    unfit |= child.value(
                        self.reader.words[at + constants.START],
                        self.reader.words[at + constants.LENGTH],
                    )
            at += constants.WIDTH
        if not count:
            return field.null()
        if field.is_map:
            return field.close_map(unfit)
        field.finish()
        return unfit

    def _write_fields(self, field: ValueColumn, at: int) -> int:
        """Write the fields of a UDT from its live cells; null if there are none."""
        begin = at
        live = 0
        while self.reader.is_path_cell(at):
            live += not self.reader.words[at + constants.FLAGS] & (
                constants.HIDDEN | constants.IS_DELETED
            )
            at += constants.WIDTH
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
                    self.reader.words[found + constants.START],
                    self.reader.words[found + constants.LENGTH],
                )
        field.close_fields()
        return unfit

    def _field_cell(self, at: int, end: int, number: int) -> int:
        """Return the live cell of the UDT's field *number*; -1 if there is none."""
        while at < end:
            path = self.reader.words[at + constants.PATH]
            if (
                not self.reader.words[at + constants.FLAGS]
                & (constants.HIDDEN | constants.IS_DELETED)
                and self.reader.words[at + constants.PATH_LENGTH] == constants.POSITION_BYTES
                and (self.reader.buf[path] << 8 | self.reader.buf[path + 1]) == number
            ):
                return at
            at += constants.WIDTH
        return constants.NOWHERE

    # ---- facts besides values ----

    def _write_cells(self, plan: TablePlan, timestamp: int, ttl: int, expires: int) -> None:
        for i in range(self.reader.column_count):
            column = self.reader.columns[i]
            at = self.reader.where[column]
            if not plan.complex[column]:
                self._write_cell(column, at, timestamp, ttl, expires)
                continue
            if self.reader.words[at + constants.FLAGS] & 1:
                written = self.reader.words[at + constants.TIMESTAMP]
                self._note(column, 0, constants.NOWHERE, written, 0, constants.NOWHERE, 1)
            at += constants.WIDTH
            while self.reader.is_path_cell(at):
                if not self.reader.words[at + constants.FLAGS] & constants.HIDDEN:
                    self._write_cell(column, at, timestamp, ttl, expires)
                at += constants.WIDTH

    def _write_cell(self, column: int, at: int, timestamp: int, ttl: int, expires: int) -> None:
        flags = self.reader.words[at + constants.FLAGS]
        deleted = flags & constants.IS_DELETED
        written = self.reader.words[at + constants.TIMESTAMP]
        own_ttl = 0
        own_expires = -1
        if flags & constants.IS_EXPIRING:
            own_ttl = self.reader.words[at + constants.TTL]
            own_expires = self.reader.words[at + constants.LDT]
        if deleted or written != timestamp or own_ttl != ttl or own_expires != expires:
            path, length = (
                self.reader.words[at + constants.PATH],
                self.reader.words[at + constants.PATH_LENGTH],
            )
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
        """Write the facts about a cell, or the row (*column* -1), besides its value."""
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
            kind = self.reader.words[begin + constants.FLAGS]
            inclusive = kind in (constants.INCL_START, constants.EXCL_END_INCL_START)
            self._write_bound(plan, bounds.children[0], begin, inclusive)
            kind = self.reader.words[ended + constants.FLAGS]
            inclusive = kind in (constants.INCL_END, constants.INCL_END_EXCL_START)
            self._write_bound(plan, bounds.children[1], ended, inclusive)
            bounds.finish()

    def _write_bound(self, plan: TablePlan, side: ValueColumn, at: int, inclusive: int) -> None:
        count = self.reader.words[at + constants.COLUMN]
        if not count:
            side.null()
        else:
            values = side.children[0]
            for i in range(plan.first_cell - plan.key_count):
                value = values.children[i]
                at += constants.WIDTH
                if i < count:
                    value.value(
                        self.reader.words[at + constants.START],
                        self.reader.words[at + constants.LENGTH],
                    )
                else:
                    value.null()
            values.finish()
            number = side.children[1]
            number.number(count)
            flag = side.children[2]
            flag.flag(inclusive)
            side.finish()

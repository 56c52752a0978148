"""Writes agreed mutations as change JSON directly from their bytes, for sinks that take JSON.

The form is that of `change_json`, whose documents give the same bytes. A batch with a mutation that
does not fit its schema is left to that module. For one thread.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from headrace.plugins import EncodedRecords, Headers
from headrace.plugins.records.record import OPERATIONS
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.encode.json_bytes import JsonBytes, JsonType
from headrace.sources.cassandra.encode.outputs import ChangeOutput
from headrace.sources.cassandra.encode.table_plan import EpochSource, TablePlan
from headrace.sources.cassandra.encode.transcode import Transcoder
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.schema.tables import ColumnSchema, TableSchema

_JSON: Final = msgspec.json.Encoder()
_OPERATIONS: Final = [operation.value.encode() for operation in OPERATIONS]


class JsonTable:
    """One table, prepared for writing; lists are by index into `TableSchema.columns`."""

    def __init__(self, table: TableSchema) -> None:
        """Write the common parts of all changes."""
        name = _JSON.encode(table.qualified)
        self.openings = [b'{"table":' + name + b',"op":"' + op + b'","key":{' for op in _OPERATIONS]
        self.names = [_JSON.encode(column.name) + b":" for column in table.columns]
        # The start of a written column; the first of a row has a brace instead of the comma.
        self.labels = [_label(column) for column in table.columns]
        self.types = [JsonType(column.type) for column in table.columns]
        # Of the cells of complex columns.
        self.paths = [_path_type(column) for column in table.columns]
        self.cells = [_cell_type(column) for column in table.columns]
        self.fields = [_field_names(column) for column in table.columns]
        self.field_types = [
            [JsonType(cql_type) for _, cql_type in column.type.fields] for column in table.columns
        ]
        self.is_list = [int(column.is_list) for column in table.columns]


def _label(column: ColumnSchema) -> bytes:
    value = b"" if column.is_complex else b'{"value":'
    return b"," + _JSON.encode(column.name) + b":" + value


def _path_type(column: ColumnSchema) -> JsonType | None:
    """Return the type of the keys of a complex column's cells."""
    return JsonType(column.type.path_type) if column.is_complex else None


def _cell_type(column: ColumnSchema) -> JsonType | None:
    """Return the type of a list's or map's values."""
    arguments = column.type.arguments
    return JsonType(arguments[len(arguments) - 1]) if column.is_complex and arguments else None


def _field_names(column: ColumnSchema) -> list[bytes]:
    return [_JSON.encode(name) for name, _ in column.type.fields]


class JsonChanges(ChangeOutput):
    """The JSON writer of one source."""

    def __init__(
        self, epochs: EpochSource, tables_of: Callable[[int], Sequence[TableSchema]]
    ) -> None:
        """Encode each mutation with the plans that *epochs* returns for its epoch.

        *tables_of* returns an epoch's tables in the order of its plans.
        """
        self.transcoder = Transcoder(epochs, None, self)
        self.reader = self.transcoder.reader
        self.out = JsonBytes()
        self.tables_of = tables_of
        self.by_plan: dict[TablePlan, JsonTable] = {}
        self.plans: list[TablePlan] = []  # Those of the current epoch.
        self.epoch = 0
        self.bound: TablePlan | None = None
        self.table = JsonTable.__new__(JsonTable)  # That of `bound`.
        self.pending: list[bytes] = []  # The current mutation's changes, up to their origin.
        self.undone = 0
        self._start(())

    def _start(self, nodes: Sequence[str]) -> None:
        self.nodes = [b',"node":' + _JSON.encode(name) + b',"segment":' for name in nodes]
        self.keys: list[bytes | None] = []
        self.values: list[bytes] = []
        self.headers: list[Headers] = []
        self.tables: list[str] = []

    def encode(self, agreed: AgreedMutations, nodes: Sequence[str]) -> EncodedRecords | None:
        """Write all changes; None if a mutation does not fit its schema."""
        self._start(nodes)
        self.agreed = agreed
        self.out.attach(agreed.data)
        self.undone = 0
        self.pending.clear()
        encoded = self.transcoder.encode(agreed, nodes)
        made = self.keys, self.values, self.headers, self.tables
        self._start(())
        if self.undone:
            return None
        keys, values, headers, tables = made
        return msgspec.structs.replace(
            encoded, keys=keys, values=values, headers=headers, tables=tables
        )

    # ---- called by the transcoder ----

    def enter(self, plans: list[TablePlan], epoch: int) -> int:
        """Implement `ChangeOutput.enter`."""
        self.plans = plans
        self.epoch = epoch
        self.bound = None
        return 0

    def keep_first(self, count: int) -> int:  # noqa: ARG002 (all of it is rewritten)
        """Implement `ChangeOutput.keep_first`: a mutation does not fit."""
        self.undone = 1
        return 0

    def wants(self, plan: TablePlan) -> int:
        """Implement `ChangeOutput.wants`."""
        if plan is not self.bound:
            self._bind(plan)
        return constants.WITHOUT_MESSAGE

    def _bind(self, plan: TablePlan) -> None:
        table = self.by_plan.get(plan)
        if table is None:
            if len(self.by_plan) > 2 * len(self.plans):  # Most are of tables that have changed.
                self.by_plan.clear()
            schema = self.tables_of(self.epoch)[self.plans.index(plan)]
            table = self.by_plan[plan] = JsonTable(schema)
        self.table = table
        self.bound = plan

    def write(self, plan: TablePlan, operation: int, timestamp: int, row: int, ended: int) -> int:
        """Implement `ChangeOutput.write`."""
        out, table = self.out, self.table
        is_row = operation <= constants.OP_DELETE
        has_columns = operation <= constants.OP_UPDATE
        flags = self.reader.words[row + constants.FLAGS] if is_row else 0
        is_static = flags & constants.ROW_STATIC
        ttl = 0
        expires = -1
        if operation == constants.OP_INSERT and flags & constants.HAS_TTL:
            ttl = self.reader.words[row + constants.TTL]
            expires = self.reader.words[row + constants.LDT]
        out.size = 0
        out.constant(table.openings[operation])
        begin = out.size - 1
        self._write_key(plan)
        end = out.size
        if is_row and not is_static:
            self._write_clustering(plan, row)
        else:
            out.constant(b',"clustering":null,"timestamp":')
        out.time(timestamp)
        if is_static and has_columns:
            out.constant(b',"static":true')
        if expires >= 0:
            out.constant(b',"ttl":')
            out.number(ttl)
            out.constant(b',"expires":')
            out.number(expires)
        if has_columns:
            self._write_columns(plan, ttl, expires)
        if operation == constants.OP_DELETE_RANGE:
            out.constant(b',"range":{"start":')
            kind = self.reader.words[row + constants.FLAGS]
            starts = kind == constants.INCL_START or kind == constants.EXCL_END_INCL_START  # noqa: PLR1714 (no tuple in C)
            self._write_bound(plan, row, starts)
            out.constant(b',"end":')
            kind = self.reader.words[ended + constants.FLAGS]
            ends = kind == constants.INCL_END or kind == constants.INCL_END_EXCL_START  # noqa: PLR1714 (no tuple in C)
            self._write_bound(plan, ended, ends)
            out.constant(b"}")
        self.pending.append(out.bytes_from(0))
        self.keys.append(ops.take(out.out, begin, end))
        self.headers.append(plan.headers)
        self.tables.append(plan.table_name)
        return 0

    def finish(self, number: int, count: int) -> int:
        """Implement `ChangeOutput.finish`: write the origin of the changes."""
        if not self.pending:
            return 0
        out, meta = self.out, self.agreed.meta
        base = number * constants.AGREED_WIDTH
        out.size = 0
        out.constant(b',"mutation":"')
        id_at = number * constants.ID_BYTES
        out.put_hex(self.transcoder.ids, id_at, id_at + constants.ID_BYTES)
        out.constant(b'","index":')
        middle = out.size
        out.constant(b',"of":')
        out.number(count)
        out.constant(b',"copies":')
        out.number(meta[base + constants.AGREED_COPIES])
        out.constant(self.nodes[meta[base + constants.AGREED_HOST]])
        out.number(meta[base + constants.AGREED_SEGMENT])
        out.constant(b',"position":')
        out.number(meta[base + constants.AGREED_POSITION])
        out.constant(b"}")
        end = out.size
        first = len(self.values)
        for i in range(len(self.pending)):
            out.size = end
            out.constant(self.pending[i])
            out.again(0, middle)
            out.number(self.transcoder.index_of(first + i))
            out.again(middle, end)
            self.values.append(out.bytes_from(end))
        self.pending.clear()
        return 0

    # ---- parts of a change ----

    def _write_key(self, plan: TablePlan) -> None:
        """Write the members of the partition key, and the end of its object."""
        out, table = self.out, self.table
        at = self.reader.key_start
        length = self.reader.key_length
        end = at + length
        for i in range(plan.key_count):
            if i:
                out.constant(b",")
            out.constant(table.names[i])
            if plan.key_count > 1:
                length = self.reader.part_length(plan, at, end)
                at += 2
            out.value(table.types[i], at, length)
            at += length + 1
        if plan.key_count > 1 and at != end:
            self.reader.bad_key(plan)
        out.constant(b"}")

    def _write_clustering(self, plan: TablePlan, row: int) -> None:
        out, table = self.out, self.table
        at = row + constants.WIDTH
        out.constant(b',"clustering":{')
        for i in range(plan.key_count, plan.first_cell):
            if i > plan.key_count:
                out.constant(b",")
            out.constant(table.names[i])
            start = self.reader.words[at + constants.START]
            out.value(table.types[i], start, self.reader.words[at + constants.LENGTH])
            at += constants.WIDTH
        out.constant(b'},"timestamp":')

    def _write_bound(self, plan: TablePlan, at: int, inclusive: int) -> None:
        out, table = self.out, self.table
        count = self.reader.words[at + constants.COLUMN]
        out.constant(b'{"values":[' if count else b"null")
        for i in range(count):
            if i:
                out.constant(b",")
            at += constants.WIDTH
            start = self.reader.words[at + constants.START]
            kind = table.types[plan.key_count + i]
            out.value(kind, start, self.reader.words[at + constants.LENGTH])
        if count:
            out.constant(b'],"inclusive":true}' if inclusive else b'],"inclusive":false}')

    def _write_columns(self, plan: TablePlan, ttl: int, expires: int) -> None:
        out, table = self.out, self.table
        out.constant(b',"columns":')
        begin = out.size
        for i in range(self.reader.column_count):
            column = self.reader.columns[i]
            at = self.reader.where[column]
            out.constant(table.labels[column])
            if plan.complex[column]:
                self._write_complex(plan, column, at, ttl, expires)
            else:
                kind = table.types[column]
                if self.reader.words[at + constants.FLAGS] & constants.IS_DELETED:
                    out.constant(b"null")
                else:
                    start = self.reader.words[at + constants.START]
                    out.value(kind, start, self.reader.words[at + constants.LENGTH])
                self._write_notes(kind, at, ttl, expires)
                out.constant(b"}")
        if out.size == begin:
            out.constant(b"{")
        out.out[begin] = 0x7B  # {
        out.constant(b"}")

    def _write_notes(self, kind: JsonType | None, at: int, ttl: int, expires: int) -> None:
        """Write a cell's time, and its differences from the row's liveness.

        An element of a set has no value that could be empty.
        """
        out = self.out
        out.constant(b',"ts":')
        out.time(self.reader.words[at + constants.TIMESTAMP])
        is_live = not self._flags(at) & constants.IS_DELETED
        if is_live and self._lives_otherwise(at, ttl, expires):
            out.constant(b',"ttl":')
            if self._flags(at) & constants.IS_EXPIRING:
                out.number(self.reader.words[at + constants.TTL])
                out.constant(b',"expires":')
                out.number(self.reader.words[at + constants.LDT])
            else:
                out.constant(b"null")
        if is_live and self._is_empty(kind, at):
            out.constant(b',"empty":true')

    def _flags(self, at: int) -> int:
        return self.reader.words[at + constants.FLAGS]

    def _lives_otherwise(self, at: int, ttl: int, expires: int) -> int:
        """Return whether a cell expires at another time than its row, or only one expires."""
        own_ttl = 0
        own_expires = -1
        if self._flags(at) & constants.IS_EXPIRING:
            own_ttl = self.reader.words[at + constants.TTL]
            own_expires = self.reader.words[at + constants.LDT]
        return 1 if own_ttl != ttl or own_expires != expires else 0

    # ---- columns that are written cell by cell ----

    def _write_complex(self, plan: TablePlan, column: int, at: int, ttl: int, expires: int) -> None:
        """Write a collection or UDT; `change_json` describes its members."""
        out, table = self.out, self.table
        replaces = self._flags(at) & 1
        begin = at + constants.WIDTH
        end = begin
        live = 0
        removed = 0
        first = constants.NOWHERE
        last = constants.NOWHERE
        differs = 0
        while self.reader.is_path_cell(end):
            flags = self._flags(end)
            if not flags & constants.HIDDEN:
                if flags & constants.IS_DELETED:
                    removed += 1
                else:
                    live += 1
                    if first < 0:
                        first = end
                    else:
                        self._check_order(plan, column, last, end)
                        differs |= self._notes_differ(plan, column, first, end)
                    last = end
            end += constants.WIDTH
        out.constant(b'{"mode":"replace","value":' if replaces else b'{"mode":"merge","value":')
        if replaces and not live:
            out.constant(b"null")
        else:
            self._write_live(plan, column, begin, end)
        if replaces:
            out.constant(b',"deletedAt":')
            out.time(self.reader.words[at + constants.TIMESTAMP])
        if not replaces or removed or differs or (live and table.is_list[column]):
            self._write_removed(plan, column, begin, end)
            self._write_cells(plan, column, begin, end, ttl, expires)
        elif live:
            self._write_notes(self._kind_of(plan, column, first), first, ttl, expires)
        else:
            out.constant(b',"ts":')
            out.time(self.reader.words[at + constants.TIMESTAMP])
        out.constant(b"}")

    def _check_order(self, plan: TablePlan, column: int, before: int, at: int) -> None:
        """Reject two live cells of one map key or field, which a log never has."""
        if plan.kind[column] == constants.COMPLEX_UDT:
            if self._position(at) <= self._position(before):
                self.reader.cutter.fail("fields in disorder")
        else:
            length = self.reader.words[at + constants.PATH_LENGTH]
            if length == self.reader.words[before + constants.PATH_LENGTH]:
                path = self.reader.words[at + constants.PATH]
                other = self.reader.words[before + constants.PATH]
                if ops.same(self.reader.buf, path, self.reader.buf, other, length):
                    self.reader.cutter.fail("an element twice")

    def _notes_differ(self, plan: TablePlan, column: int, a: int, b: int) -> int:
        """Return whether `_write_notes` differs for two live cells."""
        words = self.reader.words
        if words[a + constants.TIMESTAMP] != words[b + constants.TIMESTAMP]:
            return 1
        for field in (constants.TTL, constants.LDT):
            own = words[a + field] if self._flags(a) & constants.IS_EXPIRING else -1
            other = words[b + field] if self._flags(b) & constants.IS_EXPIRING else -1
            if own != other:
                return 1
        empty = self._is_empty(self._kind_of(plan, column, a), a)
        return 1 if empty != self._is_empty(self._kind_of(plan, column, b), b) else 0

    def _is_empty(self, kind: JsonType | None, at: int) -> int:
        """Return whether a live cell is empty though its type is not text."""
        if kind is None or kind.allows_empty:
            return 0
        return 1 if not self.reader.words[at + constants.LENGTH] else 0

    def _kind_of(self, plan: TablePlan, column: int, at: int) -> JsonType | None:
        """Return the type of a cell's value; None in a set, whose elements are the paths."""
        table = self.table
        if plan.kind[column] == constants.COMPLEX_SET:
            return None
        if plan.kind[column] != constants.COMPLEX_UDT:
            return table.cells[column]
        number = self._position(at)
        types = table.field_types[column]
        if not (number >= 0 and number < len(types)):
            self.reader.cutter.fail("a field that its type does not have")
        return types[number]

    def _position(self, at: int) -> int:
        """Return the number of a cell's field in a UDT; -1 if it has none."""
        path = self.reader.words[at + constants.PATH]
        if self.reader.words[at + constants.PATH_LENGTH] != constants.POSITION_BYTES:
            return -1
        return self.reader.buf[path] << 8 | self.reader.buf[path + 1]

    def _write_live(self, plan: TablePlan, column: int, at: int, end: int) -> None:
        """Write the live cells as one value."""
        out, table = self.out, self.table
        is_array = plan.kind[column] == constants.COMPLEX_SET or table.is_list[column]
        out.constant(b"[" if is_array else b"{")
        first = 1
        while at < end:
            if not self._flags(at) & (constants.HIDDEN | constants.IS_DELETED):
                if not first:
                    out.constant(b",")
                first = 0
                if plan.kind[column] == constants.COMPLEX_SET:
                    self._write_path(plan, column, at, 0)
                else:
                    if not is_array:
                        self._write_path(plan, column, at, 1)
                        out.constant(b":")
                    self._write_cell_value(plan, column, at)
            at += constants.WIDTH
        out.constant(b"]" if is_array else b"}")

    def _write_path(self, plan: TablePlan, column: int, at: int, as_name: int) -> None:
        """Write a list element's id, a set's element, a map's key, or the name of a field."""
        out, table = self.out, self.table
        path = self.reader.words[at + constants.PATH]
        length = self.reader.words[at + constants.PATH_LENGTH]
        kind = table.paths[column]
        assert kind is not None  # noqa: S101 (a complex column)
        if plan.kind[column] == constants.COMPLEX_UDT:
            self._kind_of(plan, column, at)  # It has this field.
            out.constant(table.fields[column][self._position(at)])
        elif as_name:
            out.member(kind, path, length)
        else:
            out.value(kind, path, length)

    def _write_cell_value(self, plan: TablePlan, column: int, at: int) -> None:
        kind = self._kind_of(plan, column, at)
        assert kind is not None  # noqa: S101 (not a set)
        start = self.reader.words[at + constants.START]
        self.out.value(kind, start, self.reader.words[at + constants.LENGTH])

    def _write_removed(self, plan: TablePlan, column: int, at: int, end: int) -> None:
        out = self.out
        out.constant(b',"removed":[')
        first = 1
        while at < end:
            flags = self._flags(at)
            if flags & constants.IS_DELETED and not flags & constants.HIDDEN:
                if not first:
                    out.constant(b",")
                first = 0
                self._write_path(plan, column, at, 0)
            at += constants.WIDTH
        out.constant(b"]")

    def _write_cells(  # noqa: PLR0913, PLR0917 (C: a column's cells, and its row's liveness)
        self, plan: TablePlan, column: int, at: int, end: int, ttl: int, expires: int
    ) -> None:
        out = self.out
        out.constant(b',"cells":[')
        first = 1
        while at < end:
            flags = self._flags(at)
            if not flags & constants.HIDDEN:
                if not first:
                    out.constant(b",")
                first = 0
                out.constant(b'{"key":')
                self._write_path(plan, column, at, 0)
                kind = self._kind_of(plan, column, at)
                if kind is not None and not flags & constants.IS_DELETED:
                    out.constant(b',"value":')
                    self._write_cell_value(plan, column, at)
                self._write_notes(kind, at, ttl, expires)
                out.constant(b"}")
            at += constants.WIDTH
        out.constant(b"]")

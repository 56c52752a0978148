"""A row's columns as Avro: its cells, what they say beyond values, and the bounds of ranges.

Separate from what makes messages of it. Envelope and types are those of `avro`. For one thread.
"""

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.avro_bytes import AvroBytes, ValuePlan
from headrace.sources.cassandra.native import View
from headrace.sources.cassandra.row_columns import RowColumns
from headrace.sources.cassandra.table_plan import TablePlan
from headrace.sources.cassandra.values import BadValueError

_NOWHERE = -1
_POSITION_BYTES = 2  # Of a UDT's field, in a cell's path.
_REPLACE_BYTE, _MERGE_BYTE = 0, 2  # The enum CollectionMode, as its zigzag byte.


class RowAvro(RowColumns):
    """Writes the columns that `RowColumns` finds to `out`, from the values in `buf`.

    `length` is that of the mutation at hand, and `room` what a row of it takes at most, if it has
    one cell in each complex column: so much is reserved before each of those, and before a row.
    """

    def __init__(self) -> None:
        """Find nothing yet."""
        super().__init__()
        self.out = AvroBytes()
        self.length = self.room = 0
        self.key_start = self.key_length = 0  # The partition key's bytes, and as Avro `key`.
        self.key = b""

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.buf = buf
        self.out.attach(buf)

    def _key(self, plan: TablePlan) -> None:
        """Encode the partition key of the messages that follow."""
        out = self.out
        begin = out.size
        self.room = self.length + plan.fixed_bytes
        out.reserve(self.room)
        if plan.key_count == 1:
            value = plan.values[0]
            ended = self._value(value, begin, self.key_start, self.key_length)
        else:
            at = self.key_start
            end = at + self.key_length
            ended = begin
            for i in range(plan.key_count):  # Each part: 2 bytes of length before, one after.
                length = self._part_length(plan, at, end)
                value = plan.values[i]
                ended = self._value(value, ended, at + 2, length)
                at += length + 3
            if at != end:
                self._bad_key(plan)
        self.key = native.take(out.out, begin, ended)
        out.size = begin

    def _part_length(self, plan: TablePlan, at: int, end: int) -> int:
        length = -1
        if at + 2 <= end:
            length = self.buf[at] << 8 | self.buf[at + 1]
        if length < 0 or at + 2 + length >= end:
            self._bad_key(plan)
        return length

    def _bad_key(self, plan: TablePlan) -> None:
        raise BadValueError(
            f"a partition key of {self.key_length} bytes has not {plan.key_count} parts"
        )

    def _payload_parts(self, plan: TablePlan, put: int) -> int:
        """Write the partition key's columns at out[put], where `room` is; return where they end."""
        if plan.key_count == 1:
            self.out.out[put] = 2
            # A record of one field is that.
            return native.put_bytes(self.out.out, put + 1, self.key)
        at = self.key_start
        for i in range(plan.key_count):
            length = self._part_length(plan, at, self.key_start + self.key_length)
            value = plan.values[i]
            put = self._nullable(value, put, at + 2, length)
            at += length + 3
        return put

    def _payload_cells(self, plan: TablePlan) -> None:
        """Write the static and regular columns."""
        out = self.out
        out.reserve(self.room)
        at = out.size
        for column in range(plan.first_cell, plan.payload_count):
            cell = self.where[column] if self.column_count else _NOWHERE
            if cell < 0 or (
                not plan.complex[column]
                and (
                    self.words[cell + codes.FLAGS] & codes.IS_DELETED
                    or (self.words[cell + codes.LENGTH] == 0 and not plan.empties[column])
                )
            ):
                out.out[at] = 0
                at += 1
                continue
            out.out[at] = 2
            start = self.words[cell + codes.START]
            length = self.words[cell + codes.LENGTH]
            ended = native.put_value(out.out, at + 1, plan.codes[column], self.buf, start, length)
            if ended < 0:
                out.size = at + 1
                if not plan.complex[column]:
                    out.value(plan.values[column], start, length)
                elif plan.kind[column] == codes.COMPLEX_UDT:
                    self._fields_by_name(plan, column, cell)
                else:
                    self._complex(plan, column, cell)
                out.reserve(self.room)
                ended = out.size
            at = ended
        out.size = at

    def _complex(self, plan: TablePlan, column: int, at: int) -> None:
        """Write the cells of a complex column that count."""
        out = self.out
        count = 0
        cell = at + codes.WIDTH
        while self._is_path_cell(cell):
            count += not self.words[cell + codes.FLAGS] & codes.HIDDEN
            cell += codes.WIDTH
        out.reserve(self.room)
        deleted = self.words[at + codes.FLAGS] & 1
        put = self._mode(out.size, deleted, self.words[at + codes.TIMESTAMP])
        if count:
            put = native.put_long(out.out, put, count)
        while count:
            at += codes.WIDTH
            if not self.words[at + codes.FLAGS] & codes.HIDDEN:
                if put + self.room > len(out.out):
                    out.size = put
                    out.reserve(self.room)
                put = self._complex_cell(plan, column, at, put)
                count -= 1
        out.out[put] = 0
        out.size = put + 1

    def _mode(self, at: int, deleted: int, timestamp: int) -> int:
        """Write whether the cells replace what was there, and when that was deleted."""
        self.out.out[at] = _REPLACE_BYTE if deleted else _MERGE_BYTE
        return self._union(at + 1, timestamp, deleted)

    def _complex_cell(self, plan: TablePlan, column: int, cell: int, at: int) -> int:
        flags = self.words[cell + codes.FLAGS]
        removed = flags & codes.IS_DELETED
        value = plan.paths[column]
        at = self._value(
            value, at, self.words[cell + codes.PATH], self.words[cell + codes.PATH_LENGTH]
        )
        if plan.kind[column] != codes.COMPLEX_SET:
            length = _NOWHERE if removed else self.words[cell + codes.LENGTH]
            value = plan.cells[column]
            at = self._nullable(value, at, self.words[cell + codes.START], length)
        return self._cell_facts(cell, at)

    def _fields_by_name(self, plan: TablePlan, column: int, at: int) -> None:
        """Write the cells of a UDT, each in the place of its field; they are in that order."""
        out = self.out
        out.reserve(self.room)
        deleted = self.words[at + codes.FLAGS] & 1
        put = self._mode(out.size, deleted, self.words[at + codes.TIMESTAMP])
        udt = plan.values[column]
        cell = self._shown(at + codes.WIDTH)
        for i in range(udt.count):
            if put + self.room > len(out.out):
                out.size = put
                out.reserve(self.room)
            if cell >= 0 and self._position(cell) == i:
                out.out[put] = 2
                flags = self.words[cell + codes.FLAGS]
                length = _NOWHERE if flags & codes.IS_DELETED else self.words[cell + codes.LENGTH]
                value = udt.inner[i]
                put = self._nullable(value, put + 1, self.words[cell + codes.START], length)
                put = self._cell_facts(cell, put)
                cell = self._shown(cell + codes.WIDTH)
            else:
                out.out[put] = 0
                put += 1
        if cell >= 0:
            self._bad_fields(udt)
        out.size = put

    def _shown(self, cell: int) -> int:
        """Return the next cell of a complex column that counts, from *cell* on; -1 for none."""
        while self._is_path_cell(cell):
            if not self.words[cell + codes.FLAGS] & codes.HIDDEN:
                return cell
            cell += codes.WIDTH
        return _NOWHERE

    def _position(self, cell: int) -> int:
        """Return which field of a UDT a cell is, -1 if its path is no position."""
        at = self.words[cell + codes.PATH]
        if self.words[cell + codes.PATH_LENGTH] != _POSITION_BYTES:
            return _NOWHERE
        return self.buf[at] << 8 | self.buf[at + 1]

    def _bad_fields(self, udt: ValuePlan) -> None:
        raise BadValueError(
            f"the cells of a {udt.cql_type} do not fit its {udt.count} fields",
            hint="give the schema that the writer had",
        )

    def _cell_facts(self, cell: int, at: int) -> int:
        """Write what is said of a cell beside its value at out[at]; return where it ends."""
        flags = self.words[cell + codes.FLAGS]
        self.out.out[at] = 1 if flags & codes.IS_DELETED else 0
        at = native.put_long(self.out.out, at + 1, self.words[cell + codes.TIMESTAMP])
        at = self._union(at, self.words[cell + codes.TTL], flags & codes.IS_EXPIRING)
        return self._union(at, self.words[cell + codes.LDT], flags & codes.IS_EXPIRING)

    def _value(self, value: ValuePlan, at: int, start: int, length: int) -> int:
        """Write a value that must be there at out[at], where `room` is; return where it ends."""
        out = self.out
        ended = -1
        if length > 0:
            ended = native.put_value(out.out, at, value.code, self.buf, start, length)
        if ended < 0:
            out.size = at
            out.required(value, start, length)
            out.reserve(self.room)
            ended = out.size
        return ended

    def _nullable(self, value: ValuePlan, at: int, start: int, length: int) -> int:
        """As `_value`, in a union with null, which *length* -1 is, and so is "no value"."""
        if length < 0 or (length == 0 and not value.allows_empty):
            self.out.out[at] = 0
            return at + 1
        self.out.out[at] = 2
        return self._value(value, at + 1, start, length)

    def _optional(self, number: int, given: int) -> None:
        """Write null or a number."""
        self.out.reserve(codes.COLUMN_BYTES)
        self.out.size = self._union(self.out.size, number, given)

    def _has_notes(self, timestamp: int, expires: int) -> int:
        """Say whether a simple cell says anything beyond its value; mostly none does."""
        if self.column_count == 0:
            return 0
        differs = self.newest_simple > timestamp or self.oldest_simple < timestamp
        return 1 if differs or self.special or expires >= 0 else 0

    def _write_notes(self, plan: TablePlan, timestamp: int, ttl: int, expires: int) -> None:
        out = self.out
        count = 0
        for i in range(self.column_count):
            count += self._has_note(plan, self.columns[i], timestamp, ttl, expires)
        if count:
            out.long(count)
        for i in range(self.column_count):
            column = self.columns[i]
            if self._has_note(plan, column, timestamp, ttl, expires):
                at = self.where[column]
                flags = self.words[at + codes.FLAGS]
                name = plan.names[column]
                out.constant(name)
                written = self.words[at + codes.TIMESTAMP]
                self._optional(written, written != timestamp)
                self._optional(self.words[at + codes.TTL], flags & codes.IS_EXPIRING)
                self._optional(self.words[at + codes.LDT], flags & codes.IS_EXPIRING)
                out.byte(self._is_empty(plan, column, at))

    def _union(self, at: int, number: int, given: int) -> int:
        """Write null or a number at out[at], where there is room; return where it ends."""
        if given:
            self.out.out[at] = 2
            return native.put_long(self.out.out, at + 1, number)
        self.out.out[at] = 0
        return at + 1

    def _range(self, plan: TablePlan, begin: int, ended: int) -> None:
        if ended < 0:
            self.out.byte(0)
        else:
            self.out.byte(2)
            kind = self.words[begin + codes.FLAGS]
            self._bound(plan, begin, kind in (codes.INCL_START, codes.EXCL_END_INCL_START))
            kind = self.words[ended + codes.FLAGS]
            self._bound(plan, ended, kind in (codes.INCL_END, codes.INCL_END_EXCL_START))

    def _bound(self, plan: TablePlan, at: int, inclusive: int) -> None:
        """Write one side of a range; a bound without values is an open side."""
        count = self.words[at + codes.COLUMN]
        if count:
            self.out.byte(2)
            self._bound_values(plan, at, count)
            self.out.long(count)
            self.out.byte(1 if inclusive else 0)
        else:
            self.out.byte(0)

    def _bound_values(self, plan: TablePlan, at: int, count: int) -> None:
        out = self.out
        for i in range(plan.first_cell - plan.key_count):
            at += codes.WIDTH
            if i < count:
                value = plan.values[plan.key_count + i]
                out.optional(value, self.words[at + codes.START], self.words[at + codes.LENGTH])
            else:
                out.byte(0)

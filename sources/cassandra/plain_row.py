"""A plain insert from its mutation's bytes to Avro in one pass, without operations in between.

Most of what is written inserts one row whose cells have a value and the row's write time, and no
more. What turns out to be anything else goes the way of all mutations, which gives the same bytes.
"""

from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.layout import Header
from headrace.sources.cassandra.row_avro import RowAvro
from headrace.sources.cassandra.table_plan import TablePlan

_NOWHERE = -1


class PlainRow(RowAvro):
    """Writes the change of a plain insert to the start of `out`, up to the mutation's id.

    The cutter has read what stands before the cells, and is moved behind them.
    """

    def __init__(self) -> None:
        """Find nothing yet."""
        super().__init__()
        self.row = memoryview(array("q", [0] * codes.PLAIN_WIDTH))

    def _insert(self, plan: TablePlan, header: Header) -> int:
        """Write the change and set `key`; 0 if it is not plain, whatever was written till then."""
        out = self.out
        cutter = self.cutter
        self.length = cutter.end - cutter.start
        self.key_start = cutter.key_start
        self.key_length = cutter.key_length
        out.size = 0
        self._key(plan)
        if not header.fields:
            header.fields = plan.fields_avro(list(header.columns)[: header.count])
        out.reserve(self.room + len(self.key) + len(plan.constant) + len(header.fields))
        at = native.put_long(out.out, 0, cutter.row_timestamp)
        out.out[at] = codes.OP_INSERT << 1
        native.copy_bytes(out.out, at + 1, plan.constant)
        at += 1 + len(plan.constant)
        out.out[at] = 0  # Not static.
        at = self._union(self._union(at + 1, 0, 0), 0, 0)  # No TTL.
        native.copy_bytes(out.out, at, header.fields)
        at += len(header.fields)
        at = self._payload_parts(plan, at)
        for i in range(plan.key_count, plan.first_cell):
            base = (i - plan.key_count) * codes.WIDTH
            value = plan.values[i]
            start = cutter.words[base + codes.START]
            at = self._nullable(value, at, start, cutter.words[base + codes.LENGTH])
        at = self._plain_cells(plan, header, at)
        if at < 0:
            return 0
        out.out[at] = out.out[at + 1] = 0  # Neither notes nor a range.
        out.size = at + 2
        return 1

    def _plain_cells(self, plan: TablePlan, header: Header, at: int) -> int:
        """Write all columns that are no key; return where they end, -1 if not all are plain.

        Messages have columns by name; the log has the simple ones before the complex ones.
        """
        cutter = self.cutter
        self.row[codes.PLAIN_COLUMN] = 0
        self.row[codes.PLAIN_SIMPLE] = cutter.at
        self.row[codes.PLAIN_COMPLEX] = _NOWHERE
        self.row[codes.PLAIN_BASE_US] = cutter.min_timestamp
        self.row[codes.PLAIN_ROW_US] = cutter.row_timestamp
        self.row[codes.PLAIN_DELETIONS] = cutter.row_flags & codes.HAS_COMPLEX_DELETION
        if not header.rises:
            self.row[codes.PLAIN_COMPLEX] = self._behind_simple(header)
            if self.row[codes.PLAIN_COMPLEX] < 0:
                return -1
        column = plan.first_cell
        at = self._run(plan, header, column, at)
        while self.row[codes.PLAIN_COLUMN] < header.count:
            column = header.order[self.row[codes.PLAIN_COLUMN]]
            if plan.complex[column]:
                return -1
            at = self._plain_cell(plan, column, at)
            if at < 0:
                return -1
            self.row[codes.PLAIN_COLUMN] += 1
            column += 1
            at = self._run(plan, header, column, at)
        if header.count:
            column = header.order[header.count - 1] + 1
        while column < plan.payload_count:
            self.out.out[at] = 0
            at += 1
            column += 1
        end = self.row[codes.PLAIN_COMPLEX]
        if end < 0:
            end = self.row[codes.PLAIN_SIMPLE]
        return at if end + 1 == cutter.end and self.buf[end] & codes.END_OF_PARTITION else -1

    def _behind_simple(self, header: Header) -> int:
        """Return where the cells of the simple columns end, -1 if not all are plain."""
        cutter = self.cutter
        begin = cutter.at
        for i in range(header.simple):
            length = self._length(header.columns[i])
            if length < 0:
                return -1
            cutter.at += length
        found = cutter.at if header.simple >= 0 else -1
        cutter.at = begin
        return found

    def _length(self, column: int) -> int:
        """Read up to a simple cell's value and return its length, -1 if it is not plain."""
        cutter = self.cutter
        if cutter.u8() != codes.USE_ROW_TIMESTAMP:
            return -1
        length = cutter.layout.fixed[column]
        if length < 0:
            length = cutter.length()
        return length if 0 < length <= cutter.end - cutter.at else -1

    def _run(self, plan: TablePlan, header: Header, column: int, at: int) -> int:
        """Write what takes no thought; return where it ends."""
        return native.put_plain(
            self.out.out,
            at,
            len(self.out.out) - self.room,
            self.row,
            column,
            header.order,
            header.count,
            plan.forms,
            self.buf,
            self.cutter.end,
        )

    def _plain_cell(self, plan: TablePlan, column: int, at: int) -> int:
        """Write a simple column; return where it ends, -1 if the cell is not plain."""
        cutter = self.cutter
        cutter.at = self.row[codes.PLAIN_SIMPLE]
        length = self._length(column)
        if length < 0:
            return -1
        self.out.out[at] = 2
        value = plan.values[column]
        at = self._value(value, at + 1, cutter.at, length)
        self.row[codes.PLAIN_SIMPLE] = cutter.at + length
        return at

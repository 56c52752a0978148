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
_MESSAGING_60 = 14
_VINT_MORE = 0x80  # From this on, the first byte of a vint says that more follow.
_PLAIN_ROW = codes.HAS_TIMESTAMP | codes.HAS_ALL_COLUMNS
# Bytes from the count of updates to the key's length, and behind the key to the columns, at most:
# who has seen that they are there need not look again.
_HEAD_BYTES, _BASES_BYTES = 27, 28


class PlainRow(RowAvro):
    """Writes the change of a plain insert to the start of `out`, up to the mutation's id.

    The cutter is moved with it: it reads what the two ways have in common.
    """

    def __init__(self) -> None:
        """Find nothing yet."""
        super().__init__()
        self.row_flags = 0
        self.row = memoryview(array("q", [0] * codes.PLAIN_WIDTH))

    def _head(self, start: int, end: int, messaging: int) -> Header | None:
        """Read up to the cells of a mutation that is one insert of one row, and return its columns.

        The cutter's operations are then its clustering columns. None: it is to be cut.

        Raises:
            BadMutationError: as `Cutter.cut` does.

        """
        cutter = self.cutter
        cutter.begin(start, end, messaging)
        if not self._up_to_columns(start, end, messaging):
            return None
        header = cutter.header()
        at = cutter.at
        if at + 1 >= end or self.buf[at] >= _VINT_MORE:  # The estimate is mostly one row.
            return None
        self.row_flags = self.buf[at + 1]
        if self.row_flags & ~codes.HAS_COMPLEX_DELETION != _PLAIN_ROW:
            return None
        cutter.at = at + 2
        cutter.clustering(cutter.layout.clustering_count)
        cutter.row_timestamp = cutter.timestamp()
        return header

    def _up_to_columns(self, at: int, end: int, messaging: int) -> int:
        """Read what stands before the columns; 0 if it is not one update of rows, and no more."""
        cutter = self.cutter
        if messaging >= _MESSAGING_60:
            at += 1
        if end - at < _HEAD_BYTES or self.buf[at] != 1:
            return 0
        table = cutter.catalogue.find(native.u64(self.buf, at + 1), native.u64(self.buf, at + 9))
        if table < 0:
            return 0
        cutter.layout = cutter.catalogue.layouts[table]
        at += 17
        if messaging >= _MESSAGING_60:
            at = self._behind(at)  # The schema epoch.
        self.key_start = at + 1
        self.key_length = self.buf[at]
        at = self.key_start + self.key_length
        if self.key_length >= _VINT_MORE or end - at < _BASES_BYTES:
            return 0
        if self.buf[at] != codes.HAS_ROW_ESTIMATE:
            return 0
        cutter.at = at + 1
        cutter.time_base()
        cutter.at = self._behind(self._behind(cutter.at))  # Of deletion times and of TTLs.
        return 1

    def _behind(self, at: int) -> int:
        """Return where the vint at buf[at] ends."""
        return at + 1 + native.vint_extra(self.buf[at])

    def _insert(self, plan: TablePlan, header: Header) -> int:
        """Write the change and set `key`; 0 if it is not plain, whatever was written till then."""
        out = self.out
        cutter = self.cutter
        self.length = cutter.end - cutter.start
        out.size = 0
        self._key(plan)
        if not header.opening:
            header.opening = plan.opening(list(header.columns)[: header.count])
        out.reserve(self.room + len(self.key) + len(header.opening))
        at = native.put_long(out.out, 0, cutter.row_timestamp)
        at = native.put_bytes(out.out, at, header.opening)
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
        self.row[codes.PLAIN_DELETIONS] = self.row_flags & codes.HAS_COMPLEX_DELETION
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

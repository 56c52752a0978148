"""Parses a raw mutation to a flat list of operations: the only parser of mutation bytes.

The decoder's classes and the compiled encoders both read this list, so there is one implementation
of the format. `native.constants` names the operations and their fields; rules cite the sections of
docs/commit-log.md. Must not do I/O.
"""

from array import array
from typing import NoReturn

from headrace.sources.cassandra.mutation.errors import BadMutationError, UnknownTableError
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.ops import View
from headrace.sources.cassandra.schema.layout import Catalogue, Header

OPS_MAX = 4_000_000  # More in one mutation is impossible: it has at most 16 MiB.
_OPS_FIRST = 256
_OPS_KEPT = 65_536  # The memory of a longer list is freed after its mutation.
_BITMAP_MAX = 64  # With this many columns or more, a subset is a list (section 7).
_MASK, _LOW = 0xFFFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF
_EPOCH_US, _EPOCH_S = 1_442_880_000_000_000, 1_442_880_000
_LIVE, _FOREVER = -(1 << 63), (1 << 63) - 1
_BATCH = 32  # Clustering values per header (5.2).
_NULL = -1


class Cutter:
    """Parses one mutation at a time; `ops` and `count` are of the last one. For one thread."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Parse mutations of the tables in *catalogue*."""
        self.catalogue = catalogue
        self.lists = 1  # The number of lists so far: a holder of `words` detects a new one.
        self.room = _OPS_FIRST
        self.words = memoryview(array("q", bytes(8 * constants.WIDTH * _OPS_FIRST)))
        self.count = 0
        self.present = memoryview(bytearray(1))
        self.oldest = self.newest = self.deleted_us = 0

    @property
    def operations(self) -> memoryview:
        """The operations: `count` times `constants.WIDTH` numbers; overwritten by the next cut."""
        return memoryview(self.words)

    def cut(self, buf: View, start: int, end: int, messaging: int) -> int:
        """Parse the mutation in buf[start:end]. Return the number of operations.

        Raises:
            UnknownTableError: an update is of a table that is not in the catalogue.
            BadMutationError: the bytes do not fit the schema; none of them may be published.

        """
        self.attach(buf)
        return self.cut_range(start, end, messaging)

    def attach(self, buf: View) -> None:
        """Set the buffer that `cut_range` reads, until the next attach."""
        self.buf = buf

    def cut_range(self, start: int, end: int, messaging: int) -> int:
        """Do the same as `cut`, in the attached buffer."""
        self.begin(start, end, messaging)
        if messaging >= constants.MESSAGING_60:
            self.u8()  # Flags that a reader ignores (4).
        updates = self.uvint()
        if updates == 0:
            self.fail("a mutation without updates")
        while updates > 0:
            updates -= 1
            self._update()
        if self.at != self.end:
            self.fail(f"{self.end - self.at} bytes are left after the last update")
        return self.count

    def begin(self, start: int, end: int, messaging: int) -> None:
        """Start a mutation, for `cut_range`."""
        if self.room > _OPS_KEPT:
            self._begin_list()
        self.count = 0
        self.start = self.at = start
        self.end = end
        self.messaging = messaging

    def span(self) -> None:
        """Set `oldest` and `newest` to the range of write times in the last mutation."""
        self.oldest = _FOREVER
        self.newest = _LIVE
        for i in range(self.count):
            at = i * constants.WIDTH
            kind = self.words[at]
            flags = self.words[at + constants.FLAGS]
            if kind == constants.ROW and not flags & constants.HAS_TIMESTAMP:
                continue
            if kind == constants.COMPLEX and not flags & 1:
                continue
            if kind in (constants.UPDATE, constants.VALUE, constants.MARKER):
                continue
            self.oldest = min(self.oldest, self.words[at + constants.TIMESTAMP])
            self.newest = max(self.newest, self.words[at + constants.TIMESTAMP])

    def is_neighbour(self) -> int:
        """Return whether the update of an unknown table that ended the cut is really an update.

        All updates of a mutation have the same partition key. With a wrong schema for those before
        it, the cursor could be anywhere. Moves the cursor.

        Raises:
            BadMutationError: it is cut short.

        """
        self.at += 16
        if self.messaging >= constants.MESSAGING_60:
            self.uvint()
        length = self.length()
        if self.count == 0 or length != self.words[constants.LENGTH]:
            return 0
        return ops.same(self.buf, self.at, self.buf, self.words[constants.START], length)

    # ---- one update (4.1) ----

    def _update(self) -> None:
        self._table()
        length = self.length()
        base = self._op(constants.UPDATE, self.layout.index)
        self.words[base + constants.START] = self.at
        self.words[base + constants.LENGTH] = length
        self.at += length
        flags = self.u8()
        self.words[base + constants.FLAGS] = flags
        if not flags & constants.IS_EMPTY:
            self._content(flags)

    def _table(self) -> None:
        """Read the table and partition key of the update."""
        self._need(16)
        index = self.catalogue.find(ops.u64(self.buf, self.at), ops.u64(self.buf, self.at + 8))
        if index < 0:
            raise UnknownTableError(
                ops.take(self.buf, self.at, self.at + 16), place=f"byte {self.at - self.start}"
            )
        self.layout = self.catalogue.layouts[index]
        self.at += 16
        if self.messaging >= constants.MESSAGING_60:
            self.uvint()  # The schema epoch.

    def _minima(self) -> None:
        """Read the bases of the update's times and TTLs."""
        self.time_base()
        self.ttl_bases()

    def ttl_bases(self) -> None:
        """Read the bases of the update's deletion times and TTLs."""
        self.min_ldt = ((self.uvint() & _LOW) + _EPOCH_S) & _LOW
        self.min_ttl = self.uvint() & _LOW

    def time_base(self) -> None:
        """Read the base of the update's write times."""
        self.min_timestamp = _EPOCH_US
        self.min_timestamp = self.timestamp()

    def _content(self, flags: int) -> None:
        self._minima()
        statics = self.header() if flags & constants.HAS_STATIC_ROW else None
        regulars = self.header()
        if flags & constants.HAS_PARTITION_DELETION:
            self._deletion(constants.PARTITION_DELETION)
        if statics is not None:
            self._row(self.u8(), statics, constants.ROW_STATIC)
        if flags & constants.HAS_ROW_ESTIMATE:
            self.uvint()
        row_flags = self.u8()
        while not row_flags & constants.END_OF_PARTITION:
            if row_flags & constants.IS_MARKER:
                self._marker()
            else:
                self._row(row_flags, regulars, 0)
            row_flags = self.u8()

    def header(self) -> Header:
        """Return the column list at the cursor; lists are cached by their bytes."""
        headers = self.layout.headers
        for known in headers:
            header = known
            if header.length <= self.end - self.at and ops.same(
                self.buf, self.at, header.raw, 0, header.length
            ):
                self.at += header.length
                return header
        return self._new_header()

    def _new_header(self) -> Header:
        begin = self.at
        count = self.length()  # A column takes a byte at least.
        columns = []
        for _ in range(count):
            length = self.length()
            name = ops.take(self.buf, self.at, self.at + length)
            index = self.layout.by_name.get(name)
            if index is None:
                self.fail(f"column {name!r} is not in the schema of {self.layout.table.qualified}")
            if index in columns:  # A row has one place per column.
                self.fail(f"column {name!r} is listed twice")
            columns.append(index)
            self.at += length
        kinds = [self.layout.complex[column] for column in columns]
        header = Header(ops.take(self.buf, begin, self.at), columns, kinds)
        self.layout.remember(header)
        return header

    # ---- rows and markers (5) ----

    def _row(self, flags: int, header: Header, static: int) -> None:
        extended = self.u8() if flags & constants.EXTENSION_FLAG else 0
        if (extended & 0x01 != 0) != (static != 0):
            self.fail("a static row where none can stand, or none where one must")
        base = self._op(constants.ROW, 0)
        self.words[base + constants.FLAGS] = flags | static
        if not static:
            self.clustering(self.layout.clustering_count)
        self.row_times(flags)
        if flags & constants.HAS_TIMESTAMP:
            self.words[base + constants.TIMESTAMP] = self.row_timestamp
            self.words[base + constants.TTL] = self.row_ttl
            self.words[base + constants.LDT] = self.row_ldt
        if flags & constants.HAS_DELETION:
            self._deletion(constants.ROW_DELETION)
        missing = 0
        if not flags & constants.HAS_ALL_COLUMNS:
            missing = self._subset(header.count)
        self._cells(header, missing, flags & constants.HAS_COMPLEX_DELETION)

    def row_times(self, flags: int) -> None:
        """Read a row's write time, TTL and expiry, as far as *flags* has them."""
        self.row_timestamp = self.row_ttl = 0
        self.row_ldt = _NULL
        if flags & constants.HAS_TIMESTAMP:
            self.row_timestamp = self.timestamp()
            if flags & constants.HAS_TTL:  # The TTL first, unlike in a cell.
                self.row_ttl = self._ttl()
                self.row_ldt = self._ldt()

    def _cells(self, header: Header, missing: int, has_deletions: int) -> None:
        for i in range(header.count):
            if header.count < _BITMAP_MAX:
                if missing >> i & 1:
                    continue
            elif missing and not self.present[i]:
                continue
            column = header.columns[i]
            if self.layout.complex[column]:
                self._complex(column, has_deletions)
            elif self.at < self.end and self.buf[self.at] == constants.USE_ROW_TIMESTAMP:
                self._plain_cell(column, self.layout.fixed[column])
            else:
                self._cell(column, self.layout.fixed[column], False)

    def _subset(self, count: int) -> int:
        """Read a column subset: a bitmap of the missing ones, or non-zero if it is in `present`."""
        encoded = self.uvint()
        if encoded == 0:
            return 0
        if count < _BITMAP_MAX:
            if encoded >> count:
                self.fail(f"a subset of {count} columns names more")
            return encoded
        if encoded > count:
            self.fail(f"{encoded} of {count} columns are missing")
        left = count - encoded
        listed = 1 if left < count // 2 else 0  # The shorter list is written.
        self.present = memoryview(bytearray([1 - listed]) * count)
        for _ in range(left if listed else encoded):
            index = self.uvint()
            if index >= count:
                self.fail(f"column {index} of a list of {count}")
            self.present[index] = listed
        return encoded

    def _complex(self, column: int, has_deletion: int) -> None:
        base = self._op(constants.COMPLEX, column)
        if has_deletion and self.is_deleted():
            self.words[base + constants.TIMESTAMP] = self.deleted_us
            self.words[base + constants.LDT] = self.deleted_s
            self.words[base + constants.FLAGS] = 1
        cells = self.uvint()
        while cells > 0:
            cells -= 1
            self._cell(column, -1, True)

    def is_deleted(self) -> int:
        """Read a complex column's deletion. Return whether it deletes."""
        self.deleted_us = self.timestamp()
        self.deleted_s = self._ldt()
        return 1 if self.deleted_us != _LIVE else 0  # No write is that old (4.4).

    def _plain_cell(self, column: int, fixed: int) -> None:
        """Parse a cell with only a value and its row's write time, like most cells."""
        if self.count >= self.room:
            self._grow()
        base = self.count * constants.WIDTH
        self.count += 1
        self.at += 1
        length = self.length() if fixed < 0 else fixed
        start = self.at
        if length > self.end - start:
            self._need(length)
        self.at = start + length
        self.words[base] = constants.CELL
        self.words[base + constants.COLUMN] = column
        self.words[base + constants.TIMESTAMP] = self.row_timestamp
        self.words[base + constants.LDT] = _NULL
        self.words[base + constants.TTL] = 0
        self.words[base + constants.START] = start
        self.words[base + constants.LENGTH] = length
        self.words[base + constants.PATH] = 0
        self.words[base + constants.PATH_LENGTH] = _NULL
        self.words[base + constants.FLAGS] = constants.USE_ROW_TIMESTAMP

    def _cell(self, column: int, fixed: int, with_path: bool) -> None:
        flags = self.u8()
        if flags & constants.USE_ROW_TTL and self.row_ldt < 0:
            flags &= ~constants.IS_EXPIRING  # In Cassandra, too, its TTL is that of the row: none.
        base = self._op(constants.CELL, column)
        self.words[base + constants.FLAGS] = flags
        self.words[base + constants.TIMESTAMP] = (
            self.row_timestamp if flags & constants.USE_ROW_TIMESTAMP else self.timestamp()
        )
        if flags & constants.USE_ROW_TTL:
            self.words[base + constants.LDT] = self.row_ldt
            self.words[base + constants.TTL] = self.row_ttl
        else:
            if flags & (
                constants.IS_DELETED | constants.IS_EXPIRING
            ):  # ldt first, unlike in a row.
                self.words[base + constants.LDT] = self._ldt()
            if flags & constants.IS_EXPIRING:
                self.words[base + constants.TTL] = self._ttl()
        if with_path:
            length = self.length()
            self.words[base + constants.PATH] = self.at
            self.words[base + constants.PATH_LENGTH] = length
            self.at += length
        if flags & constants.HAS_EMPTY_VALUE:
            fixed = 0
        elif fixed < 0:
            fixed = self.length()
        elif fixed > self.end - self.at:
            self._need(fixed)
        self.words[base + constants.START] = self.at
        self.words[base + constants.LENGTH] = fixed
        self.at += fixed

    def clustering(self, count: int) -> None:
        """Read the values of the first *count* clustering columns."""
        header = 0
        for i in range(count):
            place = i & (_BATCH - 1)
            if place == 0:
                header = self.uvint()
            column = self.layout.clustering_first + i
            base = self._op(constants.VALUE, column)
            if header >> (2 * place + 1) & 1:
                self.words[base + constants.LENGTH] = _NULL
                continue
            length = 0
            if not header >> (2 * place) & 1:
                length = self.layout.fixed[column]
                if length < 0:
                    length = self.length()
                else:
                    self._need(length)
            self.words[base + constants.START] = self.at
            self.words[base + constants.LENGTH] = length
            self.at += length

    def _marker(self) -> None:
        kind = self.u8()
        self._need(2)
        count = ops.u32(self.buf, self.at - 2) & 0xFFFF
        self.at += 2
        if count > self.layout.clustering_count:
            self.fail(f"a bound of {count} values, {self.layout.clustering_count} at most")
        base = self._op(constants.MARKER, count)
        self.words[base + constants.FLAGS] = kind
        self.clustering(count)
        if kind in (constants.EXCL_END, constants.INCL_END):
            self._deletion(constants.MARKER_CLOSE)
        elif kind in (constants.INCL_START, constants.EXCL_START):
            self._deletion(constants.MARKER_OPEN)
        elif kind in (constants.EXCL_END_INCL_START, constants.INCL_END_EXCL_START):
            self._deletion(constants.MARKER_CLOSE)
            self._deletion(constants.MARKER_OPEN)
        else:
            self.fail(f"bound kind {kind}")

    def _deletion(self, kind: int) -> None:
        base = self._op(kind, 0)
        self.words[base + constants.TIMESTAMP] = self.timestamp()
        self.words[base + constants.LDT] = self._ldt()

    # ---- primitives ----

    def timestamp(self) -> int:
        """Read a write time, in µs."""
        value = (self.uvint() + self.min_timestamp) & _MASK
        # The same in C and in Python: a 64-bit pattern interpreted as signed.
        return -1 - (_MASK - value) if value >> 63 else value

    def _ldt(self) -> int:
        return ((self.uvint() & _LOW) + self.min_ldt) & _LOW

    def _ttl(self) -> int:
        return ((self.uvint() & _LOW) + self.min_ttl) & _LOW

    def u8(self) -> int:
        """Read a byte."""
        if self.at >= self.end:
            self._need(1)
        self.at += 1
        return self.buf[self.at - 1]

    def uvint(self) -> int:
        """Read an unsigned vint: its first byte's leading one bits count the bytes that follow."""
        first = self.u8()
        if first < 0x80:
            return first
        extra = ops.vint_extra(first)
        self._need(extra)
        value = first & (0xFF >> extra)
        at = self.at
        self.at += extra
        if extra < 8 <= self.end - at:
            return value << 8 * extra | ops.u64(self.buf, at) >> (64 - 8 * extra)
        while at < self.at:
            value = (value << 8) | self.buf[at]
            at += 1
        return value

    def length(self) -> int:
        """Read a vint that counts bytes, and check that all of them follow."""
        if self.at < self.end and self.buf[self.at] < 0x80:  # Most are short.
            length = self.buf[self.at]
            self.at += 1
        else:
            length = self.uvint()
        if length > self.end - self.at:
            self._need(length)
        return length

    def _need(self, count: int) -> None:
        if count > self.end - self.at:
            self.fail(f"expected {count} more bytes, found {self.end - self.at}")

    def _op(self, kind: int, column: int) -> int:
        """Append an empty operation. Return the index of its numbers."""
        if self.count >= self.room:
            self._grow()
        base = self.count * constants.WIDTH
        self.count += 1
        self.words[base] = kind
        self.words[base + constants.COLUMN] = column
        self.words[base + constants.TIMESTAMP] = 0
        self.words[base + constants.LDT] = _NULL
        self.words[base + constants.TTL] = 0
        self.words[base + constants.START] = 0
        self.words[base + constants.LENGTH] = 0
        self.words[base + constants.PATH] = 0
        self.words[base + constants.PATH_LENGTH] = _NULL
        self.words[base + constants.FLAGS] = 0
        return base

    def _grow(self) -> None:
        if self.room >= OPS_MAX:
            self.fail(f"more than {OPS_MAX} operations")
        grown = memoryview(array("q", bytes(16 * constants.WIDTH * self.room)))
        grown[: self.room * constants.WIDTH] = self.words
        self.words = grown
        self.room *= 2
        self.lists += 1

    def _begin_list(self) -> None:
        self.words = memoryview(array("q", bytes(8 * constants.WIDTH * _OPS_FIRST)))
        self.room = _OPS_FIRST
        self.lists += 1

    def fail(self, found: str) -> NoReturn:
        """Raise BadMutationError; *found* describes the misfit."""
        raise BadMutationError(
            found,
            place=f"byte {self.at - self.start} of a mutation of {self.end - self.start}",
            hint="its checksum is right, so the schema is of another time than the entry",
        )

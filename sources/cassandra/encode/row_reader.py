"""Reads a mutation's operations row by row: the row's columns and their differences.

Separate because both messages and typed columns are written from it. Must not do I/O.
"""

from array import array

from headrace.sources.cassandra.encode.table_plan import TablePlan
from headrace.sources.cassandra.mutation.parser import Cutter
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.ops import View

_NEVER = -(1 << 63)
_FOREVER = (1 << 63) - 1


class RowReader:
    """`words` are the operations of the current mutation, whose values are in `buf`.

    `columns` lists the columns in a row, in log order; `where` has the operation of each.

    `newest` is the newest write time of the cells, `newest_deletion` of the complex deletions;
    `oldest_simple` and `newest_simple` are those of the simple cells alone. `special`: one of these
    expires or is empty.
    """

    def __init__(self) -> None:
        """Start without a mutation."""
        self.words = memoryview(array("q", [0]))  # The operations of the current mutation.
        self.lists = 0  # The number of that list in the parser.
        self.end = 0  # The number of these words.
        self.where = memoryview(array("q", [constants.NOWHERE]))
        self.columns = memoryview(array("i", [0]))
        self.column_count = 0
        self.key_start = self.key_length = 0  # The partition key's bytes.

    def attach(self, buf: View) -> None:
        """Read values from *buf* until the next attach."""
        self.buf = buf

    def use(self, cutter: Cutter, columns_max: int) -> None:
        """Read columns from *cutter*'s operations, of tables of at most *columns_max* columns."""
        self.cutter = cutter
        self.lists = 0
        if columns_max >= len(self.where):
            self.where = memoryview(array("q", [constants.NOWHERE] * (columns_max + 1)))
            self.columns = memoryview(array("i", [0] * (columns_max + 1)))

    def forget(self) -> None:
        """Discard a row that was read only partly."""
        self.where = memoryview(array("q", [constants.NOWHERE] * len(self.where)))

    def read(self, plan: TablePlan, at: int) -> int:
        """Record the places and differences of the columns of the row at *at*. Return its end."""
        at += constants.WIDTH
        self.row_deletion = constants.NOWHERE
        self.column_count = 0
        self.newest = self.newest_deletion = _NEVER
        self.oldest_simple = _FOREVER
        self.newest_simple = _NEVER
        self.special = 0
        while at < self.end:
            kind = self.words[at]
            column = self.words[at + constants.COLUMN]
            if kind == constants.CELL:
                timestamp = self.words[at + constants.TIMESTAMP]
                if timestamp > plan.dropped[column]:
                    self._mention(column, at)
                    self.newest = max(self.newest, timestamp)
                    self.newest_simple = max(self.newest_simple, timestamp)
                    self.oldest_simple = min(self.oldest_simple, timestamp)
                    self.special |= self.words[at + constants.FLAGS] & constants.IS_EXPIRING
                    if self.words[at + constants.LENGTH] == 0:
                        self.special |= constants.HAS_EMPTY_VALUE
                at += constants.WIDTH
            elif kind == constants.VALUE:
                at += constants.WIDTH
            elif kind == constants.COMPLEX:
                at = self._gather_complex(plan, at, column)
            elif kind == constants.ROW_DELETION:
                self.row_deletion = at
                at += constants.WIDTH
            else:
                break
        return at

    def _gather_complex(self, plan: TablePlan, at: int, column: int) -> int:
        begin = at
        dropped = plan.dropped[column]
        kept = 0
        if self.words[at + constants.FLAGS] & 1:
            if self.words[at + constants.TIMESTAMP] > dropped:
                kept = 1
                self.newest_deletion = max(
                    self.newest_deletion, self.words[at + constants.TIMESTAMP]
                )
            else:
                self.words[at + constants.FLAGS] = 0
        at += constants.WIDTH
        while self.is_path_cell(at):
            if self.words[at + constants.TIMESTAMP] > dropped:
                kept += 1
                self.newest = max(self.newest, self.words[at + constants.TIMESTAMP])
            else:
                self.words[at + constants.FLAGS] |= constants.HIDDEN
            at += constants.WIDTH
        if kept:
            self._mention(column, begin)
        return at

    def range_end(self, at: int) -> int:
        """Return the next marker, which ends the open range."""
        while at < self.end and self.words[at] != constants.MARKER:
            if self.words[at] == constants.UPDATE:
                break
            at += constants.WIDTH
        if at >= self.end or self.words[at] != constants.MARKER:
            self.cutter.fail("a range does not end")
        return at

    def is_path_cell(self, at: int) -> int:
        """Return whether a cell of a complex column is at *at*."""
        if at >= self.end or self.words[at] != constants.CELL:
            return 0
        return 1 if self.words[at + constants.PATH_LENGTH] >= 0 else 0

    def _mention(self, column: int, at: int) -> None:
        self.columns[self.column_count] = column
        self.where[column] = at
        self.column_count += 1

    def has_note(self, plan: TablePlan, column: int, timestamp: int, ttl: int, expires: int) -> int:
        """Return whether a simple cell differs from its row's write time and TTL, or is empty."""
        if plan.complex[column]:
            return 0
        at = self.where[column]
        if self.words[at + constants.TIMESTAMP] != timestamp:
            return 1
        if self.words[at + constants.FLAGS] & constants.IS_EXPIRING:
            if self.words[at + constants.TTL] != ttl or self.words[at + constants.LDT] != expires:
                return 1
        elif expires >= 0:
            return 1
        return self.is_empty(plan, column, at)

    def is_empty(self, plan: TablePlan, column: int, at: int) -> int:
        """Return whether a simple cell is empty though its type does not allow it."""
        if self.words[at + constants.FLAGS] & constants.IS_DELETED or plan.empties[column]:
            return 0
        return 1 if self.words[at + constants.LENGTH] == 0 else 0

    def part_length(self, plan: TablePlan, at: int, end: int) -> int:
        """Return the length of the part of a composite key at *at*; the key ends at *end*."""
        length = -1
        if at + 2 <= end:
            length = self.buf[at] << 8 | self.buf[at + 1]
        if length < 0 or at + 2 + length >= end:
            self.bad_key(plan)
        return length

    def bad_key(self, plan: TablePlan) -> None:
        """Raise BadValueError for the current key."""
        raise BadValueError(
            f"a partition key of {self.key_length} bytes has not {plan.key_count} parts"
        )

"""The columns of one row, found among a mutation's operations, with what they have in common.

Separate from the encoder, which writes them. Must not do I/O.
"""

from array import array

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.cut import Cutter
from headrace.sources.cassandra.table_plan import TablePlan

_NOWHERE = -1
_NEVER = -(1 << 63)
_FOREVER = (1 << 63) - 1
_FACTS_FIRST = 256


class RowColumns:
    """`columns` lists what a row mentions, in log order; `where` has each one's operation.

    `newest` is the newest write time of the cells, `newest_deletion` of the complex deletions;
    `oldest_simple` and `newest_simple` are of the simple cells alone. `special` tells of expiring
    and empty ones among those.
    """

    def __init__(self) -> None:
        """Find nothing yet."""
        self.words = memoryview(array("q", [0]))  # The operations of the mutation at hand.
        self.lists = 0  # Which of the cutter's lists that is.
        self.end = 0  # How many of these words there are.
        self.where = memoryview(array("q", [_NOWHERE]))
        self.columns = memoryview(array("i", [0]))
        self.column_count = 0
        self.facts = memoryview(array("q", bytes(8 * codes.FACT_WORDS * _FACTS_FIRST)))

    def use(self, cutter: Cutter, columns_max: int) -> None:
        """Find columns in what *cutter* cuts, of tables of at most *columns_max* columns."""
        self.cutter = cutter
        self.lists = 0
        if columns_max >= len(self.where):
            self.where = memoryview(array("q", [_NOWHERE] * (columns_max + 1)))
            self.columns = memoryview(array("i", [0] * (columns_max + 1)))

    def forget(self) -> None:
        """Forget a row that was given up half-way."""
        self.where = memoryview(array("q", [_NOWHERE] * len(self.where)))

    def _gather(self, plan: TablePlan, at: int) -> int:
        """Note where the row's columns are and how they differ; return where the row ends."""
        at += codes.WIDTH
        self.row_deletion = _NOWHERE
        self.column_count = 0
        self.newest = self.newest_deletion = _NEVER
        self.oldest_simple = _FOREVER
        self.newest_simple = _NEVER
        self.special = 0
        while at < self.end:
            kind = self.words[at]
            column = self.words[at + codes.COLUMN]
            if kind == codes.CELL:
                timestamp = self.words[at + codes.TIMESTAMP]
                if timestamp > plan.dropped[column]:
                    self._mention(column, at)
                    self.newest = max(self.newest, timestamp)
                    self.newest_simple = max(self.newest_simple, timestamp)
                    self.oldest_simple = min(self.oldest_simple, timestamp)
                    self.special |= self.words[at + codes.FLAGS] & codes.IS_EXPIRING
                    if self.words[at + codes.LENGTH] == 0:
                        self.special |= codes.HAS_EMPTY_VALUE
                at += codes.WIDTH
            elif kind == codes.VALUE:
                at += codes.WIDTH
            elif kind == codes.COMPLEX:
                at = self._gather_complex(plan, at, column)
            elif kind == codes.ROW_DELETION:
                self.row_deletion = at
                at += codes.WIDTH
            else:
                break
        return at

    def _gather_complex(self, plan: TablePlan, at: int, column: int) -> int:
        begin = at
        dropped = plan.dropped[column]
        kept = 0
        if self.words[at + codes.FLAGS] & 1:
            if self.words[at + codes.TIMESTAMP] > dropped:
                kept = 1
                self.newest_deletion = max(self.newest_deletion, self.words[at + codes.TIMESTAMP])
            else:
                self.words[at + codes.FLAGS] = 0
        at += codes.WIDTH
        while self._is_path_cell(at):
            if self.words[at + codes.TIMESTAMP] > dropped:
                kept += 1
                self.newest = max(self.newest, self.words[at + codes.TIMESTAMP])
            else:
                self.words[at + codes.FLAGS] |= codes.HIDDEN
            at += codes.WIDTH
        if kept:
            self._mention(column, begin)
        return at

    def _range_end(self, at: int) -> int:
        """Return the next marker, which ends the range that is open."""
        while at < self.end and self.words[at] != codes.MARKER:
            if self.words[at] == codes.UPDATE:
                break
            at += codes.WIDTH
        if at >= self.end or self.words[at] != codes.MARKER:
            self.cutter.fail("a range does not end")
        return at

    def _is_path_cell(self, at: int) -> int:
        if at >= self.end or self.words[at] != codes.CELL:
            return 0
        return 1 if self.words[at + codes.PATH_LENGTH] >= 0 else 0

    def _mention(self, column: int, at: int) -> None:
        self.columns[self.column_count] = column
        self.where[column] = at
        self.column_count += 1

    def _has_note(
        self, plan: TablePlan, column: int, timestamp: int, ttl: int, expires: int
    ) -> int:
        """Say whether a simple cell differs from its row's write time and TTL, or is empty."""
        if plan.complex[column]:
            return 0
        at = self.where[column]
        if self.words[at + codes.TIMESTAMP] != timestamp:
            return 1
        if self.words[at + codes.FLAGS] & codes.IS_EXPIRING:
            if self.words[at + codes.TTL] != ttl or self.words[at + codes.LDT] != expires:
                return 1
        elif expires >= 0:
            return 1
        return self._is_empty(plan, column, at)

    def _is_empty(self, plan: TablePlan, column: int, at: int) -> int:
        if self.words[at + codes.FLAGS] & codes.IS_DELETED or plan.empties[column]:
            return 0
        return 1 if self.words[at + codes.LENGTH] == 0 else 0

    def facts_of(self, count: int) -> bytes:
        """Return four numbers for each of *count* changes: see `_keep_facts`."""
        return native.take_words(self.facts, count * codes.FACT_WORDS)

    def _keep_facts(
        self, record: int, timestamp: int, operation: int, index: int, mutation: int
    ) -> None:
        """Keep a change's write time, operation, index in its mutation, and mutation."""
        base = record * codes.FACT_WORDS
        if base == len(self.facts):
            self._grow_facts()
        self.facts[base] = timestamp
        self.facts[base + 1] = operation
        self.facts[base + 2] = index
        self.facts[base + 3] = mutation

    def _grow_facts(self) -> None:
        grown = memoryview(array("q", bytes(16 * len(self.facts))))
        grown[: len(self.facts)] = self.facts
        self.facts = grown

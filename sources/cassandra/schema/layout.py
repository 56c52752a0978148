"""The part of a schema that the parser needs, flat: lengths and kinds of columns, by table id.

Separate from the schema because compiled code reads it for every cell. Must not do I/O.
"""

from array import array
from collections.abc import Sequence

from headrace.sources.cassandra.native import ops
from headrace.sources.cassandra.schema.tables import ColumnKind, Schema, TableSchema

_HEADERS_MAX = 16  # Distinct column lists kept per table; more of them cost a look-up by name.
_MULTIPLIER = 0x9E37_79B9_7F4A_7C15
_MASK = 0xFFFF_FFFF_FFFF_FFFF
_SLOTS_PER_TABLE = 4


class Header:
    """A column list of an update, and the columns that it names."""

    def __init__(self, raw: bytes, columns: Sequence[int], kinds: Sequence[int]) -> None:
        """*raw* starts at the count; *columns* are indexes into `TableSchema.columns`.

        *kinds* is 1 for each complex column. These come after the `simple` ones, otherwise `simple`
        is -1.
        """
        self.raw = raw
        self.length = len(raw)
        self.columns = memoryview(array("i", columns or [0]))
        self.count = len(columns)
        self.simple = kinds.count(0) if list(kinds) == sorted(kinds) else -1
        self.order = memoryview(array("i", sorted(columns) or [0]))  # In the order of messages.
        self.rises = int(list(self.order[: self.count]) == list(columns))
        self.fields = b""  # The names in Avro, as in messages; empty until made.


class TableLayout:
    """One table as the parser sees it; `index` is its place in the catalogue."""

    def __init__(self, index: int, table: TableSchema) -> None:
        """Derive the layout of *table*."""
        self.index = index
        self.table = table
        lengths = [column.type.fixed_length for column in table.columns]
        self.fixed = memoryview(array("i", [-1 if n is None else n for n in lengths]))
        kinds = [column.kind for column in table.columns]
        cells = (ColumnKind.STATIC, ColumnKind.REGULAR)
        self.complex = memoryview(
            array(
                "i",
                [int(c.kind in cells and c.type.is_complex) for c in table.columns],
            )
        )
        self.clustering_first = kinds.count(ColumnKind.PARTITION_KEY)
        self.clustering_count = kinds.count(ColumnKind.CLUSTERING)
        # Dropped columns come last: a current column of the same name wins.
        pairs = [(c.name.encode(), i) for i, c in enumerate(table.columns) if c.kind in cells]
        self.by_name = dict(reversed(pairs))
        self.headers: list[Header] = []

    def remember(self, header: Header) -> None:
        """Keep *header*; drop the oldest if there are too many."""
        if len(self.headers) >= _HEADERS_MAX:
            self.headers.pop(0)
        self.headers.append(header)


class Catalogue:
    """All tables of a schema, found by the 16 bytes of a table id.

    Open addressing over the two halves of the ids, so that a look-up creates no Python object.
    """

    def __init__(self, schema: Schema) -> None:
        """Assign numbers to the tables, in the order of the schema."""
        self.tables = list(schema.tables.values())
        self.layouts = [TableLayout(i, table) for i, table in enumerate(self.tables)]
        self.bits = max(4, (len(self.tables) * _SLOTS_PER_TABLE).bit_length())
        size = 1 << self.bits
        self.slots = memoryview(array("i", [-1] * size))
        self.ids = memoryview(array("Q", [0] * (2 * max(1, len(self.tables)))))
        for layout in self.layouts:
            raw = layout.table.table_id.bytes
            high, low = ops.u64(raw, 0), ops.u64(raw, 8)
            self.ids[2 * layout.index], self.ids[2 * layout.index + 1] = high, low
            slot = self._slot(high, low)
            while self.slots[slot] >= 0:
                slot = (slot + 1) & (size - 1)
            self.slots[slot] = layout.index

    def _slot(self, high: int, low: int) -> int:
        return (((high ^ low) * _MULTIPLIER) & _MASK) >> (64 - self.bits)

    def find(self, high: int, low: int) -> int:
        """Return the index of the table whose id has these two halves, or -1."""
        slot = self._slot(high, low)
        index = self.slots[slot]
        while index >= 0:
            if self.ids[2 * index] == high and self.ids[2 * index + 1] == low:
                return index
            slot = (slot + 1) & ((1 << self.bits) - 1)
            index = self.slots[slot]
        return -1

"""A column in Arrow's layout that grows by values: nulls, numbers, strings, lists, structs.

Separate from `value_columns`, which reads CQL values. For one thread.
"""

from typing import Any

from headrace.plugins.records.columns import ColumnBuffers, ColumnKind, ColumnType
from headrace.sources.cassandra.native import ops

_ROWS_FIRST = 1024
# How a column is stored.
_NOT, _FIXED, _BITS, _PIECES, _LISTS, _FIELDS = range(6)
_WIDTHS = {
    ColumnKind.INT8: 1,
    ColumnKind.INT16: 2,
    ColumnKind.INT32: 4,
    ColumnKind.FLOAT: 4,
    ColumnKind.DATE: 4,
    ColumnKind.INT64: 8,
    ColumnKind.DOUBLE: 8,
    ColumnKind.TIMESTAMP: 8,
    ColumnKind.DECIMAL: 16,
}
_STORED = {
    ColumnKind.BOOLEAN: _BITS,
    ColumnKind.TEXT: _PIECES,
    ColumnKind.BYTES: _PIECES,
    ColumnKind.LIST: _LISTS,
    ColumnKind.MAP: _LISTS,
    ColumnKind.STRUCT: _FIELDS,
}


class ArrowColumn:
    """Consecutive values of one type. The code that creates it sets its `children`."""

    def __init__(self, kind: ColumnType | None) -> None:
        """Start empty; without *kind* all values are discarded."""
        self.type = kind
        self.stored = _NOT if kind is None else _STORED.get(kind.kind, _FIXED)
        self.width = 0 if kind is None else _WIDTHS.get(kind.kind, 0)
        self.is_map = kind is not None and kind.kind is ColumnKind.MAP
        self.has_pieces = self.stored == _PIECES
        self.has_items = self.stored == _LISTS
        self.children: list[Any] = []  # Of the class that creates them.
        self.room = _ROWS_FIRST
        self.values_room = self.size = 0
        self.count = 0
        self.owners = (bytearray(), bytearray(), bytearray())  # `valid`, `offsets`, `values`.
        self.begin()

    def begin(self) -> None:
        """Start over in new memory: the old memory may still be in use."""
        used = self.size + self.size // 8 if self.size else self.values_room
        self.count = 0
        self.size = 0
        self._take_room(self.room, used if self.has_pieces else self._fixed_bytes(self.room))
        for child in self.children:
            child.begin()

    def _fixed_bytes(self, rows: int) -> int:
        return rows // 8 if self.stored == _BITS else rows * self.width

    def _take_room(self, rows: int, values_bytes: int) -> None:
        """Reserve room for a number of values and of bytes; existing ones keep their place."""
        made: tuple[bytearray, bytearray, bytearray] = (
            bytearray(rows // 8),
            bytearray(4 * (rows + 1) if self.has_pieces or self.has_items else 4),
            bytearray((values_bytes + 7) // 8 * 8),
        )
        if self.count:
            for old, new in zip(self.owners, made, strict=True):
                used = min(len(old), len(new))
                new[:used] = old[:used]
        self.owners = made
        self.valid = memoryview(made[0])
        self.offsets = memoryview(made[1]).cast("i")
        self.values = memoryview(made[2])
        self.words = memoryview(made[2]).cast("Q")
        self.room = rows
        self.values_room = len(made[2])

    def buffers(self) -> ColumnBuffers:
        """Return the content; it does not change afterwards."""
        kind = self.type
        assert isinstance(kind, ColumnType)  # noqa: S101 (only called for columns)
        valid, offsets, values = (memoryview(each) for each in self.owners)
        size = self.size if self.has_pieces else self._fixed_bytes(self.count + 7)
        has_offsets = self.has_pieces or self.has_items
        return ColumnBuffers(
            kind,
            self.count,
            valid[: (self.count + 7) // 8],
            offsets[: 4 * (self.count + 1)] if has_offsets else None,
            values[:size] if self.stored in (_FIXED, _BITS, _PIECES) else None,
            [child.buffers() for child in self.children],
        )

    def truncate(self, count: int) -> None:
        """Remove the values after the first *count*."""
        if self.count <= count:
            return
        self.count = count
        if self.has_pieces:
            self.size = self.offsets[count]
        for child in self.children:
            child.truncate(self.offsets[count] if self.has_items else count)

    def null(self) -> int:
        """Append null; returns 0."""
        if self.stored == _NOT:
            return 0
        if self.count == self.room:
            self._take_room(2 * self.room, self._doubled())
        if self.stored == _FIELDS:
            for i in range(len(self.children)):
                child = self.children[i]
                child.null()
        self.valid[self.count >> 3] &= 0xFF ^ (1 << (self.count & 7))
        return self._end()

    def finish(self) -> int:
        """Append a value whose parts, fields or list elements, are written; returns 0."""
        if self.stored == _NOT:
            return 0
        if self.count == self.room:
            self._take_room(2 * self.room, self._doubled())
        self.valid[self.count >> 3] |= 1 << (self.count & 7)
        return self._end()

    def _end(self) -> int:
        self.count += 1
        if self.has_pieces:
            self.offsets[self.count] = self.size
        elif self.has_items:
            child = self.children[0]
            self.offsets[self.count] = child.count
        return 0

    def _doubled(self) -> int:
        return self.values_room if self.has_pieces else self._fixed_bytes(2 * self.room)

    def _reserve(self, count: int) -> int:
        """Make room for one more value of *count* bytes."""
        if self.count == self.room:
            self._take_room(2 * self.room, self._doubled())
        if self.has_pieces and self.size + count > self.values_room:
            self._take_room(self.room, max(2 * self.values_room, self.size + count))
        return 0

    def number(self, number: int) -> int:
        """Append a number to a column of 32 or 64 bits; returns 0."""
        self._reserve(0)
        at = self.count * self.width
        for i in range(self.width):
            self.values[at + i] = (number >> (8 * i)) & 0xFF
        return self.finish()

    def flag(self, flag: int) -> int:
        """Append a boolean; returns 0."""
        self._reserve(0)
        at = self.count >> 3
        bit = 1 << (self.count & 7)
        self.values[at] = self.values[at] | bit if flag else self.values[at] & (0xFF ^ bit)
        return self.finish()

    def constant(self, content: bytes) -> int:
        """Append text or bytes unchanged; returns 0."""
        self._reserve(len(content))
        self.size = ops.put_bytes(self.values, self.size, content)
        return self.finish()

    def join(self, view: ops.View, begin: int, end: int, tail: int, tail_end: int) -> int:
        """Append view[begin:end] followed by view[tail:tail_end] as one value; returns 0."""
        self._reserve(end - begin + tail_end - tail)
        ops.copy(self.values, self.size, view, begin, end)
        self.size += end - begin
        ops.copy(self.values, self.size, view, tail, tail_end)
        self.size += tail_end - tail
        return self.finish()

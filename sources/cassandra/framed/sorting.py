"""Sorts the entries of a log by the split that decides about them, without a schema.

An entry goes to the split of its first update's partition key. Entries that change the schema, and
those without a whole key, go to all splits. The split that keeps the books of the log gets what it
needs to count the entries of the others: up to their keys, or all of an entry with several updates.
Separate so that it can be compiled.
"""

from array import array
from collections.abc import Collection, Sequence

from headrace.plugins import MiscountError
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.schema import system_schema

_HALF, _LOW = 0x8000_0000, 0xFFFF_FFFF
_TABLE_ID_BYTES = 16
_NAME_BASED = 3  # The UUID version of system tables' ids.
_FIRST_ENTRIES, _FIRST_BYTES = 64, 4096
_NO_ENDS = memoryview(array("q"))
_NO_SIZES = memoryview(array("i"))
_NO_CONTENT = memoryview(bytearray())


class SortedEntries:
    """The entries of one split: where each ends in the segment, its size here, and its bytes."""

    def __init__(self) -> None:
        """Begin with none."""
        self.ends_block = Block("q", _FIRST_ENTRIES)
        self.ends = self.ends_block.view()
        self.sizes_block = Block("i", _FIRST_ENTRIES)
        self.sizes = self.sizes_block.view()
        self.content_block = Block("B", _FIRST_BYTES)
        self.content = self.content_block.view()
        self.count = self.size = 0

    def put(self, view: ops.View, start: int, end: int, position: int) -> None:
        """Add view[start:end], of an entry that ends at *position*."""
        if self.count == len(self.ends):
            self._grow_entries()
        if self.size + end - start > len(self.content):
            self._grow_content(self.size + end - start)
        self.ends[self.count] = position
        self.sizes[self.count] = end - start
        self.count += 1
        ops.copy(self.content, self.size, view, start, end)
        self.size += end - start

    def columns(self) -> tuple[memoryview, memoryview, memoryview]:
        """Return where the entries end, their sizes, and their bytes, until the next `put`."""
        return (
            memoryview(self.ends)[: self.count].cast("B"),
            memoryview(self.sizes)[: self.count].cast("B"),
            memoryview(self.content)[: self.size],
        )

    def clear(self) -> None:
        """Forget all entries and keep the memory."""
        self.count = self.size = 0

    def _grow_entries(self) -> None:
        count = 2 * len(self.ends)
        self.ends, self.sizes = _NO_ENDS, _NO_SIZES
        self.ends_block.grow(count)
        self.ends = self.ends_block.view()
        self.sizes_block.grow(count)
        self.sizes = self.sizes_block.view()

    def _grow_content(self, size: int) -> None:
        count = max(2 * len(self.content), size)
        self.content = _NO_CONTENT
        self.content_block.grow(count)
        self.content = self.content_block.view()


class EntrySorter:
    """The entries of one log after another, until they are cleared. `held` is their size.

    The split `book` counts what is of no concern in the log.
    """

    def __init__(self, splits: int, wanted: Collection[int]) -> None:
        """Sort for the *wanted* ones of so many *splits*."""
        self.splits = splits
        self.wanted: Sequence[int] = sorted(wanted)
        self.by_split: list[SortedEntries | None] = [
            SortedEntries() if split in wanted else None for split in range(splits)
        ]
        self.book = 0
        self.held = 0
        self.schema_ids = system_schema.IDS

    def sort(self, framer: Framer, stop_at: int, held_max: int) -> int:
        """Sort entries up to *stop_at*, or until *held_max* bytes are held.

        Returns what the framer found last, ENTRY where a bound stopped it. Raises as `next_entry`.
        """
        found, framed = constants.ENTRY, framer.at - framer.beside
        while found == constants.ENTRY and framer.at < stop_at and self.held < held_max:
            found = framer.next_entry()
            if found == constants.ENTRY:
                framed += framer.end - framer.start + constants.ENTRY_OVERHEAD
                self._sort(framer)
        if framer.at - framer.beside != framed:
            said = "the entries of the log are not all of its bytes"
            raise MiscountError(said, place=f"{framer.place}: before byte {framer.at}")
        return found

    def _sort(self, framer: Framer) -> int:
        at = framer.start
        if framer.messaging >= constants.MESSAGING_60:
            at += 1  # Flags.
        updates = framer.window[at] if at < framer.end else 0
        at = framer.after_vint(at)
        if at + _TABLE_ID_BYTES > framer.end:
            return self._put_everywhere(framer)
        if framer.window[at + 6] >> 4 == _NAME_BASED and self._is_schema(framer, at):
            return self._put_everywhere(framer)
        at += _TABLE_ID_BYTES
        if framer.messaging >= constants.MESSAGING_60:
            at = framer.after_vint(at)  # The schema epoch.
        length = framer.vint(at)
        at = framer.behind
        if length < 0 or at + length > framer.end:
            return self._put_everywhere(framer)
        token = ops.token(framer.window, at, at + length)
        split = ((((token >> 32) + _HALF) & _LOW) * self.splits) >> 32
        self._put(framer, split, framer.end)
        if split != self.book:
            self._put(framer, self.book, at + length if updates == 1 else framer.end)
        return 0

    def _is_schema(self, framer: Framer, at: int) -> bool:
        return ops.take(framer.window, at, at + _TABLE_ID_BYTES) in self.schema_ids

    def _put_everywhere(self, framer: Framer) -> int:
        for split in self.wanted:
            self._put(framer, split, framer.end)
        return 0

    def _put(self, framer: Framer, split: int, end: int) -> int:
        entries = self.by_split[split]
        if entries is not None:
            entries.put(framer.window, framer.start, end, framer.at)
            self.held += end - framer.start
        return 0

    def of(self, split: int) -> SortedEntries:
        """Return the entries of a wanted split."""
        entries = self.by_split[split]
        assert entries is not None  # noqa: S101 (it is wanted)
        return entries

    def clear(self) -> None:
        """Forget all entries and keep the memory."""
        for split in self.wanted:
            self.of(split).clear()
        self.held = 0

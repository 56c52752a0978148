"""Sorts the entries of a log by the split that decides about them.

An entry goes to the split of its first update's partition key. Entries that change the schema, and
those without a complete key, go to all splits. The split that keeps the books of the log gets
enough to count the entries of the others: up to their keys, or all of an entry with several
updates. Of a mutation in several logs, one sends the bytes, and the others a digest: see `sharing`.
Separate so that it can be compiled.
"""

from array import array
from collections.abc import Collection, Sequence

from headrace.plugins import MiscountError
from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.framed.sharing import Shares, no_shares
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.native.growable import Block
from headrace.sources.cassandra.schema import system_schema

_HALF, _LOW = 0x8000_0000, 0xFFFF_FFFF
_TABLE_ID_BYTES = 16
_NAME_BASED = 3  # The UUID version of system tables' ids.
_FIRST_ENTRIES, _FIRST_BYTES = 64, 4096
_GROUP = 64  # Digests computed together.
_DIGEST_BYTES = 16
_NO_ENDS = memoryview(array("q"))
_NO_SIZES = memoryview(array("i"))
_NO_CONTENT = memoryview(bytearray())
_NO_DIGESTS = memoryview(array("Q"))


class SortedEntries:
    """The entries of one split: the end of each in the segment, its size, and the part sent.

    There are `count`; `digests` of them have a digest, and `both` of these also have bytes.
    """

    def __init__(self) -> None:
        """Start without entries."""
        self.ends_block = Block("q", _FIRST_ENTRIES)
        self.ends = self.ends_block.view()
        self.sizes_block = Block("i", _FIRST_ENTRIES)
        self.sizes = self.sizes_block.view()
        self.shares_block = Block("i", _FIRST_ENTRIES)
        self.shares = self.shares_block.view()
        self.content_block = Block("B", _FIRST_BYTES)
        self.content = self.content_block.view()
        self.count = self.size = self.shared = self.digests = self.both = 0
        self.kinds = _NO_CONTENT
        self.found = _NO_DIGESTS
        self.ranges = memoryview(array("q", bytes(16 * _GROUP)))
        self.group = memoryview(array("Q", bytes(16 * _GROUP)))

    def put(self, view: ops.View, start: int, end: int, position: int, share: int) -> None:
        """Add view[start:end], of an entry that ends at *position*; see `Shares.of`."""
        if self.count == len(self.ends):
            self._grow_entries()
        if self.size + end - start > len(self.content):
            self._grow_content(self.size + end - start)
        self.ends[self.count] = position
        self.sizes[self.count] = end - start
        self.shares[self.count] = share
        self.shared += share != 0
        self.count += 1
        ops.copy(self.content, self.size, view, start, end)
        self.size += end - start

    def share(self, shares: Shares, k0: int, k1: int) -> None:
        """Compute the digests of shared mutations, and drop the bytes that other logs send."""
        self.kinds = memoryview(bytearray(max(1, self.count)))
        self.found = memoryview(array("Q", bytes(_DIGEST_BYTES * max(1, self.shared))))
        self.digests = self.both = 0
        if self.shared:
            self._digest(k0, k1)
            self._drop(shares)

    def _digest(self, k0: int, k1: int) -> int:
        at = waiting = 0
        for number in range(self.count):
            size = self.sizes[number]
            if self.shares[number] != 0:
                self.ranges[2 * waiting] = at
                self.ranges[2 * waiting + 1] = at + size
                waiting += 1
                if waiting == _GROUP:
                    self._take_digests(waiting, k0, k1)
                    waiting = 0
            at += size
        return self._take_digests(waiting, k0, k1)

    def _take_digests(self, count: int, k0: int, k1: int) -> int:
        ops.siphash_all(self.content, self.ranges, 0, 2, count, k0, k1, self.group)
        for word in range(2 * count):
            self.found[2 * self.digests + word] = self.group[word]
        self.digests += count
        return 0

    def _drop(self, shares: Shares) -> int:
        at = kept = digest = 0
        for number in range(self.count):
            size, share = self.sizes[number], self.shares[number]
            kind = constants.SENT_BYTES
            if share != 0:
                kind = constants.SENT_DIGEST
                if shares.sends(share, self.found[digest]):
                    kind = constants.SENT_BOTH
                    self.both += 1
                digest += 2
            self.kinds[number] = kind
            if kind != constants.SENT_DIGEST:
                ops.copy(self.content, kept, self.content, at, at + size)
                kept += size
            at += size
        self.size = kept
        return 0

    def columns(self) -> tuple[memoryview, memoryview, memoryview, memoryview, memoryview]:
        """Return ends of entries, digests, sizes, kinds and bytes, until the next `put`.

        Call it after `share`.
        """
        return (
            memoryview(self.ends)[: self.count].cast("B"),
            memoryview(self.found)[: 2 * self.digests].cast("B"),
            memoryview(self.sizes)[: self.count].cast("B"),
            memoryview(self.kinds)[: self.count],
            memoryview(self.content)[: self.size],
        )

    def clear(self) -> None:
        """Forget all entries and keep the memory."""
        self.count = self.size = self.shared = self.digests = self.both = 0

    def _grow_entries(self) -> None:
        count = 2 * len(self.ends)
        self.ends, self.sizes, self.shares = _NO_ENDS, _NO_SIZES, _NO_SIZES
        self.ends_block.grow(count)
        self.ends = self.ends_block.view()
        self.sizes_block.grow(count)
        self.sizes = self.sizes_block.view()
        self.shares_block.grow(count)
        self.shares = self.shares_block.view()

    def _grow_content(self, size: int) -> None:
        count = max(2 * len(self.content), size)
        self.content = _NO_CONTENT
        self.content_block.grow(count)
        self.content = self.content_block.view()


class EntrySorter:
    """The entries of one log after another, until they are cleared. `held` is their size.

    The split `book` counts the entries of the log that belong to no split.
    """

    def __init__(self, splits: int, wanted: Collection[int]) -> None:
        """Sort for the *wanted* ones of *splits* splits."""
        self.splits = splits
        self.wanted: Sequence[int] = sorted(wanted)
        self.by_split: list[SortedEntries | None] = [
            SortedEntries() if split in wanted else None for split in range(splits)
        ]
        self.book = 0
        self.held = 0
        self.shares = no_shares()
        self.k0 = self.k1 = 0
        self.schema_ids = system_schema.IDS

    def begin(self, book: int, shares: Shares, key: bytes) -> None:
        """Start a part of a log; split *book* keeps its books.

        *key* is the 16-byte key of the digests, the same for all logs.
        """
        self.book = book
        self.shares = shares
        self.k0 = int.from_bytes(key[:8], "little")
        self.k1 = int.from_bytes(key[8:], "little")

    def sort(self, framer: Framer, stop_at: int, held_max: int) -> int:
        """Sort entries up to *stop_at*, or until *held_max* bytes are held.

        Returns the last result of the framer, ENTRY if a limit was reached. Raises as `next_entry`.
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
        high, low = ops.u64(framer.window, at), ops.u64(framer.window, at + 8)
        at += _TABLE_ID_BYTES
        if framer.messaging >= constants.MESSAGING_60:
            at = framer.after_vint(at)  # The schema epoch.
        length = framer.vint(at)
        at = framer.behind
        if length < 0 or at + length > framer.end:
            return self._put_everywhere(framer)
        token = ops.token(framer.window, at, at + length)
        split = ((((token >> 32) + _HALF) & _LOW) * self.splits) >> 32
        self._put(framer, split, framer.end, self.shares.of(high, low, token))
        if split != self.book:
            self._put(framer, self.book, at + length if updates == 1 else framer.end, 0)
        return 0

    def _is_schema(self, framer: Framer, at: int) -> bool:
        return ops.take(framer.window, at, at + _TABLE_ID_BYTES) in self.schema_ids

    def _put_everywhere(self, framer: Framer) -> int:
        for split in self.wanted:
            self._put(framer, split, framer.end, 0)
        return 0

    def _put(self, framer: Framer, split: int, end: int, share: int) -> int:
        entries = self.by_split[split]
        if entries is not None:
            entries.put(framer.window, framer.start, end, framer.at, share)
            self.held += end - framer.start
        return 0

    def of(self, split: int) -> SortedEntries:
        """Return the entries of a wanted split."""
        entries = self.by_split[split]
        assert entries is not None  # noqa: S101 (it is wanted)
        return entries

    def sent(self, split: int) -> SortedEntries:
        """Return the entries of a wanted split in the form to send; then they must be cleared."""
        entries = self.of(split)
        entries.share(self.shares, self.k0, self.k1)
        return entries

    def clear(self) -> None:
        """Forget all entries and keep the memory."""
        for split in self.wanted:
            self.of(split).clear()
        self.held = 0

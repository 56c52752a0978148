"""Changes as a file stores them: many in one row, with consecutive arrivals. Hot.

A block contains columns of numbers, followed by keys, names of rows, changes and states, one kind
after the other. Numbers have a fixed size, so a query checks those of all changes first, and then
extracts the bytes of the wanted changes.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple
from zlib import crc32

from headrace.connector.history.store.contract import GONE, Change, Columns, Range
from headrace.connector.history.store.packing import content_of, total

COUNT_MAX: Final = 64  # Reading one change reads its whole block.
BYTES_MAX: Final = 1 << 20  # Except for a single change.
_NUMBERS: Final = "IqIBIIII"  # Hashes, write times, schemas, operations, and ends of bytes.
_KEYS, _CHANGES = 0, 2  # Indexes among keys, names of rows, changes and states.


class Block(NamedTuple):
    """Changes with consecutive arrivals from `first` on.

    `written` is the arrival of the last one that is not an expiry, or 0; `size_bytes` is the size
    of the changes alone.
    """

    first: int
    length: int
    written: int
    size_bytes: int
    content: bytearray


def blocks_of(first: int, columns: Columns) -> Iterator[tuple[Block, Sequence[int]]]:
    """Yield blocks of changes that arrive from *first* on, with the hashes of their keys."""
    hashes = [*map(crc32, columns.keys)]
    for begin in range(0, len(hashes), COUNT_MAX):
        yield from _parts(first, columns, hashes, begin, min(len(hashes), begin + COUNT_MAX))


def _parts(
    first: int, columns: Columns, hashes: list[int], begin: int, end: int
) -> Iterator[tuple[Block, Sequence[int]]]:
    """Yield changes as one block, or as several if that would be too large."""
    size_bytes = total(columns.changes, begin, end)
    if end - begin > 1 and size_bytes + total(columns.befores, begin, end) > BYTES_MAX:
        middle = (begin + end) // 2
        yield from _parts(first, columns, hashes, begin, middle)
        yield from _parts(first, columns, hashes, middle, end)
        return
    count, operations = end - begin, columns.operations[begin:end]
    content = content_of(
        hashes,
        columns.written_us,
        columns.schemas,
        columns.operations,
        [columns.keys, columns.rows, columns.changes, columns.befores],
        begin,
        end,
    )
    arrived = first + begin
    written = arrived + count - 1
    if max(operations) >= GONE:
        written = max((arrived + n for n, each in enumerate(operations) if each < GONE), default=0)
    yield Block(arrived, count, written, size_bytes, content), hashes[begin:end]


@lru_cache(COUNT_MAX)
def _layout(count: int) -> struct.Struct:
    return struct.Struct("<" + "".join(f"{count}{each}" for each in _NUMBERS))


class BlockReader:
    """Reads the changes of one block."""

    def __init__(self, first: int, count: int, content: bytes, buckets: int) -> None:
        """Prepare reading the numbers; partition keys are divided into *buckets*."""
        self._first = first
        self._count = count
        self._content = content
        self._buckets = buckets
        layout = _layout(count)
        found = layout.unpack_from(content)
        columns = [found[at : at + count] for at in range(0, len(found), count)]
        self._hashes, self._written, self._schemas, self._operations, *ends = columns
        self._bounds: list[tuple[int, ...]] = []
        begin = layout.size
        for each in ends:
            self._bounds.append((begin, *(begin + end for end in each)))
            begin += each[-1]

    def changes(self, wanted: Range, *, descending: bool) -> Iterator[Change]:
        """Yield the wanted changes."""
        numbers = self._matching(wanted)
        content, first, buckets = self._content, self._first, self._buckets
        hashes, written = self._hashes, self._written
        schemas, operations = self._schemas, self._operations
        keys, rows, changes, befores = self._bounds
        for n in reversed(numbers) if descending else numbers:
            behind = n + 1
            yield Change(
                first + n,
                hashes[n] % buckets,
                schemas[n],
                operations[n],
                written[n],
                content[keys[n] : keys[behind]],
                content[rows[n] : rows[behind]],
                content[changes[n] : changes[behind]],
                content[befores[n] : befores[behind]] or None,
            )

    def arrivals(self, wanted: Range) -> list[int]:
        """Return the arrivals of the wanted changes, ascending."""
        return [self._first + n for n in self._matching(wanted)]

    def bytes_behind(self, behind: int) -> int:
        """Return the bytes of the changes after an arrival, without their states."""
        bounds = self._bounds[_CHANGES]
        return bounds[-1] - bounds[max(0, min(self._count, behind + 1 - self._first))]

    def _matching(self, wanted: Range) -> Sequence[int]:
        """Return the indexes of the wanted changes, from 0, ascending."""
        hashes, operations, written = self._hashes, self._operations, self._written
        begin, end = max(0, wanted.begin - self._first), wanted.end - self._first
        found: Sequence[int] = range(begin, min(end, self._count))
        if wanted.key is not None:
            of = crc32(wanted.key)
            found = [n for n in found if hashes[n] == of and self._key(n) == wanted.key]
        if wanted.buckets:
            found = [n for n in found if hashes[n] % self._buckets in wanted.buckets]
        if wanted.operations:
            found = [n for n in found if operations[n] in wanted.operations]
        if wanted.written_from_us is not None:
            found = [n for n in found if written[n] >= wanted.written_from_us]
        if wanted.written_to_us is not None:
            found = [n for n in found if written[n] < wanted.written_to_us]
        return found

    def _key(self, n: int) -> bytes:
        bounds = self._bounds[_KEYS]
        return self._content[bounds[n] : bounds[n + 1]]

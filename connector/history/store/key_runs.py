"""An index from keys to blocks of a file: sorted runs, which are merged if they are many.

An entry is a 64-bit number: the hash of a key in the high bits, the number of a block in the low
bits. Each commit appends a run of its own entries. So it writes little even if keys are unordered;
a query reads one slice of each run.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from sqlite3 import Cursor
from typing import Any, Final, Protocol
from zlib import crc32

from headrace.connector.history.store.ordering import ascending

FAN: Final = 16  # The number of runs of the same size, or smaller, that are merged.
ENTRIES_MAX: Final = 1 << 18  # A run of this size is not merged again.
SLICE_ENTRIES: Final = 1_000  # A query's read from a run: a page of the file.
_LEVEL_BITS: Final = 4
_BLOCK_BITS: Final = 32
_BLOCK: Final = (1 << _BLOCK_BITS) - 1

TABLES: Final = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, first_block INTEGER NOT NULL, last_block INTEGER NOT NULL,
    count INTEGER NOT NULL
) STRICT;
CREATE TABLE slices (run INTEGER NOT NULL, first INTEGER NOT NULL, content BLOB NOT NULL) STRICT;
CREATE INDEX slices_of_run ON slices (run, first);
"""


class Statements(Protocol):
    """Executes statements, as a connection of sqlite3 does."""

    def run(self, text: str, values: Sequence[Any] = ..., /) -> Cursor:
        """Execute a statement."""

    def run_many(self, text: str, rows: Iterable[Sequence[Any]], /) -> Cursor:
        """Execute a statement for each of *rows*."""


def entries_of(hashes: Iterable[int], block: int) -> list[int]:
    """Return the entries for keys with these CRC-32 values, without repeats."""
    return [each >> 1 << _BLOCK_BITS | block for each in {*hashes}]


class KeyRuns:
    """The runs of one file. Calls must be within a transaction of the file."""

    def __init__(self, file: Statements) -> None:
        """Store in *file*."""
        self._file = file

    def append(self, entries: list[int], first_block: int, last_block: int) -> None:
        """Append a run for these blocks, which follow all others."""
        made = ascending(entries)
        number = (self._file.run("SELECT max(number) FROM runs").fetchone()[0] or 0) + 1
        while tail := self._tail(len(made)):
            number, first_block, _ = tail[-1]
            made += chain.from_iterable(self._entries("run >= ?", number))
            made = ascending(made)
            self._drop("number >= ?", number)
        row = number, first_block, last_block, len(made)
        self._file.run("INSERT INTO runs VALUES (?, ?, ?, ?)", row)
        parts = (made[at : at + SLICE_ENTRIES] for at in range(0, len(made), SLICE_ENTRIES))
        self._file.run_many(
            "INSERT INTO slices VALUES (?, ?, ?)",
            ((number, part[0], struct.pack(f"<{len(part)}q", *part)) for part in parts),
        )

    def blocks(self, key: bytes, first: int, last: int, *, descending: bool) -> Iterator[int]:
        """Yield the numbers of the blocks that have changes of *key*, in order.

        A few of them may only have changes of other keys.
        """
        order = "DESC" if descending else "ASC"
        low = crc32(key) >> 1 << _BLOCK_BITS
        text = (
            "SELECT number FROM runs WHERE first_block <= ? AND last_block >= ? "  # noqa: S608 (a word)
            f"ORDER BY number {order}"
        )
        for (run,) in self._file.run(text, (last, first)).fetchall():
            found = chain.from_iterable(
                part[bisect_left(part, low + first) : bisect_left(part, low + last + 1)]
                for part in self._entries(
                    "run = ? AND first <= ? AND first >= coalesce("
                    "(SELECT max(first) FROM slices WHERE run = ? AND first <= ?), 0)",
                    run,
                    low + last,
                    run,
                    low + first,
                )
            )
            blocks = [each & _BLOCK for each in found]
            yield from reversed(blocks) if descending else blocks

    def forget(self, first_block: int) -> None:
        """Remove the runs that only have blocks before *first_block*."""
        self._drop("last_block < ?", first_block)

    def _tail(self, count: int) -> list[tuple[int, int, int]]:
        """Return the last runs that must be merged with one of *count* entries."""
        text = "SELECT number, first_block, count FROM runs ORDER BY number DESC"
        small: list[tuple[int, int, int]] = []  # A few of each size.
        for row in self._file.run(text):
            if row[2] >= ENTRIES_MAX:
                break
            small.append(row)
        lesser = list(takewhile(lambda row: _level(row[2]) <= _level(count), small))
        if count + sum(row[2] for row in lesser) >= ENTRIES_MAX:
            return small  # Small runs between large ones must be merged, too.
        return lesser if len(lesser) >= FAN - 1 else []

    def _entries(self, which: str, *values: int) -> Iterator[tuple[int, ...]]:
        text = f"SELECT content FROM slices WHERE {which} ORDER BY run, first"  # noqa: S608 (ours)
        for (content,) in self._file.run(text, values):
            yield struct.unpack(f"<{len(content) // 8}q", content)

    def _drop(self, which: str, value: int) -> None:
        runs = f"SELECT number FROM runs WHERE {which}"  # noqa: S608 (ours)
        self._file.run(f"DELETE FROM slices WHERE run IN ({runs})", (value,))  # noqa: S608 (ours)
        self._file.run(f"DELETE FROM runs WHERE {which}", (value,))  # noqa: S608 (ours)


def _level(count: int) -> int:
    return count.bit_length() // _LEVEL_BITS

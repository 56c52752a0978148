"""The blocks of a key are found, in their order, in few slices of few runs."""

import random
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import pytest

from headrace.connector.history.store import key_runs
from headrace.connector.history.store.key_runs import TABLES, KeyRuns, entries_of

COMMITS = 300


class Memory:
    """A database in memory, which counts the slices that queries read."""

    def __init__(self) -> None:
        """Make the tables."""
        self._connection = sqlite3.connect(":memory:")
        self._connection.executescript(TABLES)
        self.read = 0

    def run(self, text: str, values: Sequence[Any] = (), /) -> Any:  # noqa: ANN401 (as sqlite3)
        """Run a statement."""
        if text.startswith("SELECT content"):
            found = self._connection.execute(text, values).fetchall()
            self.read += len(found)
            return iter(found)
        return self._connection.execute(text, values)

    def run_many(self, text: str, rows: Iterable[Sequence[Any]], /) -> sqlite3.Cursor:
        """Run a statement for each of *rows*."""
        return self._connection.executemany(text, rows)

    def runs(self) -> list[int]:
        """Return how many entries each run has, the first one first."""
        return [count for (count,) in self.run("SELECT count FROM runs ORDER BY number")]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Return a database for runs that are small."""
    monkeypatch.setattr(key_runs, "FAN", 4)
    monkeypatch.setattr(key_runs, "ENTRIES_MAX", 200)
    monkeypatch.setattr(key_runs, "SLICE_ENTRIES", 7)
    return Memory()


def filled(memory: Memory, seed: int) -> tuple[KeyRuns, dict[bytes, list[int]], int]:
    """Append commits of random sizes; return them, the blocks of each key, and the last block."""
    of, made, block = random.Random(seed), KeyRuns(memory), 0  # noqa: S311 (repeatable)
    known: dict[bytes, list[int]] = {}
    for _ in range(COMMITS):
        entries, first = [], block + 1
        for _ in range(of.choice((1, 1, 2, 40))):
            block += 1
            keys = {b"hot", *(b"%d" % of.randrange(300) for _ in range(of.randrange(4)))}
            entries += entries_of(map(crc32, keys), block)
            for key in keys:
                known.setdefault(key, []).append(block)
        made.append(entries, first, block)
    return made, known, block


@pytest.mark.parametrize("seed", [1, 2])
def test_the_blocks_of_a_key_are_found(memory: Memory, seed: int) -> None:
    """All of any range, in both directions, and none twice."""
    runs, known, last = filled(memory, seed)
    of = random.Random(seed)  # noqa: S311 (repeatable)
    for key, blocks in known.items():
        for first, end in ((0, last), sorted(of.sample(range(last), 2))):
            wanted = [each for each in blocks if first <= each <= end]
            assert wanted == list(runs.blocks(key, first, end, descending=False))
            assert wanted[::-1] == list(runs.blocks(key, first, end, descending=True))
    assert [] == list(runs.blocks(b"an unknown key", 0, last, descending=False))


def test_runs_are_few_and_one_slice_of_each_is_read(memory: Memory) -> None:
    """Those that are large stay as they are; of the others there are a few of each size."""
    runs, _, last = filled(memory, 3)
    counts = memory.runs()
    small = [each for each in counts if each < key_runs.ENTRIES_MAX]
    assert len(small) < key_runs.FAN * 3
    assert all(each < 3 * key_runs.ENTRIES_MAX for each in counts)
    memory.read = 0
    assert [] == list(runs.blocks(b"an unknown key", 0, last, descending=False))
    assert len(counts) == memory.read


def test_runs_of_small_commits_become_one(memory: Memory) -> None:
    """Long before they are large."""
    runs = KeyRuns(memory)
    for block in range(1, key_runs.ENTRIES_MAX):
        runs.append(entries_of([block], block), block, block)
        assert len(memory.runs()) < key_runs.FAN * 2


def test_runs_of_removed_blocks_go(memory: Memory) -> None:
    """Those of which all blocks went; the others still find theirs."""
    runs, known, last = filled(memory, 4)
    before = len(memory.runs())
    for first in range(last + 1):
        runs.forget(first)
        if first % 50 == 0 or first > last - 50:
            wanted = [each for each in known[b"hot"] if each >= first]
            assert wanted == list(runs.blocks(b"hot", first, last, descending=False))
        assert first < last // 2 or len(memory.runs()) < before
    runs.forget(last + 1)
    assert [] == memory.runs()
    assert [(0,)] == memory.run("SELECT count(*) FROM slices").fetchall()

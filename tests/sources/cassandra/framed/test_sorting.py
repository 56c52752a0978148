"""Entries sorted by split: each where it is decided about, and where it is counted."""

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from headrace.sources.cassandra.commitlog.framer import Framer
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment
from headrace.sources.cassandra.framed.sorting import EntrySorter
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.ops import token
from headrace.sources.cassandra.ring.splits import number_of
from headrace.sources.cassandra.schema.tables import system_table_id
from helpers.logs.forged import OTHER, insert, mutation, update

pytestmark = pytest.mark.hot

SPLITS = 4
FAR = 1 << 30
LOCAL = system_table_id("system", "local")
TABLES = system_table_id("system_schema", "tables")


def split_of(key: bytes) -> int:
    """Return the split of a key, from 0."""
    return number_of(token(memoryview(key), 0, len(key)), SPLITS)


def framer_of(raws: Sequence[bytes]) -> Framer:
    """Return a framer before a segment of these mutations."""
    content = segment([raws]).content

    def read_into(offset: int, buffer: memoryview) -> int:
        piece = content[offset : offset + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    framer = Framer()
    keys = Keys(KeyOptions())
    open_segment(framer, read_into, keys=keys, place="segment", segment_id=SEGMENT_ID)
    return framer


def entries_of(sorter: EntrySorter, split: int) -> Iterator[tuple[int, bytes]]:
    """Yield where each entry of a split ends, and its bytes."""
    ends, sizes, content = sorter.of(split).columns()
    at = 0
    for end, size in zip(ends.cast("q"), sizes.cast("i"), strict=True):
        yield end, bytes(content[at : at + size])
        at += size
    assert at == len(content)


def positions(raws: Sequence[bytes]) -> Sequence[int]:
    """Return where the entries of these mutations end."""
    framer = framer_of(raws)
    return [framer.at for _ in iter(framer.next_entry, constants.FINISHED)]


def test_an_entry_goes_to_the_split_of_its_key() -> None:
    """All of it, in log order, at its place; the books' split gets others up to their keys."""
    keys = [b"k%03d" % n for n in range(200)]
    raws = [insert(key, b"v" * 50) for key in keys]
    sorter = EntrySorter(SPLITS, range(SPLITS))
    sorter.book = 2
    found = sorter.sort(framer_of(raws), FAR, FAR)

    assert constants.FINISHED == found
    rows = list(zip(keys, positions(raws), raws, strict=True))
    for split in (0, 1, 3):
        wanted = [(at, raw) for key, at, raw in rows if split_of(key) == split]
        assert wanted == list(entries_of(sorter, split))
    whole = [(at, raw) for key, at, raw in rows if split_of(key) == 2]
    heads = [(at, raw[: raw.index(key) + len(key)]) for key, at, raw in rows if split_of(key) != 2]
    assert sorted(whole + heads) == list(entries_of(sorter, 2))
    assert sum(sorter.of(split).size for split in range(SPLITS)) == sorter.held


def test_what_concerns_all_goes_to_all() -> None:
    """These are changes of the schema, and entries without a whole key; not other system tables."""
    schema, system, cut = insert(b"s", table=TABLES), insert(b"l", table=LOCAL), insert(b"c" * 9)
    cut = cut[: cut.index(b"c" * 9) + 4]
    raws = [schema, system, cut]
    sorter = EntrySorter(SPLITS, [0, 1])
    sorter.book = 0
    sorter.sort(framer_of(raws), FAR, FAR)

    everywhere = {schema, cut}
    assert everywhere == {raw for _, raw in entries_of(sorter, 1)} - {system}
    assert everywhere < {raw for _, raw in entries_of(sorter, 0)}


def test_the_books_get_all_of_several_updates() -> None:
    """One of its other tables may be delivered."""
    raw = mutation(update(b"k", table=OTHER), update(b"k", b"v" * 40))
    book = (split_of(b"k") + 1) % SPLITS
    sorter = EntrySorter(SPLITS, range(SPLITS))
    sorter.book = book
    sorter.sort(framer_of([raw]), FAR, FAR)

    assert [raw] == [each for _, each in entries_of(sorter, book)]


def test_only_wanted_splits_get_entries() -> None:
    """What belongs to no wanted split is left out."""
    sorter = EntrySorter(SPLITS, [3])
    sorter.sort(framer_of([insert(b"k%03d" % n) for n in range(100)]), FAR, FAR)

    with pytest.raises(AssertionError):
        sorter.of(0)
    assert sorter.held == sorter.of(3).size


def test_bounds() -> None:
    """It stops at a position, and when it holds enough; cleared, it continues in its memory."""
    raws = [insert(b"k%03d" % n, b"v" * 100) for n in range(50)]
    framer, sorter = framer_of(raws), EntrySorter(SPLITS, range(SPLITS))
    stop = partial(sorter.sort, framer)

    assert constants.ENTRY == stop(positions(raws)[9], FAR)
    assert positions(raws)[9] == framer.at
    assert constants.ENTRY == stop(FAR, sorter.held + 1)
    assert positions(raws)[10] == framer.at
    sorter.clear()
    assert 0 == sorter.held
    assert constants.FINISHED == stop(FAR, FAR)
    assert 39 == len(
        [raw for n in range(SPLITS) for _, raw in entries_of(sorter, n) if raw in raws]
    )

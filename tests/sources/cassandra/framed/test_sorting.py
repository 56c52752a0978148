"""Entries sorted by split: each where it is decided about, and where it is counted."""

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from headrace.sources.cassandra.commitlog.framer import Framer, digest
from headrace.sources.cassandra.commitlog.opening import open_segment
from headrace.sources.cassandra.forge.segments import SEGMENT_ID, segment
from headrace.sources.cassandra.framed.sharing import Shares, no_shares
from headrace.sources.cassandra.framed.sorting import EntrySorter
from headrace.sources.cassandra.keystore.keys import KeyOptions, Keys
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.native.ops import token
from headrace.sources.cassandra.ring.splits import number_of
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.layout import Catalogue
from headrace.sources.cassandra.schema.tables import system_table_id
from helpers.logs.forged import OTHER, SCHEMA, UNKNOWN, insert, mutation, update

pytestmark = pytest.mark.hot

KEY = bytes(range(16))
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
    ends, _, sizes, _, content = sorter.sent(split).columns()
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
    sorter.begin(2, no_shares(), KEY)
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
    sorter.begin(0, no_shares(), KEY)
    sorter.sort(framer_of(raws), FAR, FAR)

    everywhere = {schema, cut}
    assert everywhere == {raw for _, raw in entries_of(sorter, 1)} - {system}
    assert everywhere < {raw for _, raw in entries_of(sorter, 0)}


def test_the_books_get_all_of_several_updates() -> None:
    """One of its other tables may be delivered."""
    raw = mutation(update(b"k", table=OTHER), update(b"k", b"v" * 40))
    book = (split_of(b"k") + 1) % SPLITS
    sorter = EntrySorter(SPLITS, range(SPLITS))
    sorter.begin(book, no_shares(), KEY)
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


def shares_of_three(rank: int) -> Shares:
    """Return the shares of one of three logs, which have all mutations of the forged tables."""
    catalogue = Catalogue(parse_schema(SCHEMA))
    return Shares(catalogue, [0] * len(catalogue.tables), [[(0, 3 << 8 | rank)]])


def test_of_three_logs_one_sends_the_bytes() -> None:
    """Each mutation is sent by one of them, with its digest; the others send that and the size."""
    raws = [insert(b"k%03d" % n, b"v" * (n % 90)) for n in range(300)]
    senders: dict[bytes, list[bytes]] = {digest(raw, KEY): [] for raw in raws}
    sent_bytes = 0
    for rank in range(3):
        sorter = EntrySorter(1, [0])
        sorter.begin(0, shares_of_three(rank), KEY)
        sorter.sort(framer_of(raws), FAR, FAR)
        entries = sorter.sent(0)
        ends, digests, sizes, kinds, content = entries.columns()
        names = [bytes(digests[at : at + 16]) for at in range(0, len(digests), 16)]
        at = 0

        assert [digest(raw, KEY) for raw in raws] == names
        assert [len(raw) for raw in raws] == sizes.cast("i").tolist()
        assert positions(raws) == ends.cast("q").tolist()
        assert (len(raws), kinds.tolist().count(constants.SENT_BOTH)) == (
            entries.digests,
            entries.both,
        )
        for name, size, kind in zip(names, sizes.cast("i"), kinds, strict=True):
            if kind == constants.SENT_BOTH:
                senders[name].append(bytes(content[at : at + size]))
                at += size
        assert at == len(content)
        sent_bytes += at
        assert len(raws) // 6 < entries.both < len(raws) // 2

    assert [[raw] for raw in raws] == list(senders.values())
    assert sum(map(len, raws)) == sent_bytes


def test_what_is_for_the_books_has_no_digest() -> None:
    """Nor has an entry of a table without replicas that are known: each log sends these bytes."""
    raws = [insert(b"k", b"v" * 50), insert(b"k", table=LOCAL), insert(b"k", table=UNKNOWN)]
    book = (split_of(b"k") + 1) % SPLITS
    sorter = EntrySorter(SPLITS, range(SPLITS))
    sorter.begin(book, shares_of_three(0), KEY)
    sorter.sort(framer_of(raws), FAR, FAR)

    books, owner = sorter.sent(book), sorter.sent(split_of(b"k"))
    assert (3, 0) == (books.count, books.digests)
    assert (3, 1) == (owner.count, owner.digests)

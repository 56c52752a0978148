"""Changes are read from blocks as they were appended, and those that are wanted are chosen."""

import random
from collections.abc import Iterator
from itertools import chain
from zlib import crc32

import pytest

from headrace.connector.history.store import blocks
from headrace.connector.history.store.blocks import BlockReader, blocks_of
from headrace.connector.history.store.contract import GONE, LESS, Change, Columns, Range

pytestmark = pytest.mark.hot

BUCKETS = 8
FIRST = 1_700_000_000_000 << 20
COUNT = blocks.COUNT_MAX * 3 + 5
KEYS = [b"", b"a", b"plumless", b"buckeroo"]  # The last two have one CRC-32.


def columns(seed: int, *, images: bool) -> Columns:
    """Return random changes."""
    of = random.Random(seed)  # noqa: S311 (repeatable)
    numbers = range(COUNT)
    return Columns(
        schemas=[of.choice((1, 2, 70_000)) for _ in numbers],
        operations=[of.randrange(LESS + 1) for _ in numbers],
        written_us=[of.choice((-(1 << 63), 0, 5, (1 << 63) - 1)) for _ in numbers],
        keys=[of.choice(KEYS) for _ in numbers],
        rows=[of.randbytes(of.randrange(4)) for _ in numbers] if images else [],
        changes=[of.randbytes(of.randrange(50)) for _ in numbers],
        befores=[of.randbytes(1 + of.randrange(90)) for _ in numbers] if images else [],
    )


def changes_of(given: Columns) -> list[Change]:
    """Return them one by one."""
    nothing = [b""] * len(given)
    rows, befores = given.rows or nothing, given.befores or nothing
    return [
        Change(
            arrival=FIRST + n,
            bucket=crc32(key) % BUCKETS,
            schema=given.schemas[n],
            operation=given.operations[n],
            written_us=given.written_us[n],
            key=key,
            row=rows[n],
            change=given.changes[n],
            before=befores[n] or None,
        )
        for n, key in enumerate(given.keys)
    ]


def readers(given: Columns) -> Iterator[BlockReader]:
    """Write blocks, and read them."""
    for block, _ in blocks_of(FIRST, given):
        yield BlockReader(block.first, block.length, bytes(block.content), BUCKETS)


@pytest.mark.parametrize("images", [False, True])
def test_what_was_appended_is_read(*, images: bool) -> None:
    """Of all changes every field, also in blocks that are split because they are large."""
    given = columns(1, images=images)
    everything = Range(FIRST, FIRST + COUNT)
    for bytes_max in (1 << 20, 400, 1):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(blocks, "BYTES_MAX", bytes_max)
            found = [c for r in readers(given) for c in r.changes(everything, descending=False)]
        assert changes_of(given) == found


@pytest.mark.parametrize("seed", range(20))
def test_what_is_wanted_is_chosen(seed: int) -> None:
    """As a plain condition on each change says; descending is the reverse."""
    of = random.Random(seed)  # noqa: S311 (repeatable)
    given = columns(seed, images=True)
    begin, end = sorted(FIRST + of.randrange(-5, COUNT + 5) for _ in range(2))
    wanted = Range(
        begin,
        end,
        buckets=frozenset(of.sample(range(BUCKETS), of.choice((0, 3)))),
        operations=frozenset(of.sample(range(LESS), of.choice((0, 4)))),
        written_from_us=of.choice((None, 0)),
        written_to_us=of.choice((None, 5)),
        key=of.choice((None, *KEYS)),
    )
    expected = [
        each
        for each in changes_of(given)
        if begin <= each.arrival < end
        and (not wanted.buckets or each.bucket in wanted.buckets)
        and (not wanted.operations or each.operation in wanted.operations)
        and (wanted.written_from_us is None or each.written_us >= wanted.written_from_us)
        and (wanted.written_to_us is None or each.written_us < wanted.written_to_us)
        and wanted.key in (None, each.key)
    ]
    found = [list(each.changes(wanted, descending=False)) for each in readers(given)]
    assert expected == list(chain.from_iterable(found))
    assert [each[::-1] for each in found] == [
        list(each.changes(wanted, descending=True)) for each in readers(given)
    ]
    arrivals = chain.from_iterable(each.arrivals(wanted) for each in readers(given))
    assert [each.arrival for each in expected] == list(arrivals)


def test_a_block_says_what_it_has() -> None:
    """Its bytes without states, and its last change that did not expire, if there is one."""
    given = columns(3, images=True)
    made = [block for block, _ in blocks_of(FIRST, given)]
    mine = changes_of(given)
    assert sum(len(each.change) for each in mine) == sum(each.size_bytes for each in made)
    for block in made:
        of = mine[block.first - FIRST :][: block.length]
        assert max(each.arrival for each in of if each.operation < GONE) == block.written
    behind = FIRST + 70
    sizes = (each.bytes_behind(behind) for each in readers(given))
    assert sum(len(each.change) for each in mine if each.arrival > behind) == sum(sizes)
    expired = Columns([1], [GONE], [0], [b"k"], [b""], [b""], [b"s"])
    assert [0] == [block.written for block, _ in blocks_of(FIRST, expired)]

"""The parts of an answer come as they were put, and malformed answers are refused."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.cassandra.agent.entry_columns import (
    FORMAT,
    PART_BYTES_MAX,
    EntryColumns,
    ReceivedEntries,
)
from headrace.sources.cassandra.native import constants

pytestmark = pytest.mark.hot

BYTES, FULL, DIGEST, PASSED = range(4)
LENGTHS = st.one_of(st.integers(32, 200), st.sampled_from([16_383, 16_384, 65_536, 70_000]))


def answer(*parts: tuple[int, int], digests: int = 0, content: int = 0) -> bytes:
    """Return an answer of parts, of so many digests and bytes of content."""
    columns = EntryColumns()
    for kind, length in parts:
        columns.part(kind, length)
    columns.put_digests(memoryview(array("Q", range(2 * digests or 2))), digests)
    columns.put(bytes(content), 0, content)
    return columns.taken()


@given(st.lists(st.tuples(st.sampled_from([BYTES, FULL, DIGEST, PASSED]), LENGTHS), max_size=600))
def test_parts_come_as_they_were_put(parts: list[tuple[int, int]]) -> None:
    """In their order; short lengths take two bytes, long ones six."""
    kinds = [kind for kind, _ in parts]
    size = sum(length for kind, length in parts if kind in (BYTES, FULL))
    sent = answer(*parts, digests=kinds.count(DIGEST), content=size)

    came = ReceivedEntries(sent, 0, 1 << 40)

    found = []
    while came.next():
        found.append((came.kind, came.length))
    assert parts == found
    entries = kinds.count(FULL) + kinds.count(DIGEST)
    assert entries == came.entries
    overhead = constants.ENTRY_OVERHEAD * entries
    assert sum(length for _, length in parts) + overhead == came.made_bytes
    words = sum(1 if length < 16_384 else 3 for _, length in parts)
    assert 16 + 16 * kinds.count(DIGEST) + 2 * words + size == len(sent)


def test_columns_are_used_again() -> None:
    """After an answer the next one begins with nothing."""
    columns = EntryColumns()
    for _ in range(2):
        columns.part(BYTES, 3)
        columns.put(b"abc", 0, 3)
        assert 16 + 2 + 3 == len(columns.taken())
    assert 16 == len(columns.taken())


@pytest.mark.parametrize("before", [253, 254, 255, 256, 511])
def test_a_long_part_has_room(before: int) -> None:
    """Also where the memory for parts was nearly full."""
    came = ReceivedEntries(answer(*[(PASSED, 40)] * before, (PASSED, 1 << 20)), 0, 1 << 30)

    assert 40 * before + (1 << 20) == came.made_bytes


def test_a_long_answer_does_not_keep_its_memory() -> None:
    """One with a very long entry is rare."""
    columns = EntryColumns()
    for size, kept in ((1 << 20, True), (9 << 20, False)):
        columns.part(BYTES, size)
        columns.put(bytes(size), 0, size)
        assert 16 + 6 + size == len(columns.taken())
        assert kept is (columns.content_bytes >= size)


GOOD = answer((FULL, 40), (DIGEST, 40), digests=1, content=40)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "expected format 2, found 0"),
        (b"\1" + GOOD[1:], "expected format 2, found 1"),
        (b"<html>", "expected format 2"),
        (GOOD[:-1], "1 digests, 2 words, 40 bytes in an answer of 75 bytes"),
        (GOOD + b"x", "in an answer of 77 bytes"),
        (answer((BYTES, 0)), "kind 0 has 0 bytes"),
        (answer((FULL, 0)), "kind 1 has 0 bytes"),
        (answer((DIGEST, 0), digests=1), "kind 2 has 0 bytes"),
        (answer((PASSED, 31)), "kind 3 has 31 bytes"),
        (answer((PASSED, PART_BYTES_MAX + 1)), "kind 3 has 67108865 bytes"),
        (answer((DIGEST, 40)), "1 digests and 0 bytes, and 0 and 0 came"),
        (answer((FULL, 40), content=39), "0 digests and 40 bytes, and 0 and 39 came"),
        (answer((BYTES, 40), digests=1, content=40), "0 digests and 40 bytes, and 1 and 40"),
        # Longer than what was asked for, but for the last part.
        (answer((PASSED, 500), (PASSED, 500), (PASSED, 32)), "kind 3 has 32 bytes"),
    ],
)
def test_malformed_answers_are_refused(content: bytes, said: str) -> None:
    """Of another format, cut, too long, or of other lengths than came."""
    with pytest.raises(ValueError, match=said):
        ReceivedEntries(content, 0, 1_000)


@given(st.binary(max_size=80))
def test_no_bytes_are_trusted(tail: bytes) -> None:
    """Any answer is refused, or has parts that lie in what came."""
    head = FORMAT.to_bytes(4, "little")
    try:
        came = ReceivedEntries(head + tail, 0, 1_000)
    except ValueError:
        return
    assert came.made_bytes <= 1_000 + PART_BYTES_MAX + constants.ENTRY_OVERHEAD
    assert 16 + 16 * came.digest_count + 2 * came.count + came.size == len(head + tail)

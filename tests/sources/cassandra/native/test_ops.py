"""Byte operations of the hot path, as the interpreter runs them, against their definitions."""

import struct
import zlib
from array import array

import pytest
from cassandra import murmur3
from hypothesis import given
from hypothesis import strategies as st

from headrace.plugins import MODULUS
from headrace.sources.cassandra.native import ops

pieces = st.binary(max_size=80)


@given(before=pieces, content=pieces, after=pieces, cut=st.integers(0, 80))
def test_a_checksum_is_zlibs(before: bytes, content: bytes, after: bytes, cut: int) -> None:
    """Of any part of a buffer, in one piece or continued."""
    view = before + content + after
    start, end = len(before), len(before) + len(content)
    middle = min(start + cut, end)

    first = ops.crc32(view, start, middle, 0)

    assert zlib.crc32(content) == ops.crc32(view, middle, end, first)


@given(before=pieces, key=st.binary(min_size=1, max_size=80))
def test_a_token_is_the_drivers(before: bytes, key: bytes) -> None:
    """Of any key, wherever it stands."""
    found = ops.token(before + key, len(before), len(before) + len(key))

    assert min(int(murmur3.murmur3(key)), (1 << 63) - 1) == found


def test_the_empty_key_has_the_lowest_token() -> None:
    """As Cassandra's partitioner has it."""
    assert -(1 << 63) == ops.token(b"abc", 1, 1)


@given(raw=st.binary(min_size=8, max_size=8))
def test_numbers_are_big_endian(raw: bytes) -> None:
    """Signed and unsigned, of four and eight bytes."""
    view = b"\xaa" + raw

    assert struct.unpack(">i", raw[:4])[0] == ops.i32(view, 1)
    assert struct.unpack(">I", raw[:4])[0] == ops.u32(view, 1)
    assert struct.unpack(">Q", raw)[0] == ops.u64(view, 1)


@pytest.mark.parametrize(("mask", "expected"), [(0, 0), (1, 1), ((1 << 64) - 1, 64), (0b1011, 3)])
def test_hosts_are_counted(mask: int, expected: int) -> None:
    """A set bit is a host."""
    assert expected == ops.popcount(mask)


@given(digest=st.integers(0, MODULUS - 1), count=st.integers(0, 9))
def test_the_shares_of_changes_add_up_to_the_digest(digest: int, count: int) -> None:
    """One by one or all together; no two changes of a mutation have the same share."""
    words = memoryview(array("q", bytes(8 * (4 + 2 * count))))
    ops.put_digest(words, 0, digest % (1 << 64), digest >> 64)
    for index in range(1, count):
        ops.put_bound(words, 2, words, 0, index)
        ops.add_checksum(words, 2 + 2 * index, words, 2)
        ops.subtract_checksum(words, 4 + 2 * index, words, 2)
    ops.add_checksum(words, 2 + 2 * count, words, 0)
    *shares, whole = ops.shares_of(words, 0, count)

    assert digest == ops.checksum_of(words, 0) == whole
    assert digest == (sum(shares) % MODULUS if count else ops.checksum_of(words, 2))
    assert shares == [ops.checksum_of(words, 4 + 2 * i) for i in range(count)]
    assert len(shares) == len(set(shares))

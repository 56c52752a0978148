"""Sums over records are those of Python's own numbers."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.transcode.sums import bytes_of, total
from headrace.plugins import MODULUS, Checksums

pytestmark = pytest.mark.hot

words = st.integers(-(1 << 63), (1 << 63) - 1)


@given(rows=st.lists(st.tuples(words, words)), apart=st.integers(1, 3))
def test_columns_of_words_are_added_up(rows: list[tuple[int, int]], apart: int) -> None:
    """Signed halves make numbers of 128 bits, also where the columns lie among others."""
    flat = array("q", [word for row in rows for word in (*row, *[7] * (apart - 1))])
    low, high = (memoryview(flat)[place :: apart + 1] for place in (0, 1))
    expected = sum(lower % (1 << 64) + (upper << 64) for lower, upper in rows) % MODULUS

    assert expected == total(low, high)


@given(values=st.lists(st.binary()), is_list=st.booleans())
def test_values_are_measured(values: list[bytes], is_list: bool) -> None:  # noqa: FBT001 (drawn)
    """All bytes, and those of the largest value; no value has none."""
    expected = sum(map(len, values)), max(map(len, values), default=0)

    assert expected == bytes_of(values if is_list else tuple(values))


@given(numbers=st.lists(st.integers(0, MODULUS - 1)))
def test_lists_are_added_up(numbers: list[int]) -> None:
    """Checksums of records that were made one by one have the same sum."""
    made = Checksums.of(numbers)

    assert sum(numbers) % MODULUS == total(made.low, made.high)

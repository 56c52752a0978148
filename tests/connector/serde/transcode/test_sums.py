"""Sums of checksums are those of Python's own numbers."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.serde.transcode.sums import total
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


@given(numbers=st.lists(st.integers(0, MODULUS - 1)))
def test_lists_are_added_up(numbers: list[int]) -> None:
    """Checksums of records that were made one by one have the same sum."""
    made = Checksums.of(numbers)

    assert sum(numbers) % MODULUS == total(made.low, made.high)

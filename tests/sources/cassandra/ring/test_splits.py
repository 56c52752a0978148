"""The splits of the ring."""

import pytest

from headrace.plugins import TokenRange
from headrace.sources.cassandra.ring.splits import names, token_range


@pytest.mark.parametrize("count", [1, 2, 3, 8, 4096])
def test_the_tokens_of_all_splits_are_the_ring(count: int) -> None:
    """Each split begins where the one before it ends, from the lowest token to the highest."""
    ranges = [found for name in names(count) if (found := token_range(name))]

    assert list(range(1, count + 1)) == [each.number for each in ranges]
    assert [-(2**63), *[each.behind for each in ranges]] == [
        *[each.first for each in ranges],
        2**63,
    ]


def test_a_third_of_the_ring() -> None:
    """The bounds are those that earlier versions published in `cdc_state`."""
    third = TokenRange(number=2, first=-3074457342754947072, behind=3074457347049914368)

    assert third == token_range("2-of-3")


@pytest.mark.parametrize("name", ["", "lines", "0-of-2", "3-of-2", "1-of-9999"])
def test_what_is_no_split_has_no_tokens(name: str) -> None:
    """The name of a file, or of a part that there cannot be."""
    assert token_range(name) is None

"""The arcs of the ring: where they are, and how much of it they take."""

import math
import re

import pytest

from headrace.connector.control.console.ring import LOWEST, TOKENS
from headrace.connector.rest.console.drawing import arc_path


@pytest.mark.parametrize(("first", "behind"), [(0.0, 0.25), (0.25, 0.95), (0.5, 0.501)])
def test_an_arc_is_where_its_tokens_are(first: float, behind: float) -> None:
    """It runs clockwise from the top, and its corners are at its tokens."""
    path = arc_path(*(LOWEST + round(share * TOKENS) for share in (first, behind)))
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", path)]
    shares = [math.atan2(x, -y) / math.tau % 1 for x, y in (numbers[:2], numbers[7:9])]

    assert [first, behind] == pytest.approx(shares, abs=0.004)
    assert (behind - first > 0.5) == (numbers[5] == 1)


def test_the_whole_ring_is_closed() -> None:
    """A single split is a ring without an end."""
    assert 2 == arc_path(LOWEST, LOWEST + TOKENS).count("Z")

"""Parameters of tests whose axes are independent: each two values meet, not all in every way."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

from helpers.settings.seeds import is_soak


def pairs(*axes: Sequence[Any]) -> Sequence[tuple[Any, ...]]:  # Any: parameters.
    """Return rows with a value of each axis, so that any two values share a row.

    A mistake that needs one value, or two, is found as by the whole product. `make soak` has that.
    """
    whole = list(product(*axes))
    if is_soak():
        return whole
    left = {pair for row in whole for pair in _of(row)}
    rows = []
    while left:
        best = max(whole, key=lambda row: len(left & _of(row)))
        left -= _of(best)
        rows.append(best)
    return rows


def _of(row: tuple[Any, ...]) -> set[tuple[tuple[int, Any], ...]]:
    return set(combinations(enumerate(row), 2))

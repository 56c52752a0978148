"""Tests of the parameters that tests of independent axes have."""

from itertools import combinations, product

import pytest

from helpers.settings import pairs as module
from helpers.settings.pairs import pairs

AXES = (("a", "b", "c"), (1, 2, 3), ("x", "y"), (None, True))


def test_any_two_values_meet() -> None:
    """Of each two axes, every value shares a row with every value, in fewer rows than there are."""
    rows = pairs(*AXES)

    for one, other in combinations(range(len(AXES)), 2):
        assert set(product(AXES[one], AXES[other])) == {(row[one], row[other]) for row in rows}
    assert 9 <= len(rows) <= 12 < len(list(product(*AXES)))


def test_soak_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where seeds are asked for, it is the whole product."""
    monkeypatch.setattr(module, "is_soak", lambda: True)

    assert list(product(*AXES)) == list(pairs(*AXES))

"""What tests begin with does what it says: `filled` and `pairs` of `helpers.settings`."""

from itertools import combinations, product

import pytest

from helpers.settings import pairs as module
from helpers.settings.filled import filled
from helpers.settings.pairs import pairs

AXES = (("a", "b", "c"), (1, 2, 3), ("x", "y"), (None, True))


def test_all_come() -> None:
    """What there is comes, in its order."""
    assert [1, 2] == list(filled(iter([1, 2])))


def test_nothing_fails() -> None:
    """An empty loop would pass, so it fails."""
    with pytest.raises(AssertionError, match="nothing to look at"):
        list(filled([]))


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

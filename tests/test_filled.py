"""A loop over `helpers.settings.filled` has looked at something."""

import pytest

from helpers.settings.filled import filled


def test_all_come() -> None:
    """What there is comes, in its order."""
    assert [1, 2] == list(filled(iter([1, 2])))


def test_nothing_fails() -> None:
    """An empty loop would pass, so it fails."""
    with pytest.raises(AssertionError, match="nothing to look at"):
        list(filled([]))

"""Every broken rule is detected: the model with that rule broken, each by its own check.

`python -m tests.searches` tells which search finds a mistake soonest.
"""

from typing import Final

import pytest

from helpers.sabotage.searches import CASES, FIRST, INTERPRETED, Case, said_of
from helpers.settings.native_modules import is_compiled

COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement.rules")


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_model_catches(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake is found, by the check of the rule that it breaks."""
    assert said_of(case, monkeypatch).startswith(case.words)


@pytest.mark.hot
@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize("case", INTERPRETED, ids=lambda case: case.name)
def test_the_model_catches_in_what_may_be_compiled(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in the hot loop."""
    assert said_of(case, monkeypatch).startswith(case.words)


def test_searches_are_of_mistakes() -> None:
    """No search is kept for a mistake that no longer exists."""
    assert set() == FIRST.keys() - {case.name for case in (*CASES, *INTERPRETED)}

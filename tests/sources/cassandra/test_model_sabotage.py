"""Whoever breaks a rule is found out: the model with that rule broken, each by its own check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from hot import is_compiled
from model_anew import Anew
from model_away import Away
from model_changes import Changing
from model_judge import Judge
from model_machine import Machine
from model_plans import Everything
from model_records import BrokenError
from model_ring import TWO_CENTRES
from model_runs import run
from sabotage import (
    CHANGING,
    LISTED,
    LISTED_INTERPRETED,
    MORE,
    Sabotage,
)
from sabotage_absent import ABSENT
from sabotage_anew import ANEW
from sabotage_bounds import BOUNDS, CROWDED, GAPS, LATE_INTERPRETED
from sabotage_plans import ALTERED, LEVELS, PLANS, STREAMS

EXAMPLES: Final = 8  # Of a search: one of many more would begin with many that are short.
SEARCHES_MAX: Final = 25
STEPS: Final = 50
# Which search finds it as the code is now; those before it take a minute.
FIRST: Final = {"knows_of_no_streams": 6, "compares_streams_at_once": 2}
INTERPRETED: Final = {**LISTED_INTERPRETED, **LATE_INTERPRETED}
COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement")


@dataclass(frozen=True)
class Case:
    """A mistake, how what the judge says of it begins, and the model that can come to make it."""

    sabotage: Sabotage
    words: str
    machine: type[Machine] = Machine
    levels: tuple[str, ...] = ("QUORUM",)
    beside: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    """What else the model has, or only has."""


def cases(
    sabotages: Mapping[Sabotage, str],
    machine: type[Machine] = Machine,
    levels: tuple[str, ...] = ("QUORUM",),
    **beside: tuple[object, ...],
) -> list[Case]:
    """Return a case for each of *sabotages*."""
    return [Case(each, words, machine, levels, beside) for each, words in sabotages.items()]


CASES: Final = [
    *cases(LISTED),
    *cases(MORE),
    *cases(CHANGING, Changing),
    *cases(GAPS, Changing),
    *cases(PLANS, Everything),
    *cases(STREAMS, Everything),
    *cases(ALTERED, Changing, ("ONE", "QUORUM", "ALL")),
    *cases(BOUNDS, Everything),
    *cases(ABSENT, Away, policies=("expire",), returns=("gap",)),
    *cases(ANEW, Anew, policies=("expire",)),
    *cases(CROWDED, Everything, rooms=(40,)),
    *(
        case
        for each, (level, words) in LEVELS.items()
        for case in cases({each: words}, Everything, (level,), layouts=(TWO_CENTRES,))
    ),
]


def said_of(case: Case, patch: pytest.MonkeyPatch) -> str:
    """Return what the model says of a rule that is broken; it looks for the case's words alone."""
    case.sabotage(patch)
    patch.setattr(Judge, "heeds", case.words)
    patch.setattr(Machine, "levels", case.levels)
    patch.setattr(Machine, "disposals", ("delete",))
    for name, values in case.beside.items():
        patch.setattr(case.machine, name, values)
    first = FIRST.get(case.sabotage.__name__, 0)
    for number in range(first, first + SEARCHES_MAX):
        try:
            run(case.machine, EXAMPLES, STEPS, number=number)
        except BrokenError as error:
            return str(error)
    pytest.fail("the model found nothing")


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sabotage.__name__)
def test_the_model_catches(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mistake is found, by the check of the rule that it breaks."""
    assert re.search(case.words, said_of(case, monkeypatch))


@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize("case", cases(INTERPRETED), ids=lambda case: case.sabotage.__name__)
def test_the_model_catches_in_what_may_be_compiled(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in the hot loop."""
    assert re.search(case.words, said_of(case, monkeypatch))

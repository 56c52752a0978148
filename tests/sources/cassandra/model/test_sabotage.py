"""Every broken rule is detected: the model with that rule broken, each by its own check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from helpers.model.checks.job import JobChecks
from helpers.model.checks.records import BrokenError
from helpers.model.machines.changes import Changing
from helpers.model.machines.machine import Machine
from helpers.model.machines.new_generations import NewGenerations
from helpers.model.machines.plans import Everything
from helpers.model.machines.runs import run
from helpers.model.machines.unavailable_logs import UnavailableLogs
from helpers.model.ring import TWO_CENTRES
from helpers.sabotage.absent import ABSENT
from helpers.sabotage.bounds import BOUNDS, CROWDED, GAPS, LATE_INTERPRETED
from helpers.sabotage.new_generations import NEW_GENERATIONS
from helpers.sabotage.plans import ALTERED, LEVELS, PLANS, STREAMS
from helpers.sabotage.rules import CHANGING, LISTED, LISTED_INTERPRETED, MORE, Sabotage
from helpers.settings.native_modules import is_compiled

EXAMPLES: Final = 8  # Of a search: one of many more would begin with many that are short.
SEARCHES_MAX: Final = 25
STEPS: Final = 50
# Which search finds it soonest as the code is now: the first one takes up to a minute.
FIRST: Final = {
    "alters_nothing": 3,
    "asks_one_centre_of_each": 3,
    "believes_a_verdict_that_does_not_add_up": 3,
    "compares_streams_at_once": 2,
    "counts_a_late_copy_twice": 10,
    "counts_other_centres": 4,
    "fences_nobody": 1,
    "forgets_what_was_listed": 6,
    "forgets_which_rings_count": 3,
    "forgets_who_was_ahead": 1,
    "goes_on_before_a_gap_is_accepted": 4,
    "goes_on_counting_what_came_late_as_expired": 10,
    "judges_by_the_current_ring": 3,
    "judges_nothing_again": 3,
    "keeps_no_bytes_of_what_waits": 1,
    "knows_of_no_streams": 3,
    "looks_at_its_own_needs_alone": 5,
    "merges_the_newest_ring_alone": 1,
    "merges_without_shifting_times": 1,
    "releases_before_the_commit": 2,
    "releases_by_the_current_replicas": 9,
    "sends_again_only_what_failed": 29,
    "steals_at_once": 1,
    "suppresses_all_that_waits": 4,
    "takes_commits_of_ended_plans": 8,
    "takes_no_answer_for_a_no": 1,
    "takes_what_one_part_read_for_all": 2,
}
INTERPRETED: Final = {**LISTED_INTERPRETED, **LATE_INTERPRETED}
COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement.rules")


@dataclass(frozen=True)
class Case:
    """A mistake, how the message of its check starts, and the model that can make it."""

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
    *cases(ABSENT, UnavailableLogs, policies=("expire",), returns=("gap",)),
    *cases(NEW_GENERATIONS, NewGenerations, policies=("expire",)),
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
    patch.setattr(JobChecks, "heeds", case.words)
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


@pytest.mark.hot
@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize("case", cases(INTERPRETED), ids=lambda case: case.sabotage.__name__)
def test_the_model_catches_in_what_may_be_compiled(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in the hot loop."""
    assert re.search(case.words, said_of(case, monkeypatch))

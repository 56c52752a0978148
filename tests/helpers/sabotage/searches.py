"""Searches for what each planted mistake breaks: which machine runs, and which search finds it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import reject
from hypothesis.stateful import RuleBasedStateMachine, invariant

from helpers.model.checks.job import JobChecks
from helpers.model.checks.tables import TablesChecks
from helpers.model.machines.changes import Changing
from helpers.model.machines.machine import Machine
from helpers.model.machines.new_generations import NewGenerations
from helpers.model.machines.plans import Everything
from helpers.model.machines.runs import run
from helpers.model.machines.tables import Tables
from helpers.model.machines.unavailable_logs import UnavailableLogs
from helpers.model.ring import TWO_CENTRES
from helpers.sabotage.absent import ABSENT
from helpers.sabotage.bounds import BOUNDS, CROWDED, GAPS, LATE_INTERPRETED
from helpers.sabotage.new_generations import NEW_GENERATIONS
from helpers.sabotage.plans import ALTERED, LEVELS, PLANS, STREAMS
from helpers.sabotage.rules import CHANGING, LISTED, LISTED_INTERPRETED, MORE, Sabotage
from helpers.sabotage.tables import TABLES

EXAMPLES: Final = 8  # Of a search: one of many more would begin with many that are short.
SEARCHES_MAX: Final = 25
STEPS: Final = 50
_SIMPLEST: Final = 3  # Checks of the first schedule, which is the same in all searches.
# Which search finds it soon as the code is now; `tests.searches` tells. Others take up to a minute.
FIRST: Final = {
    "ages_by_the_wall": 1,
    "alters_nothing": 3,
    "asks_one_centre_of_each": 17,
    "believes_a_verdict_that_does_not_add_up": 3,
    "compares_streams_at_once": 21,
    "counts_a_late_copy_twice": 10,
    "counts_no_overflow": 1,
    "counts_other_centres": 8,
    "drops_what_has_no_room": 1,
    "fences_nobody": 1,
    "forgets_what_others_rescued": 9,
    "forgets_what_was_listed": 3,
    "forgets_which_rings_count": 3,
    "forgets_who_was_ahead": 1,
    "goes_on_before_a_gap_is_accepted": 4,
    "goes_on_counting_what_came_late_as_expired": 10,
    "judges_by_the_current_ring": 3,
    "judges_nothing_again": 5,
    "keeps_no_bytes_of_what_waits": 1,
    "keeps_no_damaged_bytes": 1,
    "keeps_what_a_former_fork_had": 4,
    "knows_of_no_streams": 10,
    "leaves_one_note_for_all_jobs": 3,
    "looks_at_its_own_needs_alone": 5,
    "merges_the_newest_ring_alone": 1,
    "merges_without_shifting_times": 13,
    "reads_on_after_too_long": 13,
    "releases_before_the_commit": 2,
    "releases_by_the_current_replicas": 9,
    "sends_again_only_what_failed": 3,
    "steals_at_once": 1,
    "suppresses_all_that_waits": 4,
    "takes_commits_of_ended_plans": 16,
    "takes_no_answer_for_a_no": 1,
    "takes_one_copy_for_two": 26,
    "takes_the_furthest_markers": 3,
    "takes_what_one_part_read_for_all": 13,
    "waits_for_no_log": 1,
}


class FoundError(BaseException):
    """A check found the mistake: no `Exception`, so hypothesis ends, and runs nothing again."""


@dataclass(frozen=True)
class Case:
    """A mistake, how the message of its check starts, and the machine that can make it."""

    sabotage: Sabotage
    words: str
    machine: type[RuleBasedStateMachine]
    checks: type[JobChecks | TablesChecks]
    limits: Mapping[str, tuple[object, ...]]
    """Of what the machine chooses, all that it has here."""

    @property
    def name(self) -> str:
        """The name of the mistake."""
        return self.sabotage.__name__


def _cases(
    sabotages: Mapping[Sabotage, str],
    machine: type[Machine] = Machine,
    levels: tuple[str, ...] = ("QUORUM",),
    **limits: tuple[object, ...],
) -> list[Case]:
    """Return a case for each of *sabotages*."""
    whole = {"levels": levels, "disposals": ("delete",), **limits}
    return [Case(each, words, machine, JobChecks, whole) for each, words in sabotages.items()]


CASES: Final = [
    *_cases(LISTED),
    *_cases(MORE),
    *_cases(CHANGING, Changing),
    *_cases(GAPS, Changing),
    *_cases(PLANS, Everything),
    *_cases(STREAMS, Everything),
    *_cases(ALTERED, Changing, ("ONE", "QUORUM", "ALL")),
    *_cases(BOUNDS, Everything),
    *_cases(ABSENT, UnavailableLogs, policies=("expire",), returns=("gap",)),
    *_cases(NEW_GENERATIONS, NewGenerations, policies=("expire",)),
    *_cases(CROWDED, Everything, rooms=(40,)),
    *(
        case
        for each, (level, words) in LEVELS.items()
        for case in _cases({each: words}, Everything, (level,), layouts=(TWO_CENTRES,))
    ),
    *(Case(each, words, Tables, TablesChecks, {}) for each, words in TABLES.items()),
]
# In modules that may be compiled: then they cannot be changed.
INTERPRETED: Final = _cases({**LISTED_INTERPRETED, **LATE_INTERPRETED})


def plant(case: Case, patch: pytest.MonkeyPatch) -> None:
    """Make the mistake; the machine looks for the case's words alone."""
    case.sabotage(patch)
    patch.setattr(case.checks, "heeds", case.words)
    patch.setattr(case.checks, "error", FoundError)
    for name, values in case.limits.items():
        patch.setattr(case.machine, name, values)


def search(case: Case, number: int) -> str | None:
    """Return what the machine says of a mistake that was planted, if this search finds it."""
    checks = 0

    def leave_the_simplest(_: RuleBasedStateMachine) -> None:
        nonlocal checks
        checks += 1
        if checks == _SIMPLEST:
            reject()

    members = {"leave_the_simplest": invariant()(leave_the_simplest)}
    given = type(case.machine.__name__, (case.machine,), members)
    try:
        run(given, EXAMPLES, STEPS, number=number)
    except FoundError as error:
        return str(error)
    return None


def said_of(case: Case, patch: pytest.MonkeyPatch) -> str:
    """Plant a mistake, and return what the first search says that finds it."""
    plant(case, patch)
    first = FIRST.get(case.name, 0)
    said = (search(case, number) for number in range(first, first + SEARCHES_MAX))
    return next(filter(None, said), "the machine found nothing")

"""Whoever breaks a rule is found out: the model with that rule broken, each by its own check."""

import re
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from hot import is_compiled
from model_changes import Changing
from model_judge import Judge
from model_machine import Machine
from model_plans import Everything
from model_records import BrokenError
from model_ring import TWO_CENTRES
from sabotage import (
    CHANGING,
    LISTED,
    LISTED_INTERPRETED,
    MORE,
    Sabotage,
)
from sabotage_bounds import BOUNDS, CROWDED, GAPS, LATE_INTERPRETED
from sabotage_plans import ALTERED, LEVELS, PLANS, STREAMS

EXAMPLES: Final = 8  # Of a search: one of many more would begin with many that are short.
SEARCHES_MAX: Final = 25
STEPS: Final = 50
INTERPRETED: Final = {**LISTED_INTERPRETED, **LATE_INTERPRETED}
IN_CHANGES: Final = {**CHANGING, **GAPS}
COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement")


def name(sabotage: Sabotage) -> str:
    """Return what a sabotage does."""
    return sabotage.__name__


def said_of(
    sabotage: Sabotage,
    words: str,
    patch: pytest.MonkeyPatch,
    machine: type[Machine] = Machine,
    levels: tuple[str, ...] = ("QUORUM",),
) -> str:
    """Return what the model says of a rule that is broken; it looks for these *words* alone."""
    sabotage(patch)
    patch.setattr(Judge, "heeds", words)
    patch.setattr(Machine, "levels", levels)
    patch.setattr(Machine, "disposals", ("delete",))
    searched = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    for number in range(SEARCHES_MAX):
        begun = seed(number)(type(machine.__name__, (machine,), {}))
        try:
            run_state_machine_as_test(begun, settings=searched)
        except BrokenError as error:
            return str(error)
    pytest.fail("the model found nothing")


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), LISTED.items(), ids=map(name, LISTED))
def test_the_model_catches(sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the mistakes that agreement is most likely to be made with."""
    assert re.search(words, said_of(sabotage, words, monkeypatch))


@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize(("sabotage", "words"), INTERPRETED.items(), ids=map(name, INTERPRETED))
def test_the_model_catches_in_what_may_be_compiled(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in the hot loop."""
    assert re.search(words, said_of(sabotage, words, monkeypatch))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), MORE.items(), ids=map(name, MORE))
def test_the_model_catches_besides(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More mistakes, around agreement."""
    assert re.search(words, said_of(sabotage, words, monkeypatch))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), IN_CHANGES.items(), ids=map(name, IN_CHANGES))
def test_the_model_catches_where_things_change(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with rings that change, with what a log lost, and with damage."""
    assert re.search(words, said_of(sabotage, words, monkeypatch, Changing))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), PLANS.items(), ids=map(name, PLANS))
def test_the_model_catches_where_splits_merge(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with what the splits of another plan begin with."""
    assert re.search(words, said_of(sabotage, words, monkeypatch, Everything))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "found"), LEVELS.items(), ids=map(name, LEVELS))
def test_the_model_catches_wrong_levels(
    sabotage: Sabotage, found: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with who is asked for a copy."""
    level, words = found
    monkeypatch.setattr(Everything, "layouts", (TWO_CENTRES,))
    assert re.search(words, said_of(sabotage, words, monkeypatch, Everything, (level,)))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), STREAMS.items(), ids=map(name, STREAMS))
def test_the_model_catches_with_streams(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with what nodes receive from others."""
    assert re.search(words, said_of(sabotage, words, monkeypatch, Everything))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), ALTERED.items(), ids=map(name, ALTERED))
def test_the_model_catches_where_levels_change(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with an ALTER of the level or of the number of copies."""
    levels = ("ONE", "QUORUM", "ALL")
    assert re.search(words, said_of(sabotage, words, monkeypatch, Changing, levels))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), BOUNDS.items(), ids=map(name, BOUNDS))
def test_the_model_catches_what_is_kept_and_told_wrongly(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with bytes of segments that go, with the books and with time."""
    assert re.search(words, said_of(sabotage, words, monkeypatch, Everything))


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), CROWDED.items(), ids=map(name, CROWDED))
def test_the_model_catches_where_there_is_no_room(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with what gives way."""
    monkeypatch.setattr(Everything, "rooms", (40,))
    assert re.search(words, said_of(sabotage, words, monkeypatch, Everything))

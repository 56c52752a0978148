"""Whoever breaks a rule is found out: the model with that rule broken, each by its own check."""

import re
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from hot import is_compiled
from model_changes import Changing
from model_judge import Judge
from model_machine import Machine
from model_records import BrokenError
from sabotage import (
    CHANGING,
    LISTED,
    LISTED_INTERPRETED,
    MORE,
    Sabotage,
)

EXAMPLES_MAX: Final = 200
STEPS: Final = 50
COMPILED: Final = is_compiled("headrace.sources.cassandra.agreement")


def name(sabotage: Sabotage) -> str:
    """Return what a sabotage does."""
    return sabotage.__name__


def said_of(
    sabotage: Sabotage, words: str, patch: pytest.MonkeyPatch, machine: type[Machine] = Machine
) -> str:
    """Return what the model says of a rule that is broken; it looks for these *words* alone."""
    sabotage(patch)
    patch.setattr(Judge, "heeds", words)
    patch.setattr(Machine, "levels", ("QUORUM",))
    patch.setattr(Machine, "disposals", ("delete",))
    with pytest.raises(BrokenError) as caught:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES_MAX,
                stateful_step_count=STEPS,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
                phases=[Phase.generate],
                report_multiple_bugs=False,
            ),
        )
    return str(caught.value)


@pytest.mark.skipif(not COMPILED, reason="the same, but slower")
@pytest.mark.parametrize(("sabotage", "words"), LISTED.items(), ids=map(name, LISTED))
def test_the_model_catches(sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the mistakes that agreement is most likely to be made with."""
    assert re.search(words, said_of(sabotage, words, monkeypatch))


@pytest.mark.skipif(COMPILED, reason="machine code cannot be changed")
@pytest.mark.parametrize(
    ("sabotage", "words"), LISTED_INTERPRETED.items(), ids=map(name, LISTED_INTERPRETED)
)
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
@pytest.mark.parametrize(("sabotage", "words"), CHANGING.items(), ids=map(name, CHANGING))
def test_the_model_catches_where_things_change(
    sabotage: Sabotage, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mistakes with rings that change, with what a log lost, and with damage."""
    assert re.search(words, said_of(sabotage, words, monkeypatch, Changing))

"""The table of states is whole, and what a connector is called follows from its parts."""

import pytest

from headrace.connector.foundation.states import (
    TRANSITIONS,
    Desired,
    Event,
    Observed,
    connector_state,
    follows,
)

U, R, S = Observed.UNASSIGNED, Observed.RUNNING, Observed.STALLED
P, A, F = Observed.PAUSED, Observed.RESTARTING, Observed.FAILED


def test_every_state_of_a_split_is_in_the_table() -> None:
    """A split is never STOPPED, only its connector; from every other state something follows."""
    assert set(Observed) - {Observed.STOPPED} == set(TRANSITIONS)


def test_every_state_can_be_left_and_reached() -> None:
    """No state is a trap, and none is decoration."""
    reached = {after for steps in TRANSITIONS.values() for after in steps.values()}

    assert set(TRANSITIONS) == reached
    assert all(set(steps.values()) - {state} for state, steps in TRANSITIONS.items())


@pytest.mark.parametrize("state", [U, A, F])
def test_nothing_moves_unowned(state: Observed) -> None:
    """A split that no one owns neither moves nor pauses nor is held up."""
    for event in (Event.MOVED, Event.PAUSED, Event.HELD_UP):
        with pytest.raises(KeyError):
            follows(state, event)


@pytest.mark.parametrize(
    ("desired", "job", "splits", "expected"),
    [
        ("RUNNING", U, [R, R], R),
        ("RUNNING", U, [R, S], S),
        ("RUNNING", U, [R, U], U),
        ("RUNNING", U, [R, A, F], F),
        ("RUNNING", U, [P, R], R),
        ("RUNNING", A, [U, U], A),
        ("RUNNING", F, [U], F),
        ("RUNNING", U, [], U),
        ("PAUSED", U, [P, P], P),
        ("PAUSED", U, [P, F], F),
        ("STOPPED", U, [R, U], U),
        ("STOPPED", F, [U, F], Observed.STOPPED),
        ("STOPPED", U, [], Observed.STOPPED),
    ],
)
def test_connector(desired: str, job: Observed, splits: list[Observed], expected: Observed) -> None:
    """The worst of its splits names a connector; a stopped one is judged by its owners alone."""
    assert expected == connector_state(Desired(desired), job, splits)

"""What a worker shows of its splits, and how often it tries again."""

import pytest

from headrace.connector.foundation.states import Observed
from headrace.connector.runtime.splits.watch import (
    HEALTHY_MS,
    REFRESH_MS,
    REFRESHED_MAX,
    Pulse,
    RestartPolicy,
    Restarts,
    SplitWatch,
)
from headrace.plugins import ConfigError, FatalError, MissingRequirementError, Problem

STALL_MS = 1_000
LATER = MissingRequirementError("no broker")
NEVER = FatalError("a gap")


def watch(restarts_max: int = 2) -> SplitWatch:
    """Return a watch over two splits that were claimed."""
    made = SplitWatch(
        worker="w",
        generation=7,
        stall_ms=STALL_MS,
        policy=RestartPolicy(restarts_max=restarts_max, pause_ms=100),
    )
    made.claimed("ab")
    return made


def pulse(a: int, b: int, *, paused: bool = False) -> Pulse:
    """Return what a pipeline says whose splits moved at *a* and *b*."""
    return Pulse({"a": a, "b": b}, {"a": "reason a", "b": "reason b"}, paused)


def shown(made: SplitWatch, now_ms: int = 0) -> dict[str, tuple[Observed, str]]:
    """Return what the rows that changed say."""
    return {row.split: (row.state, row.reason) for row in made.changed_rows(now_ms)}


def test_claimed() -> None:
    """A split that was claimed runs, with the generation of this run."""
    rows = watch().changed_rows(0)

    assert [("a", Observed.RUNNING, 7, "w"), ("b", Observed.RUNNING, 7, "w")] == [
        (row.split, row.state, row.generation, row.worker) for row in rows
    ]


def test_failing_twice_under_one_claim() -> None:
    """A split whose lease was lost and gained again may fail under both tokens."""
    made = watch(restarts_max=1)
    for expected in (Observed.RESTARTING, Observed.FAILED):
        made.failed("a", LATER, now_ms=0, wall_ms=0)

        assert expected is shown(made)["a"][0]


def test_only_changes_are_reported() -> None:
    """Rows are reported once, and again after a time."""
    made = watch()

    assert 2 == len(shown(made))
    assert {} == shown(made, 1)
    made.pulse(pulse(0, 0, paused=True), 1)
    assert 2 == len(shown(made, 2))
    made.pulse(pulse(0, 0, paused=True), 3)
    assert {} == shown(made, 1 + REFRESH_MS)
    assert 2 == len(shown(made, 2 + REFRESH_MS))


def test_many_rows_are_reported_again_in_turns() -> None:
    """Of rows that did not change those come first that were reported longest ago."""
    made, splits = watch(), [f"s{number:03}" for number in range(2 * REFRESHED_MAX)]
    made.released("a")
    made.released("b")
    made.claimed(splits)
    shown(made)
    made.failed(splits[0], NEVER, now_ms=0, wall_ms=0)

    assert [splits[0]] == list(shown(made, 1))
    assert splits[1 : REFRESHED_MAX + 1] == list(shown(made, REFRESH_MS))
    assert splits[REFRESHED_MAX + 1 :] == list(shown(made, REFRESH_MS))
    assert [splits[0]] == list(shown(made, 1 + REFRESH_MS))


@pytest.mark.parametrize("paused", [False, True])
def test_what_has_nothing_is_not_in_a_pulse(*, paused: bool) -> None:
    """A split that is not in it moved when the source was asked; its state follows."""
    made = watch()
    made.silent(STALL_MS, "split a")
    shown(made)
    made.pulse(Pulse({"a": 0}, {}, paused, looked_ms=STALL_MS), STALL_MS + 1)

    a = "1 s without progress: nothing was read"
    still = {"a": (Observed.STALLED, a), "b": (Observed.RUNNING, "")}
    assert (dict.fromkeys("ab", (Observed.PAUSED, "")) if paused else still) == shown(made)


def test_what_was_given_away_is_reported_once() -> None:
    """What becomes of a split that was given away is for its new owner to tell."""
    made = watch()
    shown(made)
    made.released("b")

    assert {"b": (Observed.UNASSIGNED, "")} == shown(made, 1)
    assert ["a"] == list(shown(made, 2 * REFRESH_MS))
    assert {"a": Observed.RUNNING} == dict(made.states())
    made.claimed("b")
    assert {"b": (Observed.RUNNING, "")} == shown(made, 2 * REFRESH_MS + 1)


@pytest.mark.parametrize(("still_ms", "state"), [(999, "RUNNING"), (1_000, "STALLED")])
def test_stalled(still_ms: int, state: str) -> None:
    """O08: RUNNING means progress: a split that does not move for long says why."""
    made = watch()
    shown(made)
    made.pulse(pulse(0, still_ms), still_ms)
    rows = {row.split: row for row in made.changed_rows(0)}

    assert ("b" in rows) is False
    assert (state == "STALLED") is ("a" in rows)
    if "a" in rows:
        assert (Observed.STALLED, "1 s without progress: reason a") == (
            rows["a"].state,
            rows["a"].reason,
        )
        made.pulse(pulse(1_001, 1_001), 1_001)
        assert {"a": (Observed.RUNNING, "")} == shown(made)


def test_silent_pipeline() -> None:
    """A call that does not return stalls every split, and is named."""
    made = watch()
    shown(made)
    made.silent(STALL_MS - 1, "split a")
    assert {} == shown(made)
    made.silent(STALL_MS, "split a")

    reason = "a call has not returned for 1 s (split a)"
    assert {"a": (Observed.STALLED, reason), "b": (Observed.STALLED, reason)} == shown(made)


def test_paused() -> None:
    """A paused split is paused, however long it does not move."""
    made = watch()
    made.pulse(pulse(0, 0, paused=True), 60_000)

    assert {Observed.PAUSED} == {state for state, _ in shown(made).values()}


def test_failed_for_now() -> None:
    """Who failed for a reason that may pass is tried again; cause and time are shown."""
    made = watch()
    assert 1_100 == made.failed("a", LATER, now_ms=1_000, wall_ms=50_000)
    (row,) = (row for row in made.changed_rows(0) if row.split == "a")

    assert (Observed.RESTARTING, 1, 50_100) == (row.state, row.attempt, row.next_attempt_ms)
    assert "environment: no broker" == row.reason
    assert ["a"] == made.waiting
    made.claimed("a")
    assert [] == made.waiting


def test_failed_for_good() -> None:
    """A split that failed for a permanent reason is not retried, unless a user asks."""
    made = watch()
    assert made.failed("a", NEVER, now_ms=0, wall_ms=0) is None
    assert Observed.FAILED is shown(made)["a"][0]
    made.asked("a")
    made.claimed("a")

    assert Observed.RUNNING is shown(made)["a"][0]


def test_failed_after_it_was_given_back() -> None:
    """A renewal found the lease of a split that failed gone, before its failure was heard of."""
    made = watch()
    made.released("a")
    made.failed("a", LATER, now_ms=0, wall_ms=0)
    made.released("b")
    made.failed("b", NEVER, now_ms=0, wall_ms=0)

    assert [Observed.RESTARTING, Observed.FAILED] == [state for state, _ in shown(made).values()]


def test_late_pulse() -> None:
    """What the pipeline said of a split before it was given back changes nothing."""
    made = watch()
    made.released("a")
    made.pulse(pulse(0, 0), 0)

    assert Observed.UNASSIGNED is shown(made)["a"][0]


def test_budget() -> None:
    """Pauses double up to a bound, and the budget is for failures in a row."""
    restarts = Restarts(RestartPolicy(restarts_max=3, pause_ms=100))
    assert [100, 200, 400, None] == [restarts.failed("a", 0, LATER) for _ in range(4)]
    assert 100 == restarts.failed("b", 0, None)
    assert HEALTHY_MS + 101 == restarts.failed("a", HEALTHY_MS + 1, LATER)
    restarts.forget("b")
    assert 0 == restarts.count("b")


def test_pauses_are_bounded() -> None:
    """No pause is longer than ten minutes, which docs/jobs.md promises."""
    restarts = Restarts(RestartPolicy(restarts_max=100, pause_ms=60_000))

    assert 10 * 60 * 1_000 == [restarts.failed("a", 0, LATER) for _ in range(30)][-1]


def test_config_is_never_tried_again() -> None:
    """A configuration that cannot be used stays so."""
    restarts = Restarts(RestartPolicy(restarts_max=3, pause_ms=1))

    assert restarts.failed("a", 0, ConfigError([Problem("k", "is wrong")])) is None

"""How fast a lag shrinks, by earlier looks."""

import pytest

from headrace.connector.foundation.catch_up import LATELY_SECONDS, Looks, catch_up_seconds


def paces(*given: tuple[float, int]) -> list[float | None]:
    """Return the pace at each of these looks: seconds, and bytes that are left."""
    times = iter([at for at, _ in given])
    looks = Looks(lambda: next(times))
    return [looks.add("j", left) for _, left in given]


def test_the_pace_is_what_it_shrank_since_the_first_look() -> None:
    """One look says nothing; a lag that grows has a pace below 0."""
    assert [None, 5, 5, -5] == paces((0, 1000), (60, 700), (120, 400), (240, 2200))


def test_jobs_have_looks_of_their_own() -> None:
    """What was left of another job says nothing."""
    times = iter((0.0, 60.0))
    looks = Looks(lambda: next(times))

    assert [None, None] == [looks.add("j", 9), looks.add("k", 3)]


def test_a_moment_says_nothing() -> None:
    """Commits come about each second, so a look just after another one has no pace."""
    assert [None, None, 300] == paces((0, 900), (1, 600), (2, 300))


def test_only_the_last_minutes_count() -> None:
    """A look that is older is forgotten."""
    late = LATELY_SECONDS

    assert [None, 10, 20] == paces((0, 100_000), (late, 97_000), (late + 10, 96_800))


@pytest.mark.parametrize(
    ("left", "pace", "expected"),
    [(0, None, 0), (0, -1, 0), (600, 5, 120), (600, None, None), (600, 0, None), (600, -5, None)],
)
def test_time_to_catch_up(left: int, pace: float | None, expected: float | None) -> None:
    """It is unknown where a lag does not shrink; without a lag it is 0."""
    assert expected == catch_up_seconds(left, pace)

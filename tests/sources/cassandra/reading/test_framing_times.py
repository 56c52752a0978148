"""When records came into being, as far as it is remembered."""

import random
from bisect import bisect_left

import pytest

from headrace.sources.cassandra.reading.framing_times import TIMES_MAX, FramingTimes

OFF_PART = 16  # Of its age what is said of a turn may be off by this part.


def test_a_record_has_the_times_of_its_turn() -> None:
    """Each number up to the last one of a turn, from the one behind the turn before."""
    times = FramingTimes()
    times.note(3, 100, 110)
    times.note(4, 120, 130)

    known = [times.of(number) for number in range(1, 5)]
    assert [(100, 110), (100, 110), (100, 110), (120, 130)] == known


@pytest.mark.parametrize("number", [0, 7, 10, 13])
def test_what_is_not_known(number: int) -> None:
    """Records of another process, and those that come later, have no times."""
    times = FramingTimes(10)
    times.note(12, 100, 110)

    assert times.of(number) is None
    assert (100, 110) == times.of(11)


def test_old_times_are_thinned() -> None:
    """So much is kept, and what is said is off by a small part of how long ago it was."""
    rng = random.Random(2711)  # noqa: S311 (a sequence that repeats)
    times, numbers, framed_ms = FramingTimes(), [0], [0]
    for _ in range(20 * TIMES_MAX):
        numbers.append(numbers[-1] + rng.randint(1, 50))
        framed_ms.append(framed_ms[-1] + rng.randint(1, 9))
        times.note(numbers[-1], framed_ms[-1] - 1, framed_ms[-1])

    assert len(times._numbers) <= TIMES_MAX  # noqa: SLF001 (the bound is what is tested)
    now_ms = framed_ms[-1]
    for number in rng.sample(range(1, numbers[-1] + 1), 5_000):
        turn = bisect_left(numbers, number)
        found = times.of(number)
        assert found is not None
        late_ms = found[1] - framed_ms[turn]
        assert 0 <= late_ms * OFF_PART <= now_ms - framed_ms[turn]
        assert found[1] - 1 == found[0]

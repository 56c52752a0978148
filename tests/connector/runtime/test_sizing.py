"""When a job gets another number of splits, by times that a test gives."""

from collections.abc import Sequence

from headrace.connector.runtime.replanning import SHRINK_WAIT_FACTOR, Sizing

RESPLIT_MS = 30_000


def four_each(workers: int) -> Sequence[str]:
    """Return four splits for each worker."""
    return [f"s{n}" for n in range(4 * workers)]


def changes(story: Sequence[tuple[int, int, int]]) -> list[int | None]:
    """Return what comes of so many workers and splits in force at each second."""
    sizing = Sizing(four_each, resplit_ms=RESPLIT_MS)
    came = (sizing.due(["s"] * splits, workers, 1_000 * at) for at, workers, splits in story)
    return [None if splits is None else len(splits) for splits in came]


def test_a_job_grows_when_there_are_too_few_for_long() -> None:
    """Workers that come one by one are counted together; one that left in time changes nothing."""
    assert [None, None, None, 16] == changes([(0, 2, 8), (9, 3, 8), (20, 4, 8), (39, 4, 8)])
    assert [None, None, None, None] == changes([(0, 3, 8), (29, 3, 8), (30, 2, 8), (31, 3, 8)])


def test_a_job_shrinks_seldom() -> None:
    """Four times too many splits, for long: half of the workers may go without any change."""
    long = RESPLIT_MS * SHRINK_WAIT_FACTOR // 1_000

    assert [None, None] == changes([(0, 2, 16), (10 * long, 2, 16)])
    assert [None, None, 4] == changes([(0, 1, 16), (long - 1, 1, 16), (long, 1, 16)])
    assert [None, None, None] == changes([(0, 1, 16), (long - 1, 5, 16), (long, 1, 16)])


def test_a_number_that_is_configured_stays() -> None:
    """Nothing is ever due."""
    sizing = Sizing(lambda _: None, resplit_ms=0)

    assert None is sizing.due(["a"], 500, 1_000)

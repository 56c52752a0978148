"""The page of a run."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.replay.delivery import Target
from headrace.connector.replay.pages.charts import BARS
from headrace.connector.replay.pages.run_page import course_of, run_page
from headrace.connector.replay.runs import Run, ShardRow, ShardState
from headrace.connector.replay.shards import Shard, SourceSpec

START_MS = 1_800_000_000_000
SHARD = Shard(number=1, split="1-of-1", source=SourceSpec(given={}, directory="/"))


def run(**facts: object) -> Run:
    """Return a run into a folder."""
    target = Target(directory="/", path="out")
    return Run(run="replay-1", kind="replay", made_ms=START_MS, target=target, facts=facts)


def ended(at_ms: int, wall_seconds: float, delivered: int) -> ShardRow:
    """Return a shard that delivered so much in the *wall_seconds* before *at_ms*."""
    report = {"ended_ms": START_MS + at_ms, "wall_seconds": wall_seconds, "delivered": delivered}
    return ShardRow(SHARD, ShardState.PASS, 1, report)


def test_two_shards_one_after_another() -> None:
    """Each delivers at its own rate in its own half of the time, and what is left falls to 0."""
    course = course_of(run(), [ended(40_000, 40, 400), ended(80_000, 40, 1_200)])

    assert course is not None
    assert (START_MS, START_MS + 80_000) == (course.from_ms, course.to_ms)
    half = BARS // 2
    assert [10] * half + [30] * half == pytest.approx(course.rates)
    assert pytest.approx(1_200) == course.left[half - 1]
    assert pytest.approx(0) == course.left[-1]


@given(
    st.lists(
        st.tuples(st.integers(0, 10**7), st.floats(0, 10**4), st.integers(0, 10**9)), min_size=1
    )
)
def test_nothing_is_left_out(shards: list[tuple[int, float, int]]) -> None:
    """The rates of all parts are together what was delivered; what is left never grows."""
    course = course_of(run(), [ended(*shard) for shard in shards])

    assert course is not None
    step_seconds = (course.to_ms - course.from_ms) / BARS / 1_000
    total = sum(delivered for _, _, delivered in shards)
    assert pytest.approx(total) == sum(course.rates) * step_seconds
    assert sorted(course.left, reverse=True) == list(course.left)


def test_what_is_not_done() -> None:
    """Of shards that have not passed, as many changes are left as the plan expects of them."""
    waiting = ShardRow(SHARD, ShardState.NOT_STARTED, 0, {})
    course = course_of(run(rows=3_000), [ended(10_000, 10, 900), waiting, waiting])

    assert course is not None
    assert pytest.approx(2_000) == course.left[-1]
    assert course_of(run(rows=3_000), [waiting]) is None


def test_the_page() -> None:
    """It has both charts with a time axis, the states, and problems as text."""
    failed = ShardRow(SHARD, ShardState.FAIL, 1, {"problem": "log_gap: <n1>", "notes": ["a & b"]})
    page = run_page(run(rows=10), [ended(40_000, 40, 5), failed])

    titles = re.findall(r"<p>([^<]+):</p><svg", page)
    assert ["Rate, in changes per second", "Lag, in changes that were left"] == titles
    assert 2 == page.count("2027-01-15 08:00:00</text>")  # START_MS, on each axis.
    assert 2 == page.count("2027-01-15 08:00:30</text>")
    assert "<td>log_gap: &lt;n1&gt;" in page
    assert "<td>a &amp; b" in page
    assert "5 changes into Parquet files in out" in page

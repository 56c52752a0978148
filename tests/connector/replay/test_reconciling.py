"""What becomes of a change that one side has and the other lacks."""

from collections.abc import Sequence

import pytest

from headrace.connector.replay.comparing import (
    ChangeRow,
    Comparison,
    LogSide,
    Members,
    SideReport,
)
from headrace.connector.replay.reconciling import (
    Difference,
    Gather,
    Outcome,
    Task,
    classified,
    reconcile,
)
from headrace.connector.replay.selection import Selection, name_of
from headrace.connector.replay.shards import Shard, SourceSpec

NOW_S = 1_000


def row(
    number: int, *, key: bytes = b"k", time_us: int = 0, expires_s: int | None = None
) -> ChangeRow:
    """Return a change."""
    name = name_of(bytes([number]) * 16, 0)
    return ChangeRow(name, "ks.t", key, "UPDATE", time_us, expires_s=expires_s)


def differences(
    agreed: Sequence[ChangeRow], stored: Sequence[ChangeRow], logged: Sequence[ChangeRow] = ()
) -> list[tuple[Difference, int]]:
    """Return what differs, by the first byte of its name."""
    sides = [{each.name: each for each in side} for side in (agreed, [*agreed, *logged], stored)]
    found = classified(sides[0], sides[1], sides[2], now_s=NOW_S)
    return [(each.difference, each.row.name[0]) for each in found]


def test_nothing_differs() -> None:
    """The same changes on both sides, in any order, are no difference."""
    assert [] == differences([row(1), row(2)], [row(2), row(1)])


@pytest.mark.parametrize(
    ("agreed", "stored", "logged", "expected"),
    [
        pytest.param([row(1)], [], [], [(Difference.MISSING, 1)], id="the key is not there"),
        pytest.param(
            [row(1, time_us=5)],
            [row(2, time_us=9)],
            [row(2)],
            [(Difference.MISSING, 1), (Difference.UNDER_REPLICATED, 2)],
            id="the key is there with newer",
        ),
        pytest.param(
            [row(1, time_us=5), row(2, time_us=3)],
            [row(2, time_us=3)],
            [],
            [(Difference.STALE, 1)],
            id="the key is there with older only",
        ),
        pytest.param(
            [row(1, expires_s=NOW_S)], [], [], [(Difference.EXPIRED, 1)], id="its time is over"
        ),
        pytest.param(
            [row(1, expires_s=NOW_S + 1)], [], [], [(Difference.MISSING, 1)], id="not yet"
        ),
        pytest.param([], [row(1)], [], [(Difference.EXTRA, 1)], id="no log has it"),
        pytest.param(
            [], [], [row(1)], [(Difference.UNDER_REPLICATED, 1)], id="one log has it, none else"
        ),
    ],
)
def test_classified(
    agreed: list[ChangeRow],
    stored: list[ChangeRow],
    logged: list[ChangeRow],
    expected: list[tuple[Difference, int]],
) -> None:
    """Each difference is named by what its consumer should know."""
    assert expected == differences(agreed, stored, logged)


def test_only_buckets_that_differ_are_looked_into() -> None:
    """Equal sums end the work; else the tasks are asked for those buckets alone."""
    asked: list[frozenset[tuple[str, int]] | None] = []

    def gather(topic: Members) -> Gather:
        def run(tasks: Sequence[Task]) -> list[SideReport]:
            found = []
            for task in tasks:
                asked.append(task.comparison.wanted)
                of_logs = isinstance(task, LogSide)
                if task.comparison.wanted is None:
                    same = {("ks.t", 1): Members(5, 7)}
                    other = Members(2, 3) if of_logs else topic
                    found.append(SideReport(sums=same | {("ks.t", 2): other}))
                else:
                    found.append(SideReport(rows=[row(1)] if of_logs else []))
            return found

        return run

    clean = outcome_of(gather(Members(2, 3)))
    assert [None, None] == asked
    assert (2, 0, []) == (clean.buckets_compared, clean.buckets_different, clean.found)

    different = outcome_of(gather(Members(1, 3)))
    assert [None, None, *[frozenset({("ks.t", 2)})] * 3] == asked[2:]
    assert [Difference.MISSING] == [each.difference for each in different.found]


def outcome_of(gather: Gather) -> Outcome:
    """Reconcile one shard with one part."""
    comparison = Comparison(sink={}, directory="/", buckets=4, selection=Selection())
    shard = Shard(number=1, split="1", source=SourceSpec(given={}, directory="/"))
    return reconcile([shard], lambda _: ["topic:0"], comparison, gather, known={}, now_s=NOW_S)

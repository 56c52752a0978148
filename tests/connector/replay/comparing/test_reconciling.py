"""Sums are compared first, then the buckets that differ; causes and consequences are separated."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.connector.replay.comparing.bucket_sums import (
    Bucket,
    Comparison,
    LogSide,
    Members,
    SideReport,
    TableSide,
    TopicSide,
    Wanted,
)
from headrace.connector.replay.comparing.differences import Difference
from headrace.connector.replay.comparing.messages import ChangeRow
from headrace.connector.replay.comparing.reconciling import Gather, Outcome, Sides, Times, reconcile
from headrace.connector.replay.comparing.rows import CellState, RowState
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.connector.serde.change_names import name_of
from headrace.plugins import NO_ORIGIN, RecordSchema

NOW_S = 1_000
CUT_US = 900_000_000
FIRST, SECOND = ("ks.t", 1, 0), ("ks.t", 2, 0)
SCHEMA = RecordSchema.of("ks.t", "CREATE TABLE ks.t", key={}, value={})


def change(number: int, *, key: bytes = b"k", time_us: int = 5) -> ChangeRow:
    """Return a change."""
    name = name_of(bytes([number]) * 16, 0)
    return ChangeRow(name, "ks.t", key, "UPDATE", time_us, content=name)


def row(time_us: int, *, key: bytes = b"k") -> RowState:
    """Return a row with one value, written at a time."""
    return RowState("ks.t", key, key, {"v": CellState(time_us, b"x")}, 0, shown=True)


def sums(*buckets: Bucket) -> dict[Bucket, Members]:
    """Return sums of *buckets*."""
    return {bucket: Members(1, number) for number, bucket in enumerate(buckets)}


Task = LogSide | TopicSide | TableSide


class World:
    """Sides that answer as the test says, and remember what was asked of them."""

    def __init__(self, **sides: Callable[[Task], SideReport]) -> None:
        """*sides* are answers by kind: `logs`, `one` (at level ONE), `topic`, `table`."""
        self._sides = sides
        self.asked: list[tuple[str, Wanted | None]] = []
        self.paused: list[float] = []

    def gather(self, tasks: Sequence[TopicSide | TableSide]) -> Sequence[SideReport]:
        """Run tasks in this process."""
        return [self._answer(task) for task in tasks]

    def over(self, make: Callable[[Shard], Any], of: Sequence[Shard]) -> Sequence[Any]:
        """Run tasks of the logs."""
        return [self._answer(make(shard)) for shard in of]

    def _answer(self, task: Task) -> SideReport:
        kind = "topic" if isinstance(task, TopicSide) else "table"
        if isinstance(task, LogSide):
            kind = "one" if task.shard.source.given.get("consistency") == "ONE" else "logs"
        self.asked.append((kind, task.comparison.wanted))
        answer = self._sides.get(kind)
        return SideReport() if answer is None else answer(task)

    def outcome(self, *, tables: bool = True) -> Outcome:
        """Reconcile one shard with one part, and one range of the table."""
        selection = Selection(to_us=CUT_US)
        comparison = Comparison(
            sink={}, origin=NO_ORIGIN, directory="/", buckets=4, selection=selection, at_s=NOW_S
        )
        source = SourceSpec(given={"plugin": "cassandra"}, directory="/")
        shard = Shard(number=1, split="node1", source=source)
        ranges = [shard] if tables else []
        named = frozenset({"ks.t"})
        sides = Sides([shard], lambda _: ["topic:0"], lambda _: ranges, tables=named)
        times = Times(lambda: NOW_S, self.paused.append, grace_s=60)
        gather: Gather = self.gather
        return reconcile(sides, comparison, gather, self.over, known={}, times=times)


def test_equal_sums_end_the_work() -> None:
    """If all sums are equal no bucket is read."""
    world = World(
        logs=lambda _: SideReport(sums=sums(FIRST)),
        topic=lambda _: SideReport(sums=sums(FIRST), row_sums=sums(SECOND)),
        table=lambda _: SideReport(row_sums=sums(SECOND), tables={"ks.t": SCHEMA}),
    )

    outcome = world.outcome()

    assert [("logs", None), ("table", None), ("topic", None)] == world.asked
    assert (2, 0, False) == (
        outcome.buckets_compared,
        outcome.buckets_different,
        outcome.differs,
    )


def test_only_buckets_that_differ_are_looked_into() -> None:
    """Tasks read only the buckets that differ; the table first, the topic last."""
    world = World(
        logs=lambda t: SideReport(
            sums=sums(FIRST, SECOND), rows=[change(1)] if t.comparison.wanted else []
        ),
        topic=lambda _: SideReport(sums=sums(FIRST)),
    )

    outcome = world.outcome()

    wanted = Wanted(frozenset({SECOND}))
    assert [("logs", wanted), ("one", wanted), ("topic", wanted)] == world.asked[3:]
    assert [Difference.MISSING] == [each.difference for each in outcome.found]


def test_mutations_without_agreement_are_looked_for() -> None:
    """Mutations on too few logs, and nowhere else, are found although agreed sums are equal."""
    world = World(
        logs=lambda _: SideReport(sums=sums(FIRST), waiting=1),
        one=lambda t: SideReport(
            sums=sums(FIRST, SECOND), rows=[change(1)] if t.comparison.wanted else []
        ),
        topic=lambda _: SideReport(sums=sums(FIRST)),
    )

    outcome = world.outcome(tables=False)

    assert [Difference.UNDER_REPLICATED] == [each.difference for each in outcome.found]
    assert outcome.differs


def rows_world(
    in_table: RowState | None,
    in_topic: RowState | None,
    *,
    missing: ChangeRow | None = None,
    few: ChangeRow | None = None,
    touched: Sequence[bool] = (False, False),
) -> World:
    """Return a world whose table and topic differ in one row, and whose logs have two changes."""
    visits = iter(touched)

    def of_rows(state: RowState | None, number: int) -> Callable[[Task], SideReport]:
        def answer(task: Task) -> SideReport:
            if task.comparison.wanted is None:
                return SideReport(row_sums={FIRST: Members(1, number)}, tables={"ks.t": SCHEMA})
            is_touched = number == 2 and next(visits)
            keys = frozenset({("ks.t", b"k")}) if is_touched else frozenset()
            return SideReport(states=[state] if state else [], touched=keys)

        return answer

    def of_logs(*changes: ChangeRow | None) -> Callable[[Task], SideReport]:
        def answer(task: Task) -> SideReport:
            found = [c for c in changes if c is not None]
            return SideReport(rows=found if task.comparison.wanted else [], waiting=bool(few))

        return answer

    return World(
        logs=of_logs(missing),
        one=of_logs(missing, few),
        table=of_rows(in_table, 1),
        topic=of_rows(in_topic, 2),
    )


def test_what_follows_from_the_logs_is_one_difference() -> None:
    """A row without a missing change is not a second difference: the logs repair it."""
    outcome = rows_world(row(5), None, missing=change(1, time_us=5)).outcome()

    assert ([Difference.MISSING], [], []) == (
        [f.difference for f in outcome.found],
        outcome.rows,
        outcome.repairs,
    )
    assert 1 == outcome.rows_behind


def test_what_no_log_has_is_repaired_from_the_table() -> None:
    """A row that only the table has is missing, and the repair reads its key."""
    outcome = rows_world(row(5), None).outcome()

    assert [Difference.MISSING] == [f.difference for f in outcome.rows]
    assert [frozenset({b"k"})] == [keys for _, keys in outcome.repairs]


def test_too_few_copies_are_repaired_from_the_table() -> None:
    """A mutation on too few logs, whose row the table has, is reported once; the table repairs."""
    outcome = rows_world(row(5), None, few=change(1, time_us=5)).outcome()

    assert ([Difference.UNDER_REPLICATED], []) == (
        [f.difference for f in outcome.found],
        outcome.rows,
    )
    assert [frozenset({b"k"})] == [keys for _, keys in outcome.repairs]
    assert outcome.differs


def test_too_few_copies_of_a_row_that_is_right() -> None:
    """A mutation on too few logs is reported, until the topic has the row."""
    outcome = rows_world(row(5), row(5), few=change(1, time_us=5)).outcome()

    assert (1, 1, False) == (outcome.counts()["under_replicated"], outcome.settled, outcome.differs)


@pytest.mark.parametrize(
    ("touched", "expected", "paused"),
    [
        pytest.param((True, True), [], [], id="deleted lately, as the topic says"),
        pytest.param((False, True), [], [60.0], id="deleted lately, as the topic says soon"),
        pytest.param((False, False), [Difference.EXTRA], [60.0], id="not deleted"),
    ],
)
def test_a_row_that_may_just_have_been_deleted(
    touched: tuple[bool, bool], expected: list[Difference], paused: list[float]
) -> None:
    """A row that the table no longer has is extra only if no deletion arrives within the grace."""
    world = rows_world(None, row(5), touched=touched)

    assert expected == [f.difference for f in world.outcome().rows]
    assert paused == world.paused


@pytest.mark.parametrize(
    ("side", "part"), [("logs", "node1"), ("table", "node1"), ("topic", "topic:0")]
)
def test_a_side_that_cannot_be_read(side: str, part: str) -> None:
    """A side that fails is named, with its part."""
    world = World(**{side: lambda _: SideReport(problem="log_gap: gone")})

    said = f"side of the {side}: 1 of 1 parts cannot be read: {part}: log_gap: gone"
    with pytest.raises(ShardFailedError, match=said):
        world.outcome()

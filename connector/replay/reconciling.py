"""Compares the logs with a topic: sums first, then what differs, classified. Pure but for tasks."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from headrace.connector.replay.comparing import (
    Bucket,
    ChangeRow,
    Comparison,
    LogSide,
    Members,
    SideReport,
    TopicSide,
    with_wanted,
)
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.shards import Shard
from headrace.plugins import Document

Task = LogSide | TopicSide
# Runs tasks, several at once; returns what they return, in their order.
Gather = Callable[[Sequence[Task]], Sequence[SideReport]]
_MASK: Final = (1 << 64) - 1


class Difference(StrEnum):
    """What is wrong about a change."""

    MISSING = "missing"
    """The logs agree on it, and the topic lacks it."""
    STALE = "stale"
    """The same, and the newest that the topic has of its key is older."""
    EXPIRED = "expired"
    """The same, but its time to live is over: nobody misses it."""
    EXTRA = "extra"
    """The topic has it, and the logs do not agree on it."""
    UNDER_REPLICATED = "under_replicated"
    """A log has it, but too few of them."""


@dataclass(frozen=True, slots=True)
class Found:
    """A change that differs."""

    difference: Difference
    row: ChangeRow


@dataclass(slots=True)
class Outcome:
    """What a comparison came to: by table the numbers of changes, and each difference."""

    in_logs: Counter[str] = field(default_factory=Counter)
    in_topic: Counter[str] = field(default_factory=Counter)
    buckets_compared: int = 0
    buckets_different: int = 0
    unreadable: int = 0
    found: list[Found] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return how many changes there are of each difference."""
        counted = Counter(each.difference.value for each in self.found)
        return {difference.value: counted[difference.value] for difference in Difference}


def reconcile(  # noqa: PLR0913 (two sides, what they share, and when)
    shards: Sequence[Shard],
    parts: Callable[[Sequence[str]], Sequence[str]],
    comparison: Comparison,
    gather: Gather,
    *,
    known: Mapping[bytes, Document],
    now_s: int,
) -> Outcome:
    """Compare what *shards* agree on with the *parts* of their tables' topics.

    *known* are schemas of messages beside those that the logs bring.

    Raises:
        ShardFailedError: a side could not be read.

    """
    logs = _all(gather([LogSide(shard, comparison) for shard in shards]), "logs")
    outcome = Outcome()
    log_sums = _joined([each.sums for each in logs])
    schemas = {**known, **{i: s for each in logs for i, s in each.schemas.items()}}
    tables = sorted({table for table, _ in log_sums} | set(comparison.selection.tables))
    named = parts(tables) if tables else ()
    topic = _all(gather([TopicSide(part, comparison, schemas) for part in named]), "topic")
    topic_sums = _joined([each.sums for each in topic])
    outcome.unreadable = sum(each.unreadable for each in topic)
    for sums, counter in ((log_sums, outcome.in_logs), (topic_sums, outcome.in_topic)):
        for (table, _), members in sums.items():
            counter[table] += members.changes
    buckets = log_sums.keys() | topic_sums.keys()
    different = frozenset(b for b in buckets if log_sums.get(b) != topic_sums.get(b))
    outcome.buckets_compared, outcome.buckets_different = len(buckets), len(different)
    if different:
        asked = with_wanted(comparison, different)
        sides = [
            _rows(_all(gather([LogSide(shard, asked) for shard in of]), "logs"))
            for of in (shards, at_level_one(shards))
        ]
        stored = _rows(_all(gather([TopicSide(p, asked, schemas) for p in named]), "topic"))
        outcome.found = classified(sides[0], sides[1], stored, now_s=now_s)
    return outcome


def classified(
    agreed: Mapping[bytes, ChangeRow],
    logged: Mapping[bytes, ChangeRow],
    stored: Mapping[bytes, ChangeRow],
    *,
    now_s: int,
) -> list[Found]:
    """Return the differences between what was *agreed* and *stored*.

    *logged* is what any log has. Ordered by table, time and name.
    """
    newest: dict[tuple[str, bytes], int] = {}
    for row in stored.values():
        place = row.table, row.key
        newest[place] = max(newest.get(place, row.time_us), row.time_us)
    found = []
    for name, row in agreed.items():
        if name not in stored:
            found.append(Found(_why_missing(row, newest.get((row.table, row.key)), now_s), row))
    for name, row in stored.items():
        if name not in agreed:
            few = name in logged
            found.append(Found(Difference.UNDER_REPLICATED if few else Difference.EXTRA, row))
    for name, row in logged.items():
        if name not in agreed and name not in stored:
            found.append(Found(Difference.UNDER_REPLICATED, row))
    return sorted(found, key=lambda f: (f.row.table, f.row.time_us, f.row.name))


def _why_missing(row: ChangeRow, newest_us: int | None, now_s: int) -> Difference:
    if row.expires_s is not None and row.expires_s <= now_s:
        return Difference.EXPIRED
    if newest_us is not None and newest_us < row.time_us:
        return Difference.STALE
    return Difference.MISSING


def _joined(sums: Sequence[Mapping[Bucket, Members]]) -> dict[Bucket, Members]:
    """Add up the sums of tasks, none of which has a change of another."""
    joined: dict[Bucket, Members] = {}
    for each in sums:
        for bucket, members in each.items():
            changes, hashes = joined.get(bucket, Members(0, 0))
            joined[bucket] = Members(changes + members.changes, (hashes + members.hashes) & _MASK)
    return joined


def _rows(reports: Sequence[SideReport]) -> dict[bytes, ChangeRow]:
    return {row.name: row for report in reports for row in report.rows}


def _all(reports: Sequence[SideReport], side: str) -> Sequence[SideReport]:
    failed = [f"{number}: {r.problem}" for number, r in enumerate(reports, 1) if r.problem]
    if failed:
        raise ShardFailedError(
            f"{len(failed)} of {len(reports)} parts cannot be read: {failed[0]}",
            place=f"the side of the {side}",
        )
    return reports


def at_level_one(shards: Sequence[Shard]) -> Sequence[Shard]:
    """Return the shards with what any single log has."""
    return [
        replace(
            shard,
            source=replace(shard.source, given={**shard.source.given, "consistency": "ONE"}),
        )
        for shard in shards
    ]

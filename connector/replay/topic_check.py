"""What a run sent to topics, compared with what it is: by sums of buckets, then change by change.

Other messages of the topics do not count, nor how often one came: delivery is at least once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headrace.connector.replay.comparable import check_comparable
from headrace.connector.replay.comparing import (
    ChangeRow,
    Comparison,
    LogSide,
    SideReport,
    TopicSide,
    Wanted,
)
from headrace.connector.replay.delivery import NOTES_MAX, ShardReport, sink_and_encoder
from headrace.connector.replay.engine import Gatherer
from headrace.connector.replay.errors import ShardFailedError, bad_option
from headrace.connector.replay.reconciling import different, joined
from headrace.connector.replay.runs import Run
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, inside
from headrace.plugins import Document

DIFFERENT: Final = "different: "
_BUCKETS: Final = 1024


@dataclass(slots=True)
class TopicCheck:
    """What came of it: a report for each shard, and what the run sent that is in none of them."""

    reports: list[ShardReport] = field(default_factory=list)
    extra: int = 0
    unreadable: int = 0


def check_topics(
    run: Run, shards: Sequence[Shard], known: Mapping[bytes, Document], gather: Gatherer
) -> TopicCheck:
    """Derive the *shards* of *run* once more and look for all of it in the topics.

    *known* are schemas of messages beside those that the logs bring.

    Raises:
        ConfigError: what the sink wrote cannot be read back, or does not name changes.
        ShardFailedError: a part of the topics cannot be read.

    """
    sink = run.target.sink
    if sink is None:
        raise bad_option("RUN", "this run went to a folder")
    with inside(run.target.directory), sink_and_encoder(sink, run.run) as (opened_sink, _):
        check_comparable(opened_sink)
    base = Comparison(
        sink=sink,
        directory=run.target.directory,
        buckets=_BUCKETS,
        selection=Selection(),
        run=run.run,
    )
    logs = _logs(base, shards, gather)
    schemas = {**known, **{i: s for each in logs for i, s in each.schemas.items()}}
    tables = {table for each in logs for table, *_ in each.sums}
    tables.update(table for shard in shards for table in shard.selection.tables)
    parts = _parts(run, sorted(tables)) if tables else ()
    topic = _topic(base, parts, schemas, gather)
    buckets = different(joined(r.sums for r in logs), joined(r.sums for r in topic))
    check = TopicCheck(unreadable=sum(each.unreadable for each in topic))
    wanted: Sequence[SideReport] = logs
    there: frozenset[bytes] = frozenset()
    if buckets:
        narrowed = replace(base, wanted=Wanted(changes=buckets))
        wanted = _logs(narrowed, shards, gather)
        found = _topic(narrowed, parts, schemas, gather)
        there = frozenset(row.name for each in found for row in each.rows)
        if not any(each.problem for each in (*logs, *wanted)):
            check.extra = len(there - {row.name for each in wanted for row in each.rows})
    for shard, summed, looked_into in zip(shards, logs, wanted, strict=True):
        missing = [row for row in looked_into.rows if row.name not in there]
        members = sum(each.members for each in summed.sums.values())
        problem = summed.problem or looked_into.problem
        check.reports.append(_report(shard, members, missing, problem))
    return check


def _report(shard: Shard, members: int, missing: Sequence[ChangeRow], problem: str) -> ShardReport:
    if missing and not problem:
        problem = f"{DIFFERENT}{len(missing)} of {members} changes are not in the topics"
    return ShardReport(
        number=shard.number,
        changes=members,
        delivered=members - len(missing),
        problem=problem,
        notes=[
            f"missing: {row.table} {row.operation} mutation {row.name[:-4].hex()}, "
            f"change {int.from_bytes(row.name[-4:], 'big')}"
            for row in missing[:NOTES_MAX]
        ],
    )


def _logs(base: Comparison, shards: Sequence[Shard], gather: Gatherer) -> Sequence[SideReport]:
    return gather([LogSide(s, replace(base, selection=s.selection)) for s in shards])


def _topic(
    base: Comparison,
    parts: Sequence[str],
    schemas: Mapping[bytes, Document],
    gather: Gatherer,
) -> Sequence[SideReport]:
    reports = gather([TopicSide(part, base, schemas) for part in parts])
    failed = [(part, r.problem) for part, r in zip(parts, reports, strict=True) if r.problem]
    for part, problem in failed:
        raise ShardFailedError(f"cannot be read: {problem}", place=f"topic part {part}")
    return reports


def _parts(run: Run, tables: Sequence[str]) -> Sequence[str]:
    target = run.target
    assert target.sink is not None  # noqa: S101 (looked at before)
    with inside(target.directory), sink_and_encoder(target.sink, run.run) as (sink, _):
        return sink.parts(tables, target.suffix)

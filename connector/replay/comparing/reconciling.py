"""Compares logs, topic and tables: first sums, then differences. Pure, except tasks and the pause.

The topic should have the changes on which the logs agree, and it should fold to the rows of the
table. A table is read before the logs, and both before the topic, so that a change that is written
meanwhile does not appear missing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from headrace.connector.control.jobs import JobText
from headrace.connector.replay.comparing.bucket_sums import (
    Bucket,
    Comparison,
    LogSide,
    Members,
    SideReport,
    Sums,
    TableSide,
    TopicSide,
    Wanted,
)
from headrace.connector.replay.comparing.differences import (
    REPAIRABLE,
    Difference,
    Found,
    FoundRow,
    Key,
    classified,
    differing_rows,
    unexplained,
)
from headrace.connector.replay.comparing.messages import ChangeRow
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.errors import ShardFailedError, bad_option
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, plugin_of
from headrace.plugins import LogArchive, RecordSchema
from headrace.plugins.config.command_line import flag_of

# Runs tasks, several at once; returns their results in order.
Gather = Callable[[Sequence[TopicSide | TableSide]], Sequence[SideReport]]
# Reads the logs of shards, by tasks of these; returns their results in order.
ReadLogs = Callable[[Callable[[Shard], LogSide], Sequence[Shard]], Sequence[SideReport]]
REPAIRED_MAX: Final = 50_000


@dataclass(frozen=True, slots=True)
class Sides:
    """The compared sides: parts of the logs, parts of the topics, and token ranges of the tables.

    `tables` are compared even if no log has changes of them. Unless the logs are *whole*, a change
    that none of them has may be in an omitted log.
    """

    logs: Sequence[Shard]
    parts: Callable[[Sequence[str]], Sequence[str]]
    ranges: Callable[[Sequence[str]], Sequence[Shard]]
    tables: frozenset[str] = frozenset()
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """The current time in seconds; how long a new change may take to arrive; how to wait."""

    now_s: Callable[[], float]
    pause: Callable[[float], None]
    grace_s: float = 0


@dataclass(slots=True)
class Outcome:
    """The result of a comparison: numbers of changes and rows by table, and each difference.

    `repeated` counts messages with the content of another one, which is not a difference.
    `rows_behind` counts rows in which the topic, folded, differs from the table; `rows` has those
    that do not follow from changes in `found`. Rows that expired do not count as differences;
    `expired` has some of them. `settled` are changes that too few logs have, of rows that are equal
    in topic and table. `repairs` has the keys of rows that only the table can repair, by token
    range.
    """

    in_logs: Counter[str] = field(default_factory=Counter)
    in_topic: Counter[str] = field(default_factory=Counter)
    rows_in_table: Counter[str] = field(default_factory=Counter)
    rows_in_topic: Counter[str] = field(default_factory=Counter)
    buckets_compared: int = 0
    buckets_different: int = 0
    unreadable: int = 0
    repeated: int = 0
    rows_behind: int = 0
    rows_expired: int = 0
    expired: Sequence[FoundRow] = ()
    found: list[Found] = field(default_factory=list)
    settled: int = 0
    rows: list[FoundRow] = field(default_factory=list)
    repairs: list[tuple[Shard, frozenset[bytes]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the number of changes and rows of each difference."""
        counted = Counter(each.difference.value for each in self.found)
        counted.update(each.difference.value for each in self.rows)
        counted[Difference.EXPIRED.value] += self.rows_expired
        return {difference.value: counted[difference.value] for difference in Difference}

    @property
    def differs(self) -> bool:
        """Whether there are differences; expired changes and rows do not count."""
        counts = self.counts()
        del counts[Difference.EXPIRED.value]
        return sum(counts.values()) > self.settled


def reconcile(  # noqa: PLR0913 (the sides, and what reads them)
    sides: Sides,
    comparison: Comparison,
    gather: Gather,
    logs: ReadLogs,
    *,
    known: Mapping[bytes, RecordSchema],
    times: Times,
) -> Outcome:
    """Compare the agreed changes of the logs with the topic, and the folded topic with the tables.

    *logs* reads the logs of `sides`, *gather* the rest. *known* are schemas in the form of
    messages, besides those in the logs.

    Raises:
        ShardFailedError: a side could not be read.

    """
    return _Comparing(sides, comparison, gather, logs, dict(known), times).outcome()


class _Comparing:
    """One comparison, from the sums to single differences."""

    def __init__(  # noqa: PLR0913, PLR0917 (as above)
        self,
        sides: Sides,
        comparison: Comparison,
        gather: Gather,
        logs: ReadLogs,
        known: dict[bytes, RecordSchema],
        times: Times,
    ) -> None:
        self._sides = sides
        self._comparison = comparison
        self._gather = gather
        self._logs = logs
        self._schemas = known
        self._times = times
        self._parts: Sequence[str] = ()
        self._ranges: Sequence[Shard] = ()
        self._out = Outcome()

    def outcome(self) -> Outcome:
        """Sum up all sides, and find the differences in buckets that differ."""
        wanted = self._summed()
        if wanted.changes or wanted.rows:
            self._comparison = replace(self._comparison, wanted=wanted)
            self._look()
        return self._out

    def _summed(self) -> Wanted:
        """Return the buckets that differ."""
        out = self._out
        logs = self._read_logs(self._sides.logs)
        agreed = joined(each.sums for each in logs)
        logged = agreed
        if any(each.waiting for each in logs):
            logged = joined(r.sums for r in self._read_logs(at_level_one(self._sides.logs)))
        names = sorted({table for table, *_ in logged} | self._sides.tables)
        self._ranges = self._sides.ranges(names)
        tables = self._read_tables()
        schemas = {name: schema for each in tables for name, schema in each.tables.items()}
        self._schemas |= {schema.schema_id: schema for schema in schemas.values()}
        self._comparison = replace(self._comparison, tables=schemas)
        self._parts = self._sides.parts(names) if names else ()
        topic = self._read_topic()
        stored = joined(each.sums for each in topic)
        rows, folded = (joined(r.row_sums for r in side) for side in (tables, topic))
        out.unreadable = sum(each.unreadable for each in topic)
        out.repeated = sum(each.repeated for each in topic)
        out.rows_expired = sum(each.gone for each in topic)
        out.expired = [FoundRow(Difference.EXPIRED, r) for each in topic for r in each.expired]
        for sums, counter in (
            (agreed, out.in_logs),
            (stored, out.in_topic),
            (rows, out.rows_in_table),
            (folded, out.rows_in_topic),
        ):
            for (table, *_), summed in sums.items():
                counter[table] += summed.members
        changes = different(agreed, stored) | different(agreed, logged)
        rows_differ = different(rows, folded)
        out.buckets_compared = len({*logged, *stored}) + len({*rows, *folded})
        out.buckets_different = len(changes) + len(rows_differ)
        return Wanted(changes, rows_differ)

    def _look(self) -> None:
        """Find single differences."""
        out, comparison = self._out, self._comparison
        if comparison.wanted is None or not comparison.wanted.rows:
            self._ranges = ()
        tables = self._read_tables()
        read_s = self._times.now_s()
        agreed = _rows(self._read_logs(self._sides.logs))
        single = self._read_logs(at_level_one(self._sides.logs))
        topic = self._read_topic()
        now_s = int(self._times.now_s())
        out.found = classified(
            agreed, _rows(single), _rows(topic), now_s=now_s, is_whole=self._sides.is_whole
        )
        in_table, in_topic = (
            {row.name: row for each in side for row in each.states} for side in (tables, topic)
        )
        touched: set[Key] = {key for each in (*single, *topic) for key in each.touched}

        def differing() -> list[FoundRow]:
            return differing_rows(
                in_table, in_topic, comparison.span, now_s=now_s, is_touched=touched.__contains__
            )

        rows = differing()
        on_its_way_s = self._times.grace_s - (self._times.now_s() - read_s)
        if on_its_way_s > 0 and any(r.difference is Difference.EXTRA for r in rows):
            # A row may have been deleted just before it was read.
            self._times.pause(on_its_way_s)
            again = (*self._read_logs(at_level_one(self._sides.logs)), *self._read_topic())
            touched |= {key for each in again for key in each.touched}
            rows = differing()
        self._settle(rows, tables)

    def _settle(self, rows: list[FoundRow], tables: Sequence[SideReport]) -> None:
        """Separate causes from consequences, and record the rows that only the table can repair."""
        out = self._out
        few = [f for f in out.found if f.difference is Difference.UNDER_REPLICATED]
        gone = {(r.row.table, r.row.key) for r in rows}
        if self._comparison.tables:
            compared = [f for f in few if f.row.table in self._comparison.tables]
            out.settled = sum((f.row.table, f.row.key) not in gone for f in compared)
        out.rows = list(unexplained(rows, out.found))
        out.rows_behind = len(rows)
        by_logs = [f for f in out.found if f.difference in REPAIRABLE]
        broken = {
            (each.row.name, each.row.key)
            for each in unexplained(rows, by_logs)
            if each.difference in REPAIRABLE
        }
        for shard, report in zip(self._ranges, tables, strict=True):
            keys = frozenset(s.key for s in report.states if (s.name, s.key) in broken)
            if keys:
                out.repairs.append((shard, keys))

    def _read_logs(self, shards: Sequence[Shard]) -> Sequence[SideReport]:
        reports = self._logs(partial(LogSide, comparison=self._comparison), shards)
        check_all([shard.split for shard in shards], reports, "logs")
        for each in reports:
            self._schemas |= each.schemas
        return reports

    def _read_tables(self) -> Sequence[SideReport]:
        sides = [TableSide(s, self._comparison) for s in self._ranges]
        return read_all(self._gather, sides, "table")

    def _read_topic(self) -> Sequence[SideReport]:
        sides = [TopicSide(part, self._comparison, self._schemas) for part in self._parts]
        return read_all(self._gather, sides, "topic")


def read_all(
    gather: Gather, tasks: Sequence[TopicSide | TableSide], side: str
) -> Sequence[SideReport]:
    """Return the reports of *tasks* about a *side*. Raises ShardFailedError."""
    reports = gather(tasks) if tasks else ()
    names = [task.part if isinstance(task, TopicSide) else task.shard.split for task in tasks]
    check_all(names, reports, side)
    return reports


def check_all(names: Sequence[str], reports: Sequence[SideReport], side: str) -> None:
    """Raise ShardFailedError if a part of a *side* could not be read; *names* are the parts'."""
    problems = [
        f"{name}: {report.problem}"
        for name, report in zip(names, reports, strict=True)
        if report.problem
    ]
    if problems:
        raise ShardFailedError(
            f"{len(problems)} of {len(reports)} parts cannot be read: {problems[0]}",
            place=f"the side of the {side}",
        )


def different(one: Sums, other: Sums) -> frozenset[Bucket]:
    """Return the buckets in which the two sides differ."""
    return frozenset(b for b in one.keys() | other.keys() if one.get(b) != other.get(b))


def joined(sums: Iterable[Sums]) -> Sums:
    """Add up the sums of tasks, which have no changes in common."""
    found: dict[Bucket, Members] = {}
    for each in sums:
        for bucket, summed in each.items():
            found[bucket] = found.get(bucket, Members()).plus(*summed)
    return found


def _rows(reports: Sequence[SideReport]) -> dict[bytes, ChangeRow]:
    return {row.content: row for report in reports for row in report.rows}


def at_level_one(shards: Sequence[Shard]) -> Sequence[Shard]:
    """Return the shards with a source that accepts a single copy of a change."""
    return [
        replace(
            shard,
            source=replace(shard.source, given=_any_copy(shard.source.given)),
        )
        for shard in shards
    ]


def _any_copy(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a source that accepts a single copy of a change, if it has several logs."""
    plugin = plugin_of(given)
    return plugin.any_copy(given) if issubclass(plugin, LogArchive) else given


def plan_repair(
    text: JobText,
    outcome: Outcome,
    shards: Sequence[Shard],
    *,
    asked: str = "",
    called: Callable[[str], str] = flag_of,
) -> Run | None:
    """Plan a run that repairs the live topics; return None if nothing is to repair.

    The run sends changes that the logs agree on from the logs, by name. Rows that the logs do not
    have come from the table, with their whole partition. *asked* is the run of a statement whose
    name it gets, and *called* formats names of options.

    Raises:
        ConfigError: there are too many changes to name one by one, or they have no names.

    """
    names = frozenset(f.row.name for f in outcome.found if f.difference in REPAIRABLE)
    if b"" in names:
        raise bad_option(called("repair"), "the job's source does not name its changes")
    keys = sum(len(keys) for _, keys in outcome.repairs)
    if len(names) + keys > REPAIRED_MAX:
        said = f"{len(names) + keys} changes; at most {REPAIRED_MAX}"
        hint = "replay the time or the keys into the live topics"
        raise bad_option(called("repair"), said, hint)
    chosen: list[Shard] = []
    if names:
        selection = Selection(tokens=shards[0].selection.tokens, names=names)
        chosen += [replace(shard, selection=selection) for shard in shards]
    chosen += [replace(shard, selection=Selection(keys=keys)) for shard, keys in outcome.repairs]
    if not chosen:
        return None
    facts = {"changes": len(names), "keys": keys, "shards": len(chosen)}
    run = Run.new("repair", Target.of_job(text), facts)
    if asked:
        run = replace(run, run=asked, facts=facts | {"is_asked": True})
    with closing(RunTable(text.notes)) as table:
        table.add(run, [replace(each, number=n) for n, each in enumerate(chosen, start=1)])
    return run

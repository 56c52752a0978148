"""Verifies a run: reads its shards again, and compares their changes with the delivered ones.

The files of a shard must have each of its changes once. All shards share the topics; there the sums
of buckets are compared, then single changes. Messages of others are ignored, and so are
duplicates, because delivery is at least once.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.columns import ARROW_SCHEMA, record_batch
from headrace.connector.replay.comparing.bucket_sums import (
    Comparison,
    LogSide,
    Members,
    TopicSide,
    Wanted,
    hash64,
    known_as_sent,
    parts_of,
)
from headrace.connector.replay.comparing.messages import ChangeRow
from headrace.connector.replay.comparing.reconciling import (
    Gather,
    ReadLogs,
    different,
    joined,
    read_all,
)
from headrace.connector.replay.comparing.timed_sides import gathering, performing, reading
from headrace.connector.replay.delivery import NOTES_MAX, Halted, ShardReport, Work
from headrace.connector.replay.engine import Engine
from headrace.connector.replay.errors import FileBrokenError, ShardFailedError
from headrace.connector.replay.parquet import files_of
from headrace.connector.replay.run_metrics import CompareMeasures
from headrace.connector.replay.runs import Run, RunTable, ShardState
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, batches, encoded_changes, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding, HeadraceError, RecordSchema

NUMBERS_MAX: Final = 10  # Shards that a message names.
_BUCKETS: Final = 1024
_COLUMNS: Final = ["table", "operation", "write_time", "mutation", "index", "key"]
_DIFFERENT: Final = "different: "


def verify(
    table: RunTable,
    run: Run,
    engine: Engine,
    known: Mapping[bytes, RecordSchema],
    measures: CompareMeasures,
) -> int:
    """Compare all shards of *run*; store PASS, DIFF or FAIL, and return how many differ.

    Changes that the run sent to topics and that are in none of its shards count as one more
    difference. *known* are schemas of messages; *measures* counts what is read.

    Raises:
        ConfigError: the sink's messages cannot be read back, or do not name changes.
        ShardFailedError: some shards could not be compared (the others were), or a part of the
            topics cannot be read.
        HeadraceError: the delivered files or messages cannot be read.

    """
    rows = {row.shard.number: row for row in table.shards(run.run)}
    extra = 0
    with table.executing(run.run):
        if run.target.sink is None:
            reports: list[ShardReport] = []
            checks = [Check(r.shard, run.target, run.run, r.attempt) for r in rows.values()]
            perform = performing(engine.perform, measures)
            perform(checks, begun=lambda _: None, ended=lambda _, made: reports.append(made))
        else:
            shards = [row.shard for row in rows.values()]
            with engine.once(shards) as logs:
                gather, read = gathering(engine.gather, measures), reading(logs, measures)
                reports, extra = _in_topics(
                    run, run.target.sink, shards, known, gather=gather, read=read
                )
        states = [_state(report) for report in reports]
        for report, state in zip(reports, states, strict=True):
            if {state, rows[report.number].state} != {ShardState.PASS}:
                table.end(run.run, report, state)
    failed = [r for r, state in zip(reports, states, strict=True) if state is ShardState.FAIL]
    if failed:
        numbers = ", ".join(str(report.number) for report in failed[:NUMBERS_MAX])
        raise ShardFailedError(
            f"{len(failed)} of {len(reports)} shards could not be compared; "
            f"the first: {failed[0].problem}",
            place=f"run {run.run}: shards {numbers}",
            hint="these are not verified: fix the cause and verify again",
        )
    return states.count(ShardState.DIFF) + bool(extra)


def _state(report: ShardReport) -> ShardState:
    if not report.problem:
        return ShardState.PASS
    return ShardState.DIFF if report.problem.startswith(_DIFFERENT) else ShardState.FAIL


@dataclass(frozen=True, slots=True)
class Check(Work):
    """Compares a shard's files with the changes of the shard. Changes nothing."""

    def describe(self) -> str:
        """Return a description, for users of the engine."""
        return f"{self.run}: verify shard {self.shard.number}"

    def unless(self, halted: Halted) -> ShardReport:
        """Compare to the end, even if *halted*."""
        del halted
        try:
            wanted, found = _summed(self._derived()), _summed(self._delivered())
        except HeadraceError as error:
            return ShardReport(number=self.shard.number, problem=f"{error.code}: {error}")
        problem = ""
        if wanted != found:
            problem = (
                f"{_DIFFERENT}{found.members} changes in its files, {wanted.members} in the logs"
            )
            problem += "" if found.members != wanted.members else ", and other ones"
        return ShardReport(
            number=self.shard.number,
            changes=wanted.members,
            delivered=found.members,
            problem=problem,
        )

    def _derived(self) -> Iterator[pa.RecordBatch]:
        encoder = Encoder(Encoding(codec=self.target.format), joined=True)
        with opened(self.shard) as source:
            for batch in batches(source, self.shard):
                encoded = self.shard.selection.apply(encoded_changes(encoder, batch))
                yield record_batch(encoded, ARROW_SCHEMA)

    def _delivered(self) -> Iterator[pa.RecordBatch]:
        target, number = self.target, self.shard.number
        if not target.lake:
            files: Iterable[Path] = files_of(target.folder, self.run, number)
        else:
            from headrace.connector.replay.lakehouse_tables import lake_of, shard_files  # noqa: PLC0415 (an extra)

            with closing(lake_of(target.lake, target.folder, target.catalog)) as lake:
                files = list(shard_files(lake, self.run, number))
        for path in files:
            yield from _rows(path)


def _rows(path: Path) -> Iterator[pa.RecordBatch]:
    """Read the names of the changes in a file. Raises FileBrokenError."""
    hint = "`headrace replay run` of the same run writes it again"
    try:
        with pq.ParquetFile(path) as file:
            types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            for name in _COLUMNS:
                wanted, found = ARROW_SCHEMA.field(name).type, types.get(name, "none")
                if found != wanted:
                    said = f"expected a column {name} of {wanted}, found {found}"
                    raise FileBrokenError(said, place=str(path), hint=hint)
            yield from file.iter_batches(columns=_COLUMNS)
    except (pa.ArrowException, OSError) as error:
        said = f"cannot be read: {' '.join(str(error).split())}"
        raise FileBrokenError(said, place=str(path), hint=hint) from error


def _summed(batches: Iterable[pa.RecordBatch]) -> Members:
    """Add up the names of changes, which are the same in every run."""
    total = Members()
    for rows in batches:
        columns = {name: rows.column(name) for name in _COLUMNS}
        columns["write_time"] = columns["write_time"].cast(pa.int64())
        named = zip(*(column.to_pylist() for column in columns.values()), strict=True)
        hashes = [hash64(repr(each).encode()) for each in named]
        total = total.plus(len(hashes), sum(hashes))
    return total


def _in_topics(  # noqa: PLR0913 (what is compared, and what reads it)
    run: Run,
    sink: Mapping[str, Any],
    shards: Sequence[Shard],
    known: Mapping[bytes, RecordSchema],
    *,
    gather: Gather,
    read: ReadLogs,
) -> tuple[list[ShardReport], int]:
    """Look for all changes of *shards* in the topics, and for others that the run sent.

    Returns a report for each shard, and the number of changes that are in none of them.
    """
    directory, origin = run.target.directory, shards[0].source.origin
    sent = known_as_sent(sink, directory, origin, known)
    base = Comparison(
        sink=sink,
        origin=origin,
        directory=directory,
        buckets=_BUCKETS,
        selection=Selection(),
        run=run.run,
    )
    logs = read(partial(_log_side, base), shards)
    schemas = {**sent, **{i: s for each in logs for i, s in each.schemas.items()}}
    tables = {table for each in logs for table, *_ in each.sums}
    tables.update(table for shard in shards for table in shard.selection.tables)
    parts = parts_of(base, sorted(tables), run.target.suffix) if tables else ()
    topic = read_all(gather, [TopicSide(part, base, schemas) for part in parts], "topic")
    if unreadable := sum(each.unreadable for each in topic):
        sys.stderr.write(f"unreadable: {unreadable} messages of the run\n")
    wanted, there, extra = logs, frozenset[bytes](), 0
    if buckets := different(joined(r.sums for r in logs), joined(r.sums for r in topic)):
        narrowed = replace(base, wanted=Wanted(changes=buckets))
        wanted = read(partial(_log_side, narrowed), shards)
        found = read_all(gather, [TopicSide(part, narrowed, schemas) for part in parts], "topic")
        there = frozenset(row.content for each in found for row in each.rows)
        if not any(each.problem for each in (*logs, *wanted)):
            extra = len(there - {row.content for each in wanted for row in each.rows})
    if extra:
        sys.stderr.write(f"extra: {extra} changes that the run sent are in no shard\n")
    reports = []
    for shard, summed, looked_into in zip(shards, logs, wanted, strict=True):
        missing = [row for row in looked_into.rows if row.content not in there]
        members = sum(each.members for each in summed.sums.values())
        problem = summed.problem or looked_into.problem
        reports.append(_report(shard, members, missing, problem))
    return reports, extra


def _report(shard: Shard, members: int, missing: Sequence[ChangeRow], problem: str) -> ShardReport:
    if missing and not problem:
        problem = f"{_DIFFERENT}{len(missing)} of {members} changes are not in the topics"
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


def _log_side(base: Comparison, shard: Shard) -> LogSide:
    return LogSide(shard, replace(base, selection=shard.selection))

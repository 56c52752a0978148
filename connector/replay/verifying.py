"""What a run delivered, compared with what it should have: derived once more, shard by shard."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.columns import ARROW_SCHEMA, record_batch
from headrace.connector.replay.delivery import ShardReport
from headrace.connector.replay.engine import Engine
from headrace.connector.replay.errors import FileBrokenError, ShardFailedError
from headrace.connector.replay.execution import Performer
from headrace.connector.replay.files import files_of
from headrace.connector.replay.runs import Run, RunTable, ShardRow, ShardState
from headrace.connector.replay.shards import batches, encoded_changes, opened
from headrace.connector.replay.sums import Sum
from headrace.connector.replay.topic_check import DIFFERENT, TopicCheck, check_topics
from headrace.connector.replay.work import Work
from headrace.connector.serde import Encoder
from headrace.plugins import Document, Encoding, HeadraceError

NUMBERS_MAX: Final = 10  # Of shards that a message names.
_COLUMNS: Final = ["table", "operation", "write_time", "mutation", "index", "key"]


@dataclass(frozen=True, slots=True)
class Check(Work):
    """Compares a shard's files with what the shard is, and changes nothing."""

    def __call__(self) -> ShardReport:
        """Do it."""
        try:
            wanted = self._wanted()
            found = self._found()
        except HeadraceError as error:
            return ShardReport(number=self.shard.number, problem=f"{error.code}: {error}")
        problem = ""
        if wanted != found:
            problem = (
                f"{DIFFERENT}{found.members} changes in its files, {wanted.members} in the logs"
            )
            problem += "" if found.members != wanted.members else ", and other ones"
        return ShardReport(
            number=self.shard.number,
            changes=wanted.members,
            delivered=found.members,
            problem=problem,
        )

    def _wanted(self) -> Sum:
        encoder = Encoder(Encoding(codec=self.target.format), joined=True)
        total = Sum()
        with opened(self.shard) as source:
            for batch in batches(source, self.shard):
                encoded = self.shard.selection.apply(encoded_changes(encoder, batch))
                total = total.with_all(_members(record_batch(encoded)))
        return total

    def _files(self) -> Iterable[Path]:
        target, number = self.target, self.shard.number
        if not target.lake:
            return files_of(target.folder, self.run, number)
        from headrace.connector.replay.lakes import lake_of, shard_files  # noqa: PLC0415 (an extra)

        lake = lake_of(target.lake, target.folder, target.catalog)
        return shard_files(lake, self.run, number)

    def _found(self) -> Sum:
        total = Sum()
        for path in self._files():
            for rows in _rows(path):
                total = total.with_all(_members(rows))
        return total


def _rows(path: Path) -> Iterator[pa.RecordBatch]:
    """Read what names the changes of a file. Raises FileBrokenError."""
    hint = "`headrace replay run` of the same run writes it again"
    try:
        with pq.ParquetFile(path) as file:
            for name in _COLUMNS:
                wanted, index = (
                    ARROW_SCHEMA.field(name).type,
                    file.schema_arrow.get_field_index(name),
                )
                found = file.schema_arrow.field(index).type if index >= 0 else "none"
                if found != wanted:
                    said = f"expected a column {name} of {wanted}, found {found}"
                    raise FileBrokenError(said, place=str(path), hint=hint)
            yield from file.iter_batches(columns=_COLUMNS)
    except (pa.ArrowException, OSError) as error:
        said = f"cannot be read: {' '.join(str(error).split())}"
        raise FileBrokenError(said, place=str(path), hint=hint) from error


def verify(table: RunTable, run: Run, engine: Engine, known: Mapping[bytes, Document]) -> int:
    """Compare all shards of *run*; note PASS, DIFF or FAIL, and return how many differ.

    What a run sent to topics that is in none of its shards counts as one more. *known* are schemas
    of messages.

    Raises:
        ConfigError: what the sink wrote cannot be read back.
        ShardFailedError: some shards could not be compared; the others are.
        HeadraceError: what was delivered cannot be read.

    """
    rows = {row.shard.number: row for row in table.shards(run.run)}
    extra = 0
    with table.executing(run.run):
        if run.target.sink is None:
            reports = _in_folder(run, list(rows.values()), engine.perform)
        else:
            found = check_topics(run, [r.shard for r in rows.values()], known, engine.gather)
            reports, extra = found.reports, found.extra
            _tell(found)
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
            hint="nothing is known of these: mend what is wrong and verify again",
        )
    return states.count(ShardState.DIFF) + bool(extra)


def _state(report: ShardReport) -> ShardState:
    if not report.problem:
        return ShardState.PASS
    return ShardState.DIFF if report.problem.startswith(DIFFERENT) else ShardState.FAIL


def _in_folder(run: Run, rows: Sequence[ShardRow], perform: Performer) -> Sequence[ShardReport]:
    reports: list[ShardReport] = []
    checks = [Check(row.shard, run.target, run.run, row.attempt) for row in rows]
    perform(checks, begun=lambda _: None, ended=lambda _, report: reports.append(report))
    return reports


def _tell(found: TopicCheck) -> None:
    if found.extra:
        sys.stderr.write(f"extra: {found.extra} changes that the run sent are in no shard\n")
    if found.unreadable:
        sys.stderr.write(f"unreadable: {found.unreadable} messages of the run\n")


def _members(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Yield what names each change, the same in every run."""
    place = rows.schema.names.index("write_time")
    times = rows.column(place).cast(pa.int64())
    columns = [
        times if name == "write_time" else rows.column(rows.schema.names.index(name))
        for name in _COLUMNS
    ]
    for member in zip(*(column.to_pylist() for column in columns), strict=True):
        yield repr(member).encode()

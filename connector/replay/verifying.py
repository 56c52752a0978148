"""What a run delivered, compared with what it should have: derived once more, shard by shard."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.columns import record_batch
from headrace.connector.replay.delivery import ShardReport
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.execution import Performer
from headrace.connector.replay.parquet import files_of
from headrace.connector.replay.runs import Run, RunTable, ShardState
from headrace.connector.replay.shards import batches, encoded_changes, opened
from headrace.connector.replay.sums import Sum
from headrace.connector.replay.work import Work
from headrace.connector.serde import Encoder
from headrace.plugins import Encoding, HeadraceError

_COLUMNS: Final = ["table", "operation", "write_time", "mutation", "index", "key"]
_DIFFERENT: Final = "different: "


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
                f"{_DIFFERENT}{found.members} changes in its files, {wanted.members} in the logs"
            )
            problem += "" if found.members != wanted.members else ", and other ones"
        return ShardReport(
            number=self.shard.number,
            changes=wanted.members,
            delivered=found.members,
            problem=problem,
        )

    def _wanted(self) -> Sum:
        encoder = Encoder(Encoding(codec=self.target.format))
        total = Sum()
        with opened(self.shard) as source:
            for batch in batches(source, self.shard):
                encoded = self.shard.selection.apply(encoded_changes(encoder, batch))
                total = total.with_all(_members(record_batch(encoded)))
        return total

    def _found(self) -> Sum:
        total = Sum()
        folder = Path(self.target.directory) / self.target.path
        for path in files_of(folder, self.run, self.shard.number):
            with pq.ParquetFile(path) as file:
                for rows in file.iter_batches(columns=_COLUMNS):
                    total = total.with_all(_members(rows))
        return total


def verify(table: RunTable, run: Run, perform: Performer) -> int:
    """Compare all shards of *run*; note PASS or DIFF, and return how many differ.

    Raises:
        ConfigError: the target is no folder.
        HeadraceError: a shard cannot be compared.

    """
    if run.target.sink is not None:
        hint = "headrace reconcile compares topics"
        raise bad_option("RUN", "this run went to topics", hint)
    rows = {row.shard.number: row for row in table.shards(run.run)}
    reports: dict[int, ShardReport] = {}

    def ended(work: Work, report: ShardReport) -> None:
        reports[work.shard.number] = report

    with table.executing(run.run):
        checks = [Check(r.shard, run.target, run.run, r.attempt) for r in rows.values()]
        perform(checks, begun=lambda _: None, ended=ended)
        for number, report in reports.items():
            different = report.problem.startswith(_DIFFERENT)
            if report.problem and not different:
                table.end(run.run, report, ShardState.FAIL)
            elif different or rows[number].state is not ShardState.PASS:
                table.end(run.run, report, ShardState.DIFF if different else ShardState.PASS)
    return sum(bool(report.problem) for report in reports.values())


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

"""`headrace reconcile`: logs, topic and tables, a report, and a plan that repairs."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from headrace.connector.commands.bulk.replay import DIFFERENCES_STATUS, selection_of
from headrace.connector.control.jobs import JobText, job_text, table_source
from headrace.connector.replay.comparing.bucket_sums import (
    SLICE_US,
    Comparison,
    known_as_sent,
    parts_of,
)
from headrace.connector.replay.comparing.reconciling import (
    Outcome,
    Sides,
    Times,
    plan_repair,
    reconcile,
)
from headrace.connector.replay.comparing.reporting import write_report
from headrace.connector.replay.delivery import sink_and_encoder
from headrace.connector.replay.engine import engine
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.options import ReconcileOptions
from headrace.connector.replay.planning import Bounds, Planned, planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, SourceSpec, inside, origin_of, plugin_of
from headrace.connector.replay.stream.checkpoint import known_schemas
from headrace.plugins import NO_ORIGIN, Operation, RecordSchema, SinkOptions, TableReading

_SLICES: Final = 24  # Of a time that is bounded on both sides.
_US: Final = 1_000_000


def main(given: ReconcileOptions) -> int:
    """Compare; return 0 when nothing differs, else 4."""
    text = job_text(Path(given.job), given.job_name)
    known = known_as_sent(
        text.sink, str(text.directory), origin_of(text.source), known_schemas(text), text.bounds
    )
    selection = selection_of(given)
    _check_operations(text, selection)
    at_s = time.time()
    if selection.to_us is None:  # What is on its way is not missing.
        selection = replace(selection, to_us=int(at_s - given.grace) * _US)
    spec = SourceSpec.of_job(text)
    bounds = Bounds(after=given.after, until=given.until)
    plan = planned(spec, selection, bounds=bounds)
    for finding in plan.findings:
        sys.stderr.write(f"{finding.result.value}: {finding.message}\n")
    outcome = _compared(given, text, selection, plan, at_s=int(at_s), known=known)
    folder = Path(given.report) if given.report else text.directory / "reconcile"
    title = f"{text.name}: logs, topic and tables"
    summary = write_report(
        folder, outcome, origin_of(text.source), plain_keys=given.plain_keys, title=title
    )
    sys.stdout.writelines(f"{name:<18}{n}\n" for name, n in summary["differences"].items())
    sys.stdout.write(
        f"{outcome.in_logs.total()} changes in the logs, {outcome.in_topic.total()} in the topic; "
        f"{outcome.rows_in_table.total()} rows in tables, {outcome.rows_in_topic.total()} from the "
        f"topic; report: {folder}\n"
    )
    if outcome.repeated:
        sys.stdout.write(f"{outcome.repeated} messages in the topic repeat another\n")
    sys.stdout.writelines(f"note: {note}\n" for note in outcome.notes)
    run = plan_repair(text, outcome, plan.shards) if given.repair else ""
    if run:
        sys.stdout.write(f"headrace replay run {given.called} {run}\n")
    return DIFFERENCES_STATUS if outcome.differs else 0


def _compared(  # noqa: PLR0913 (what is compared, and as of when)
    given: ReconcileOptions,
    text: JobText,
    selection: Selection,
    plan: Planned,
    *,
    at_s: int,
    known: Mapping[bytes, RecordSchema],
) -> Outcome:
    comparison = Comparison(
        sink=dict(text.sink),
        origin=origin_of(text.source),
        directory=str(text.directory),
        buckets=given.buckets,
        selection=selection,
        at_s=at_s,
        slice_us=_slice_us(selection),
    )
    why_not = "--no-table" if given.no_table else _why_no_table(text, selection)
    sides = Sides(
        plan.shards,
        partial(parts_of, comparison),
        lambda tables: [] if why_not else _ranges(text, selection, tables, given.table_shards),
        tables=selection.tables | frozenset(text.source.get("tables", ())),
        is_whole=not (selection.tokens or given.after or given.until),
    )
    with engine(given.master) as used:
        outcome = reconcile(
            sides,
            comparison,
            used.gather,
            known=known,
            times=Times(time.time, time.sleep, given.grace),
        )
    if why_not:
        outcome.notes.append(f"tables were not compared: {why_not}")
    return outcome


def _check_operations(text: JobText, selection: Selection) -> None:
    """Refuse to select one of two operations that Debezium's envelope does not distinguish."""
    alike = {Operation.DELETE.value, Operation.DELETE_PARTITION.value}
    if text.sink.get("envelope") == "debezium" and len(alike & selection.operations) == 1:
        said = "Debezium's envelope has the same `op` for DELETE and DELETE_PARTITION"
        raise bad_option("--operations", said, "name both")


def _why_no_table(text: JobText, selection: Selection) -> str:
    """Return why a topic cannot be folded and compared with tables; empty when it can."""
    plugin = plugin_of(text.source)
    if not issubclass(plugin, TableReading):
        return "the job's source has no tables that can be read"
    if problem := plugin.table_problem(text.source):
        return f"{problem.key}: {problem.message}"
    if selection.operations or selection.tokens:
        return "operations or tokens are selected, and rows are of all of them"
    with (
        inside(str(text.directory)),
        sink_and_encoder(text.sink, "reconcile", NO_ORIGIN) as (sink, _),
    ):
        encoding = sink.encoding()
        has_chain = bool(isinstance(sink.config, SinkOptions) and sink.config.transforms)
    if has_chain or (encoding.codec, encoding.envelope) != ("avro", "cep44"):
        return "only Avro in the envelope cep44, without transforms, tells enough to be folded"
    return ""


def _ranges(
    text: JobText, selection: Selection, tables: Sequence[str], count: int
) -> Sequence[Shard]:
    """Return the ranges of tokens of all *tables*, *count* of each."""
    keys = Selection(keys=selection.keys)
    chosen = [table for table in tables if not selection.tables or table in selection.tables]
    found: list[Shard] = []
    for table in chosen:
        spec = SourceSpec(
            given=table_source(text, table), directory=str(text.directory), job=text.name
        )
        found += planned(spec, keys, shards=count).shards
    return found


def _slice_us(selection: Selection) -> int:
    """Return how long a slice of time is."""
    if selection.from_us is None or selection.to_us is None:
        return SLICE_US
    return min(SLICE_US, max(1, (selection.to_us - selection.from_us) // _SLICES))

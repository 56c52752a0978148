"""`headrace reconcile`: the logs against the topic, a report, and a plan that repairs."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headrace.connector.job import JobText, job_text
from headrace.connector.replay.checkpoint import checkpoint_of
from headrace.connector.replay.command import add_selection, selection_of
from headrace.connector.replay.comparing import Comparison
from headrace.connector.replay.delivery import Target, sink_and_encoder
from headrace.connector.replay.engine import engine
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.planning import Bounds, Planned, planned
from headrace.connector.replay.reconciling import Difference, Outcome, reconcile
from headrace.connector.replay.reporting import write_report
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import SourceSpec, inside
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins import Document

BUCKETS: Final = 1_024
GRACE_SECONDS: Final = 60
REPAIRED_MAX: Final = 50_000
DIFFERENCES_STATUS: Final = 4
_US: Final = 1_000_000
_REPAIRABLE: Final = (Difference.MISSING, Difference.STALE)


def main(arguments: Sequence[str]) -> int:
    """Compare; return 0 when nothing differs, else 4."""
    given = _parser().parse_args(arguments)
    text = job_text(given.job)
    selection = selection_of(given)
    now_s = int(time.time())
    if selection.to_us is None:  # What is on its way is not missing.
        selection = replace(selection, to_us=(now_s - given.grace) * _US)
    spec = SourceSpec(given=dict(text.source), directory=str(text.directory), job=text.name)
    plan = planned(spec, selection, bounds=Bounds(after=given.after, until=given.until))
    outcome = _compared(given, text, selection, plan, now_s)
    folder = given.report or text.directory / "reconcile"
    title = f"{text.name}: logs and topic"
    summary = write_report(folder, outcome, plain_keys=given.plain_keys, title=title)
    for name, count in summary["differences"].items():
        sys.stdout.write(f"{name:<18}{count}\n")
    sys.stdout.write(
        f"{outcome.in_logs.total()} changes in the logs, {outcome.in_topic.total()} in the topic; "
        f"report: {folder}\n"
    )
    broken = [f for f in outcome.found if f.difference in _REPAIRABLE]
    if given.repair and broken:
        names = frozenset(found.row.name for found in broken)
        sys.stdout.write(f"headrace replay run {given.job} {_repair(text, plan, names)}\n")
    return DIFFERENCES_STATUS if outcome.found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace reconcile",
        description="Compare what the logs agree on with the topic; exit 4 if they differ.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml")
    add_selection(parser)
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="sums of each table (1024)")
    parser.add_argument(
        "--grace", type=int, default=GRACE_SECONDS, metavar="SECONDS", help="of now, left out (60)"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="where the report goes")
    parser.add_argument("--plain-keys", action="store_true", help="keys as they are, not hashed")
    parser.add_argument("--repair", action="store_true", help="plan a run into the live topic")
    parser.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    return parser


def _compared(
    given: argparse.Namespace, text: JobText, selection: Selection, plan: Planned, now_s: int
) -> Outcome:
    comparison = Comparison(
        sink=dict(text.sink),
        directory=str(text.directory),
        buckets=given.buckets,
        selection=selection,
    )
    with engine(given.master) as used:
        return reconcile(
            plan.shards,
            lambda tables: _parts(text, tables),
            comparison,
            used.gather,
            known=known_schemas(text),
            now_s=now_s,
        )


def _parts(text: JobText, tables: Sequence[str]) -> Sequence[str]:
    with inside(str(text.directory)), sink_and_encoder(text.sink, "reconcile") as (sink, _):
        return sink.parts(tables)


def known_schemas(text: JobText) -> Mapping[bytes, Document]:
    """Return the schemas of values that the job's state knows, or its checkpoint on Spark."""
    kept = checkpoint_of(text.state, text.name).schemas()
    if not text.state.exists():
        return kept
    store = SqliteStore.open(text.state, text.name, create=False)
    try:
        return {**kept, **{schema.schema_id: schema.value for schema in store.schemas()}}
    finally:
        store.close()


def _repair(text: JobText, plan: Planned, names: frozenset[bytes]) -> str:
    """Plan a run of just these changes into the live topics; return its name."""
    if len(names) > REPAIRED_MAX:
        hint = "replay the time or the keys with `headrace replay plan --into-live`"
        raise bad_option("--repair", f"{len(names)} changes; at most {REPAIRED_MAX}", hint)
    selection = Selection(tokens=plan.shards[0].selection.tokens, names=names)
    facts = {"changes": len(names), "shards": len(plan.shards)}
    run = Run.new("repair", Target.of_job(text), facts)
    table = RunTable(text.state)
    try:
        table.add(run, [replace(shard, selection=selection) for shard in plan.shards])
    finally:
        table.close()
    return run.run

"""`headrace backfill`: what is in a table now, into the job's sink, while live changes flow."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.connector.job import JobText, job_text
from headrace.connector.replay.command import add_lake, in_lake, rate_of, summary
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.engine import engine
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.execution import execute
from headrace.connector.replay.planning import planned
from headrace.connector.replay.run_metrics import RunMeasures, add_metrics, telling
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection, token_range
from headrace.connector.replay.shards import SourceSpec

SHARDS: Final = 64
TABLE_PLUGIN: Final = "cassandra-table"
_SHARED: Final = ("contact_points", "username", "password", "tls_ca")


def main(arguments: Sequence[str]) -> int:
    """Plan a backfill, and execute it unless only the plan is asked for."""
    given = _parser().parse_args(arguments)
    text = job_text(given.job)
    selection = Selection(tokens=(token_range(given.token_range),) if given.token_range else ())
    spec = SourceSpec(
        given=table_source(text, given.table), directory=str(text.directory), job=text.name
    )
    target = Target.of_job(text, folder=given.to_folder, suffix=given.suffix)
    plan = planned(spec, selection, shards=given.shards)
    target = in_lake(replace(target, rate=rate_of(given)), given)
    run = Run.new("backfill", target, {"table": given.table, "shards": len(plan.shards)})
    table = RunTable(text.state)
    try:
        table.add(run, plan.shards)
        sys.stdout.write(f"run {run.run}: {len(plan.shards)} ranges of {given.table}\n")
        if given.plan:
            return 0
        measures = RunMeasures(run.run)
        with engine(given.master) as used, telling(given, text.name, measures):
            execute(table, run, used.perform, measures, width=used.width)
        sys.stdout.write(summary(run, table.shards(run.run)))
    finally:
        table.close()
    return 0


def table_source(text: JobText, table: str) -> Mapping[str, Any]:
    """Return the source that reads *table* where the job's source has its contact points.

    Raises:
        ConfigError: it has none.

    """
    if not text.source.get("contact_points"):
        hint = "give the job's source contact_points: a table is read by CQL"
        raise bad_option("source.contact_points", "is required for a backfill", hint)
    shared = {name: text.source[name] for name in _SHARED if name in text.source}
    return {"plugin": TABLE_PLUGIN, "table": table, **shared}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace backfill",
        description="Send what is in a table now, with its write times, into the job's sink.",
        epilog="A backfill that was interrupted goes on with `headrace replay run JOB.yaml RUN`.",
    )
    parser.add_argument("job", type=Path, metavar="JOB.yaml")
    parser.add_argument("table", metavar="KEYSPACE.TABLE")
    parser.add_argument("--plan", action="store_true", help="only say what would be done")
    parser.add_argument("--shards", type=int, default=SHARDS, help="ranges of tokens (64)")
    parser.add_argument("--token-range", metavar="START:END", help="without START, with END")
    parser.add_argument("--rate", type=float, default=0, help="changes per second, of all tasks")
    parser.add_argument("--to-folder", metavar="DIR", default="", help="Parquet files instead")
    add_lake(parser)
    parser.add_argument("--suffix", default="", help="of the topics, if not the live ones")
    parser.add_argument("--master", help="of Spark; by default local[*]; `none`: without Spark")
    add_metrics(parser)
    return parser

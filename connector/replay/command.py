"""`headrace replay`: index, plan, run, status, verify; and catch-up."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.job import JobText, job_text
from headrace.connector.replay.catch_up_command import catch_up
from headrace.connector.replay.checkpoint import known_schemas
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.engine import engine
from headrace.connector.replay.errors import ArchiveGapError, bad_option
from headrace.connector.replay.execution import execute
from headrace.connector.replay.keys import keys_in
from headrace.connector.replay.lakes import check_lake
from headrace.connector.replay.options import (
    ICEBERG,
    refuse_contradictions,
    refuse_empty,
    shards_of,
)
from headrace.connector.replay.parsers import CATCH_UP, INDEX
from headrace.connector.replay.planning import Bounds, Planned, by_node, planned
from headrace.connector.replay.run_metrics import RunMeasures, telling
from headrace.connector.replay.runs import Run, RunTable, ShardRow, ShardState
from headrace.connector.replay.selection import (
    Selection,
    names_in,
    operations_in,
    time_us,
    token_range,
)
from headrace.connector.replay.shards import SourceSpec
from headrace.connector.replay.verifying import verify
from headrace.connector.replay.work import Search

DIFFERENCES_STATUS: Final = 4
SIDE_SUFFIX: Final = ".replay"
_SHOWN_MAX: Final = 16


def main(given: argparse.Namespace) -> int:
    """Do what `replay_parser` was given; return the exit status."""
    refuse_empty(given)
    if given.verb == CATCH_UP:
        return catch_up(given)
    text = job_text(given.job, None)
    if given.verb == INDEX:
        return _index(given, text)
    table = RunTable(text.notes)
    try:
        match given.verb:
            case "plan":
                return _plan(given, text, table)
            case "run":
                return _run(given, text, table)
            case "status":
                return _status(given, table)
            case _:
                return _verify(given, text, table)
    finally:
        table.close()


def in_lake(target: Target, given: argparse.Namespace) -> Target:
    """Return *target* with the lake that --lake and --catalog say.

    Raises:
        ConfigError: they do not go together.
        LakeMissingError: its library is not there.

    """
    if given.catalog and given.lake != ICEBERG:
        raise bad_option("--catalog", "is of Iceberg tables", f"give --lake {ICEBERG}")
    if not given.lake:
        return target
    if not target.path:
        raise bad_option("--lake", "is of files in a folder", "give --to-folder")
    check_lake(given.lake)
    return replace(target, lake=given.lake, catalog=given.catalog or "")


def _index(given: argparse.Namespace, text: JobText) -> int:
    spec = SourceSpec.of_job(text)
    with engine(given.master) as used:
        sizes = used.gather([Search(each) for each in by_node(spec)])
    sys.stdout.write(f"{sum(sizes)} bytes of {len(sizes)} logs were new; see {spec.cache}\n")
    return 0


def _plan(given: argparse.Namespace, text: JobText, table: RunTable) -> int:
    refuse_contradictions(given)
    selection, rate, shards = selection_of(given), rate_of(given), shards_of(given)
    spec = SourceSpec.of_job(text)
    if given.accept_gaps:
        spec = spec.behind_gaps()
    target = Target.of_job(
        text,
        folder=given.to_folder or "",
        codec=given.format or "avro",
        suffix="" if given.into_live else given.suffix or SIDE_SUFFIX,
        instead="--into-live",
    )
    target = in_lake(replace(target, rate=rate), given)
    bounds = Bounds(after=given.after or "", until=given.until or "")
    plan = planned(spec, selection, bounds=bounds, shards=shards)
    run = Run.new("replay", target, _facts(plan))
    for finding in plan.findings:
        sys.stderr.write(f"{finding.result.value}: {finding.message}\n")
    if plan.refusals and not given.accept_gaps:
        raise ArchiveGapError(
            "; ".join(finding.message for finding in plan.refusals[:5]),
            place=str(given.job),
            hint="mend the archive, or say --accept-gaps",
        )
    table.add(run, plan.shards)
    _print_plan(run, plan, given)
    return 0


def selection_of(given: argparse.Namespace) -> Selection:
    """Return what --tables, --operations and the others select."""
    return Selection(
        tables=names_in(given.tables, "--tables"),
        operations=operations_in(given.operations, "--operations"),
        from_us=time_us(given.since, "--from") if given.since else None,
        to_us=time_us(given.before, "--to") if given.before else None,
        tokens=(token_range(given.token_range),) if given.token_range else (),
        keys=keys_in(given.keys_file) if given.keys_file else frozenset(),
    )


def rate_of(given: argparse.Namespace) -> float:
    """Return the changes per second that `--rate` allows; 0 is no bound."""
    rate: float = given.rate
    if not 0 <= rate < float("inf"):
        raise bad_option("--rate", f"expected changes per second, found {rate:g}", "0: no bound")
    return rate


def _facts(plan: Planned) -> dict[str, object]:
    return {
        "shards": len(plan.shards),
        "size_bytes": plan.size_bytes,
        "files": plan.files,
        "rows": plan.rows,
        "findings": [finding.message for finding in plan.findings],
    }


def _print_plan(run: Run, plan: Planned, given: argparse.Namespace) -> None:
    if given.json:
        sys.stdout.write(json.dumps({"run": run.run, **run.facts}) + "\n")
        return
    lines = [
        f"run {run.run}: {len(plan.shards)} shards",
        f"  from   {plan.files} segments, {plan.size_bytes} bytes, about {plan.rows} changes",
        f"  into   {run.target.describe()}",
        *(f"  shard  {shard.number}: {shard.split}" for shard in plan.shards[:_SHOWN_MAX]),
        f"nothing was done yet; to execute it: headrace replay run {given.job} {run.run}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _run(given: argparse.Namespace, text: JobText, table: RunTable) -> int:
    run = table.run(given.run)
    measures = RunMeasures(run.run)
    with engine(given.master) as used, telling(given, text.name, measures):
        execute(table, run, used.perform, measures, width=used.width)
    rows = table.shards(run.run)
    sys.stdout.write(summary(run, rows))
    return 0


def _status(given: argparse.Namespace, table: RunTable) -> int:
    if given.run is None:
        for run in table.runs():
            states = _states(table.shards(run.run))
            sys.stdout.write(f"{run.run}  {run.target.describe()}  {states}\n")
        return 0
    run = table.run(given.run)
    rows = table.shards(run.run)
    if given.json:
        shards = [
            {"state": r.state, "attempt": r.attempt, "split": r.shard.split, **r.report}
            for r in rows
        ]
        whole = {"run": run.run, "facts": run.facts, "shards": shards}
        sys.stdout.write(json.dumps(whole, indent=1) + "\n")
        return 0
    for row in rows:
        told = row.report.get("problem") or f"{row.report.get('delivered', 0)} changes"
        sys.stdout.write(f"{row.shard.number:>5}  {row.state:<11}  {row.shard.split}  {told}\n")
    sys.stdout.write(summary(run, rows))
    return 0


def _verify(given: argparse.Namespace, text: JobText, table: RunTable) -> int:
    run = table.run(given.run)
    known = {} if run.target.sink is None else known_schemas(text)
    with engine(given.master) as used:
        different = verify(table, run, used, known)
    rows = table.shards(run.run)
    sys.stdout.write(summary(run, rows))
    return DIFFERENCES_STATUS if different else 0


def _states(rows: Sequence[ShardRow]) -> str:
    counts = {state: sum(row.state is state for row in rows) for state in ShardState}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def summary(run: Run, rows: Sequence[ShardRow]) -> str:
    """Return what a run came to, in words."""
    delivered = sum(row.report.get("delivered", 0) for row in rows)
    cpu = sum(row.report.get("cpu_seconds", 0) for row in rows)
    notes = [note for row in rows for note in row.report.get("notes", ())]
    lines = [f"run {run.run}: {_states(rows)}; {delivered} changes, CPU {cpu:.2f} s"]
    fates = ("rejected", "quarantined")
    if lost := sum(row.report.get(fate, 0) for row in rows for fate in fates):
        records = "1 record was" if lost == 1 else f"{lost} records were"
        lines.append(f"  warning: {records} not delivered; the notes say why")
    return "\n".join([*lines, *(f"  note: {note}" for note in notes)]) + "\n"

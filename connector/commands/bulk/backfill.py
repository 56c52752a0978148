"""`headrace backfill`: sends the rows of tables to the job's sink, while live changes flow."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from headrace.connector.commands.bulk.replay import summary
from headrace.connector.control.jobs import JobText, job_text, table_source
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.engine import engine
from headrace.connector.replay.errors import ShardFailedError
from headrace.connector.replay.execution import execute
from headrace.connector.replay.options import ALWAYS, BackfillOptions
from headrace.connector.replay.planning import check_tables, in_lake, planned
from headrace.connector.replay.run_metrics import RunMeasures, telling
from headrace.connector.replay.runs import Run, RunTable, ShardState
from headrace.connector.replay.selection import Selection, token_range
from headrace.connector.replay.shards import SourceSpec, inside

_KIND: Final = "backfill"


def main(given: BackfillOptions) -> int:
    """Find or plan a run for each table, and execute the runs unless only plans are asked for."""
    text = job_text(Path(given.job), given.job_name)
    names = list(dict.fromkeys(given.tables))
    _check_delivered(text, names)
    with closing(RunTable(text.notes)) as runs:
        wanted = [run for name in names if (run := _run_of(runs, text, name, given)) is not None]
        if wanted and not given.plan:
            _execute(runs, wanted, text, given)
    return 0


def _check_delivered(text: JobText, names: Sequence[str]) -> None:
    """Raise unless the job delivers these tables: else their rows in the sink would become stale.

    Raises:
        ConfigError: it names all tables that the job does not deliver.

    """
    spec = SourceSpec.of_job(text)
    with inside(spec.directory), closing(spec.open()) as source:
        check_tables(source, names)


def _run_of(runs: RunTable, text: JobText, name: str, given: BackfillOptions) -> Run | None:
    """Return the run that has to read the table *name*; None if a run has read it."""
    made = Target.of_job(text, folder=given.to_folder, suffix=given.suffix)
    target = in_lake(replace(made, rate=given.rate), given)
    selection = Selection(tokens=(token_range(given.token_range),) if given.token_range else ())
    facts = {"table": name, "tokens": [list(each) for each in selection.tokens]}
    with runs.executing(f"{_KIND}-{name}"):  # Two that plan at once would both read it.
        known = None if given.mode == ALWAYS else _known(runs, target, facts)
        if known is not None:
            left = sum(row.state is not ShardState.PASS for row in runs.shards(known.run))
            sys.stdout.write(f"run {known.run}: {left} ranges of {name} are left\n")
            return replace(known, target=target) if left else None
        source = table_source(text, name)
        spec = SourceSpec(given=source, directory=str(text.directory), job=text.name)
        plan = planned(spec, selection, shards=given.shards)
        run = Run.new(_KIND, target, {**facts, "shards": len(plan.shards)})
        runs.add(run, plan.shards)
        sys.stdout.write(f"run {run.run}: {len(plan.shards)} ranges of {name}\n")
        return run


def _known(runs: RunTable, target: Target, facts: Mapping[str, Any]) -> Run | None:
    """Return the last run with the same facts and target; their rates may differ."""
    for run in runs.runs():
        same = replace(run.target, rate=target.rate) == target
        if same and run.kind == _KIND and facts.items() <= run.facts.items():
            return run
    return None


def _execute(runs: RunTable, wanted: Sequence[Run], text: JobText, given: BackfillOptions) -> None:
    """Execute one run after another; the next run starts even if one fails.

    Raises:
        ShardFailedError: a run failed; this is the error of the first.

    """
    failed: list[ShardFailedError] = []
    with engine(given.master) as used:
        for run in wanted:
            measures = RunMeasures(run.run)
            try:
                with telling(given, text, measures):
                    execute(runs, run, used.perform, measures, width=used.width)
            except ShardFailedError as error:
                failed.append(error)
            sys.stdout.write(summary(run, runs.shards(run.run)))
    if failed:
        raise failed[0]

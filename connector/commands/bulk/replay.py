"""`headrace replay`: index, plan, run, status, verify; and catch-up."""

import contextlib
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace.connector.commands.run import stopped_by_signals
from headrace.connector.control.jobs import JobText, job_text, read_job
from headrace.connector.replay.catching_up.lag_catch_up import CaughtUp, Driver, Orders
from headrace.connector.replay.comparing.verifying import verify
from headrace.connector.replay.delivery import Search, check_target
from headrace.connector.replay.engine import Engine, engine
from headrace.connector.replay.errors import ShardFailedError, bad_option
from headrace.connector.replay.execution import execute
from headrace.connector.replay.options import (
    CatchUpOptions,
    IndexOptions,
    OfJob,
    PlanOptions,
    RunOptions,
    Selected,
    StatusOptions,
    VerifyOptions,
    keys_in,
)
from headrace.connector.replay.pages.run_page import run_page
from headrace.connector.replay.planning import Planned, by_log, check_archive, planned_replay
from headrace.connector.replay.run_metrics import (
    CatchUpMeasures,
    CompareMeasures,
    RunMeasures,
    telling,
)
from headrace.connector.replay.runs import Run, RunTable, ShardRow, ShardState
from headrace.connector.replay.selection import (
    Selection,
    names_in,
    operations_in,
    time_us,
    token_range,
)
from headrace.connector.replay.shards import SourceSpec, inside
from headrace.connector.replay.stream.checkpoint import known_schemas
from headrace.plugins.config.command_line import flag_of

DIFFERENCES_STATUS: Final = 4
_SHOWN_MAX: Final = 16
WATCH_SECONDS: Final = 10.0


def main(given: OfJob) -> int:
    """Execute a verb with its options; return the exit status."""
    if isinstance(given, CatchUpOptions):
        return catch_up(given)
    text = job_text(Path(given.job), given.job_name)
    if isinstance(given, IndexOptions):
        return _index(given, text)
    with contextlib.closing(RunTable(text.notes)) as table:
        match given:
            case PlanOptions():
                return _plan(given, text, table)
            case RunOptions():
                return _run(given, text, table)
            case StatusOptions():
                return _status(given, table)
            case VerifyOptions():
                return _verify(given, text, table)
    raise TypeError(given)


def _index(given: IndexOptions, text: JobText) -> int:
    spec = SourceSpec.of_job(text)
    searches = [Search(each) for each in by_log(spec)]
    with engine(given.master) as used:
        sizes = used.gather(searches)
    sys.stdout.write(f"{sum(sizes)} bytes of {len(sizes)} logs were new; see {spec.cache}\n")
    return 0


def _plan(given: PlanOptions, text: JobText, table: RunTable) -> int:
    target, plan = planned_replay(text, given, selection_of(given))
    run = Run.new("replay", target, _facts(plan))
    for finding in plan.findings:
        sys.stderr.write(f"{finding.result.value}: {finding.message}\n")
    check_archive(plan, given, str(given.job), flag_of("accept_gaps"))
    check_target(plan.shards[0], target, run.run)
    table.add(run, plan.shards)
    _print_plan(run, plan, given)
    return 0


def selection_of(given: Selected) -> Selection:
    """Return the selection by --tables, --operations and similar options."""
    return Selection(
        tables=names_in(given.tables, "--tables"),
        operations=operations_in(given.operations, "--operations"),
        from_us=time_us(given.since, "--from") if given.since else None,
        to_us=time_us(given.before, "--to") if given.before else None,
        tokens=(token_range(given.token_range),) if given.token_range else (),
        keys=keys_in(Path(given.keys_file)) if given.keys_file else frozenset(),
    )


def _facts(plan: Planned) -> dict[str, object]:
    return {
        "shards": len(plan.shards),
        "size_bytes": plan.size_bytes,
        "files": plan.files,
        "rows": plan.rows,
        "findings": [finding.message for finding in plan.findings],
    }


def _print_plan(run: Run, plan: Planned, given: PlanOptions) -> None:
    if given.json:
        sys.stdout.write(json.dumps({"run": run.run, **run.facts}) + "\n")
        return
    lines = [
        f"run {run.run}: {len(plan.shards)} shards",
        f"  from   {plan.files} segments, {plan.size_bytes} bytes, about {plan.rows} changes",
        f"  into   {run.target.describe()}",
        *(f"  shard  {shard.number}: {shard.split}" for shard in plan.shards[:_SHOWN_MAX]),
        f"nothing was done yet; to execute it: headrace replay run {given.called} {run.run}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _run(given: RunOptions, text: JobText, table: RunTable) -> int:
    run = table.run(given.run)
    measures = RunMeasures(run.run)
    with engine(given.master) as used, telling(given, text, measures):
        execute(table, run, used.perform, measures, width=used.width)
    rows = table.shards(run.run)
    sys.stdout.write(summary(run, rows))
    sys.stdout.write(
        f"  into   {run.target.place()}\n"
        f"  next   headrace replay verify {given.called} {run.run}\n"
        f"         headrace replay status {given.called} {run.run} --report {run.run}.html\n"
    )
    return 0


def _write_page(path: Path, page: str) -> None:
    """Write a page.

    Raises:
        ConfigError: it cannot be written there.

    """
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise bad_option("--report", f"{path} cannot be written: {error.strerror}") from error


def _status(given: StatusOptions, table: RunTable) -> int:
    if given.run is None:
        if given.report:
            raise bad_option("--report", "is about one run", "give the run before it")
        for run in table.runs():
            states = _states(table.shards(run.run))
            sys.stdout.write(f"{run.run}  {run.target.describe()}  {states}\n")
        return 0
    run = table.run(given.run)
    rows = table.shards(run.run)
    if given.report:
        _write_page(Path(given.report), run_page(run, rows))
    if given.json:
        shards = [
            {"state": r.state, "attempt": r.attempt, "split": r.shard.split, **r.report}
            for r in rows
        ]
        whole = {"run": run.run, "facts": run.facts, "shards": shards}
        sys.stdout.write(json.dumps(whole, indent=1) + "\n")
        return 0
    for row in rows:
        outcome = row.report.get("problem") or f"{row.report.get('delivered', 0)} changes"
        sys.stdout.write(f"{row.shard.number:>5}  {row.state:<11}  {row.shard.split}  {outcome}\n")
    sys.stdout.write(summary(run, rows))
    return 0


def _verify(given: VerifyOptions, text: JobText, table: RunTable) -> int:
    run = table.run(given.run)
    known = {} if run.target.sink is None else known_schemas(text)
    measures = CompareMeasures(run.run)
    with engine(given.master) as used, telling(given, text, measures):
        different = verify(table, run, used, known, measures)
    rows = table.shards(run.run)
    sys.stdout.write(summary(run, rows))
    return DIFFERENCES_STATUS if different else 0


def _states(rows: Sequence[ShardRow]) -> str:
    counts = {state: sum(row.state is state for row in rows) for state in ShardState}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def summary(run: Run, rows: Sequence[ShardRow]) -> str:
    """Return the outcome of a run, in words."""
    delivered = sum(row.report.get("delivered", 0) for row in rows)
    cpu = sum(row.report.get("cpu_seconds", 0) for row in rows)
    notes = [note for row in rows for note in row.report.get("notes", ())]
    lines = [f"run {run.run}: {_states(rows)}; {delivered} changes, CPU {cpu:.2f} s"]
    fates = ("rejected", "quarantined")
    if lost := sum(row.report.get(fate, 0) for row in rows for fate in fates):
        records = "1 record was" if lost == 1 else f"{lost} records were"
        lines.append(f"  warning: {records} not delivered; the notes say why")
    return "\n".join([*lines, *(f"  note: {note}" for note in notes)]) + "\n"


def catch_up(given: CatchUpOptions) -> int:
    """Take over lagging splits, read their backlog, and give them back. Returns the exit status.

    Raises:
        ShardFailedError: part of a split was not read or delivered, or a lease was lost.
        HeadraceError: nothing can be caught up.

    """
    path = Path(given.job)
    text, job = job_text(path, given.job_name), read_job(path, given.job_name)
    orders = Orders(
        splits=given.split,
        lag_bytes=given.lag_bytes,
        until=given.until,
        chunk_bytes=given.chunk_bytes,
    )
    stopped, measures = threading.Event(), CatchUpMeasures()
    with contextlib.ExitStack() as stack, stopped_by_signals(stopped.set):
        stack.enter_context(telling(given, text, measures))
        stack.enter_context(inside(str(text.directory)))
        used: Engine | None = None
        while not stopped.is_set():
            with contextlib.closing(
                Driver(text, job, orders, stopped=stopped, measures=measures)
            ) as driver:
                lagging = driver.lagging()
                _show_lagging(lagging)
                if given.plan:
                    return 0
                if lagging:
                    used = used or stack.enter_context(engine(given.master))
                    _report_caught_up(driver.run(list(lagging), used))
            if not given.watch:
                return 0
            stopped.wait(WATCH_SECONDS)
    return 0


def _show_lagging(lagging: Mapping[str, int]) -> None:
    for split, size_bytes in lagging.items():
        sys.stdout.write(f"split {split}: {size_bytes} bytes to read\n")
    if not lagging:
        sys.stdout.write("no split lags so much\n")
    sys.stdout.flush()


def _report_caught_up(came_to: CaughtUp) -> None:
    """Print how much was caught up; raise ShardFailedError if splits failed or were lost."""
    sys.stdout.write(
        f"caught up: {len(came_to.done)} splits, {came_to.changes} changes in "
        f"{came_to.chunks} chunks\n"
    )
    sys.stdout.flush()
    problems = dict(came_to.failed) | dict.fromkeys(came_to.lost, "lease_lost: another owns it")
    for split, problem in problems.items():
        raise ShardFailedError(
            f"{len(problems)} splits were given back before their end; the first: {problem}",
            place=f"split {split}",
            hint="their workers continue after the last commit",
        )

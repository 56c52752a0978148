"""`headrace reconcile`: compares logs, topic and tables, and writes a report and a repair plan."""

import sys
from pathlib import Path

from headrace.connector.commands.bulk.replay import DIFFERENCES_STATUS, selection_of
from headrace.connector.control.jobs import job_text
from headrace.connector.replay.comparing.job_comparison import JobComparison
from headrace.connector.replay.comparing.reconciling import plan_repair
from headrace.connector.replay.comparing.reporting import write_report
from headrace.connector.replay.comparing.timed_sides import gathering, reading
from headrace.connector.replay.engine import engine
from headrace.connector.replay.options import ReconcileOptions
from headrace.connector.replay.run_metrics import CompareMeasures, telling
from headrace.connector.replay.shards import origin_of


def main(given: ReconcileOptions) -> int:
    """Compare; return 0 when nothing differs, else 4."""
    text = job_text(Path(given.job), given.job_name)
    compared = JobComparison.planned(text, given, selection_of(given))
    for finding in compared.plan.findings:
        sys.stderr.write(f"{finding.result.value}: {finding.message}\n")
    measures = CompareMeasures()
    with (
        engine(given.master) as used,
        telling(given, text, measures),
        used.once(compared.plan.shards) as logs,
    ):
        outcome = compared.compare(gathering(used.gather, measures), reading(logs, measures))
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
    run = plan_repair(text, outcome, compared.plan.shards) if given.repair else None
    if run:
        sys.stdout.write(f"headrace replay run {given.called} {run.run}\n")
    return DIFFERENCES_STATUS if outcome.differs else 0

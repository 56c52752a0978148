"""Compares logs, topic and table, as a run that a statement requested. Needs an extra."""

from collections.abc import Callable
from typing import Final

import msgspec

from headrace.connector.control.runs.orders import checked
from headrace.connector.hosting.run_plans import Asked, findings_of
from headrace.connector.replay.comparing.job_comparison import JobComparison
from headrace.connector.replay.comparing.reconciling import plan_repair
from headrace.connector.replay.comparing.reporting import write_report
from headrace.connector.replay.comparing.timed_sides import gathering, reading
from headrace.connector.replay.engine import Gatherer, Once
from headrace.connector.replay.run_metrics import CompareMeasures
from headrace.connector.replay.runs import Run
from headrace.connector.replay.shards import inside, origin_of

FOLDER: Final = "reconcile"


class Compared(msgspec.Struct, frozen=True):
    """The outcome of a comparison: changes of the logs, differences, and a line about both.

    `repair` is the run that would repair the topics, if requested and needed.
    """

    changes: int
    differences: int
    result: str
    repair: Run | None


def compared(
    asked: Asked,
    gather: Gatherer,
    once: Once,
    pause: Callable[[float], None],
    measures: CompareMeasures,
) -> Compared:
    """Compare, and write a report into a folder of the run's name beside the job file.

    A repair is only planned; it has the name of the run.

    *once* reads the logs of shards once for tasks of these, and *pause* waits for a number of
    seconds. *measures* counts what is read.

    Raises:
        ConfigError: the job cannot be compared, or options are wrong.
        RunHaltedError: the run was halted.
        ShardFailedError: a side could not be read.

    """
    given, text = checked(asked.order.kind, asked.order.options), asked.text
    with inside(str(text.directory)):
        planned = JobComparison.planned(text, given, asked.selection(), called=str)
        with once(planned.plan.shards) as logs:
            read = reading(logs, measures)
            outcome = planned.compare(gathering(gather, measures), read, pause=pause)
        folder = text.directory / FOLDER / asked.run.name
        origin, title = origin_of(text.source), f"{text.name}: logs, topic and tables"
        write_report(folder, outcome, origin, plain_keys=given.plain_keys, title=title)
        repair = None
        if given.repair:
            shards, name = planned.plan.shards, asked.run.name
            repair = plan_repair(text, outcome, shards, asked=name, called=str)
    counts = {name: count for name, count in outcome.counts().items() if count}
    parts = [
        f"{outcome.in_logs.total()} changes in the logs, {outcome.in_topic.total()} in the topic",
        ", ".join(f"{count} {name}" for name, count in counts.items()) or "no difference",
        f"report: {folder.relative_to(text.directory)}",
        *outcome.notes,
        *findings_of(planned.plan),
    ]
    differences = max(0, sum(counts.values()) - outcome.settled) if outcome.differs else 0
    return Compared(outcome.in_logs.total(), differences, "; ".join(parts), repair)

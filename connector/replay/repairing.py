"""From what differs to a run that repairs it, which `headrace replay run` executes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headrace.connector.job import JobText
from headrace.connector.replay.delivery import Target
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.judging import REPAIRABLE
from headrace.connector.replay.reconciling import Outcome
from headrace.connector.replay.runs import Run, RunTable
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard

REPAIRED_MAX: Final = 50_000


def plan_repair(text: JobText, outcome: Outcome, shards: Sequence[Shard]) -> str:
    """Plan a run into the live topics of just what is broken; return its name, empty if nothing is.

    What the logs agree on comes from them, by name; rows that they do not have come from the table,
    with all of their partition.

    Raises:
        ConfigError: it is too much to be named one by one.

    """
    names = frozenset(f.row.name for f in outcome.found if f.difference in REPAIRABLE)
    keys = sum(len(keys) for _, keys in outcome.repairs)
    if len(names) + keys > REPAIRED_MAX:
        hint = "replay the time or the keys with `headrace replay plan --into-live`"
        raise bad_option("--repair", f"{len(names) + keys} changes; at most {REPAIRED_MAX}", hint)
    chosen: list[Shard] = []
    if names:
        selection = Selection(tokens=shards[0].selection.tokens, names=names)
        chosen += [replace(shard, selection=selection) for shard in shards]
    chosen += [replace(shard, selection=Selection(keys=keys)) for shard, keys in outcome.repairs]
    if not chosen:
        return ""
    facts = {"changes": len(names), "keys": keys, "shards": len(chosen)}
    run = Run.new("repair", Target.of_job(text), facts)
    table = RunTable(text.notes)
    try:
        table.add(run, [replace(each, number=n) for n, each in enumerate(chosen, start=1)])
    finally:
        table.close()
    return run.run

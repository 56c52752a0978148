"""`headrace splits`: shows the owner of each split of a job, and its lag."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from headrace.connector.commands.job_parser import job_parser
from headrace.connector.commands.run import enter
from headrace.connector.control.status import live_workers, split_status, time_text
from headrace.connector.foundation.offered import tokens_of
from headrace.connector.foundation.processes import is_dead
from headrace.connector.runtime.making import made_source, read_only_context
from headrace.connector.stores import SplitState
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import RetriableError, Source, Split

Fact = str | int | None
HEADINGS: Final = (
    *("split", "from", "to", "owner", "token", "commits"),
    *("rate", "lag", "state", "since", "reason"),
)


def main(arguments: Sequence[str]) -> int:
    """Print a line for each split; return 0."""
    parser = job_parser("splits", "List the splits of a job: their owners, positions and lag.")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args(arguments)
    job = enter(given.job_file, given.job)
    with closing(job.open_store(create=False)) as store:
        found = facts_of(job, store)
    if given.json:
        sys.stdout.writelines(json.dumps(facts) + "\n" for facts in found)
    elif not found:
        sys.stdout.write("no splits yet: they are made when the job first runs\n")
    else:
        lines = [HEADINGS, *(tuple(_shown(*fact) for fact in facts.items()) for facts in found)]
        sys.stdout.writelines("\t".join(line) + "\n" for line in lines)
    return 0


def facts_of(job: Job, store: Store) -> Sequence[Mapping[str, Fact]]:
    """Return the facts of each split under HEADINGS; None if unknown.

    As in SHOW SPLITS, a process that is dead owns nothing.

    The lag is in bytes, the rate in bytes a second.
    """
    states = {state.split: state for state in store.states()}
    workers = live_workers(store, is_dead)
    context = read_only_context(job.name, store.job_key())
    with closing(made_source(job, context)) as source:
        lags = {split: _lag(source, state) for split, state in states.items()}
    seen = store.seen()
    found = []
    for task, row in enumerate(store.leases()):
        status = split_status(task, row.split, row, seen.get(row.split), workers)
        tokens = tokens_of(source, row.split)
        facts: tuple[Fact, ...] = (
            row.split,
            tokens.first if tokens else None,
            tokens.behind if tokens else None,
            status.worker or None,
            row.token,
            states[row.split].seq if row.split in states else None,
            row.rate,
            lags.get(row.split),
            status.state.value,
            status.since_ms,
            status.reason or None,
        )
        found.append(dict(zip(HEADINGS, facts, strict=True)))
    return found


def _lag(source: Source, state: SplitState) -> int | None:
    position = None if state.position is None else source.decode_position(state.position)
    try:
        parts = source.backlog(Split(state.split), position)
    except RetriableError:  # A node that does not answer.
        return None
    return None if any(part.problem for part in parts) else sum(part.size_bytes for part in parts)


def _shown(name: str, fact: Fact) -> str:
    if name == "since" and isinstance(fact, int):
        return time_text(fact)
    return "-" if fact is None else str(fact)

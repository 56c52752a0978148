"""`headrace waiting`: shows mutations that are not published because copies are missing."""

import json
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import msgspec

from headrace.connector.commands.job_parser import job_parser
from headrace.connector.commands.run import enter
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import Waiting

SHOWN_MAX: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Print a line for each waiting mutation; return 0."""
    parser = job_parser(
        "waiting",
        "List the mutations that a job has read and not published, because too few nodes have "
        "logged them: the oldest first, as of the last commit. `headrace inspect` decodes a copy: "
        "its place is the id of the segment and the position in it.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument(
        "--limit", type=int, default=SHOWN_MAX, metavar="N", help=f"at most N ({SHOWN_MAX})"
    )
    given = parser.parse_args(arguments)
    job = enter(given.job_file, given.job)
    with closing(job.open_store(create=False)) as store:
        found = waiting_of(job, store)
    if not found and not given.json:
        sys.stdout.write("nothing waits for a copy\n")
    for split, each in found[: max(0, given.limit)]:
        line = json.dumps({"split": split, **msgspec.structs.asdict(each)})
        sys.stdout.write(f"{line if given.json else _text(split, each)}\n")
    if len(found) > max(0, given.limit) and not given.json:
        sys.stdout.write(f"and {len(found) - max(0, given.limit)} more\n")
    return 0


def waiting_of(job: Job, store: Store) -> Sequence[tuple[str, Waiting]]:
    """Return the split and the facts of each mutation that waits in a committed position."""
    found = [
        (state.split, each)
        for state in store.states()
        if state.position is not None
        for each in job.source.decode_position(state.position).waiting()
    ]
    return sorted(found, key=lambda pair: -pair[1].seconds)


def _text(split: str, each: Waiting) -> str:
    copies = ", ".join(f"{node} {place}" for node, place in each.copies.items())
    missing = ", ".join(each.missing) or "nodes that are not read"
    return (
        f"{each.subject}, split {split}: has {copies}; missing: {missing}; "
        f"needs {each.needed or 'more'}; {each.seconds} s"
    )

"""`headrace gaps` and `headrace accept`: show lost parts of logs, and continue without them."""

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Final

from headrace.connector.commands.job_parser import job_parser
from headrace.connector.control.commands import Commands
from headrace.connector.control.gaps import Acceptance, gap_facts
from headrace.connector.control.jobs import read_source
from headrace.connector.runtime.books.summary import OPEN_STATUS
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, Problem

POLICIES: Final = ("expire", "assume")


def gaps_main(arguments: Sequence[str]) -> int:
    """Print the gaps of a job; return 4 while one of them is open."""
    parser = job_parser(
        "gaps",
        "List the parts of logs that were lost before the job read them; exit 4 while one is open.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    given = parser.parse_args(arguments)
    state, name = state_of(given.job_file, given.job)
    source, _ = read_source(given.job_file, name)
    with contextlib.closing(open_notes(state, create=False)) as notes:
        found = Commands(notes).gaps(name, source)
    for each in found:
        facts = gap_facts(each)
        line = json.dumps(facts) if given.json else "\t".join(map(str, facts.values()))
        sys.stdout.write(f"{line}\n")
    if not found and not given.json:
        sys.stdout.write("no gaps\n")
    return OPEN_STATUS if any(each.gap.is_open for each in found) else 0


def accept_main(arguments: Sequence[str]) -> int:
    """Make a job continue after gaps. Returns 0."""
    parser = job_parser(
        "accept", "Make a job continue after gaps, without the changes that were lost in them."
    )
    parser.add_argument(
        "names", nargs="*", metavar="GAP", help="the name that `headrace gaps` prints"
    )
    parser.add_argument("--all", action="store_true", help="all open gaps")
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=POLICIES[0],
        help="expire: mutations that need the lost copies expire (the default); assume: they "
        "are published as if the log had one",
    )
    given = parser.parse_args(arguments)
    state, name = state_of(given.job_file, given.job)
    source, _ = read_source(given.job_file, name)
    if bool(given.names) == given.all:
        raise ConfigError([Problem("", "give gaps, or --all", "`headrace gaps` has them")])
    with contextlib.closing(open_notes(state, create=False)) as notes:
        commands = Commands(notes)
        met = commands.gaps(name, source)
        names = given.names or [each.gap.name for each in met if each.is_for(given.policy)]
        acceptance = Acceptance(job=name, names=names, policy=given.policy)
        for each in commands.accept_gaps(acceptance, source):
            splits = len(each.splits)
            sys.stdout.write(f"{each.gap.name}\taccepted ({given.policy}) for {splits} splits\n")
    return 0

"""`headrace realtime`: reads the logs of a job as they are written, or at each tick."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from headrace.connector.commands.job_parser import add_job
from headrace.connector.control.commands import Commands
from headrace.connector.control.jobs import read_source
from headrace.connector.control.modes import ModeChange
from headrace.connector.control.running import wait_for_outcome
from headrace.connector.control.showing import CHANGE_COLUMNS, change_row
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.config.realtime_options import LOG, REALTIME
from headrace.plugins.stores.kept_modes import ALL_LOGS, ModeOutcome

MODES: Final = {"on": REALTIME, "off": LOG}
PENDING_STATUS: Final = 4
FAILED_STATUS: Final = 1
_BAD: Final = (ModeOutcome.FELL_BACK, ModeOutcome.REFUSED, ModeOutcome.FAILED)


def main(arguments: Sequence[str]) -> int:
    """Request a mode and print its outcome so far, by log.

    Returns 0. After --wait: 1 if it did not succeed, 4 if it is pending.
    """
    given = _parser().parse_args(arguments)
    state, job = state_of(given.job_file, given.job)
    source, _ = read_source(given.job_file, job)
    with closing(open_notes(state, create=False)) as notes:
        commands = Commands(notes)
        request = commands.ask_mode(job, source, MODES[given.mode], node=given.node)
        wait_for_outcome(commands, job, request, seconds=given.wait)
        found = commands.mode_changes(job, request=request)
    for each in found:
        shown = ["-" if fact == "" else fact for fact in change_row(each)]
        facts = dict(zip(CHANGE_COLUMNS, shown, strict=True))
        line = json.dumps(facts) if given.json else "\t".join(map(str, shown))
        sys.stdout.write(f"{line}\n")
    return _status(found) if given.wait else 0


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace realtime",
        description="Ask a job to read logs as they are written (on), or at each tick (off). "
        "SHOW MODE CHANGES has the outcome.",
    )
    parser.add_argument("mode", choices=tuple(MODES), help="the mode realtime, on or off")
    add_job(parser)
    parser.add_argument("--node", metavar="N", default=ALL_LOGS, help="only the log of this node")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait for the outcome, at most this long; exit 1 if it failed, 4 if it is pending",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser


def _status(found: Sequence[ModeChange]) -> int:
    if any(each.outcome in _BAD for each in found):
        return FAILED_STATUS
    return PENDING_STATUS if any(e.outcome is ModeOutcome.PENDING for e in found) else 0

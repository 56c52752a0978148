"""`headrace realtime`: reads the logs of a job as they are written, or at each tick."""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Final

from headrace.connector.commands.job_parser import add_job
from headrace.connector.control.commands import Commands
from headrace.connector.control.jobs import read_source
from headrace.connector.control.modes import ModeChange
from headrace.connector.control.running import LOOK_SECONDS, is_pending
from headrace.connector.control.showing import pairs_text
from headrace.connector.control.status import time_text
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.config.realtime_options import LOG, REALTIME
from headrace.plugins.stores.kept_modes import ALL_LOGS, ModeOutcome

MODES: Final = {"on": REALTIME, "off": LOG}
PENDING_STATUS: Final = 4
FAILED_STATUS: Final = 1
_BAD: Final = (ModeOutcome.FELL_BACK, ModeOutcome.REFUSED, ModeOutcome.FAILED)


def main(arguments: Sequence[str]) -> int:
    """Ask for a mode and print what became of it, by log, so far.

    Returns 0. After --wait: 1 where it did not succeed, 4 where it is pending.
    """
    given = _parser().parse_args(arguments)
    state, job = state_of(given.job_file, given.job)
    source, _ = read_source(given.job_file, job)
    with closing(open_notes(state, create=False)) as notes:
        commands = Commands(notes)
        request = commands.ask_mode(job, source, MODES[given.mode], node=given.node)
        until = time.monotonic() + given.wait
        while time.monotonic() < until and is_pending(commands, job, request):
            time.sleep(LOOK_SECONDS)
        found = commands.mode_changes(job, request=request)
    for each in found:
        facts = _facts(each)
        line = json.dumps(facts) if given.json else "\t".join(map(str, facts.values()))
        sys.stdout.write(f"{line}\n")
    return _status(found) if given.wait else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="headrace realtime",
        description="Ask a job to read logs as they are written (on), or at each tick (off). "
        "It does not wait for the outcome, which SHOW MODE CHANGES tells.",
    )
    parser.add_argument("mode", choices=tuple(MODES), help="the mode realtime, on or off")
    add_job(parser)
    parser.add_argument("--node", metavar="N", default=ALL_LOGS, help="only the log of this node")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait so long for the outcome; exit 1 without success, 4 while it is pending",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, one object a line")
    return parser


def _facts(change: ModeChange) -> Mapping[str, object]:
    return {
        "request": change.request,
        "node": change.node or "-",
        "asked": change.asked,
        "outcome": change.outcome.value,
        "reason": change.reason or "-",
        "from": pairs_text(change.begin) or "-",
        "to": pairs_text(change.end) or "-",
        "requested": time_text(change.asked_ms),
        "ended": time_text(change.ended_ms) or "-",
    }


def _status(found: Sequence[ModeChange]) -> int:
    if any(each.outcome in _BAD for each in found):
        return FAILED_STATUS
    return PENDING_STATUS if any(e.outcome is ModeOutcome.PENDING for e in found) else 0

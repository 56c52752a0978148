"""`headrace status`: one screen with all jobs of a state, their problems, and what to do."""

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.connector.commands.health.screen import screen_of
from headrace.connector.control.health.document import document_of
from headrace.connector.control.health.overview import Line, Overview, overview_of
from headrace.connector.control.plugins.kept_probes import KeptProbes
from headrace.connector.control.plugins.probing import Ask
from headrace.connector.control.service import ControlService
from headrace.connector.control.status import file_job_status
from headrace.connector.foundation.catch_up import Looks
from headrace.connector.foundation.job_file import FILE_SUFFIXES, read_job_file, state_given
from headrace.connector.shell.terminal import clear
from headrace.connector.stores.job import place_and_name
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.config.arguments import CommandParser

WATCH_SECONDS: Final = 2.0
TROUBLED_STATUS: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Print the screen; return 1 if something needs attention."""
    given = _parser().parse_args(arguments)
    place = state_given(given.state)
    looks = Looks()
    with contextlib.closing(KeptProbes()) as probes:
        if not given.watch:
            return _printed(place, looks, probes, given)
        try:
            while True:
                clear()
                _printed(place, looks, probes, given)
                time.sleep(WATCH_SECONDS)
        except KeyboardInterrupt:
            return 0


def _printed(place: Path, looks: Looks, probes: KeptProbes, given: argparse.Namespace) -> int:
    overview = look(place, looks, ask_lag=probes.ask_lag, may_wait=not given.watch)
    if given.json:
        sys.stdout.write(json.dumps(document_of(overview)) + "\n")
    else:
        sys.stdout.write(screen_of(overview, str(place)))
    sys.stdout.flush()
    return TROUBLED_STATUS if overview.troubles else 0


def look(
    place: Path, looks: Looks, *, ask_lag: Ask | None = None, may_wait: bool = True
) -> Overview:
    """Return the overview of a state file, or of a worker's or a job's file.

    *looks* has the lags of earlier calls, and *ask_lag* fetches one; see `overview_of`.

    Raises:
        ConfigError: the file is not one of these.
        StateFileError: the state file is missing, or cannot be used.

    """
    written = read_job_file(place) if place.suffix in FILE_SUFFIXES else None
    with contextlib.closing(open_notes(place, create=False)) as notes:
        file = place if written else None
        service = ControlService(notes, ask_lag=ask_lag, file=file, looks=looks)
        job = None
        if written is not None and written.sink is not None:
            _, name = place_and_name(place, written, None)
            status = file_job_status(notes, name)
            job = Line(status=status, sink=str(written.sink.get("plugin", "")), next=status.hint)
        return overview_of(notes, service, job, may_wait=may_wait)


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace status",
        description="Show how all jobs of a state are: sources, lag, disks of logs, errors, and "
        "what to do next. Exit 0 if all is well, 1 if something needs a hand.",
    )
    parser.add_argument(
        "state",
        nargs="?",
        metavar="STATE",
        help="a state file, or a worker's or a job's file; default: HEADRACE_STATE, or headrace.db",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help=f"show it again each {WATCH_SECONDS:.0f} s, until Ctrl-C",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser

"""`headrace quickstart`: a live ring of three nodes on one screen, without any server."""

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from headrace.connector.demo.folders import folder_for
from headrace.connector.demo.quickstart.breaks import BREAKS
from headrace.connector.demo.quickstart.processes import Processes
from headrace.plugins import FatalError
from headrace.plugins.config.arguments import CommandParser

FORCED_STATUS: Final = 130


class Stop:
    """Set by the first SIGINT or SIGTERM; the second ends the process at once."""

    def __init__(self) -> None:
        """Listen."""
        self.is_set = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.is_set:
            sys.exit(FORCED_STATUS)
        self.is_set = True


class QuickstartFailedError(FatalError):
    """The consumer misses writes to the ring, or has more changes than the books explain."""

    code = "quickstart_check"


def main(arguments: Sequence[str]) -> int:
    """Run the quickstart; return 0 only if the consumer has all writes to the ring."""
    parser = CommandParser(
        prog="headrace quickstart",
        description="Writes the logs of a simulated ring of three nodes, reads them with a worker, "
        "which publishes each change once into an embedded Kafka, and prints what a consumer "
        "receives. Ends with Ctrl-C, and then compares what was written with what was received.",
    )
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end so long after the first change"
    )
    parser.add_argument(
        "--break",
        dest="broken",
        choices=BREAKS,
        help="let something go wrong, and put it right: a node's log stops; the broker stops to "
        "answer; the worker is killed; a segment is damaged",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep logs, state and job file in this new folder"
    )
    parser.add_argument("--withhold", type=int, default=-1, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    started_s, stop = time.monotonic(), Stop()
    with folder_for(given.keep, "headrace-quickstart-") as folder, Processes(folder) as processes:
        # Imported while the processes start: it takes most of a second.
        from headrace.connector.demo.quickstart.live import Live  # noqa: PLC0415

        live = Live(folder, processes, started_s, keep=given.keep is not None)
        problems = live.run(stop, given.seconds, given.broken, withhold=given.withhold)
    if problems:
        raise QuickstartFailedError("; ".join(problems))
    return 0

"""`headrace demo`: plays a recording of three nodes into an embedded Kafka, and checks the result.

It runs the product: its statements, its worker, its broker and a consumer, each a process.
"""

import argparse
import contextlib
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from headrace.connector.demo.expected import expected_changes
from headrace.connector.demo.folders import folder_for
from headrace.connector.demo.play import AGAIN_FILE, CHANGES_FILE, JOB_FILE, play, write_again
from headrace.connector.demo.recording import SHIPPED, opened
from headrace.connector.demo.summary import (
    CheckOutcome,
    Line,
    check_outcome,
    figures_in,
    plain,
    summary_lines,
)
from headrace.connector.runtime.books.figures import figures_text
from headrace.plugins import FatalError
from headrace.plugins.config.arguments import CommandParser

NEXT: Final = """
Next:
  headrace quickstart    # a live ring of three nodes; --break shows what happens when parts fail
  {look}
  headrace options kafka    # what can be configured of the sink
"""
KEEP: Final = (
    "headrace demo --keep DIR    # keeps logs, state and messages, to try commands on them"
)
_SIGTERM_STATUS: Final = 128 + signal.SIGTERM


class CheckFailedError(FatalError):
    """The consumer does not have exactly the right changes, or the books do not balance."""

    code = "demo_check"


def main(arguments: Sequence[str]) -> int:
    """Play the demo; return 0 only if the consumer has exactly the expected changes."""
    parser = CommandParser(
        prog="headrace demo",
        description="Reads the recorded logs of three Cassandra nodes, agrees on the copies, "
        "publishes each change once into an embedded Kafka, and checks what a consumer received.",
    )
    parser.add_argument(
        "--recording",
        type=Path,
        default=SHIPPED,
        metavar="DIR|FILE.tar.xz",
        help="the recording to play (default: the one of Cassandra 5.0 that headrace comes with)",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep state, logs and messages in this new folder"
    )
    parser.add_argument("--withhold", type=int, default=-1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _exit)  # To end the children.
    with folder_for(options.keep, "headrace-demo-") as folder:
        recording = opened(options.recording, folder)
        expected = expected_changes(recording)
        console = Console()
        console.print(f"{recording.folder.name}: {len(recording.nodes)} nodes", highlight=False)
        with _progress(console, expected.total()) as progress:
            outcome = play(recording, folder, progress, withhold=options.withhold)
        write_again(recording, folder)
    checked = check_outcome(outcome, expected)
    job = (options.keep or Path("DIR")) / JOB_FILE
    sys.stdout.write(figures_text(figures_in(outcome), str(job)))
    _show(console, summary_lines(outcome, checked, expected.total()))
    sys.stdout.write(NEXT.format(look=KEEP if options.keep is None else _kept(options.keep)))
    _fail(checked)
    return 0


def _kept(folder: Path) -> str:
    """Return commands that use the files kept in *folder*."""
    books = shlex.join(["headrace", "verify", str(folder / JOB_FILE), "--books"])
    again = shlex.join(["headrace", "run", str(folder / AGAIN_FILE), "--until-idle"])
    out = shlex.quote(str(folder / CHANGES_FILE))
    return f"{books}\n  {again}    # reads the kept logs again, into {out}"


@contextlib.contextmanager
def _progress(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    columns = (TextColumn("received by the consumer"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.update(task, completed=count)


def _show(console: Console, lines: Sequence[Line]) -> None:
    if not console.is_terminal:
        sys.stdout.write(plain(lines))
        return
    table = Table.grid(padding=(0, 2))
    for label, text in lines:
        colour = {"passed": "green", "balance": "green"}.get(text, "")
        colour = "bold red" if text in ("FAILED", "differ") else colour
        table.add_row(f"  {label}", text, style=colour)
    console.print(table)


def _fail(checked: CheckOutcome) -> None:
    for example in checked.examples:
        sys.stderr.write(f"{example}\n")
    if checked.problems:
        raise CheckFailedError("; ".join(checked.problems))


def _exit(number: int, frame: FrameType | None) -> None:
    del number, frame
    sys.exit(_SIGTERM_STATUS)

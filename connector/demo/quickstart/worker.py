"""The worker of the quickstart: the product's host of a job, which says its figures as it goes.

Each line of its output is a JSON object: the figures as committed, and in the end failures too.
It begins when a byte comes on standard input, and ends when that input does: then it takes what is
still unread.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.connector.control.jobs import read_job
from headrace.connector.demo.quickstart.said import Said
from headrace.connector.hosting.host import Host
from headrace.connector.hosting.supervisor import parent_gone
from headrace.connector.obs import structlog
from headrace.connector.obs.logging import configure
from headrace.connector.runtime.books.committed import committed_books
from headrace.connector.runtime.books.figures import figures_of
from headrace.connector.runtime.making import made_source, read_only_context
from headrace.plugins import HeadraceError
from headrace.plugins.discovery import load
from headrace.plugins.errors import error_text

TOLD_EVERY_SECONDS: Final = 0.5
SOURCE: Final = "cassandra"
SINK: Final = "kafka"


def main(arguments: Sequence[str]) -> int:
    """Run the job of the file that is the only argument; return the exit status."""
    path = Path(arguments[0])
    # Imported while the broker starts, whose address the job file needs.
    load("sources", SOURCE)
    load("sinks", SINK)
    if not os.read(0, 1):
        return 0
    configure("warning")
    try:
        _run(path)
    except HeadraceError as error:
        sys.stderr.write(f"\n{error_text(error)}")
        return error.exit_status
    return 0


def _run(path: Path) -> None:
    log = structlog.get_logger()
    host = Host(path, log=log)
    parent_gone(host.stop)
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(path, ended), name="figures")
    teller.start()
    try:
        host.run(until_idle=False)
        _, report = Host(path, log=log).run(until_idle=True)
    finally:
        ended.set()
        teller.join()
    if report is not None:
        failures = [str(error) for error in report.failures]
        _say(Said(figures_of(report.books), failures, is_last=True))


def _tell(path: Path, ended: threading.Event) -> None:
    """Say the figures as they are committed, on a connection of its own."""
    job = read_job(path)
    while not ended.wait(TOLD_EVERY_SECONDS):
        with contextlib.suppress(HeadraceError):  # There is no state yet, or it is locked.
            with contextlib.closing(job.open_store(create=False)) as store:
                context = read_only_context(job.name, store.job_key())
                with contextlib.closing(made_source(job, context)) as source:
                    books = committed_books(store, source)
            _say(Said(figures_of(books)))


def _say(said: Said) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

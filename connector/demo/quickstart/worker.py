"""The worker of the quickstart: the product's host of a job, which reports its figures.

Each line of its output is a JSON object: the committed figures and, at the end, failures too. It
starts when the addresses of broker and registry come on standard input. When that input ends, it
reads the rest and ends.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from headrace.connector.control.jobs import read_job
from headrace.connector.control.service import ControlService
from headrace.connector.demo.quickstart.said import Said
from headrace.connector.foundation.processes import parent_gone
from headrace.connector.hosting.host import Host
from headrace.connector.language.parser import parse_statement
from headrace.connector.obs import structlog
from headrace.connector.obs.logging import configure
from headrace.connector.runtime.books.committed import committed_books
from headrace.connector.runtime.books.figures import Figures, figures_of
from headrace.connector.runtime.making import made_source, read_only_context
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import HeadraceError
from headrace.plugins.discovery import load
from headrace.plugins.errors import error_text

TOLD_EVERY_SECONDS: Final = 0.5
SOURCE: Final = "cassandra"
SINK: Final = "kafka"
CREATE_SINK: Final = (
    "CREATE DATA_SINK IF NOT EXISTS changes WITH 'kafka://{}?topic=changes' "
    "AND schema.store = 'registry' AND schema.store.url = '{}' AND schema.framing = 'confluent'"
)
_SOURCE: Final = "cdc ON TABLE shop.orders"
CREATE_SOURCE: Final = (
    f"CREATE DATA_SOURCE IF NOT EXISTS {_SOURCE} WITH changes AND job = 'quickstart'"
)
RESUME: Final = f"RESUME DATA_SOURCE {_SOURCE}"
_ADDRESS_BYTES_MAX: Final = 256


def main(arguments: Sequence[str]) -> int:
    """Run the job of the file that is the only argument; return the exit status."""
    path = Path(arguments[0])
    # Imported while the broker starts, whose address the sink needs.
    load("sources", SOURCE)
    load("sinks", SINK)
    addresses = os.read(0, _ADDRESS_BYTES_MAX).decode().split()
    if not addresses:
        return 0
    configure("warning")
    try:
        _run(path, *addresses)
    except HeadraceError as error:
        sys.stderr.write(f"\n{error_text(error)}")
        return error.exit_status
    return 0


def _run(path: Path, servers: str, registry: str) -> None:
    log, sink = structlog.get_logger(), CREATE_SINK.format(servers, registry)
    state = _define(path, sink, CREATE_SOURCE)
    host = Host(path, log=log)
    parent_gone(host.stop)
    ended = threading.Event()
    teller = threading.Thread(target=_tell, args=(path, state, host, ended), name="figures")
    teller.start()
    try:
        host.run(until_idle=False)
        _define(path, RESUME)  # A user may have paused it in the console.
        _, report = Host(path, log=log).run(until_idle=True)
    finally:
        ended.set()
        teller.join()
    if report is not None:
        failures = [str(error) for error in report.failures]
        _say(Said(figures_of(report.books), failures))


def _define(path: Path, *statements: str) -> Path:
    """Execute statements on the state of the job file, and return the state."""
    state, _ = state_of(path)
    with contextlib.closing(open_notes(state)) as notes:
        service = ControlService(notes, file=path)
        for text in statements:
            service.execute(parse_statement(text))
    return state


def _tell(path: Path, state: Path, host: Host, ended: threading.Event) -> None:
    """Print the committed figures, on a connection of its own.

    The console starts after the first change, because its imports take half a second.
    """
    job, console = read_job(path), contextlib.ExitStack()
    with console:
        is_shown = False
        while not ended.wait(TOLD_EVERY_SECONDS):
            with contextlib.suppress(HeadraceError):  # The state is locked.
                with contextlib.closing(job.open_store(create=False)) as store:
                    context = read_only_context(job.name, store.job_key())
                    with contextlib.closing(made_source(job, context)) as source:
                        figures = figures_of(committed_books(store, source))
                _say(Said(figures))
                if figures.published and not is_shown:
                    from headrace.connector.demo.quickstart.console import serve  # noqa: PLC0415

                    is_shown = True
                    console.callback(serve(state, path, host, partial(_say_place, figures)))


def _say_place(figures: Figures, place: str) -> None:
    _say(Said(figures, console=place))


def _say(said: Said) -> None:
    sys.stdout.write(msgspec.json.encode(said).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

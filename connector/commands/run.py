"""`headrace run`."""

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec
import structlog

from headrace.connector.commands.job_parser import add_engine, check_engine, job_parser
from headrace.connector.control.entries import SPARK
from headrace.connector.control.jobs import read_job
from headrace.connector.foundation.processes import parent_gone
from headrace.connector.foundation.states import Desired
from headrace.connector.hosting.host import Engine, Host, Running
from headrace.connector.runtime.books.equations import books_differences
from headrace.connector.runtime.books.figures import figures_of, figures_text, open_gaps
from headrace.connector.runtime.books.summary import (
    OPEN_STATUS,
    books_text,
    dead_letters_text,
    summary_of,
)
from headrace.connector.stores import StateLostError
from headrace.connector.stores.job import Job, state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import Wanted
from headrace.plugins import ConfigError, FatalError, Problem
from headrace.plugins.metrics import Measure

ANY_PORT: Final = "127.0.0.1:0"


class BooksDifferError(FatalError):
    """An equation of the books does not hold: something was lost, or counted wrongly (I3)."""

    code = "books_differ"
    exit_status = 4


def run_main(arguments: Sequence[str]) -> int:
    """Run a job until SIGTERM or, with --until-idle, until all is read. Returns the exit status."""
    given = _run_parser().parse_args(arguments)
    check_engine(given, by_source=given.with_parent)
    log = structlog.stdlib.get_logger()
    with contextlib.ExitStack() as stack:

        @cache
        def spark() -> Engine:
            # Imported here because a worker does not need it.
            from headrace.connector.commands.bulk.spark_entry import stream_engine  # noqa: PLC0415

            return stack.enter_context(stream_engine(given, log))

        def on_spark(job: Job, wanted: Wanted) -> Running:
            return spark()(job, wanted)

        host = Host(
            given.job_file,
            job=given.job,
            log=log,
            new_state=given.new_state,
            engine=spark() if given.engine == SPARK else None,
            on_spark=on_spark,
            master=given.master,
        )
        return _run_host(host, given)


def _run_host(host: Host, given: argparse.Namespace) -> int:
    summary_path: Path | None = given.summary_json and given.summary_json.absolute()
    if given.with_parent:
        _check_state(given.job_file, given.job)
        parent_gone(host.stop)
    place = ANY_PORT if given.with_parent else given.metrics
    with (
        stopped_by_signals(host.stop),
        metrics_served(host.measures, lambda: host.name, place) as port,
    ):
        if given.with_parent:
            sys.stdout.write(f"{port}\n")  # The parent scrapes this port.
            sys.stdout.flush()
        name, report = host.run(until_idle=given.until_idle)
    if report is None:
        return 0
    if summary_path:
        summary = msgspec.json.format(msgspec.json.encode(summary_of(name, report)), indent=1)
        _write(summary_path, summary.decode() + "\n")
    wrong = books_differences(report.books)
    if given.until_idle:
        sys.stdout.write(figures_text(figures_of(report.books, wrong), called(given)))
        sys.stdout.write(books_text(report.books) if given.books else "")
        noun = "change" if report.changes == 1 else "changes"
        sys.stdout.write(
            f"run: {report.changes} {noun} in {report.wall_seconds:.2f} s, "
            f"CPU {report.cpu_seconds:.2f} s\n"
        )
    look = f"`headrace dlq list {called(given)}` lists the dead letters, and why"
    sys.stderr.write(dead_letters_text(report.dead_lettered, look))
    if report.failures:
        raise report.failures[0]
    _balance(wrong)
    if not given.until_idle:
        return 0
    if host.state is not None:
        sys.stderr.write(_forked_text(given.job_file, host.state, name))
    return OPEN_STATUS if open_gaps(report.books) else 0


def called(given: argparse.Namespace) -> str:
    """Return the arguments by which other commands find the job of *given*, quoted for a shell."""
    named = f" --job {shlex.quote(given.job)}" if given.job else ""
    return f"{given.job_file}{named}"


def _forked_text(path: Path, state: Path, name: str) -> str:
    """Return a line for each running source that is not in this run but in a job of its own."""
    with contextlib.closing(open_notes(state)) as connection:
        forks = connection.board.forks(name)
    return "".join(
        f"{fork.source} has a job of its own: headrace run {path} --job {shlex.quote(fork.job)}\n"
        for fork in forks
        if fork.target[0] is Desired.RUNNING
    )


def _run_parser() -> argparse.ArgumentParser:
    parser = job_parser("run", "Run a job.")
    parser.add_argument(
        "--until-idle", action="store_true", help="read and deliver what is there, commit, and end"
    )
    parser.add_argument("--books", action="store_true", help="with --until-idle: also the books")
    parser.add_argument(
        "--summary-json", type=Path, metavar="PATH", help="write the summary of the run as JSON"
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve /metrics at this address, for this machine"
    )
    add_engine(parser)
    parser.add_argument(
        "--new-state",
        action="store_true",
        help="start over, though files beside the logs say that the job has run before",
    )
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def _check_state(path: Path, job: str | None) -> None:
    """Raise StateLostError if the state file is missing: the worker has made it."""
    place, _ = state_of(path, job)
    if not place.exists():
        raise StateLostError(
            "the state file is gone, which the worker of this job had", place=str(place)
        )


@contextlib.contextmanager
def metrics_served(
    measures: Callable[[], Iterable[Measure]], job: Callable[[], str], place: str | None
) -> Iterator[int]:
    """Serve the metrics of *job* at *place*, if there is one; yield the port."""
    if place is None:
        yield 0
        return
    # Imported here because it takes a tenth of a second.
    from headrace.connector.obs.metrics import Metrics, metrics_address  # noqa: PLC0415

    address = metrics_address(place, key="--metrics")
    with contextlib.closing(Metrics(address, measures, job())) as metrics:
        yield metrics.port


def enter(path: Path, name: str | None = None) -> Job:
    """Read a job file and go to its directory, to which the paths in it are relative.

    *name* replaces the one in the file.
    """
    job = read_job(path, name)
    os.chdir(job.directory)
    return job


@contextlib.contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Stop cleanly at the first SIGTERM or SIGINT, and at once at the second."""
    signals = 0

    def heard(number: int, frame: FrameType | None) -> None:
        del number, frame
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(1)
        stop()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            [Problem("--summary-json", f"cannot be written: {error.strerror}")], place=str(path)
        ) from error


def _balance(wrong: Sequence[str]) -> None:
    """Raise BooksDifferError if equations do not hold."""
    if wrong:
        raise BooksDifferError("; ".join(wrong), hint="`headrace verify --books` prints them")

"""`headrace run` and `headrace verify`."""

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

import structlog

from headrace.connector.job import Job, read_job, state_of
from headrace.connector.replay.checkpoint import checkpoint_of
from headrace.connector.replay.stream_books import stream_states
from headrace.connector.runtime.books import SplitBooks
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.committed import books_of, committed_books
from headrace.connector.runtime.hosting import Host
from headrace.connector.runtime.making import made_source
from headrace.connector.runtime.summary import (
    books_differences,
    books_text,
    failed_splits,
    failed_text,
    set_aside_text,
    spans_text,
    summary_of,
    verdict_of,
    waiting_text,
)
from headrace.connector.runtime.supervisor import parent_gone
from headrace.connector.stores import StateFileError, StateLostError
from headrace.plugins import ConfigError, Context, FatalError, Problem
from headrace.plugins.measures import Measure

BOOKS_DIFFER_STATUS: Final = 4
ANY_PORT: Final = "127.0.0.1:0"
SPARK: Final = "spark"


class BooksDifferError(FatalError):
    """An equation of the books does not hold: something was lost, or counted wrongly (I3)."""

    code = "books_differ"


def run_main(arguments: Sequence[str]) -> int:
    """Run a job until SIGTERM, or until all there is was taken. Returns the exit status."""
    given = _run_parser().parse_args(arguments)
    if given.engine == SPARK:
        # Only here: a worker needs nothing of it.
        from headrace.connector.replay.entry import stream_main  # noqa: PLC0415

        return stream_main(given)
    summary_path: Path | None = given.summary_json and given.summary_json.absolute()
    log = structlog.stdlib.get_logger()
    host = Host(given.job_file, job=given.job, log=log, new_state=given.new_state)
    if given.with_parent:
        _check_state(given.job_file, given.job)
        parent_gone(host.stop)
    place = ANY_PORT if given.with_parent else given.metrics
    with (
        stopped_by_signals(host.stop),
        metrics_served(host.measures, lambda: host.name, place) as port,
    ):
        if given.with_parent:
            sys.stdout.write(f"{port}\n")  # The parent asks there.
            sys.stdout.flush()
        name, report = host.run(until_idle=given.until_idle)
    if report is None:
        return 0
    if summary_path:
        _write(summary_path, json.dumps(summary_of(name, report), indent=1) + "\n")
    if given.until_idle:
        sys.stdout.write(waiting_text(report.books, str(given.job_file)))
        sys.stdout.write(books_text(report.books))
        sys.stdout.write(
            f"run: {report.changes} changes in {report.wall_seconds:.2f} s, "
            f"CPU {report.cpu_seconds:.2f} s\n"
        )
    named = f" --job {given.job}" if given.job else ""
    look = f"`headrace dlq list {given.job_file}{named}` lists what is set aside, and why"
    sys.stderr.write(set_aside_text(report.set_aside, look))
    if report.failures:
        raise report.failures[0]
    balance(report.books)
    return 0


def _run_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headrace run", description="Run a job.")
    parser.add_argument("job_file", type=Path, metavar="JOB.yaml", help="the job file")
    parser.add_argument("--job", metavar="NAME", help="the job, instead of the one in the file")
    parser.add_argument(
        "--until-idle", action="store_true", help="take what is there, settle, commit, and end"
    )
    parser.add_argument(
        "--summary-json", type=Path, metavar="PATH", help="write what the run came to, as JSON"
    )
    parser.add_argument(
        "--metrics", metavar="HOST:PORT", help="serve /metrics there, for this machine"
    )
    parser.add_argument(
        "--engine",
        choices=("worker", SPARK),
        default="worker",
        help="what runs it: this process, or Spark in micro-batches",
    )
    parser.add_argument("--master", help="with Spark: where; by default in local mode")
    parser.add_argument(
        "--batch-bytes",
        type=int,
        metavar="N",
        help="with Spark: about how much of all logs a micro-batch reads (128 MiB)",
    )
    parser.add_argument(
        "--new-state",
        action="store_true",
        help="begin anew, though notes beside the logs say that the job has run before",
    )
    parser.add_argument("--with-parent", action="store_true", help=argparse.SUPPRESS)
    return parser


def _check_state(path: Path, job: str | None) -> None:
    """Refuse to make a state file: the worker that started this process has made it."""
    place, _ = state_of(path, job)
    if not place.exists():
        raise StateLostError(
            "the state file is gone, which the worker of this job had", place=str(place)
        )


@contextlib.contextmanager
def metrics_served(
    measures: Callable[[], Iterable[Measure]], job: Callable[[], str], place: str | None
) -> Iterator[int]:
    """Serve the measures of *job* at *place*, if it is one; give the port."""
    if place is None:
        yield 0
        return
    # Only here: it takes a tenth of a second to import.
    from headrace.connector.obs.metrics import Metrics, metrics_address  # noqa: PLC0415

    metrics = Metrics(metrics_address(place, key="--metrics"), measures, job())
    try:
        yield metrics.port
    finally:
        metrics.close()


def verify_main(arguments: Sequence[str]) -> int:
    """Print the committed books of a job; return 4 if they do not balance."""
    parser = argparse.ArgumentParser(
        prog="headrace verify",
        description="Print the books of a job as committed; exit 4 if they do not balance.",
    )
    parser.add_argument("job_file", type=Path, metavar="JOB.yaml", help="the job file")
    parser.add_argument("--job", metavar="NAME", help="the job, instead of the one in the file")
    parser.add_argument("--by-split", action="store_true", help="the books of each split too")
    parser.add_argument("--json", action="store_true", help="all of it as JSON")
    given = parser.parse_args(arguments)
    job = enter(given.job_file, given.job)
    books, failed = _committed(job)
    wrong = books_differences(books)
    if given.json:
        sys.stdout.write(json.dumps(verdict_of(job.name, books, failed), indent=1) + "\n")
    else:
        sys.stdout.write(failed_text(failed, len(books)))
        sys.stdout.write(waiting_text(books, str(given.job_file)))
        _print_books(books, by_split=given.by_split)
        verdict = "the books differ" if wrong else "the books balance"
        sys.stdout.write(f"{verdict}{' for what was read before that' if failed else ''}\n")
    for line in wrong:
        sys.stderr.write(f"error [{BooksDifferError.code}]: {line}\n")
    return BOOKS_DIFFER_STATUS if wrong else 0


def _committed(job: Job) -> tuple[Sequence[SplitBooks], Mapping[str, str]]:
    """Return the books of a job, whichever engine runs it, and why splits of it failed."""
    store = job.open_store(create=False)
    try:
        checkpoint = checkpoint_of(job.state, job.name)
        is_committed = bool(store.plans().in_force.splits or store.leases())
        if not is_committed and checkpoint.committed() is None:
            raise StateFileError(
                f"holds nothing of job {job.name}", place=str(job.state), hint="run the job first"
            )
        context = Context(
            job=job.name,
            clock=SystemClock(),
            job_key=store.job_key(),
            log=structlog.stdlib.get_logger(),
            spectator=True,
        )
        source = made_source(job, context)
        try:
            if not is_committed:
                return books_of(stream_states(checkpoint, source), source, thorough=True), {}
            failed = failed_splits(store.seen(), [row.split for row in store.leases()])
            return committed_books(store, source, thorough=True), failed
        finally:
            source.close()
    finally:
        store.close()


def _print_books(books: Sequence[SplitBooks], *, by_split: bool) -> None:
    for split in books if by_split else ():
        sys.stdout.write(f"split {split.split}\n")
        text = spans_text([split]) + books_text([split])
        sys.stdout.writelines(f"  {line}\n" for line in text.splitlines())
    sys.stdout.write(spans_text(books) + books_text(books))


def enter(path: Path, name: str | None = None) -> Job:
    """Read a job file and go to its directory, to which the paths in it are relative.

    *name* stands for that in the file.
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


def balance(books: Sequence[SplitBooks]) -> None:
    """Raise BooksDifferError if an equation of *books* does not hold."""
    wrong = books_differences(books)
    if wrong:
        raise BooksDifferError("; ".join(wrong), hint="`headrace verify` prints the books")

"""`headrace verify`: checks the books of a job, and its sink against them."""

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from headrace.connector.commands.job_parser import job_parser
from headrace.connector.commands.run import BooksDifferError, called, enter
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.stream.checkpoint import known_schemas
from headrace.connector.runtime.books.committed import committed_books
from headrace.connector.runtime.books.equations import SplitBooks, books_differences, total
from headrace.connector.runtime.books.figures import figures_of, figures_text, open_gaps
from headrace.connector.runtime.books.sink_contents import SinkContent, content_of
from headrace.connector.runtime.books.summary import (
    OPEN_STATUS,
    books_summary,
    books_text,
    failed_splits,
    failed_text,
    miscounted,
    spans_text,
)
from headrace.connector.runtime.failures.refusals import failed_sources
from headrace.connector.runtime.making import made_sink, made_source, read_only_context
from headrace.connector.serde import Encoder
from headrace.connector.serde.change_names import ChangeNames
from headrace.connector.serde.decoding import Decoder
from headrace.connector.serde.transforms.chain import Chain
from headrace.connector.stores import StateFileError
from headrace.connector.stores.asked_runs import AskedRuns, RunKind
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import NO_ORIGIN, Sink, SinkOptions

BOOKS_DIFFER_STATUS: Final = 4


def verify_main(arguments: Sequence[str]) -> int:
    """Print the figures of a job, as committed; return 4 if something differs, or a gap is open."""
    parser = job_parser(
        "verify",
        "Show how many changes of a job were published, dropped or lost, as committed; exit 4 if "
        "its books do not balance, or a gap is open.",
    )
    parser.add_argument("--books", action="store_true", help="also print the books")
    parser.add_argument(
        "--by-split", action="store_true", help="also print the books of each split"
    )
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--sink",
        action="store_true",
        help="read the sink, and exit 4 if changes are missing that were delivered",
    )
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="how many processes read the sink; default: as many as there are processors",
    )
    given = parser.parse_args(arguments)
    if given.processes < 1:
        raise bad_option("--processes", f"expected 1 or more, found {given.processes}")
    job = enter(given.job_file, given.job)
    books, failed = _committed(job)
    content, lost = _compared(job, books, given.processes) if given.sink else (None, ())
    with contextlib.closing(open_notes(job.notes, create=False)) as notes:
        sources, snapshots = failed_sources(notes, job.name), _snapshots(notes, job.name)
    wrong = books_differences(books)
    if given.json:
        summary = dict(books_summary(job.name, books, failed, sources))
        if content is not None:
            summary |= {"sink": content.json(), "sink_differences": list(lost)}
        summary["snapshots"] = snapshots
        sys.stdout.write(json.dumps(summary, indent=1) + "\n")
    else:
        sys.stdout.writelines(f"{error}\n" for error in sources)
        sys.stdout.write(failed_text(failed, len(books)))
        sys.stdout.write(figures_text(figures_of(books), called(given)))
        if given.books or given.by_split:
            _print_books(books, by_split=given.by_split)
        sys.stdout.writelines(
            f"{name}: {rows:,} rows of {source}, which are in no book\n"
            for name, (source, rows) in snapshots.items()
        )
        sys.stdout.write("" if content is None else content.text())
        said = "the books differ" if wrong else "the books balance"
        sys.stdout.write(f"{said}{' for what was read before that' if failed else ''}\n")
    for line in (*wrong, *lost):
        sys.stderr.write(f"error [{BooksDifferError.code}]: {line}\n")
    if wrong or lost or miscounted(failed):
        return BOOKS_DIFFER_STATUS
    return OPEN_STATUS if open_gaps(books) else 0


def _committed(job: Job) -> tuple[Sequence[SplitBooks], Mapping[str, str]]:
    """Return the books of a job on any engine, and why splits of it failed."""
    with contextlib.closing(job.open_store(create=False)) as store:
        if not (store.plans().in_force.splits or store.leases()):
            raise StateFileError(
                f"holds nothing of job {job.name}", place=str(job.state), hint="run the job first"
            )
        context = read_only_context(job.name, store.job_key())
        with contextlib.closing(made_source(job, context)) as source:
            failed = failed_splits(store.seen(), [row.split for row in store.leases()])
            return committed_books(store, source, thorough=True), failed


def _snapshots(notes: NoteCopy, job: str) -> Mapping[str, tuple[str, int]]:
    """Return the snapshots of a job: the source of each, and the rows that were delivered."""
    mine = {route.source for route in notes.board.routes(job)}
    found = AskedRuns(notes).all(kind=RunKind.SNAPSHOT)
    return {each.name: (each.source, seen.changes) for each, seen in found if each.source in mine}


def _compared(
    job: Job, books: Sequence[SplitBooks], processes: int
) -> tuple[SinkContent, Sequence[str]]:
    """Return the content of the job's sink, and its differences from *books*, read before."""
    assert job.file is not None  # noqa: S101 (it was read from there)
    opened = partial(_opened, job.file, job.name)
    content = content_of(opened, total(books).counters, processes=processes)
    is_moving = total(_committed(job)[0]).counters != total(books).counters
    return content, content.differences(is_moving=is_moving)


def _opened(path: Path, name: str) -> tuple[Sink, ChangeNames]:
    """Open the sink of a job, and make the reader of its changes' names.

    Raises:
        ConfigError: the messages do not identify their changes.

    """
    job = enter(path, name)
    with contextlib.closing(job.open_store(create=False)) as store:
        key = store.job_key()
    schemas = known_schemas(job).values()
    sink = made_sink(job, read_only_context(job.name, key))
    options = job.sink_config
    chain = Chain(options) if isinstance(options, SinkOptions) else None
    if chain is not None:
        chain.check_topics({schema.table: sink.topic_of(schema.table) for schema in schemas})
    # Without a schema store: nothing is read from it or published.
    encoder = Encoder(sink.encoding(), NO_ORIGIN, chain=chain, topic_of=sink.topic_of)
    decoder = Decoder.of(sink, {}, job.directory)
    return sink, ChangeNames(sink.encoding(), encoder, schemas, decoder, origin=job.source.origin)


def _print_books(books: Sequence[SplitBooks], *, by_split: bool) -> None:
    for split in books if by_split else ():
        sys.stdout.write(f"split {split.split}\n")
        text = spans_text([split]) + books_text([split])
        sys.stdout.writelines(f"  {line}\n" for line in text.splitlines())
    sys.stdout.write(spans_text(books) + books_text(books))

"""An audit of a job's topics: what they have, beside what the job's books say was delivered.

python -m headrace.connector.streams.audit job.yaml              # an app, with a page at `/audit/`
python -m headrace.connector.streams.audit job.yaml --until-end  # once; 4 if something differs
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import faust
import msgspec
import structlog
from faust.types import TP
from faust.web import Request, Response, View

from headrace.connector.streams.arguments import app_of, changes_parser, reader_of, run
from headrace.connector.streams.auditing import Audit, Books, audited, differing
from headrace.connector.streams.counted import CountedChanges
from headrace.connector.streams.job_books import JobBooks
from headrace.connector.streams.kit import Consumer, end
from headrace.plugins import ConfigError, HeadraceError, Problem

DIFFERS_STATUS: Final = 4  # As that of `headrace verify`.
SECONDS: Final = 30.0
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")  # In the name of a topic.


class Auditor:
    """The audit that an app repeats; `last` is the newest one, None before the first."""

    def __init__(
        self,
        consumer: Consumer,
        counted: CountedChanges,
        read_books: Callable[[], Books],
        tables: Sequence[str],
    ) -> None:
        """Compare what an app *counted* of the topics of *consumer*. Raises as `audit`."""
        self.last: Audit | None = None
        self._tables = tables
        topics = {consumer.topic_of(table): consumer.partitions(table) for table in tables}
        self._places = [TP(topic, n) for topic, count in topics.items() for n in range(count)]
        self._consumer = consumer
        self._counted = counted
        self._read_books = read_books
        self._books: Books | None = None  # Of the comparison before.
        self._log = structlog.stdlib.get_logger()

    async def compare(self, app: faust.App) -> Audit:
        """Compare what was counted with the books; warn of what differs.

        Raises:
            HeadraceError: the books cannot be read.

        """
        books = await asyncio.to_thread(self._read_books)
        # After the books: what they have is before these ends.
        ends = dict(await app.consumer.highwaters(*self._places))
        unread = await self._consumer.behind(app, ends)
        # What is delivered comes into the books later. So they are to be the same for a while.
        is_moving = books != self._books
        self._books = books
        audit = Audit.of(self._counted, books, self._tables, is_moving=is_moving, unread=unread)
        self._tell(audit)
        self.last = audit
        return audit

    def _tell(self, audit: Audit) -> None:
        before = self.last
        if audit.unread:
            self._log.info("audit_behind", partitions=[*audit.unread])
            return
        for line in audit.differences():
            self._log.warning("audit_differs", found=line)
        if not audit.differences() and (before is None or before.unread or before.differences()):
            self._log.info("audit_agrees", tables=[*audit.tables])


def audit(
    app: faust.App,
    consumer: Consumer,
    read_books: Callable[[], Books],
    *tables: str,
    seconds: float = SECONDS,
) -> Auditor:
    """Have *app* count the changes of *tables*, and compare them with the books again and again.

    It keeps what it counted in its tables, so that a message counts also when its topic does not
    have it any more. Only an app of one process can compare: it has all partitions.

    Raises:
        ConfigError: the topics of the tables have different numbers of partitions.
        HeadraceError: a topic does not exist, or no broker answers.

    """
    names, sums = (
        consumer.table_beside(app, f"audit-{name}", *tables) for name in ("names", "sums")
    )
    counted = CountedChanges(names, sums)
    auditor = Auditor(consumer, counted, read_books, tables)

    @app.agent(consumer.topic(app, *tables))
    async def count(stream: Any) -> None:  # noqa: ANN401 (Faust's streams are generic)
        async for change in consumer.changes(stream):
            try:
                counted.take(change)
            except HeadraceError as error:
                await end(app, error)

    @app.timer(seconds)  # type: ignore[untyped-decorator]  # Faust's.
    async def compare() -> None:
        await app.tables.wait_until_recovery_completed()
        try:
            await auditor.compare(app)
        except HeadraceError as error:
            structlog.stdlib.get_logger().warning("audit_pauses", error=str(error))

    @app.page("/audit/")
    async def show(view: View, request: Request) -> Response:
        del request
        found = {} if auditor.last is None else auditor.last.json()
        return view.bytes(msgspec.json.encode(found), content_type="application/json")

    return auditor


def audit_parser() -> argparse.ArgumentParser:
    """Return the parser of this module's arguments."""
    parser = changes_parser("audit", "Compare the topics of a job with its books.", "audit")
    parser.set_defaults(name=None)  # Two audits with one name would add up.
    parser.add_argument("--job-name", help="with --state: the name of the job")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="the time between two comparisons"
    )
    parser.add_argument(
        "--until-end",
        action="store_true",
        help="no app: read the topics once, to their ends, and exit with 4 if something differs",
    )
    parser.add_argument("--json", action="store_true", help="with --until-end: everything as JSON")
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FILE",
        help="with --until-end: compare the windows with those of another audit, in JSON",
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Audit until it is asked to stop, or once."""
    given = audit_parser().parse_args(arguments)
    try:
        books = _books_of(given)
        reader = reader_of(given)
        if given.until_end:
            return _once(given, audited(reader, books.read, *(given.table or ())))
        consumer = Consumer(reader)
        given.name = given.name or f"headrace-audit-{_UNSAFE.sub('_', books.job)}"
        app = app_of(given, reader.sink)
        audit(app, consumer, books.read, *(given.table or books.read()), seconds=given.seconds)
        run(app)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


def _books_of(given: argparse.Namespace) -> JobBooks:
    if given.job is not None:
        return JobBooks.of_job(given.job)
    if given.state is None or given.job_name is None:
        hint = "give the job file, or --state and --job-name"
        raise ConfigError([Problem("job", "the books of which job?", hint)])
    return JobBooks(given.state, given.job_name)


def _once(given: argparse.Namespace, found: Audit) -> int:
    """Print one audit; return the exit status."""
    differences = [*found.differences()]
    if given.against is not None:
        try:
            other = json.loads(given.against.read_bytes())
            differences += differing(found.json(), other)
        except (OSError, ValueError, LookupError, TypeError) as error:
            problem = Problem("--against", f"is not an audit ({type(error).__name__})")
            raise ConfigError([problem], place=str(given.against)) from error
    sys.stdout.write(json.dumps(found.json(), indent=1) + "\n" if given.json else found.text())
    for line in differences:
        sys.stderr.write(f"error [audit_differs]: {line}\n")
    return DIFFERS_STATUS if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command of an audit: an app, or one comparison when the topics end.

python -m headrace.connector.streams.audit job.yaml              # an app, with a page at `/audit/`
python -m headrace.connector.streams.audit job.yaml --until-end  # once; 4 if something differs
"""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.connector.streams.arguments import app_of, changes_parser, reader_of, reported, run
from headrace.connector.streams.audit.app import SECONDS, audit
from headrace.connector.streams.audit.books import JobBooks
from headrace.connector.streams.audit.comparing import Audit, audited, delivered, differing
from headrace.connector.streams.kit import Consumer
from headrace.plugins import ConfigError, Problem

DIFFERS_STATUS: Final = 4  # The same as for `headrace verify`.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")  # Must not occur in the name of a topic.


def audit_parser() -> argparse.ArgumentParser:
    """Return the parser of this module's arguments."""
    parser = changes_parser("audit", "Compare the topics of a job with its books.", "audit")
    parser.set_defaults(name=None)  # Two audits with one name would be added up.
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


@reported
def main(arguments: Sequence[str]) -> int:
    """Audit until the process is asked to stop, or once."""
    given = audit_parser().parse_args(arguments)
    books = _books_of(given)
    reader = reader_of(given)
    if given.until_end:
        return _once(given, audited(reader, books.read, *(given.table or ())))
    consumer = Consumer(reader)
    given.name = given.name or f"headrace-audit-{_UNSAFE.sub('_', books.job)}"
    app = app_of(given, reader.sink)
    tables = given.table or delivered(books.read())
    audit(app, consumer, books.read, *tables, seconds=given.seconds)
    run(app)
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

"""`headrace exec`: executes statements from the command line, a file or standard input.

Statements take effect one by one: those before an error stay executed, those after it are not.
"""

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headrace.connector.control.errors import describe_error
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.job_file import FILE_SUFFIXES, state_given
from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import FORMATS, Rendering
from headrace.connector.language.statements import CreateCdc, CreateSink, CreateSource
from headrace.connector.shell.executing import BEARER_VARIABLE, LOGIN_VARIABLE, Executes
from headrace.connector.shell.session import decoded, read_script
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser

STATEMENT_ERROR_STATUS: Final = 2
_STANDARD_INPUT: Final = "<stdin>"


def main(argv: Sequence[str]) -> int:
    """Run the command; return 2 after printing the error of a statement that failed.

    Raises:
        HeadraceError: the statements or the state file cannot be read.

    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.execute is None and arguments.file is None and sys.stdin.isatty():
        parser.error("no statements: -e or -f has them, and `headrace shell` asks for them")
    origin, text = _statements(arguments)
    try:
        with _service(arguments, origin, text) as service:
            _execute_all(service, origin, text, arguments.format)
    except _ReportedError as reported:
        sys.stderr.write(f"{reported}\n")
        return STATEMENT_ERROR_STATUS
    return 0


@contextlib.contextmanager
def _service(arguments: argparse.Namespace, origin: str, text: str) -> Iterator[Executes]:
    if arguments.rest:
        # Imported here because HTTP and TLS are a tenth of the imports for a statement.
        from headrace.connector.shell.remote import remote  # noqa: PLC0415

        yield remote(arguments.rest, username=arguments.username)
    else:
        given = arguments.state
        place = Path(given) if given else state_given(None, create=True)
        if place.suffix not in FILE_SUFFIXES and not place.exists():
            _check_creates(place, origin, text)
        with contextlib.closing(open_notes(place)) as notes:
            file = place if place.suffix in FILE_SUFFIXES else None
            yield ControlService(notes, file=file)


def _check_creates(place: Path, origin: str, text: str) -> None:
    """Raise if the statements only read a state file that does not exist: its name may be wrong.

    Raises:
        ConfigError: no statement creates a sink, a source or a history.

    """
    try:
        makes = CreateSink | CreateSource | CreateCdc
        if any(isinstance(parsed.statement, makes) for parsed in parse_script(text)):
            return
    except StatementSyntaxError as error:
        raise _at_line(origin, error) from error
    problem = Problem(
        "--state", "the state file does not exist", "CREATE makes it; is the name right?"
    )
    raise ConfigError([problem], place=str(place))


class _ReportedError(Exception):
    """A statement failed; the text is what to print."""


def _at_line(origin: str, error: StatementSyntaxError) -> _ReportedError:
    return _ReportedError(f"{origin}:{error.where.line}:{error}")


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace exec",
        description="Execute statements on a state file.",
        epilog="Statements are separated by semicolons; see docs/statements.md.",
    )
    parser.unknown_hint = (
        '-e has the statements, --state the state: headrace exec --state state.db -e "SHOW STATUS".'
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--state",
        metavar="FILE",
        help="the state file, or the worker's file; default: HEADRACE_STATE, or headrace.db",
    )
    where.add_argument("--rest", metavar="URL", help="the HTTP server of another machine, instead")
    parser.add_argument(
        "-u",
        "--username",
        default="",
        help=f"the user there; {LOGIN_VARIABLE} or {BEARER_VARIABLE} has the password or token",
    )
    given = parser.add_mutually_exclusive_group()
    given.add_argument("-e", "--execute", metavar="TEXT", help="the statements")
    given.add_argument("-f", "--file", metavar="FILE", help="a file of statements, - for stdin")
    parser.add_argument(
        "--format",
        choices=sorted(FORMATS),
        default="table" if sys.stdout.isatty() else "jsonl",
        help="the format of answers (default: table on a terminal, otherwise jsonl)",
    )
    return parser


def _statements(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the name of the statements' origin, and their text."""
    if arguments.execute is not None:
        return _STANDARD_INPUT, arguments.execute  # cqlsh's name for the text of -e.
    if arguments.file in (None, "-"):
        return _STANDARD_INPUT, decoded(sys.stdin.buffer.read(TEXT_BYTES_MAX + 1), _STANDARD_INPUT)
    return arguments.file, read_script(Path(arguments.file))


def _execute_all(service: Executes, origin: str, text: str, form: str) -> None:
    how = Rendering(shutil.get_terminal_size().columns)
    script = parse_script(text)
    while True:
        try:
            parsed = next(script, None)
        except StatementSyntaxError as error:
            raise _at_line(origin, error) from error
        if parsed is None:
            return
        try:
            result = service.execute(parsed.statement)
        except ConfigError as error:
            line = parsed.place().line
            raise _ReportedError(f"{origin}:{line}:{describe_error(parsed, error)}") from error
        sys.stdout.write(FORMATS[form](result, how))
        for warning in result.warnings:
            sys.stderr.write(f"{warning}\n")

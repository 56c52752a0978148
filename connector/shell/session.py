"""A session of the shell: units of input are executed one by one, and answered on a screen.

The same for a prompt, a file, a pipe and `-e`. Independent of terminals: the reader of the input
passes the screen. Belongs to one thread.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

from headrace.connector.control.errors import describe_error
from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.errors import ShellError, StatementSyntaxError
from headrace.connector.language.parser import ParsedStatement, parse_script
from headrace.connector.language.rendering import (
    FORMATS,
    MONOCHROME,
    Palette,
    Rendering,
    ResultTable,
    printable,
)
from headrace.connector.language.statements import (
    NO_TABLE,
    DropCdc,
    DropSink,
    DropSource,
    PollCdc,
    SetPosition,
    Show,
    SourceName,
    Statement,
    TableName,
    TailCdc,
)
from headrace.connector.shell.executing import Executes
from headrace.connector.shell.scanning import Kind, Unit, units
from headrace.plugins import ConfigError, HeadraceError

if TYPE_CHECKING:
    from headrace.connector.shell.cql import CqlConnection

SOURCE_DEPTH_MAX: Final = 8  # Files that execute files.
PAGE_ROWS: Final = 100
FETCHED_ROWS: Final = 1_000  # At once, without paging.
JOINED_ROWS_MAX: Final = 100_000  # A longer result is shown in parts.

_CQL_DESTRUCTIVE: Final = ("DROP", "TRUNCATE")


class Settings(msgspec.Struct):
    """The settings that commands change. `page_rows` is 0 without paging."""

    format: str = "table"
    expand: bool = False
    page_rows: int = PAGE_ROWS
    tracing: bool = False
    timing: bool = False
    stop_on_error: bool = False
    keyspace: str = ""


@dataclass(slots=True)
class Screen:
    """The output of results and errors, and questions to the user.

    `ask` is called with a question before a destructive statement, and with `---MORE---` between
    pages; it returns False to cancel. `password` asks for a password.
    """

    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    palette: Palette = MONOCHROME
    interactive: bool = False
    width: Callable[[], int] = lambda: 80
    ask: Callable[[str], bool] = lambda _: True
    password: Callable[[str], str] = lambda _: ""
    clear: Callable[[], None] = lambda: None
    pause: Callable[[float], None] = time.sleep


class LeaveShell(Exception):  # noqa: N818 (not an error: the user entered EXIT)
    """The session is over."""


class Session:
    """See the module. `cql` is None without a connection; `login` makes one for a user.

    `failed` says whether anything has failed so far, also in executed files.
    """

    def __init__(
        self,
        service: Executes,
        commands: Mapping[str, "Command"],
        settings: Settings,
        screen: Screen,
        *,
        login: "Callable[[str, str], CqlConnection] | None" = None,
    ) -> None:
        """Execute nothing yet. *commands* are the shell's own, by their names in capitals."""
        self.service = service
        self._commands = commands
        self.settings = settings
        self.screen = screen
        self.login = login
        self.cql: CqlConnection | None = None
        self.failed = False
        self.history: Callable[[], list[str]] = list
        self._capture: TextIO | None = None
        self._captured_by = ""
        self._depth = 0

    @property
    def keyspace(self) -> str:
        """The current keyspace, or an empty string."""
        return self.cql.keyspace if self.cql else self.settings.keyspace

    def run(self, text: str, *, origin: str = "", is_file: bool = False) -> bool:
        """Execute every unit of *text*; return whether all succeeded.

        Errors are shown, after *origin* and the line if there is one. The last statement of a file
        ends with a semicolon, or at least is one of ours.

        Raises:
            LeaveShell: a command ended the session.

        """
        succeeded, line, at = True, 1, 0
        for unit in units(text):
            line, at = line + text.count("\n", at, unit.start), unit.start
            if not unit.whole and unit.kind is not Kind.OURS and is_file:
                self._fail(f"{origin}:{line}:Incomplete statement at end of file")
                return False
            if not self._run_unit(unit, origin, line):
                succeeded = False
                if self.settings.stop_on_error:
                    break
        return succeeded

    def run_file(self, path: str) -> bool:
        """Execute a file, as SOURCE does.

        Raises:
            ShellError: it cannot be read, or files are nested too deeply.

        """
        text = read_script(Path(path).expanduser())
        if self._depth == SOURCE_DEPTH_MAX:
            raise ShellError(f"more than {SOURCE_DEPTH_MAX} files execute one another")
        self._depth += 1
        try:
            return self.run(text, origin=path, is_file=True)
        finally:
            self._depth -= 1

    def show(self, result: ResultTable) -> None:
        """Write a result to the screen, or to the capturing file."""
        form = self.settings.format
        if form == "table" and self.settings.expand:
            form = "expanded"
        for page in self._pages(result):
            if self._capture is not None:
                self._capture.write(FORMATS[form](page, Rendering(self.screen.width())))
                self._capture.flush()
            else:
                how = Rendering(self.screen.width(), self.screen.palette)
                self.screen.out.write(FORMATS[form](page, how))
                self.screen.out.flush()

    def say(self, text: str) -> None:
        """Write a line that is not a result."""
        self.screen.out.write(f"{text}\n")
        self.screen.out.flush()

    @property
    def captured_by(self) -> str:
        """The file that captures results, or an empty path."""
        return self._captured_by if self._capture else ""

    def capture(self, path: str) -> None:
        """Append results to *path* from now on; with an empty path, show them again.

        Raises:
            ShellError: the file cannot be written.

        """
        if self._capture is not None:
            self._capture.close()
            self._capture = None
        if path:
            try:
                file = Path(path).expanduser()
                descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            except OSError as error:
                raise ShellError(f"Could not open {path!r}: {error.strerror}") from error
            self._captured_by = path
            self._capture = os.fdopen(descriptor, "a", encoding="utf-8")

    def close(self) -> None:
        """Close the connection and the capturing file. Safe to call twice."""
        self.capture("")
        if self.cql is not None:
            self.cql.close()
            self.cql = None

    # One unit.

    def _run_unit(self, unit: Unit, origin: str, line: int) -> bool:
        prefix = f"{origin}:{{}}:" if origin else ""
        started = time.monotonic()
        try:
            match unit.kind:
                case Kind.OURS:
                    self._run_ours(unit)
                case Kind.COMMAND:
                    self.run_command(unit.text)
                case Kind.CQL:
                    self._run_cql(unit)
        except StatementSyntaxError as error:
            self._fail(f"{prefix.format(line + error.where.line - 1)}{error}")
            return False
        except _ShownError as error:
            self._fail(f"{prefix.format(line)}{error}")
            return False
        except ShellError as error:
            self._fail(f"{prefix.format(line)}{error.message}")
            return False
        except HeadraceError as error:
            self._fail(f"{prefix.format(line)}{_text_of(error)}")
            return False
        if self.settings.timing and unit.kind is not Kind.COMMAND:
            self.say(f"({time.monotonic() - started:.3f} s)")
        return True

    def _run_ours(self, unit: Unit) -> None:
        for parsed in parse_script(unit.text):
            statement = self._qualified(parsed.statement)
            question = isinstance(statement, DropSink | DropSource | DropCdc) or (
                isinstance(statement, SetPosition) and not statement.dry_run
            )
            if question and not self._sure(unit.text):
                return
            if self.screen.interactive and isinstance(statement, TailCdc | PollCdc):
                self._follow(parsed, statement)
                return
            result = self.execute(parsed, statement)
            self.show(result)
            self._warn(result)

    def _follow(self, parsed: ParsedStatement, statement: TailCdc | PollCdc) -> None:
        """Repeat the statement, each time from the end of the last result, until Ctrl-C."""
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                result = self.execute(parsed, statement)
                if result.rows:
                    self.show(msgspec.structs.replace(result, footer=()))
                places = dict(result.footer)
                if isinstance(statement, PollCdc):
                    statement = msgspec.structs.replace(statement, since=int(places["next_from"]))
                else:
                    after = places["next_token"]
                    statement = msgspec.structs.replace(statement, since=None, after=after)

    def execute(self, parsed: ParsedStatement, statement: Statement) -> ResultTable:
        """Execute one of our statements; *parsed* is its parsed form with places."""
        try:
            return self.service.execute(statement)
        except ConfigError as error:
            raise _ShownError(describe_error(parsed, error)) from error

    def run_command(self, text: str) -> None:
        """Execute one command.

        Raises:
            ShellError: it cannot be done.
            LeaveShell: it was EXIT.

        """
        name, *rest = text.split(maxsplit=1)
        command = self._commands.get(name.upper())
        if command is None:  # Only one with a backslash is not looked up before.
            raise ShellError(f"{name} is not a command. HELP lists the commands.")
        command(self, rest[0].strip() if rest else "")

    def _run_cql(self, unit: Unit) -> None:
        words = unit.text.split(maxsplit=2)
        verb = words[0].upper()
        if self.cql is None:
            if verb == "USE" and len(words) > 1:
                self.settings.keyspace = (
                    words[1].strip('"') if '"' in words[1] else words[1].lower()
                )
                return
            list(parse_script(unit.text))  # It may be our own, misspelt: then this raises.
            if verb == "SELECT":
                raise ShellError("not connected; a SELECT of a CDC needs WHERE CDC_TIME() >= …")
            raise ShellError("not connected")
        if verb in _CQL_DESTRUCTIVE and not self._sure(unit.text):
            return
        settings = self.settings
        one_by_one = self.screen.interactive and settings.page_rows
        page_rows = settings.page_rows if one_by_one else FETCHED_ROWS
        pages = self.cql.execute(unit.text, page_rows=page_rows, tracing=settings.tracing)
        for number, page in enumerate(pages if one_by_one else joined(pages)):
            if number and one_by_one and page.rows and not self.screen.ask("---MORE---"):
                return
            self.show(page)

    def _sure(self, text: str) -> bool:
        shown = printable(text, kept="\n")
        return not self.screen.interactive or self.screen.ask(f"{shown}\nReally? [y/N] ")

    def _qualified(self, statement: Statement) -> Statement:
        """Return *statement* with the current keyspace if its table has none."""
        if not self.keyspace:
            return statement
        if isinstance(statement, Show) and statement.source is not None:
            table = self._whole(statement.source.table)
            return msgspec.structs.replace(
                statement, source=SourceName(statement.source.word, table)
            )
        if isinstance(statement, SourceName):
            return msgspec.structs.replace(statement, table=self._whole(statement.table))
        return statement

    def _whole(self, table: TableName) -> TableName:
        if table == NO_TABLE:
            return table
        return TableName(table.keyspace or self.keyspace, table.name)

    def _pages(self, result: ResultTable) -> Iterator[ResultTable]:
        size = self.settings.page_rows
        if not self.screen.interactive or not size or self._capture is not None:
            yield result
            return
        for start in range(0, max(1, len(result.rows)), size):
            if start and not self.screen.ask("---MORE---"):
                return
            yield msgspec.structs.replace(result, rows=result.rows[start : start + size])

    def _warn(self, result: ResultTable) -> None:
        self.screen.out.flush()
        for warning in result.warnings:
            self.screen.err.write(f"{warning}\n")
        self.screen.err.flush()

    def _fail(self, text: str) -> None:
        self.failed = True
        self.screen.out.flush()
        shown = "\n".join(printable(line) for line in text.split("\n"))
        self.screen.err.write(f"{self.screen.palette.paint('error', shown)}\n")
        self.screen.err.flush()


Command = Callable[[Session, str], None]  # It gets the text after its name.


def joined(pages: Iterable[ResultTable]) -> Iterator[ResultTable]:
    """Yield pages joined to whole results, long ones in parts."""
    whole: ResultTable | None = None
    for page in pages:
        if whole is None:
            whole = page
        elif page.columns == whole.columns and len(whole.rows) < JOINED_ROWS_MAX:
            whole = msgspec.structs.replace(whole, rows=whole.rows + page.rows)
        else:
            yield whole
            whole = page
    if whole is not None:
        yield whole


class _ShownError(Exception):
    """A statement failed; the text is what to show."""


def read_script(path: Path) -> str:
    """Return the text of a file of statements.

    Raises:
        ShellError: it cannot be read, is not text, or too long.

    """
    try:
        with path.open("rb") as file:
            content = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise ShellError(f"Could not open {str(path)!r}: {error.strerror}") from error
    return decoded(content, str(path))


def decoded(content: bytes, origin: str) -> str:
    """Return statements in UTF-8 as text. Raises ShellError, if they are not, or too long."""
    if len(content) > TEXT_BYTES_MAX:
        message = f"{origin} has more than {TEXT_BYTES_MAX} bytes"
        raise ShellError(message, hint="split it into several")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{origin} is not UTF-8 at byte {error.start}"
        raise ShellError(message, hint="save it as UTF-8") from error


def _text_of(error: HeadraceError) -> str:
    title = getattr(error, "title", "") or f"error [{error.code}]"
    place = f"{error.place}: " if error.place else ""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    return f"{title}: {place}{error.message}{hint}"

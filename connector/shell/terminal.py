"""A terminal without editing: its width, questions, and lines typed at a plain prompt."""

import shutil
import sys
from collections.abc import Callable

from headrace.connector.shell.scanning import is_whole
from headrace.connector.shell.session import LeaveShell, Session

EMPTY_LINES_MAX = 3
REMINDER = "Statements are terminated with a ';'."


def width() -> int:
    """Return the terminal's width in columns."""
    return shutil.get_terminal_size().columns


def clear() -> None:
    """Clear the screen, if there is one."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[2J\x1b[H")
        sys.stdout.flush()


def ask(question: str) -> bool:
    """Ask for a yes; between pages (`---MORE---`), for anything but q."""
    sys.stdout.write(question)
    sys.stdout.flush()
    try:
        answer = sys.stdin.readline().strip().lower()
    except KeyboardInterrupt:
        answer = "q"
    more = question.startswith("---")
    return answer not in ("q", "n", "no") if more else answer in ("y", "yes")


def read_units(session: Session, read_line: Callable[[], str]) -> None:
    """Execute input, line by line, until EXIT or the end of the input.

    *read_line* returns a line with its line end, and an empty string at the end. Ctrl-C discards
    the input.
    """
    typed, empty = "", 0
    while True:
        prompt = prompt_text(session)
        sys.stdout.write(continuation_text(len(prompt)) if typed else prompt)
        sys.stdout.flush()
        try:
            line = read_line()
            if not line:
                sys.stdout.write("\n")
                return
            empty = 0 if line.strip() else empty + 1
            typed = f"{typed}{line}".lstrip()
            if typed and is_whole(typed):
                statement, typed = typed, ""
                session.run(statement)
            elif typed and empty == EMPTY_LINES_MAX:
                sys.stdout.write(f"{REMINDER}\n")
                empty = 0
        except KeyboardInterrupt:
            typed, empty = "", 0
            sys.stdout.write("\n")
        except LeaveShell:
            return


def prompt_text(session: Session) -> str:
    """Return `user@headrace:keyspace> `, without unknown parts."""
    user = session.cql.target.username if session.cql else ""
    before = f"{user}@" if user else ""
    after = f":{session.keyspace}" if session.keyspace else ""
    return f"{before}headrace{after}> "


def continuation_text(width: int) -> str:
    """Return the prompt of a continuation line: dots up to the end of the prompt."""
    return "... ".rjust(width)

"""The shell's own commands, with answers as in cqlsh."""

import re
from collections.abc import Mapping
from typing import Final

from headrace import __version__
from headrace.connector.language.errors import ShellError
from headrace.connector.language.help import overview, topic_text
from headrace.connector.language.parser import parse_script
from headrace.connector.language.rendering import FORMATS
from headrace.connector.language.statements import (
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    PreviewSource,
    Show,
)
from headrace.connector.shell.scanning import Kind, units
from headrace.connector.shell.session import PAGE_ROWS, Command, LeaveShell, Session

PAGE_ROWS_MAX: Final = 10_000
HISTORY_SHOWN: Final = 50
WATCH_SECONDS_MAX: Final = 86_400

_QUOTED: Final = re.compile(r"'((?:[^']|'')*)'|\"([^\"]*)\"|(\S+)")
_READING: Final = (
    DescribeSink,
    DescribeSinks,
    DescribeSource,
    DescribeSources,
    PreviewSource,
    Show,
)
_READING_CQL: Final = ("SELECT", "DESCRIBE", "DESC", "LIST")


def _help(session: Session, argument: str) -> None:
    width = session.screen.width()
    text = topic_text(argument.split()) if argument else overview(width)
    if not text:
        raise ShellError(f"No topic of help is called {argument}. HELP lists the topics.")
    session.say(text.rstrip("\n"))


def _leave(_: Session, argument: str) -> None:
    _nothing("EXIT", argument)
    raise LeaveShell


def _toggle(name: str, session: Session, argument: str, setting: str) -> None:
    """Show or set a switch of `Settings`."""
    is_on = getattr(session.settings, setting)
    word = argument.upper()
    if not word:
        state = "ON" if is_on else "OFF"
        session.say(f"{name} is {state}")
    elif word not in ("ON", "OFF"):
        raise _improper(name)
    elif is_on == (word == "ON"):
        session.say(f"{name} is already {word}")
    else:
        setattr(session.settings, setting, word == "ON")
        session.say(f"{name} set to {word}")


def _expand(session: Session, argument: str) -> None:
    _toggle("EXPAND", session, argument, "expand")


def _timing(session: Session, argument: str) -> None:
    _toggle("TIMING", session, argument, "timing")


def _tracing(session: Session, argument: str) -> None:
    _toggle("TRACING", session, argument, "tracing")


def _paging(session: Session, argument: str) -> None:
    settings, word = session.settings, argument.upper()
    if word == "OFF":
        settings.page_rows = 0
        session.say("PAGING set to OFF.")
        return
    if word == "ON":
        settings.page_rows = settings.page_rows or PAGE_ROWS
    elif word:
        settings.page_rows = _whole_number(word, "PAGING", PAGE_ROWS_MAX)
    session.say(f"Page size: {settings.page_rows}" if settings.page_rows else "PAGING is OFF.")


def _format(session: Session, argument: str) -> None:
    word = argument.lower()
    if word and word not in FORMATS:
        raise ShellError(f"Improper FORMAT command: there are {', '.join(FORMATS)}.")
    session.settings.format = word or session.settings.format
    session.say(f"FORMAT is {session.settings.format}.")


def _set(session: Session, argument: str) -> None:
    name, _, value = argument.replace("=", " ").partition(" ")
    word = value.strip().upper()
    if name.lower() != "on_error" or word not in ("STOP", "CONTINUE", "RESUME", ""):
        raise ShellError("Improper SET command: SET on_error STOP | CONTINUE.")
    if word:
        session.settings.stop_on_error = word == "STOP"
    session.say(f"on_error is {'STOP' if session.settings.stop_on_error else 'CONTINUE'}.")


def _source(session: Session, argument: str) -> None:
    session.run_file(_path(argument, "SOURCE"))  # Its errors are shown, and do not end it.


def _capture(session: Session, argument: str) -> None:
    if not argument:
        path = session.captured_by
        session.say(
            f"Currently capturing query output to {path!r}."
            if path
            else "Currently not capturing query output."
        )
    elif argument.upper() == "OFF":
        if not session.captured_by:
            raise ShellError("Not currently capturing output.")
        session.capture("")
    else:
        if session.captured_by:
            raise ShellError(
                f"Already capturing output to {session.captured_by}. CAPTURE OFF ends that."
            )
        path = _path(argument, "CAPTURE")
        session.capture(path)
        session.say(f"Now capturing query output to {path!r}.")


def _consistency(session: Session, argument: str) -> None:
    if session.cql is None:
        raise ShellError("not connected: start headrace shell with a host")
    word = argument.upper()
    if not word:
        session.say(f"Current consistency level is {session.cql.consistency}.")
        return
    try:
        session.cql.consistency = word
    except KeyError:
        raise _improper("CONSISTENCY") from None
    session.say(f"Consistency level set to {word}.")


def _login(session: Session, argument: str) -> None:
    user, *password = argument.split()
    if not argument or len(password) > 1:
        raise _improper("LOGIN")
    if session.login is None:
        raise ShellError("not connected: start headrace shell with a host")
    secret = _path(password[0], "LOGIN") if password else session.screen.password("Password: ")
    before, session.cql = session.cql, session.login(user.strip("'\""), secret)
    if before is not None:
        before.close()


def _history(session: Session, argument: str) -> None:
    count = _whole_number(argument, "HISTORY", 1_000_000) if argument else HISTORY_SHOWN
    for entry in session.history()[-count:]:
        session.say(entry)


def _clear(session: Session, argument: str) -> None:
    _nothing("CLEAR", argument)
    session.screen.clear()


def _show(session: Session, argument: str) -> None:
    what = argument.upper()
    if what == "VERSION":
        parts = [f"headrace {__version__}"]
        if session.cql is not None:
            v = session.cql.versions
            parts += [f"Cassandra {v[0]}", f"CQL spec {v[1]}", f"Native protocol v{v[2]}"]
        session.say(f"[{' | '.join(parts)}]")
    elif what == "HOST":
        if session.cql is None:
            raise ShellError("not connected: start headrace shell with a host")
        target = session.cql.target
        session.say(f"Connected to {session.cql.versions[3]} at {target.host}:{target.port}")
    else:
        raise _improper("SHOW")


def _watch(session: Session, argument: str) -> None:
    number, _, statement = argument.partition(" ")
    seconds = _whole_number(number, "WATCH", WATCH_SECONDS_MAX)
    (unit, *more) = units(statement) if statement.strip() else [None]
    if unit is None or more or unit.kind is Kind.COMMAND:
        raise ShellError("Improper WATCH command: WATCH seconds statement.")
    if unit.kind is Kind.CQL:
        reads = unit.text.split()[0].upper() in _READING_CQL
    else:
        reads = all(isinstance(p.statement, _READING) for p in parse_script(unit.text))
    if not reads:
        raise ShellError("WATCH repeats statements that change nothing.")
    try:
        while True:
            session.screen.clear()
            if not session.run(unit.text):
                return
            session.screen.pause(seconds)
    except KeyboardInterrupt:
        return


def _shortcut(command: str) -> Command:
    """Return a command that runs *command* with its argument."""
    return lambda session, argument: session.run_command(f"{command} {argument}")


def _describe(session: Session, argument: str) -> None:
    """Describe a sink, or list all sources and sinks."""
    one = f"DESCRIBE DATA_SINK {argument}"
    session.run(one if argument else "DESCRIBE DATA_SOURCES; DESCRIBE DATA_SINKS")


def _whole_number(text: str, command: str, maximum: int) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or not 1 <= int(text) <= maximum:
        raise ShellError(f"Improper {command} command: expected a number from 1 to {maximum}.")
    return int(text)


def _path(argument: str, command: str) -> str:
    """Return the only word of *argument*, without its quotes."""
    found = _QUOTED.fullmatch(argument)
    path = (found[1] or found[2] or found[3] or "") if found else ""
    if not path:
        raise _improper(command)
    return path.replace("''", "'") if found and found[1] else path


def _nothing(name: str, argument: str) -> None:
    if argument:
        raise _improper(name)


def _improper(command: str) -> ShellError:
    return ShellError(f"Improper {command} command.")


# For users who are used to another shell.
SHORTCUTS: Final[Mapping[str, str]] = {
    "\\?": "HELP",
    "\\H": "HELP",
    "\\I": "SOURCE",
    "\\Q": "EXIT",
    "\\S": "HISTORY",
    "\\TIMING": "TIMING",
    "\\X": "EXPAND",
}
SHELL_COMMANDS: Final[Mapping[str, Command]] = {
    "?": _help,
    "CAPTURE": _capture,
    "CLEAR": _clear,
    "CLS": _clear,
    "CONSISTENCY": _consistency,
    "EXIT": _leave,
    "EXPAND": _expand,
    "FORMAT": _format,
    "HELP": _help,
    "HISTORY": _history,
    "LOGIN": _login,
    "PAGING": _paging,
    "QUIT": _leave,
    "SET": _set,
    "SHOW": _show,
    "SOURCE": _source,
    "TIMING": _timing,
    "TRACING": _tracing,
    "WATCH": _watch,
    "\\D": _describe,
    **{name: _shortcut(command) for name, command in SHORTCUTS.items()},
}

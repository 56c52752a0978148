"""`headrace shell`: the statements, CQL, and the shell's own commands, at a prompt or without one.

Leaves with 0, with 2 when a statement of a file, a pipe or `-e` failed, with 1 when there is no
connection.
"""

import contextlib
import dataclasses
import getpass
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.connector.control.access.authority import CassandraAuthority
from headrace.connector.control.access.permission import Caller, CassandraGuard, Role
from headrace.connector.control.plugins.kept_probes import KeptProbes
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.job_file import FILE_SUFFIXES, state_given
from headrace.connector.language.cursor import TEXT_BYTES_MAX
from headrace.connector.language.errors import ShellError
from headrace.connector.language.rendering import COLOURS, MONOCHROME
from headrace.connector.language.statements import TableName
from headrace.connector.shell import terminal
from headrace.connector.shell.commands import SHELL_COMMANDS
from headrace.connector.shell.executing import Executes
from headrace.connector.shell.options import ShellOptions, read_options
from headrace.connector.shell.remote import password_is_known, remote
from headrace.connector.shell.session import (
    LeaveShell,
    Screen,
    Session,
    Settings,
    decoded,
    read_script,
)
from headrace.connector.stores.open_control_store import open_notes

if TYPE_CHECKING:
    from headrace.connector.shell.cql import CqlConnection

FAILED_STATUS: Final = 2
_STANDARD_INPUT: Final = "<stdin>"


def main(argv: Sequence[str]) -> int:
    """Run the shell; return its status.

    Raises:
        HeadraceError: it cannot start.

    """
    options = read_options(argv)
    if not (options.state or options.rest):
        place = state_given(None, create=True)
        is_new = "" if place.exists() else ", which CREATE makes"
        sys.stderr.write(f"The state is {place}{is_new}; --state FILE or --rest URL is another.\n")
        options = dataclasses.replace(options, state=str(place))
    if not options.debug:  # The shell shows errors itself.
        logging.getLogger("cassandra").setLevel(logging.CRITICAL)
    for warning in options.warnings:
        sys.stderr.write(f"{warning}\n")
    screen = _screen(options)
    options = _with_password(options, screen)
    with service_of(options) as service:
        session = Session(service, SHELL_COMMANDS, _settings(options), screen)
        try:
            _log_in(session, service, options)
            return _run(session, options)
        except LeaveShell:
            return FAILED_STATUS if session.failed and not session.screen.interactive else 0
        finally:
            session.close()


@contextlib.contextmanager
def service_of(options: ShellOptions, *, create: bool = True) -> Iterator[Executes]:
    """Open the service that executes statements: of a state file, or on another machine."""
    if options.rest:
        password = options.password or ""
        yield remote(
            options.rest, username=options.username, password=password, tls=options.rest_tls
        )
    else:
        place = Path(options.state)
        with (
            contextlib.closing(open_notes(place, create=create)) as notes,
            contextlib.closing(KeptProbes()) as probes,
        ):
            file = place if place.suffix in FILE_SUFFIXES else None
            yield ControlService(notes, ask_lag=probes.ask_lag, file=file)


def _with_password(options: ShellOptions, screen: Screen) -> ShellOptions:
    """Ask for a password if one is needed and missing."""
    needed = options.host or (options.rest and not password_is_known())
    if not (needed and options.username and options.password is None):
        return options
    if not screen.interactive:
        raise ShellError("no password: keep it in ~/.cassandra/credentials")
    return dataclasses.replace(options, password=screen.password("Password: "))


def _run(session: Session, options: ShellOptions) -> int:
    if session.screen.interactive:
        _converse(session, options)
        return 0
    if options.execute is not None:
        session.run(options.execute, origin=_STANDARD_INPUT)
    elif options.file not in (None, "-"):
        path = str(options.file)
        session.run(read_script(Path(path).expanduser()), origin=path, is_file=True)
    else:
        text = decoded(sys.stdin.buffer.read(TEXT_BYTES_MAX + 1), _STANDARD_INPUT)
        session.run(text, origin=_STANDARD_INPUT, is_file=True)
    return FAILED_STATUS if session.failed else 0


def _converse(session: Session, options: ShellOptions) -> None:
    if session.cql is not None:
        session.run_command("SHOW HOST")
    session.run_command("SHOW VERSION")
    session.say("Use HELP for help.")
    if sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        _prompt(session, options)
    else:
        terminal.read_units(session, sys.stdin.readline)


def _settings(options: ShellOptions) -> Settings:
    by_people = _is_interactive(options) or sys.stdout.isatty()
    form = options.format or ("table" if by_people else "jsonl")
    return Settings(format=form, keyspace=options.keyspace)


def _is_interactive(options: ShellOptions) -> bool:
    if options.execute is not None or options.file is not None:
        return False
    return options.tty or sys.stdin.isatty()


def _screen(options: ShellOptions) -> Screen:
    if isinstance(sys.stdout, io.TextIOWrapper):
        try:
            sys.stdout.reconfigure(encoding=options.encoding, errors="backslashreplace")
        except LookupError:
            raise ShellError(f"encoding {options.encoding!r} is unknown") from None
    return Screen(
        palette=COLOURS if _is_coloured(options) else MONOCHROME,
        interactive=_is_interactive(options),
        width=terminal.width,
        ask=(lambda _: True) if options.yes else terminal.ask,
        password=getpass.getpass,
        clear=terminal.clear,
    )


def _is_coloured(options: ShellOptions) -> bool:
    if options.colour is None:
        return sys.stdout.isatty() and options.file is None
    return options.colour


def _log_in(session: Session, service: Executes, options: ShellOptions) -> None:
    """Connect to Cassandra if a host is known. Raises CqlUnreachableError."""
    if not options.host:
        return

    def login(username: str, password: str) -> "CqlConnection":
        from headrace.connector.shell.cql import PROTOCOL_VERSION, CqlConnection, CqlTarget  # noqa: PLC0415 (slow, seldom needed)

        connection = CqlConnection(
            CqlTarget(
                host=options.host,
                port=options.port,
                username=username,
                password=password,
                keyspace=options.keyspace,
                connect_seconds=options.connect_seconds,
                request_seconds=options.request_seconds,
                protocol_version=options.protocol_version or PROTOCOL_VERSION,
                tls=options.tls,
            )
        )
        if username and isinstance(service, ControlService):  # Cassandra's roles decide now.
            caller = Caller(name=username, role=Role.NONE, door="shell", address=options.host)
            service.serve(caller, CassandraGuard(CassandraAuthority(connection)))
        return connection

    session.login = login
    session.cql = login(options.username, options.password or "")


def _prompt(session: Session, options: ShellOptions) -> None:
    from headrace.connector.shell.lookout import Lookout  # noqa: PLC0415
    from headrace.connector.shell.prompt import Prompt, ShellHistory  # noqa: PLC0415 (at a terminal only)

    def tables() -> dict[TableName, bool]:
        known = session.cql.tables() if session.cql else ()
        return {TableName(keyspace, name): cdc for keyspace, name, cdc in known}

    # A process started in the background, such as by a script, ignores SIGINT; here is a user.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    lookout = Lookout(lambda: service_of(options, create=False), tables)
    Prompt(session, ShellHistory(options.history), lookout, colour=_is_coloured(options)).run()

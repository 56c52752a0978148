"""The options of a shell at its start: flags, then the environment, then cqlsh's own file.

`cqlshrc` is read, so that the connection is not configured twice. Our own settings are in
`headracerc`. Modules named in either are never imported.
"""

import argparse
import configparser
import os
import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace import __version__
from headrace.connector.foundation.job_file import STATE_VARIABLE
from headrace.connector.language.errors import ShellError
from headrace.connector.language.rendering import FORMATS
from headrace.plugins.config.arguments import CommandParser

RC_BYTES_MAX: Final = 256 * 1024
_PORT: Final = 9042


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellOptions:
    """The options of a shell at its start. Paths are expanded; times are seconds."""

    state: str
    rest: str
    rest_tls: ssl.SSLContext | None
    host: str
    port: int
    username: str
    password: str | None = field(repr=False)
    keyspace: str
    execute: str | None
    file: str | None
    format: str
    colour: bool | None
    encoding: str
    tls: ssl.SSLContext | None
    connect_seconds: float
    request_seconds: float
    protocol_version: int | None
    tty: bool
    history: Path | None
    debug: bool
    yes: bool
    warnings: tuple[str, ...]


def read_options(
    argv: Sequence[str], environment: Mapping[str, str] = os.environ, home: Path | None = None
) -> ShellOptions:
    """Return the options in *argv*, *environment* and the files in *home*, in this order.

    Raises:
        ShellError: a file cannot be read, or has an invalid value.

    """
    home = home or Path.home()
    given = _parser().parse_args(argv)
    rc = _RcFile(Path(given.cqlshrc) if given.cqlshrc else home / ".cassandra" / "cqlshrc")
    config_home = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    ours = _RcFile(config_home / "headrace" / "headracerc")
    credentials = _credentials(given, rc, home)
    warnings = []
    if given.password is not None:
        warnings.append(
            "Warning: a password on the command line can be seen by others; "
            "leave it out to be asked, or keep it in the credentials file."
        )
    if given.state and given.rest:
        raise ShellError("--state and --rest: give one of them")
    state = given.state or environment.get(STATE_VARIABLE, "") or ours.text("shell", "state")
    rest = given.rest or environment.get("HEADRACE_REST", "") or ours.text("shell", "rest")
    if given.state:
        rest = ""
    name = "CQLSH_HOST"
    host = given.host or environment.get(name, "") or rc.text("connection", "hostname")
    port = given.port or environment.get("CQLSH_PORT") or rc.text("connection", "port")
    no_history = given.disable_history or rc.flag("history", "disabled")
    return ShellOptions(
        state=state,
        rest=rest,
        rest_tls=_rest_tls(rc, environment) if rest.startswith("https:") else None,
        host=host,
        port=_whole(port or _PORT, "port"),
        username=given.username or rc.text("authentication", "username") or credentials[0],
        password=given.password if given.password is not None else credentials[1],
        keyspace=given.keyspace or rc.text("authentication", "keyspace"),
        execute=given.execute,
        file=given.file,
        format=given.format or ours.text("shell", "format"),
        colour=_colour(given, rc, environment),
        encoding=given.encoding or rc.text("ui", "encoding") or "utf-8",
        tls=_tls(rc, environment) if given.ssl or rc.flag("connection", "ssl") else None,
        connect_seconds=_number(
            given.connect_timeout or rc.text("connection", "timeout") or 5, "--connect-timeout"
        ),
        request_seconds=_number(
            given.request_timeout or rc.text("connection", "request_timeout") or 10,
            "--request-timeout",
        ),
        protocol_version=given.protocol_version,
        tty=given.tty,
        history=None if no_history else _history_path(environment, home),
        debug=given.debug,
        yes=given.yes,
        warnings=tuple(warnings),
    )


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="headrace shell",
        description="A shell for DATA_SINK and DATA_SOURCE statements, and for CQL.",
        epilog="The settings of cqlshrc for connection, authentication, TLS and colours apply "
        "here too.",
    )
    add = parser.add_argument
    add("host", nargs="?", default="", help="the Cassandra node that CQL goes to (default: none)")
    add("port", nargs="?", default="", help=f"its native port (default: {_PORT})")
    add("--state", metavar="FILE", default="", help="the job's state file")
    add("--rest", metavar="URL", default="", help="the HTTP server of another machine, instead")
    add("-e", "--execute", metavar="TEXT", help="execute TEXT and exit")
    add("-f", "--file", metavar="FILE", help="execute a file and exit; - is standard input")
    add("--format", choices=sorted(FORMATS), default="", help="the format of answers")
    add("-y", "--yes", action="store_true", help="do not ask before something is destroyed")
    add("-u", "--username", default="", help="the user, as Cassandra knows it")
    add("-p", "--password", help="the password; better leave it out and be asked")
    add("-k", "--keyspace", default="", help="the current keyspace")
    add("--ssl", action="store_true", help="connect by TLS")
    add("--connect-timeout", metavar="SECONDS", default="", help="default: 5")
    add("--request-timeout", metavar="SECONDS", default="", help="default: 10")
    add(
        "--protocol-version",
        type=int,
        metavar="N",
        help="the version of the native protocol (default: 5)",
    )
    add("-C", "--color", action="store_true", help="colours, on any terminal")
    add("--no-color", action="store_true", help="no colours")
    add("--encoding", default="", help="the encoding of the output (default: utf-8)")
    add(
        "--cqlshrc",
        metavar="FILE",
        default="",
        help="the file to use instead of ~/.cassandra/cqlshrc",
    )
    add(
        "--credentials",
        metavar="FILE",
        default="",
        help="the file to use instead of ~/.cassandra/credentials",
    )
    add("-t", "--tty", action="store_true", help="prompt even if this is not a terminal")
    add("--disable-history", action="store_true", help="keep no history")
    add("--debug", action="store_true", help="show tracebacks of errors")
    add("-v", "--version", action="version", version=f"headrace {__version__}")
    return parser


class _RcFile:
    """An INI file that may be missing."""

    def __init__(self, path: Path) -> None:
        self._parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            with path.open("rb") as file:
                text = file.read(RC_BYTES_MAX).decode()
            self._parser.read_string(text)
        except FileNotFoundError:
            return
        except OSError as error:
            raise ShellError(f"{path} cannot be read: {error.strerror}") from error
        except (configparser.Error, UnicodeDecodeError) as error:
            message = str(error).partition("\n")[0]
            raise ShellError(f"{path} cannot be read: {message}") from error

    def text(self, section: str, key: str) -> str:
        return self._parser.get(section, key, fallback="").strip()

    def flag(self, section: str, key: str) -> bool:
        return self.text(section, key).lower() in ("1", "true", "yes", "on")


def _credentials(given: argparse.Namespace, rc: _RcFile, home: Path) -> tuple[str, str | None]:
    """Return user and password of the credentials file, or of cqlshrc.

    Raises:
        ShellError: other users could read the file.

    """
    path = Path(given.credentials) if given.credentials else home / ".cassandra" / "credentials"
    if given.credentials and not path.exists():
        raise ShellError(f"{path} does not exist")
    if path.exists() and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ShellError(f"{path} must be readable by its owner only: chmod 600 {path}")
    found = _RcFile(path)
    section = "plain_text_auth"
    password = found.text(section, "password") or rc.text("authentication", "password")
    return found.text(section, "username"), password or None


def _colour(given: argparse.Namespace, rc: _RcFile, environment: Mapping[str, str]) -> bool | None:
    """Return whether to use colours; None lets the terminal decide."""
    if given.no_color or environment.get("NO_COLOR"):
        return False
    if given.color:
        return True
    if environment.get("TERM", "") == "dumb":
        return False
    wanted = rc.text("ui", "color").lower()
    return False if wanted in ("off", "false", "0", "no") else None


def _rest_tls(rc: _RcFile, environment: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for another machine's server, which always checks its name."""
    context = _tls(rc, environment)
    if context.verify_mode is ssl.CERT_REQUIRED:
        context.check_hostname = True
    return context


def _tls(rc: _RcFile, environment: Mapping[str, str]) -> ssl.SSLContext:
    validate = environment.get("SSL_VALIDATE", "") or rc.text("ssl", "validate") or "true"
    authority = environment.get("SSL_CERTFILE", "") or rc.text("ssl", "certfile")
    certificate, key = rc.text("ssl", "usercert"), rc.text("ssl", "userkey")
    context = ssl.create_default_context()
    try:
        if authority:
            context.load_verify_locations(Path(authority).expanduser())
        if certificate:
            own_key = Path(key).expanduser() if key else None
            context.load_cert_chain(Path(certificate).expanduser(), own_key)
    except (OSError, ssl.SSLError) as error:
        raise ShellError(f"the certificates of TLS cannot be used: {error}") from error
    context.check_hostname = False  # Like cqlsh: nodes are named by address.
    if validate.lower() in ("0", "false", "no", "off"):
        context.verify_mode = ssl.CERT_NONE
    return context


def _history_path(environment: Mapping[str, str], home: Path) -> Path:
    if chosen := environment.get("CQL_HISTORY"):
        return Path(chosen).expanduser()
    state_home = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state")
    return state_home / "headrace" / "history"


def _whole(text: object, name: str) -> int:
    try:
        return int(str(text))
    except ValueError:
        raise ShellError(f"{name} is a number, found {text!r}") from None


def _number(text: object, name: str) -> float:
    try:
        return float(str(text))
    except ValueError:
        raise ShellError(f"{name} takes seconds, found {text!r}") from None

"""The control service of another machine over HTTP, for `--rest URL`.

Statements are parsed here and executed there, as the user logged in there. Redirects are not
followed, and passwords are not sent over unencrypted connections.
"""

import base64
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import msgspec

from headrace.connector.control.access.permission import UnauthorizedError
from headrace.connector.control.errors import StatementError
from headrace.connector.language.errors import ShellError
from headrace.connector.language.formatting import format_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.language.statements import Statement
from headrace.connector.shell.executing import BEARER_VARIABLE, LOGIN_VARIABLE
from headrace.plugins import ConfigError, HeadraceError, Problem

PATH: Final = "/api/v1/statements"
SECONDS_MAX: Final = 40.0  # A plugin there may take 30 s.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024

_ERRORS: Final = {known.code: known for known in StatementError.__subclasses__()}
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_UNAUTHORIZED, _FORBIDDEN = 401, 403
_PORTS: Final = {"http": 80, "https": 443}


class RemoteError(HeadraceError):
    """The other machine does not respond, or not like headrace."""

    code: ClassVar[str] = "rest_unreachable"
    exit_status: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """The other machine's URL, and the login. Without a user and a token, anonymous."""

    url: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


class RemoteService:
    """See the module. Every statement is a request of its own. Safe on several threads."""

    def __init__(self, target: RemoteTarget) -> None:
        """Send nothing yet. Raises ShellError: the URL is invalid, or would reveal the password."""
        parts = urllib.parse.urlsplit(target.url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise ShellError("--rest takes a URL as in https://host:8083")
        if parts.username is not None:
            raise ShellError(f"--rest takes no password: keep it in {LOGIN_VARIABLE}")
        secret = target.password or target.token
        if secret and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise ShellError("a password or a token goes over https alone")
        self.place = f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
        self._target = target
        self._parts = parts
        self._path = parts.path.rstrip("/") + PATH

    def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement* there.

        Raises:
            ConfigError: it was refused, as it would be here.
            UnauthorizedError: the user may not do that, or no user is logged in.
            RemoteError: there is no answer.

        """
        status, document = self._ask({"statement": format_statement(statement)})
        try:
            if status == http.HTTPStatus.OK:
                return msgspec.convert(document, ResultTable)
            problems = msgspec.convert(document.get("problems", ()), list[Problem])
        except msgspec.ValidationError as error:
            raise self._strange(status) from error
        message = str(document.get("message", ""))
        if status in (_UNAUTHORIZED, _FORBIDDEN):
            raise UnauthorizedError(message.removeprefix("Unauthorized: "))
        if not problems:
            raise RemoteError(message or f"HTTP {status}", place=self.place)
        named = _ERRORS.get(str(document.get("code", "")))
        if named is None or problems[1:]:
            raise ConfigError(problems)
        raise named(problems[0].key, problems[0].message, problems[0].hint)

    def _ask(self, question: object) -> tuple[int, Mapping[str, Any]]:  # Any: JSON.
        connection = self._connection()
        try:
            body = json.dumps(question).encode(errors="backslashreplace")
            connection.request("POST", self._path, body, self._headers())
            response = connection.getresponse()
            content = response.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", "") or str(error) or type(error).__name__
            raise RemoteError(f"no answer: {reason}", place=self.place) from error
        finally:
            connection.close()
        try:
            document = json.loads(content) if len(content) <= ANSWER_BYTES_MAX else None
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._strange(response.status)
        return response.status, document

    def _strange(self, status: int) -> RemoteError:
        message = f"HTTP {status}, and no answer of ours"
        return RemoteError(message, place=self.place, hint="is this headrace's address?")

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)
        tls = self._target.tls or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=SECONDS_MAX, context=tls)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        target = self._target
        if target.token:
            headers["Authorization"] = f"Bearer {target.token}"
        elif target.username:
            login = base64.b64encode(f"{target.username}:{target.password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        return headers


def remote(
    url: str, *, username: str = "", password: str = "", tls: ssl.SSLContext | None = None
) -> RemoteService:
    """Return the service at *url*, as this user, or as the one in the environment.

    Raises ShellError.
    """
    return RemoteService(
        RemoteTarget(
            url=url,
            username=username,
            password=password or os.environ.get(LOGIN_VARIABLE, ""),
            token=os.environ.get(BEARER_VARIABLE, ""),
            tls=tls,
        )
    )


def password_is_known() -> bool:
    """Return whether the environment has a login for `remote`."""
    return bool(os.environ.get(LOGIN_VARIABLE) or os.environ.get(BEARER_VARIABLE))

"""Follows a node's log by a request that its agent answers as soon as there is more.

The request has its own connection, so that no other one waits for it. This module never waits for
its response: a file descriptor is readable when part of it has arrived. For one thread.
"""

import http.client
import io
import ssl
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from headrace.sources.cassandra.agent.protocol import (
    ANSWER_BYTES_MAX,
    MARK_HEADER,
    REQUEST_SECONDS_MAX,
    SEEN_HEADER,
    SEGMENTS_PATH,
    WAIT_HEADER,
    WAIT_SECONDS,
    Listing,
)
from headrace.sources.cassandra.logs.descriptors import Descriptors

LATE_MS: Final = 7_000  # After a request: its response is overdue.
RETRY_MS: Final = 1_000  # After a failure.
_READ_BYTES: Final = 64 * 1024
_OK, _SAME = 200, 304


class Reachable(Protocol):
    """The connections to an agent."""

    def connected(self) -> http.client.HTTPConnection:
        """Return a new open connection. Raises OSError."""

    def head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        """Return a request without a body."""


class Following:
    """The waiting request to one agent. `mark` is that of the last listing, which it requires."""

    def __init__(
        self, agent: Reachable, descriptors: Descriptors, now_ms: Callable[[], int]
    ) -> None:
        """Send no request yet; *descriptors* gets the connection."""
        self.mark = ""
        self._agent = agent
        self._descriptors = descriptors
        self._now_ms = now_ms
        self._connection: http.client.HTTPConnection | None = None
        self._came = b""
        self._listing: Listing | None = None
        self._late_ms = self._not_before_ms = 0

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits: changes since the last listing come in its response."""
        return self._connection is not None

    def hear(self) -> bool:
        """Take a response if it arrived, and ask again. Return whether there is a new listing."""
        now_ms = self._now_ms()
        try:
            if self._connection is None:
                if self.mark and now_ms >= self._not_before_ms:
                    self._ask(now_ms)
            elif (answer := self._answer()) is not None:
                self._take(answer)
                self._ask(now_ms)
            elif now_ms >= self._late_ms:
                raise TimeoutError
        except (OSError, http.client.HTTPException, msgspec.MsgspecError):
            self.close()  # The next listing is requested directly, and reports the error.
            self._not_before_ms = now_ms + RETRY_MS
        return self._listing is not None

    def take(self) -> Listing | None:
        """Return the last listing received, once."""
        listing, self._listing = self._listing, None
        return listing

    def close(self) -> None:
        """Stop waiting. Safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._descriptors.remove(connection.sock.fileno())
            connection.close()
        self.mark, self._came, self._listing = "", b"", None

    def _ask(self, now_ms: int) -> None:
        headers = {SEEN_HEADER: self.mark, WAIT_HEADER: f"wait={WAIT_SECONDS}"}
        if self._connection is None:
            self._connection = self._agent.connected()
            self._descriptors.add(self._connection.sock.fileno())
        socket = self._connection.sock
        socket.settimeout(REQUEST_SECONDS_MAX)
        socket.sendall(self._agent.head("GET", SEGMENTS_PATH, headers))
        socket.settimeout(0)
        self._late_ms = now_ms + LATE_MS

    def _answer(self) -> http.client.HTTPResponse | None:
        """Return the response to the request if it has arrived completely."""
        assert self._connection is not None  # noqa: S101 (our own bug)
        try:
            while came := self._connection.sock.recv(_READ_BYTES):
                self._came += came
                if len(self._came) > ANSWER_BYTES_MAX:
                    raise http.client.HTTPException("an answer without an end")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        else:
            raise ConnectionResetError
        if b"\r\n\r\n" not in self._came:
            return None
        answer = http.client.HTTPResponse(_Came(self._came))  # type: ignore[arg-type]  # Has the methods used.
        answer.begin()
        return answer if len(self._came.partition(b"\r\n\r\n")[2]) >= (answer.length or 0) else None

    def _take(self, answer: http.client.HTTPResponse) -> None:
        self._came = b""
        if answer.status == _SAME:
            return
        if answer.status != _OK or MARK_HEADER not in answer.headers:  # Or one that cannot wait.
            raise http.client.HTTPException(answer.reason)
        self._listing = msgspec.json.decode(answer.read(), type=Listing)
        self.mark = answer.headers[MARK_HEADER] or ""


class _Came:
    """The received bytes, as a response reads them from a socket."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        """Return the received bytes."""
        del mode
        return io.BytesIO(self._content)

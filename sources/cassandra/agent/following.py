"""Follows a node's log by a request that its agent answers as soon as there is more.

The request has its own connection, so that no other one waits for it. This module never waits for
its response: a file descriptor is readable when part of it has arrived. For one thread.
"""

import ssl
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from headrace.sources.cassandra.agent.connection import (
    OK,
    Answer,
    BrokenAnswerError,
    Connection,
    head_in,
)
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
_SAME: Final = 304


class Reachable(Protocol):
    """The connections to an agent."""

    def connected(self) -> Connection:
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
        self._connection: Connection | None = None
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
        except (OSError, msgspec.MsgspecError):
            self.close()  # The next listing is asked for, and says what is wrong.
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

    def _answer(self) -> Answer | None:
        """Return the response to the request if it has arrived completely."""
        assert self._connection is not None  # noqa: S101 (our own bug)
        try:
            while came := self._connection.sock.recv(_READ_BYTES):
                self._came += came
                if len(self._came) > ANSWER_BYTES_MAX:
                    raise BrokenAnswerError("an answer without an end")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        else:
            raise ConnectionResetError
        head = head_in(self._came)
        if head is None or len(self._came) < head.head_bytes + head.content_bytes:
            return None
        return Answer(head.status, self._came[head.head_bytes :], head)

    def _take(self, answer: Answer) -> None:
        self._came = b""
        if answer.status == _SAME:
            return
        mark = answer.head.field(MARK_HEADER)
        if answer.status != OK or not mark:  # Or one that cannot wait.
            raise BrokenAnswerError(f"status {answer.status}")
        self._listing = msgspec.json.decode(answer.content, type=Listing)
        self.mark = mark

"""A connection to an agent: requests of HTTP/1.1, and answers with their length.

httptools parses heads, and content is received where the caller wants it: `http.client` copies the
content, and takes longer for a head than some hundred kilobytes of content take. Blocking network
I/O; for one thread.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from httptools import HttpParserError, HttpResponseParser

from headrace.sources.cassandra.agent.protocol import ANSWER_BYTES_MAX, REQUEST_SECONDS_MAX

if TYPE_CHECKING:
    import ssl

Room = Callable[[int], memoryview]  # Returns memory for a number of bytes.

OK: Final = 200
_HEAD_BYTES_MAX: Final = 64 * 1024
_END: Final = b"\r\n\r\n"
_NO_CONTENT: Final = (204, 304)
_SHOWN: Final = 80


class BrokenAnswerError(ConnectionError):
    """The received bytes are not an answer of HTTP/1.1 with its length."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer; the names of `fields` are in lower case."""

    status: int
    fields: Mapping[str, str]
    head_bytes: int
    content_bytes: int
    is_last: bool  # On its connection.

    def field(self, name: str) -> str:
        """Return a field of that name in any case; the empty string if there is none."""
        return self.fields.get(name.lower(), "")


class Answer(NamedTuple):
    """The answer of an agent."""

    status: int
    content: bytes | memoryview
    head: Head


class _Fields:
    """Receives the fields of an answer from its parser."""

    def __init__(self) -> None:
        """Start without fields."""
        self.found: dict[str, str] = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a field."""
        self.found[name.decode("latin-1").lower()] = value.decode("latin-1")


def head_in(came: bytes) -> Head | None:
    """Return the head of the answer that *came* begins with; None if it is not complete.

    Raises:
        BrokenAnswerError: *came* does not begin with the head of an answer.

    """
    at = came.find(_END)
    if at < 0 and len(came) < _HEAD_BYTES_MAX:
        return None
    size = at + len(_END)
    fields = _Fields()
    parser = HttpResponseParser(fields)
    try:
        parser.feed_data(came[:size] if at >= 0 else came)
        status = parser.get_status_code()
        length = 0 if status in _NO_CONTENT else int(fields.found.get("content-length", "-1"))
        if at < 0 or not 0 <= length <= ANSWER_BYTES_MAX:
            raise BrokenAnswerError(f"expected the length of an answer, found {length}")
    except HttpParserError as error:
        found = came[:_SHOWN].partition(b"\r\n")[0]
        raise BrokenAnswerError(f"expected an answer of HTTP/1.1, found {found!r}") from error
    return Head(status, fields.found, size, length, not parser.should_keep_alive())


class Connection:
    """A kept-open connection; `sock` is its socket."""

    def __init__(self, host: str, port: int, context: "ssl.SSLContext | None") -> None:
        """Connect, over TLS if there is a *context*. Raises OSError."""
        self.sock = socket.create_connection((host, port), REQUEST_SECONDS_MAX)
        try:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self.sock = context.wrap_socket(self.sock, server_hostname=host)
        except OSError:
            self.close()
            raise
        self._start = memoryview(bytearray(_HEAD_BYTES_MAX))

    def exchange(self, request: bytes, room: Room | None) -> Answer:
        """Send *request* and return the answer.

        With status 200 its content is in the memory that *room* returns. Raises OSError.
        """
        self.sock.sendall(request)
        came = 0
        while (head := head_in(bytes(self._start[:came]))) is None:
            came += self._more(self._start[came:])
        here, size = came - head.head_bytes, head.content_bytes
        if here > size:
            raise BrokenAnswerError(f"{here} bytes came of an answer of {size}")
        is_wanted = room is not None and head.status == OK
        content = room(size) if room is not None and is_wanted else memoryview(bytearray(size))
        content[:here] = self._start[head.head_bytes : came]
        while here < size:
            here += self._more(content[here:])
        return Answer(head.status, content if is_wanted else bytes(content), head)

    def _more(self, room: memoryview) -> int:
        if not (count := self.sock.recv_into(room)):
            raise ConnectionResetError(
                "the agent closed the connection before the end of its answer"
            )
        return count

    def close(self) -> None:
        """Close it. Safe to call twice."""
        self.sock.close()

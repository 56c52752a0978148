"""A connection to an agent: requests of HTTP/1.1, and answers that say how long they are.

`http.client` copies the content, and takes longer for the fields of an answer than some hundred
kilobytes of content take. Blocking network I/O; for one thread.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

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
    """What came is not an answer of HTTP/1.1, or does not say how long it is."""


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
    """What an agent answered."""

    status: int
    content: bytes | memoryview
    head: Head


def head_in(came: bytes) -> Head | None:
    """Return the head of an answer of which *came* so much, if it is there. Raises OSError."""
    text, end, _ = came.partition(_END)
    if not end and len(came) < _HEAD_BYTES_MAX:
        return None
    first, *lines = text.decode("latin-1").split("\r\n")
    parts = [line.partition(":") for line in lines]
    fields = {name.lower(): value.strip() for name, _, value in parts}
    version, _, said = first.partition(" ")
    status, length = said[:3], fields.get("content-length", "")
    if status.isdecimal() and int(status) in _NO_CONTENT:
        length = "0"
    is_ours = version.startswith("HTTP/1.") and status.isdecimal() and length.isdecimal()
    if not is_ours or not end or int(length) > ANSWER_BYTES_MAX:
        found = f"{first[:_SHOWN]!r}, length {length[:_SHOWN]!r}"
        raise BrokenAnswerError(f"expected an answer of HTTP/1.1 with its length, found {found}")
    is_last = version != "HTTP/1.1" or fields.get("connection", "").lower() == "close"
    return Head(int(status), fields, len(text) + len(_END), int(length), is_last)


class Connection:
    """See the module. `sock` is its socket."""

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
        """Return the answer to *request*; if all is well, its content is in what *room* returns.

        Raises OSError.
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
            raise ConnectionResetError("it was closed before the answer was complete")
        return count

    def close(self) -> None:
        """Close it. Safe to call twice."""
        self.sock.close()

"""A port that leads to a server, until it is cut."""

import contextlib
import socket
import threading
from typing import Self

from helpers.servers.ports import HOST

_PIECE_BYTES = 64 * 1024


class Proxy:
    """Forwards connections to a port of this machine. Leaving the context ends all of them."""

    def __init__(self, target: int) -> None:
        """Listen on a port of its own."""
        self._target = target
        self._open: list[socket.socket] = []
        self._listener = self._listening(0)
        self.port: int = self._listener.getsockname()[1]

    def cut(self) -> None:
        """Break all connections, and take no new ones."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []

    def mend(self) -> None:
        """Take connections again, on the same port."""
        self._listener = self._listening(self.port)

    def __enter__(self) -> Self:
        """Return the proxy."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.cut()

    def _listening(self, port: int) -> socket.socket:
        listener = socket.create_server((HOST, port))
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection((HOST, self._target))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=_forward, args=pair, daemon=True).start()


def _forward(from_: socket.socket, to: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := from_.recv(_PIECE_BYTES):
            to.sendall(piece)
    for each in (from_, to):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)

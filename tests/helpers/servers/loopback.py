"""What servers of tests share: a free port of the loopback, and a thread for each client."""

import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class LoopbackServer(ABC):
    """Listens while the `with` lasts; `talk` answers a client."""

    def listen(self) -> tuple[str, int]:
        """Bind a free port; return the address."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.over = threading.Event()
        self._talks: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        host, port = self._listener.getsockname()
        return host, port

    @abstractmethod
    def talk(self, client: socket.socket) -> None:
        """Answer one client until it disconnects. Called on a separate thread."""

    def __enter__(self) -> Self:
        """Start to accept clients."""
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Accept no more clients."""
        self.over.set()
        for each in (self._listener, *self._talks):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._talks.append(client)
                thread = threading.Thread(target=self.talk, args=(client,))
                self._threads.append(thread)
                thread.start()

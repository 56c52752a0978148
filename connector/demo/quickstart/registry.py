"""The schema registry of the quickstart: the embedded one, on a thread of the command itself."""

import asyncio
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"


class Registry:
    """Listens from the start, so that its address is known; `serve` starts to answer.

    Its imports take a quarter of a second, while the processes start.
    """

    def __init__(self, state: Path) -> None:
        """Take a free port; schemas will be in the file *state*."""
        self._state = state
        self._socket = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="registry")

    def serve(self) -> None:
        """Answer, on a thread, until the context is left."""
        self._thread.start()

    def _answer(self) -> None:
        from headrace.connector.registry.server import serve_on  # noqa: PLC0415 (see the class)

        asyncio.run(serve_on(self._socket, self._state, self._over.wait))

    def __enter__(self) -> Self:
        """Return the registry."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._socket.close()

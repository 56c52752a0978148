"""From the event loop to the command service: every call runs on a thread of a small pool.

A thread keeps one connection to the state file. Nothing here waits for a worker, a plugin, a broker
or a node, so that reads are answered while one of those hangs.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from headrace.connector.control.commands import Commands

T = TypeVar("T")

THREADS: Final = 4


class Doorway:
    """The command service for handlers. Close it when the server has stopped."""

    def __init__(self, state: Path) -> None:
        """Open nothing yet; *state* is the state file."""
        self.state = state
        self._here = threading.local()
        self._close: list[Callable[[], None]] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="command")

    async def call(self, verb: Callable[[Commands], T]) -> T:
        """Return what *verb* makes of the command service. Raises what it raises."""
        loop, here = asyncio.get_running_loop(), contextvars.copy_context()
        return await loop.run_in_executor(self._pool, lambda: here.run(verb, self._commands()))

    def close(self) -> None:
        """Wait for the calls under way, and close the connections."""
        self._pool.shutdown()
        for close in self._close:
            close()

    def _commands(self) -> Commands:
        made: Commands | None = getattr(self._here, "commands", None)
        if made is None:
            made = self._here.commands = Commands.open(self.state, check_same_thread=False)
            self._close.append(made.close)
        return made

"""Calls the control service from the event loop: each call runs on a thread of a small pool.

A thread keeps one connection to the state file. Calls that only need that file never wait for calls
to plugins: those have threads of their own, so reads are answered while one of them hangs.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from headrace.connector.control.access.permission import Guard
from headrace.connector.control.commands import Commands
from headrace.connector.control.entries import SinkEntry, SourceEntry
from headrace.connector.control.plugins.kept_probes import KeptProbes
from headrace.connector.control.running import unchecked
from headrace.connector.control.service import ControlService, asks_plugin
from headrace.connector.foundation.catch_up import Looks
from headrace.connector.language.rendering import ResultTable, StatementWarning
from headrace.connector.language.statements import AlterSource, CreateSource, Statement
from headrace.connector.rest.exchange import RefusedError

T = TypeVar("T")
Entry = SourceEntry | SinkEntry

THREADS: Final = 4
ASKING_MAX: Final = 16  # Questions to plugins, waiting ones included.


class Doorway:
    """The command service for handlers. Close it after the server has stopped."""

    def __init__(
        self, state: Path, *, guard: Guard | None = None, file: Path | None = None
    ) -> None:
        """Open nothing yet; *state* is the state file, *file* the worker's."""
        self.state = state
        self._file = file
        self._guard = guard
        self._looks = Looks()  # The threads' services share them.
        self._probes = KeptProbes()
        self._here = threading.local()
        self._close: list[Callable[[], None]] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="command")
        self._asking = ThreadPoolExecutor(THREADS, thread_name_prefix="question")
        self._asked = 0

    async def call(self, verb: Callable[[Commands], T]) -> T:
        """Return the result of *verb* on the command service. Raises its errors."""
        return await self.look(lambda service: verb(service.commands))

    async def look(self, verb: Callable[[ControlService], T]) -> T:
        """Return the result of *verb* on the service, without plugins. Raises its errors."""
        return await self._on(self._pool, lambda: verb(self._service()))

    async def execute(self, statement: Statement) -> ResultTable:
        """Execute *statement*. Raises as `ControlService.execute` and `ask`."""
        if asks_plugin(statement):
            return await self.ask(lambda service: service.execute(statement))
        if isinstance(statement, CreateSource | AlterSource):
            source = await self._on(self._pool, lambda: self._service().change_source(statement))
            return ResultTable(warnings=await self.table_warnings(source))
        return await self._on(self._pool, lambda: self._service().execute(statement))

    async def table_warnings(self, source: Entry | None) -> tuple[StatementWarning, ...]:
        """Return warnings about a source's table, and none for a sink.

        The source may exist already: so if too many ask, the result is a warning.
        """
        if not isinstance(source, SourceEntry):
            return ()
        if not await self._on(self._pool, lambda: self._service().running.checks_tables(source)):
            return ()
        try:
            return await self.ask(lambda service: service.table_warnings(source))
        except RefusedError as error:
            found = [unchecked(source.table_text, error.message)]
            return await self._on(self._pool, lambda: self._service().warn(source, found))

    async def ask(self, verb: Callable[[ControlService], T]) -> T:
        """Return the result of *verb* on the service; it may ask plugins.

        Raises:
            RefusedError: too many questions are open.

        """
        if self._asked >= ASKING_MAX:
            message = "too many wait for an answer of a plugin"
            raise RefusedError(503, message, headers={"Retry-After": "5"})
        self._asked += 1
        try:
            return await self._on(self._asking, lambda: verb(self._service()))
        finally:
            self._asked -= 1

    def close(self) -> None:
        """Wait for running calls, and close the connections."""
        for pool in (self._pool, self._asking):
            pool.shutdown(cancel_futures=True)
        self._probes.close()
        for close in self._close:
            close()

    async def _on(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        here = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(pool, lambda: here.run(work))

    def _service(self) -> ControlService:
        made: ControlService | None = getattr(self._here, "service", None)
        if made is None:
            made = ControlService.open(
                self.state,
                ask_lag=self._probes.ask_lag,
                guard=self._guard,
                file=self._file,
                looks=self._looks,
            )
            self._here.service = made
            self._close.append(made.close)
        return made

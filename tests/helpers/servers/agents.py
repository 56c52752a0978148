"""Agents of forged or recorded logs, each on its own thread."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import web

from headrace.plugins import parse_config
from headrace.plugins.serving import runner_of
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.agent.client import Agent
from headrace.sources.cassandra.agent.command import AgentConfig, server_of
from headrace.sources.cassandra.agent.protocol import AgentAccess

TOKEN = "shown to agents only"  # noqa: S105 (a test's)
CLOCK = DrivenClock()
STOP_SECONDS = 0.1


class Served:
    """An agent on its own thread."""

    def __init__(self, folder: Path, port: int = 0, **options: object) -> None:
        """Serve the segments in *folder*."""
        given = {"cdc_raw": str(folder), "token": TOKEN, **options}
        self.config = parse_config(AgentConfig, given)
        self.server = server_of(self.config)
        self._loop = asyncio.new_event_loop()
        self._runner = runner_of(self.server.application(), stop_seconds=STOP_SECONDS)
        self._loop.run_until_complete(self._runner.setup())
        tls = self.config.tls()
        site = web.TCPSite(self._runner, "127.0.0.1", port, ssl_context=tls)
        self._loop.run_until_complete(site.start())
        self.port = self._runner.addresses[0][1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        self._agents: list[Agent] = []
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._keeping = asyncio.run_coroutine_threadsafe(self.server.keep(), self._loop)

    def close(self) -> None:
        """End it and its readers. May be called twice."""
        for agent in self._agents:
            agent.close()
        if self._thread.is_alive():
            self._keeping.cancel()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.run_until_complete(self._runner.cleanup())
            self.server.close()
            self._loop.close()

    def agent(self, token: str | None = TOKEN) -> Agent:
        """Return a client of the agent."""
        self._agents.append(agent_at(self.url, token))
        return self._agents[-1]


def agent_at(url: str, token: str | None = TOKEN) -> Agent:
    """Return a client of the agent, which retries when CLOCK has advanced."""
    return Agent(url, AgentAccess(token), CLOCK.monotonic_ms)


@contextmanager
def serving(folder: Path, port: int = 0, **options: object) -> Iterator[Served]:
    """Serve *folder* while the block runs."""
    served = Served(folder, port, **options)
    try:
        yield served
    finally:
        served.close()

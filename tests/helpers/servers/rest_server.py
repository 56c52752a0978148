"""A server over a state file in this process, and a client that sends exactly what a test says."""

import asyncio
import base64
import contextlib
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.control.commands import Commands
from headrace.connector.control.plugins.kept_probes import KeptProbes
from headrace.connector.control.plugins.probing import Ask
from headrace.connector.control.service import ControlService
from headrace.connector.hosting.host import Host
from headrace.connector.hosting.supervisor import Supervisor
from headrace.connector.rest.server import Address, RestServer
from headrace.connector.runtime.splits.watch import RestartPolicy
from headrace.plugins import HeadraceError
from headrace.plugins.testing.doubles import context
from helpers.jobs.children import SECONDS_MAX


@dataclass
class Answer:
    """An answer as it was received."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 (what JSON can hold)
        """Return the body as JSON; None when it is empty."""
        return json.loads(self.body) if self.body else None


@dataclass
class Client:
    """Sends requests to one server; every request has its own connection."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def answers(self) -> bool:
        """Return whether the server answers yet."""
        with contextlib.suppress(OSError):
            return self("GET", "/health").status == 200
        return False

    def __call__(
        self, method: str, path: str, document: object = None, **more: str | bytes
    ) -> Answer:
        """Send *document* as JSON, or `body` as it is, with `headers` written as a_b."""
        body = more.pop("body", None)
        headers = self.headers | {k.replace("_", "-"): str(v) for k, v in more.items()}
        if document is not None:
            body = json.dumps(document).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=180)
        if self.tls is not None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=180, context=self.tls
            )
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(
                response.status,
                {key.lower(): value for key, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()


def basic(name: str, password: str) -> dict[str, str]:
    """Return the header of a basic authentication."""
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@contextlib.contextmanager
def serving(
    server: RestServer, *, services_only: bool = False, tls: ssl.SSLContext | None = None
) -> Iterator[Address]:
    """Run *server* on its own thread while the block runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        start = server.start(Address("127.0.0.1", 0), tls, services_only=services_only)
        yield asyncio.run_coroutine_threadsafe(start, loop).result(SECONDS_MAX)
    finally:
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(SECONDS_MAX)
        asyncio.run_coroutine_threadsafe(_cancel_the_rest(), loop).result(SECONDS_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS_MAX)
        loop.close()


async def _cancel_the_rest() -> None:
    """Cancel what is left, as `asyncio.run` does: connections whose bodies are being read."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@dataclass
class RestWorker:
    """A worker that serves HTTP, as a test uses it."""

    folder: Path
    client: Client
    commands: Commands


class ThreadChild:
    """Runs a job on a thread as a child process would."""

    def __init__(self, path: Path, job: str) -> None:
        """Start it."""
        self._host = Host(path, log=context().log, job=job)
        self._status: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def poll(self) -> int | None:
        """Return the exit status, or None."""
        return self._status

    def terminate(self) -> None:
        """Stop cleanly."""
        self._host.stop()

    def kill(self) -> None:
        """Stop it like `terminate`, since a thread cannot be killed."""
        self._host.stop()

    def metrics_port(self) -> int:
        """Serve no metrics."""
        return 0

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end."""
        self._thread.join(timeout)
        return self._status or 0

    def _run(self) -> None:
        try:
            _, report = self._host.run(until_idle=False)
        except HeadraceError as error:
            self._status = error.exit_status
        else:
            self._status = report.failures[0].exit_status if report and report.failures else 0


@contextlib.contextmanager
def supervised(path: Path, state: Path) -> Iterator[None]:
    """Run all jobs of *state* with the worker's file at *path*, on threads."""
    supervisor = Supervisor(
        state,
        lambda job: ThreadChild(path, job),
        log=context().log,
        policy=RestartPolicy(restarts_max=10, pause_ms=100),
    )
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        yield
    finally:
        supervisor.stop()
        thread.join(SECONDS_MAX)


def eventually() -> Iterator[float]:
    """Yield until the time is up, with short pauses; the caller leaves when it is done."""
    deadline = time.monotonic() + SECONDS_MAX
    while (left := deadline - time.monotonic()) > 0:
        yield left
        time.sleep(0.05)


def until_read(client: Client, source: str, offset: int) -> None:
    """Wait until a source has committed that its file was read up to *offset*."""
    for _ in eventually():
        found = client("GET", f"/api/v1/sources/{source}/offsets").json["offsets"]
        if [offset] == [part["offset"]["offset"] for part in found]:
            return
    raise AssertionError(found)


def answers_here(monkeypatch: pytest.MonkeyPatch, ask: Ask) -> None:
    """Let services that are created from now on answer with *ask*, without another process."""
    defaults = ControlService.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "ask", ask)
    monkeypatch.setattr(KeptProbes, "ask_lag", lambda _, question: ask(question))

"""A registry on a thread of the test, and a plain client."""

import asyncio
import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from headrace.connector.registry.server import application
from headrace.connector.registry.store import RegistryStore
from headrace.plugins.serving import runner_of
from helpers.jobs.children import SECONDS_MAX


@contextmanager
def registry(path: Path, port: int = 0, hosts: Sequence[str] = ()) -> Iterator[str]:
    """Serve the registry whose file is at *path*; yield its address."""
    started: threading.Event = threading.Event()
    addresses: list[str] = []
    stopping: list[Any] = []  # Any: the loop and an event of it.

    async def serve() -> None:
        store = RegistryStore(path)
        runner = runner_of(application(store, hosts), decompress=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        addresses.append("http://{}:{}".format(*runner.addresses[0][:2]))
        stopped = asyncio.Event()
        stopping.extend((asyncio.get_running_loop(), stopped))
        started.set()
        await stopped.wait()
        await runner.cleanup()
        store.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(SECONDS_MAX)
    try:
        yield addresses[0]
    finally:
        loop, stopped = stopping
        loop.call_soon_threadsafe(stopped.set)
        thread.join(SECONDS_MAX)


@contextmanager
def answering(
    do: Callable[[http.server.BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Serve a registry that answers with *do*; yield its address."""

    class Answering(http.server.BaseHTTPRequestHandler):
        """Answers with *do*."""

        def do_POST(self) -> None:
            """Read the request first."""
            self.rfile.read(int(self.headers["Content-Length"]))
            do(self)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(address: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Return status and JSON of an answer; Any: any JSON."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{address}{path}", content, method=method)  # noqa: S310 (ours)
    request.add_header("Content-Type", "application/vnd.schemaregistry.v1+json")
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:  # noqa: S310 (ours)
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)

"""The HTTP server of the quickstart's worker, with the console: a thread beside the job."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.connector.hosting.host import Host
from headrace.connector.obs import structlog
from headrace.connector.rest.server import Address, RestServer
from headrace.plugins.metrics import families


def serve(
    state: Path, job_file: Path, host: Host, show: Callable[[str], None]
) -> Callable[[], None]:
    """Serve on a free port of this machine, passed to *show*; return a function that ends it."""
    over = threading.Event()

    async def run() -> None:
        server = RestServer(
            state,
            log=structlog.get_logger(),
            metrics=lambda: families(host.measures(), job=host.name),
            file=job_file,
        )
        try:
            address = await server.start(Address("127.0.0.1", 0))
            show(f"http://{address.host}:{address.port}/")
            await asyncio.get_running_loop().run_in_executor(None, over.wait)
        finally:
            await server.close()

    thread = threading.Thread(target=lambda: asyncio.run(run()), name="console")
    thread.start()

    def end() -> None:
        over.set()
        thread.join()

    return end

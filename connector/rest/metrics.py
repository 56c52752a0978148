"""`GET /metrics`: what the processes of the jobs tell, as one text for Prometheus."""

import asyncio
from collections.abc import Callable, Sequence

from aiohttp import hdrs, web

from headrace.connector.rest.exchange import Handler
from headrace.plugins.measures import TEXT_TYPE


class MetricsDoor:
    """The handler of `/metrics`. Belongs to the event loop's thread."""

    def __init__(self, metrics: Callable[[], bytes]) -> None:
        """*metrics* is called on another thread, once at a time, and may block for seconds."""
        self._metrics = metrics
        self._asking = asyncio.Lock()

    def routes(self) -> Sequence[tuple[str, str, Handler]]:
        """Return method, path and handler."""
        return [("GET", "/metrics", self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics."""
        del request
        async with self._asking:
            body = await asyncio.get_running_loop().run_in_executor(None, self._metrics)
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: TEXT_TYPE})

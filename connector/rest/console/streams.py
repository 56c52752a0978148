"""Streams of server-sent events: one for each open page, which tells it when to reload.

An event has no content, only the mark of the page's current content; the page itself is requested
as usual, with its permissions. A user who may no longer see pages gets no more events. The mark is
the event's id, so a browser that reconnects sends the last one. Without news an event `seen` with
the time is sent periodically.
"""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import hdrs, web

from headrace.connector.control.console.paging import Document
from headrace.connector.control.status import time_text
from headrace.connector.rest.exchange import RefusedError
from headrace.plugins import HeadraceError
from headrace.plugins.amounts import span_text

EVERY_SECONDS: Final = 5.0  # Between two looks at a page's content.
STREAMS_MAX: Final = 64
LOOKS_MAX: Final = 120  # The looks of one stream; then the browser reconnects.
BEAT_LOOKS: Final = 3  # Without news, an event is sent after so many.
GONE_SECONDS: Final = 0.5  # Between two checks whether the page was closed.
RETRY_MS: Final = 2_000

Look = Callable[[], Awaitable[Document]]
Admit = Callable[[web.Request], Awaitable[object]]
"""Raises RefusedError if the user of a request may not see pages now."""


class Streams:
    """See the module. Belongs to the event loop's thread."""

    def __init__(self, admit: Admit) -> None:
        """Start without streams."""
        self._admit = admit
        self._count = 0
        self._news = asyncio.Event()
        self._is_closed = False

    def wake(self) -> None:
        """Make all streams look now: this server changed something."""
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all streams. Safe to call twice."""
        self._is_closed = True
        self.wake()

    async def serve(
        self, request: web.Request, look: Look, headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Respond with a stream of the page that *look* reads, until it ends. See the module.

        Raises:
            RefusedError: there are `STREAMS_MAX` streams.

        """
        made = web.StreamResponse(
            headers={
                **headers,
                hdrs.CONTENT_TYPE: "text/event-stream",
                hdrs.CACHE_CONTROL: "no-store",
            }
        )
        if request.method == hdrs.METH_HEAD:
            return made
        if self._count >= STREAMS_MAX:
            raise RefusedError(503, "too many pages are open", headers={"Retry-After": "10"})
        self._count += 1
        try:
            await made.prepare(request)
            with contextlib.suppress(ConnectionError):  # The page was closed.
                await self._send(made, look, request)
        finally:
            self._count -= 1
        return made

    async def _send(self, stream: web.StreamResponse, look: Look, request: web.Request) -> None:
        await stream.write(f"retry: {RETRY_MS}\n\n".encode())
        known, silent = _known(request), 0
        for _ in range(LOOKS_MAX):
            if self._is_closed:
                return
            news = self._news
            try:
                await self._admit(request)
            except RefusedError:  # The browser reconnects, and is refused.
                return
            mark, silent = await _mark_of(look), silent + 1
            if mark != known:
                known, silent = mark, 0
                await stream.write(f"id: {mark}\ndata:\n\n".encode())
            elif silent >= BEAT_LOOKS:
                silent = 0
                now = time_text(time.time_ns() // 1_000_000)
                await stream.write(f"event: seen\ndata: {now}\n\n".encode())
            await _until(news, request)


def mark_of(document: Document) -> str:
    """Return a mark of a page's content, which depends on all but its time."""
    shown = {key: _shown(key, value) for key, value in document.items() if key != "time"}
    return hashlib.sha256(json.dumps(shown, default=str).encode()).hexdigest()[:16]


def _shown(key: str, value: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a value with its numbers as pages show them, because ages grow all the time."""
    if isinstance(value, float):
        return span_text(value) if key.endswith("_seconds") else f"{value:.3g}"
    if isinstance(value, Mapping):
        return {name: _shown(name, each) for name, each in value.items()}
    return [_shown(key, each) for each in value] if isinstance(value, list) else value


async def _until(news: asyncio.Event, request: web.Request) -> None:
    """Wait for news, up to the next look.

    Raises:
        ConnectionResetError: the page was closed. aiohttp reports this only at a write.

    """
    now = asyncio.get_running_loop().time
    until = now() + EVERY_SECONDS
    while not news.is_set() and (left := until - now()) > 0:
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), min(left, GONE_SECONDS))


async def _mark_of(look: Look) -> str:
    try:
        return mark_of(await look())
    except HeadraceError as error:  # The page shows it.
        return mark_of({"error": error.code})


def _known(request: web.Request) -> str:
    """Return the mark of the browser's last content."""
    return request.headers.get("Last-Event-ID") or request.query.get("mark", "")

"""Makes requests to an agent wait until the listing of its log changes.

For the thread of the event loop; the log is listed on another one.
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from headrace.sources.cassandra.logs.directory import LogDirectory, SegmentInfo
from headrace.sources.cassandra.logs.folder_watch import Inotify

UNTOLD_SECONDS: Final = 0.01  # Between two listings without events.


class Changes:
    """The waiting requests of one agent. `note` is called on the thread that lists the log."""

    def __init__(self, log: LogDirectory, inotify: Inotify) -> None:
        """Watch nothing yet; *inotify* watches the log's directories."""
        self._log = log
        self._inotify = inotify
        self._listed: Sequence[SegmentInfo] = ()
        self._mark = ""
        self._version = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = asyncio.Event()
        self._watched: int | None = None
        self._is_over = False

    def note(self, listed: Sequence[SegmentInfo]) -> str:
        """Note the current listing. Return its mark, which changes with its content."""
        if listed is not self._listed or not self._mark:
            said = msgspec.json.encode(list(listed))
            mark = f'"{hashlib.blake2b(said, digest_size=12).hexdigest()}"'
            self._listed = listed
            if mark != self._mark:
                self._mark = mark
                self._version += 1
                if self._loop is not None:
                    self._loop.call_soon_threadsafe(self._wake)
        return self._mark

    async def wait(self, seen: str, seconds: float, now: Callable[[], Awaitable[str]]) -> str:
        """Return the mark from *now* when it differs from *seen*, or after *seconds*."""
        self._loop = loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            version = self._version
            mark, left = await now(), until - loop.time()
            if mark != seen or left <= 0 or self._is_over:
                return mark
            if version == self._version:
                await self._event(left)

    async def _event(self, seconds: float) -> None:
        descriptor = self._inotify.descriptor
        if not self._log.tells or descriptor is None:
            seconds = min(seconds, UNTOLD_SECONDS)
        elif self._watched != descriptor:  # Earlier events make it readable at once.
            self._watched = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._wake)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _wake(self) -> None:
        self._unwatch()  # Until the events are read, on the thread that lists the log.
        self._woken.set()
        self._woken = asyncio.Event()

    def _unwatch(self) -> None:
        if self._watched is not None and self._loop is not None:
            self._loop.remove_reader(self._watched)
        self._watched = None

    def end(self) -> None:
        """End all waiting."""
        self._is_over = True
        self._wake()

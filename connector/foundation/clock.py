"""The clock of a worker, and how its threads wait by it."""

import contextlib
import os
import select
import threading
import time
import weakref
from typing import Protocol

_BOOT_TIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The machine's clock. Its monotonic time counts suspension: a lease runs out in sleep too."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since boot."""
        return time.clock_gettime_ns(_BOOT_TIME) // 1_000_000

    def wall_ms(self) -> int:
        """Return milliseconds since 1970; for display, never for decisions."""
        return time.time_ns() // 1_000_000


class Wake(Protocol):
    """Where a thread waits for time to pass or for another thread to wake it."""

    def set(self) -> None:
        """Wake the waiting thread, or the next one that waits. Any thread may call it."""

    def wait(self, timeout_ms: int, readable: int | None = None) -> None:
        """Return when woken, after *timeout_ms*, or when file descriptor *readable* is readable."""


class ThreadWake:
    """A `Wake` for real threads."""

    def __init__(self) -> None:
        """Start unwoken."""
        self._event = threading.Event()
        # Made when a descriptor is waited for first: it makes a wake readable, too.
        self._pipe: tuple[int, int] | None = None

    def set(self) -> None:
        """See `Wake.set`."""
        self._event.set()
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):  # It is full, and so readable.
                os.write(self._pipe[1], b"\0")

    def wait(self, timeout_ms: int, readable: int | None = None) -> None:
        """See `Wake.wait`."""
        if readable is None:
            self._event.wait(timeout_ms / 1000)
        elif not self._event.is_set():
            self._wait_for(readable, timeout_ms)
        self._event.clear()

    def _wait_for(self, readable: int, timeout_ms: int) -> None:
        if self._pipe is None:
            self._pipe = _opened_pipe(self)
            if self._event.is_set():  # By a thread that did not see the pipe.
                return
        poll = select.poll()
        for each in (self._pipe[0], readable):
            poll.register(each, select.POLLIN)
        if any(number == self._pipe[0] for number, _ in poll.poll(timeout_ms)):
            with contextlib.suppress(BlockingIOError):
                while os.read(self._pipe[0], 1024):
                    pass


def _opened_pipe(owner: ThreadWake) -> tuple[int, int]:
    """Return the ends of a pipe that is closed when *owner* is gone."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
        weakref.finalize(owner, os.close, end)
    return ends

"""The clock of a worker, and the waits of its threads."""

import contextlib
import os
import select
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
    """A `Wake` for real threads: a pipe, whose wait costs less than that of `threading.Event`."""

    def __init__(self) -> None:
        """Start unwoken."""
        self._read, self._write = ends = os.pipe()
        for end in ends:
            os.set_blocking(end, False)
            weakref.finalize(self, os.close, end)
        self._poll = select.poll()
        self._poll.register(self._read, select.POLLIN)

    def set(self) -> None:
        """See `Wake.set`."""
        with contextlib.suppress(BlockingIOError):  # It is full, and so readable.
            os.write(self._write, b"\0")

    def wait(self, timeout_ms: int, readable: int | None = None) -> None:
        """See `Wake.wait`."""
        poll = self._poll
        if readable is not None:
            poll = select.poll()
            for each in (self._read, readable):
                poll.register(each, select.POLLIN)
        if any(number == self._read for number, _ in poll.poll(timeout_ms)):
            with contextlib.suppress(BlockingIOError):
                while os.read(self._read, 1024):
                    pass

"""The clock of a worker, and how its threads wait by it."""

import threading
import time
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

    def wait(self, timeout_ms: int) -> None:
        """Return when woken, or after *timeout_ms*."""


class ThreadWake:
    """A `Wake` for real threads."""

    def __init__(self) -> None:
        """Start unwoken."""
        self._event = threading.Event()

    def set(self) -> None:
        """See `Wake.set`."""
        self._event.set()

    def wait(self, timeout_ms: int) -> None:
        """See `Wake.wait`."""
        self._event.wait(timeout_ms / 1000)
        self._event.clear()

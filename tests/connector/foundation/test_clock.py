"""The machine's clock, and waiting by it."""

import threading
import time

from headrace.connector.foundation.clock import SystemClock, ThreadWake


def test_monotonic_time_counts_since_boot() -> None:
    """The monotonic clock counts suspension, and both clocks count milliseconds."""
    clock = SystemClock()
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    now_ms = clock.monotonic_ms()

    assert int(before * 1000) <= now_ms <= int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000) + 1
    assert abs(clock.wall_ms() - time.time() * 1000) < 10_000


def test_wake_ends_a_wait() -> None:
    """A wait ends when another thread wakes it, and a wake before the wait is not lost."""
    wake = ThreadWake()
    started = time.monotonic()
    thread = threading.Thread(target=wake.set)
    thread.start()
    wake.wait(60_000)
    thread.join()
    wake.set()
    wake.wait(60_000)

    assert 60 > time.monotonic() - started


def test_wait_ends_by_itself() -> None:
    """Without a wake a wait takes its time, and no more."""
    started = time.monotonic()
    ThreadWake().wait(20)

    assert 0.015 <= time.monotonic() - started < 10

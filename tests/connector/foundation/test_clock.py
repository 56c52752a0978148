"""The machine's clock, and waiting by it."""

import os
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


def test_a_readable_descriptor_ends_a_wait() -> None:
    """So does a wake meanwhile or before it, and the time."""
    wake, (read, write) = ThreadWake(), os.pipe()
    started = time.monotonic()
    wake.wait(20, read)
    assert 0.015 <= time.monotonic() - started < 10

    os.write(write, b"x")
    wake.wait(60_000, read)
    os.read(read, 1)
    for _ in range(2):
        thread = threading.Thread(target=wake.set)
        thread.start()
        wake.wait(60_000, read)
        thread.join()
    wake.set()
    wake.wait(60_000, read)
    assert 60 > time.monotonic() - started

    started = time.monotonic()
    wake.wait(20, read)  # No wake is left.
    wake.wait(20, read)
    assert 0.015 <= time.monotonic() - started
    os.close(read)
    os.close(write)

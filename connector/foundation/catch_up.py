"""Measures how fast a lag shrinks, from observations of the last minutes."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

LATELY_SECONDS: Final = 300.0
MOMENT_SECONDS: Final = 2.0  # Commits come about once a second: a shorter time shows nothing.
_STEP_SECONDS: Final = 5.0  # Between two observations that are kept.


class Looks:
    """The lag of each job at earlier observations. Thread-safe."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Start without observations; *now_s* is a monotonic clock, in seconds."""
        self._now_s = now_s
        self._lock = threading.Lock()
        self._seen: dict[str, deque[tuple[float, int]]] = {}

    def add(self, job: str, left_bytes: int) -> float | None:
        """Add an observation; return by how many bytes a second the lag shrank in the last minutes.

        Negative if the lag grew; None without an observation that is old enough.
        """
        at_s = self._now_s()
        with self._lock:
            seen = self._seen.setdefault(job, deque())
            while seen and at_s - seen[0][0] > LATELY_SECONDS:
                seen.popleft()
            if not seen or at_s - seen[-1][0] >= _STEP_SECONDS:
                seen.append((at_s, left_bytes))
            first_s, first_bytes = seen[0]
            if at_s - first_s < MOMENT_SECONDS:
                return None
            return (first_bytes - left_bytes) / (at_s - first_s)


def catch_up_seconds(left_bytes: int, pace: float | None) -> float | None:
    """Return after how many seconds a lag ends at *pace*, in bytes a second; None if unknown."""
    if not left_bytes:
        return 0.0
    return left_bytes / pace if pace is not None and pace > 0 else None

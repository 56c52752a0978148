"""What a call costs, in figures that neither the machine nor its other work can spoil."""

import sys
import time
from collections.abc import Callable
from types import FrameType

TRIES_MAX = 10


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions *work* enters, in Python and in C: the same on every machine."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted - 1  # But for the call that ends the count.


def is_linear(work: Callable[[int], object], size: int, *, times: int) -> bool:
    """Say whether *work* on *times* as much costs about *times* the CPU, and not its square.

    The bound is in the middle of the two, as exponents go. Other processes that use the same
    caches can only make a figure worse, so one try within the bound is enough.
    """
    return any(
        _seconds(work, times * size) < times**1.5 * min(_seconds(work, size) for _ in range(3))
        for _ in range(TRIES_MAX)
    )


def _seconds(work: Callable[[int], object], size: int) -> float:
    """Return the CPU seconds of *work*."""
    begun = time.process_time()
    work(size)
    return time.process_time() - begun

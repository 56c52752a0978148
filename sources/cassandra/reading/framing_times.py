"""When the first copies of mutations were framed, by the numbers of their records.

Numbers increase, and records framed in one turn of a log share its times. So the times of a turn
are kept, not of each record. Of older turns fewer are kept. For one thread.
"""

from array import array
from bisect import bisect_left
from typing import Final

TIMES_MAX: Final = 4_096
# Turns are at least this fraction of their age apart; after several thinnings, a 16th.
AGE_PART: Final = 64


class FramingTimes:
    """The times of framing, as described for the module. `last` is the highest number."""

    def __init__(self, last: int = 0) -> None:
        """Start with nothing framed; the times of records up to *last* are unknown."""
        self.last = last
        self._first = last
        self._numbers = array("Q")
        self._durable_ms = array("q")
        self._framed_ms = array("q")

    def note(self, number: int, durable_ms: int, framed_ms: int) -> None:
        """Note that the records after the previous call, up to *number*, are new."""
        if len(self._numbers) == TIMES_MAX:
            self._thin()
        self.last = number
        self._numbers.append(number)
        self._durable_ms.append(durable_ms)
        self._framed_ms.append(framed_ms)

    def of(self, number: int) -> tuple[int, int] | None:
        """Return when a record's first copy was durable and was framed, or None if unknown."""
        if not self._first < number <= self.last:
            return None
        at = bisect_left(self._numbers, number)
        return self._durable_ms[at], self._framed_ms[at]

    def _thin(self) -> None:
        """Forget turns that were soon followed by another; its times count for them."""
        kept, now_ms = [TIMES_MAX - 1], self._framed_ms[-1]
        for at in range(TIMES_MAX - 2, -1, -1):
            framed_ms = self._framed_ms[at]
            if (self._framed_ms[kept[-1]] - framed_ms) * AGE_PART > now_ms - framed_ms:
                kept.append(at)
        kept.reverse()
        self._numbers = array("Q", [self._numbers[at] for at in kept])
        self._durable_ms = array("q", [self._durable_ms[at] for at in kept])
        self._framed_ms = array("q", [self._framed_ms[at] for at in kept])

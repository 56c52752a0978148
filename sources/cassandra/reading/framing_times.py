"""When the first copies of mutations were framed, by the numbers of their records.

Numbers grow, and what is framed in one turn of a log shares its times: these are kept, not one for
each record. Of what is older fewer are kept. For one thread.
"""

from array import array
from bisect import bisect_left
from typing import Final

TIMES_MAX: Final = 4_096
# Turns are as far apart as this part of their age; thinned several times, as a 16th of it.
AGE_PART: Final = 64


class FramingTimes:
    """See the module. `last` is the highest number."""

    def __init__(self, last: int = 0) -> None:
        """Nothing is framed; when records up to the number *last* were is not known."""
        self.last = last
        self._first = last
        self._numbers = array("Q")
        self._durable_ms = array("q")
        self._framed_ms = array("q")

    def note(self, number: int, durable_ms: int, framed_ms: int) -> None:
        """Note that the records since the last call, up to *number*, are new."""
        if len(self._numbers) == TIMES_MAX:
            self._thin()
        self.last = number
        self._numbers.append(number)
        self._durable_ms.append(durable_ms)
        self._framed_ms.append(framed_ms)

    def of(self, number: int) -> tuple[int, int] | None:
        """Return when a record's first copy was durable, and framed; None if that is not known."""
        if not self._first < number <= self.last:
            return None
        at = bisect_left(self._numbers, number)
        return self._durable_ms[at], self._framed_ms[at]

    def _thin(self) -> None:
        """Forget turns that were soon followed by another one: its times count for them."""
        kept, now_ms = [TIMES_MAX - 1], self._framed_ms[-1]
        for at in range(TIMES_MAX - 2, -1, -1):
            framed_ms = self._framed_ms[at]
            if (self._framed_ms[kept[-1]] - framed_ms) * AGE_PART > now_ms - framed_ms:
                kept.append(at)
        kept.reverse()
        self._numbers = array("Q", [self._numbers[at] for at in kept])
        self._durable_ms = array("q", [self._durable_ms[at] for at in kept])
        self._framed_ms = array("q", [self._framed_ms[at] for at in kept])

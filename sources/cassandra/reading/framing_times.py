"""When the first copies of mutations were framed, by the numbers of their records.

Numbers grow, and what is framed in one turn of a log shares its times: a few of them are kept, not
one for each record. Of what is older fewer are kept, so that what they say is off by no more than a
part of how long ago that was. For one thread.
"""

from array import array
from bisect import bisect_left
from typing import Final

TIMES_MAX: Final = 4_096


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
        self.last = number
        if len(self._numbers) == TIMES_MAX:
            older = slice(0, TIMES_MAX // 2, 2)  # What is between gets the time of the next one.
            for each in (self._numbers, self._durable_ms, self._framed_ms):
                del each[older]
        self._numbers.append(number)
        self._durable_ms.append(durable_ms)
        self._framed_ms.append(framed_ms)

    def of(self, number: int) -> tuple[int, int] | None:
        """Return when a record's first copy was durable, and framed; None if that is not known."""
        if not self._first < number <= self.last:
            return None
        at = bisect_left(self._numbers, number)
        return self._durable_ms[at], self._framed_ms[at]

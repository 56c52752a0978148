"""The arrival of a change: a hybrid logical clock in one number of 64 bits.

The upper 44 bits are ms since 1970, the lower 20 a sequence within the millisecond. The arrivals of
a history always increase, even if the clock of the machine is set back: then they continue from the
last one. One transaction assigns them, so no later arrival precedes a committed one.
"""

import datetime as dt
from typing import Final

SEQUENCE_BITS: Final = 20
SLOT_MAX: Final = 1 << (SEQUENCE_BITS - 1)
"""How many changes a part of a history can give arrivals that follow each other."""
_SEQUENCE: Final = (1 << SEQUENCE_BITS) - 1
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def first_of(ms: int) -> int:
    """Return the first arrival of a millisecond."""
    return ms << SEQUENCE_BITS


def ms_of(arrival: int) -> int:
    """Return an arrival's time in milliseconds since 1970."""
    return arrival >> SEQUENCE_BITS


def sequence_of(arrival: int) -> int:
    """Return the sequence of an arrival within its millisecond, from 0."""
    return arrival & _SEQUENCE


def next_after(last: int, now_ms: int) -> int:
    """Return the arrival after *last* at *now_ms*; further ones have the next numbers."""
    return max(last + 1, first_of(now_ms))


def next_in_slot(last: int, now_ms: int, number: int, count: int) -> int:
    """Return `next_after` in a millisecond of part *number* of *count*, counted from 0.

    SLOT_MAX arrivals from there on belong to this part.
    """
    found = next_after(last, now_ms)
    ms = ms_of(found)
    if ms % count == number and sequence_of(found) < SLOT_MAX:
        return found
    return first_of(ms + 1 + (number - ms - 1) % count)


def moment(ms: int) -> dt.datetime:
    """Return milliseconds since 1970 as a time in UTC."""
    return _EPOCH + dt.timedelta(milliseconds=ms)


def us_of(at: dt.datetime) -> int:
    """Return a time, by default in UTC, in µs since 1970."""
    at = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
    return (at - _EPOCH) // dt.timedelta(microseconds=1)


def time_text(ms: int) -> str:
    """Return a time in the format of messages and answers: ISO 8601, in UTC."""
    return moment(ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")

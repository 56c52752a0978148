"""Follows a history: by final changes, without loss, or by the clock, as with Phoenix.

`tail` returns committed changes. A commit assigns later arrivals than all earlier commits, so what
is missing then cannot arrive later. `poll` reads ranges of time, each some time after its end; it
misses a change whose arrival is in the range but which is committed later.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.history import arrival
from headrace.connector.history.errors import HistoryBusyError
from headrace.connector.history.query import Page, Place, Query
from headrace.connector.history.reading import History

WAIT_MS_MAX: Final = 30_000
LOOK_MS: Final = 20

Pause = Callable[[float], None]
"""Waits for a number of seconds."""


def tail(history: History, query: Query, *, wait_ms: int, pause: Pause) -> Page:
    """Return the next changes of *query*, whose end is open, as soon as there are some.

    After *wait_ms* the page is empty. It always has a token, to continue after it. Blocking. Raises
    as `History.select`.
    """
    clock = history.clock
    deadline_ms = clock.monotonic_ms() + min(wait_ms, WAIT_MS_MAX)
    seen = -1
    while True:
        version = history.file.version()
        if version != seen:
            seen = version
            page = history.select(query, settles=False)
            if page.events:
                last = page.events[-1].arrival
                return replace(page, token=Place(last, descending=False).token())
        left_ms = deadline_ms - clock.monotonic_ms()
        if left_ms <= 0:
            page = history.select(query)
            behind = page.events[-1].arrival if page.events else page.may_come - 1
            return replace(page, token=Place(behind, descending=False).token())
        pause(min(left_ms, LOOK_MS) / 1_000)


@dataclass(frozen=True, slots=True)
class Pace:
    """Ranges of `every_ms`, each read at least `safety_ms` after its end."""

    every_ms: int
    safety_ms: int


def poll(history: History, query: Query, pace: Pace, *, pause: Pause) -> Iterator[tuple[int, Page]]:
    """Yield the end of each range, in ms, and its pages, from the begin of *query*.

    Expired values are made to arrive before a range is read; they arrive at the present time, so a
    later range has them. Blocking; raises as `History.select`.
    """
    begin_ms = query.from_ms
    while True:
        end_ms = begin_ms + pace.every_ms
        passed_ms = history.clock.wall_ms() - end_ms
        if passed_ms < pace.safety_ms:
            pause((pace.safety_ms - passed_ms) / 1_000)
        with contextlib.suppress(HistoryBusyError):
            history.append_due(history.clock.wall_ms())
        part = replace(query, from_ms=begin_ms, to_ms=end_ms)
        for page in history.pages(part, settles=False):
            yield end_ms, page
        begin_ms = end_ms


def place_of(token: str) -> int:
    """Return the time, in ms, at which a token continues. Raises QueryError."""
    return arrival.ms_of(Place.of(token, descending=False).arrival + 1)

"""What a source says about its own counters: their names, which must add up, and what repeats.

`Position.books` has the counters. A source declares a `Bookkeeping` as `Source.bookkeeping`; the
books, `headrace verify`, metrics and summaries know its counters from there alone.
"""

from collections.abc import Mapping
from typing import Final

import msgspec


class CounterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Counters that have the first word of their names in common: `<name>.<fate>`.

    Where *part* is given, each part of the source (a node, a shard) is counted for itself, as
    `<name>.<part>.<fate>`. *part* and *label* name the labels of the metric; without *label* the
    counters are `<name>.<part>`. *title* begins their line in a text, with `{part}` in it for the
    part. *metric* and *doc* are the counter that Prometheus is given.

    The counters of *left*, by their last words, must add up to the same as those of *right*: the
    equation that `headrace verify` checks. A group without an equation only informs. *copies* are
    those of them that count copies of what another copy had published, or will: they are dropped.
    """

    name: str
    title: str
    metric: str
    doc: str
    part: str = ""
    label: str = "fate"
    left: tuple[str, ...] = ()
    right: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


class WaitingCounter(msgspec.Struct, frozen=True, kw_only=True):
    """The counter of what was read and is not published yet; `Position.waiting` lists it.

    Books that end because the splits are planned again have it as *passed_on*, and the new books
    open with it. *one* and *many* say what it counts: `order waits for its sum`, `orders wait …`.
    *metric* and *doc* are the gauge that Prometheus is given.
    """

    counter: str
    passed_on: str
    one: str
    many: str
    metric: str
    doc: str


class RepeatCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why something may be in the sink twice: so many *unit*, because *why*.

    It is counted as `repeats.<cause>`; with *counter*, what that counter counts is added.
    """

    unit: str
    why: str
    counter: str = ""


class Bookkeeping(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a source's counters; a source that has none declares nothing.

    *held_back* are the counters of what was read and never became a record, or has not yet: a
    comparison with what was published must expect that much to be absent.
    """

    groups: tuple[CounterGroup, ...] = ()
    waiting: WaitingCounter | None = None
    held_back: tuple[str, ...] = ()
    repeats: Mapping[str, RepeatCause] = msgspec.field(default_factory=dict)


NO_COUNTERS: Final = Bookkeeping()

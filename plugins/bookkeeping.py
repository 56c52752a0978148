"""The counters of a source, as it declares them: their names, equations, and repeats.

`Position.books` has their values. A source declares a `Bookkeeping` as `Source.bookkeeping`; the
books, `headrace verify`, metrics and summaries know its counters only from there.
"""

from collections.abc import Mapping
from typing import Final

import msgspec


class CounterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Counters whose names share the first word: `<name>.<fate>`.

    With *part*, each part of the source (a node, a shard) has its own counters,
    `<name>.<part>.<fate>`. *part* and *label* name the labels of the metric; without *label* the
    counters are `<name>.<part>`. *title* begins their line in a text, with `{part}` for the part.
    *metric* and *doc* are the name and the help of the counter in Prometheus.

    The counters of *left*, by their last words, must add up to the same sum as those of *right*:
    the equation that `headrace verify` checks. A group without an equation is only shown. *copies*
    are the counters of copies whose mutation another copy published, or will publish: these copies
    are dropped.
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
    """The counter of changes that were read and are not published yet; see `Position.waiting`.

    Books that end because the splits are planned again have it as *passed_on*, and the new books
    open with it. *one* and *many* name the counted things: `order waits for its sum`, `orders wait
    …`. *metric* and *doc* are the name and the help of the gauge in Prometheus.
    """

    counter: str
    passed_on: str
    one: str
    many: str
    metric: str
    doc: str


class RepeatCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why records may be in the sink twice: the number of *unit*, because *why*.

    It is counted as `repeats.<cause>`; with *counter*, the value of that counter is added.
    """

    unit: str
    why: str
    counter: str = ""


class Bookkeeping(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of a source's counters; a source without counters declares none.

    *held_back* are the counters of changes that were read and never became a record, or have not
    yet: a comparison with the published records must expect this many to be missing.
    """

    groups: tuple[CounterGroup, ...] = ()
    waiting: WaitingCounter | None = None
    held_back: tuple[str, ...] = ()
    repeats: Mapping[str, RepeatCause] = msgspec.field(default_factory=dict)


NO_COUNTERS: Final = Bookkeeping()

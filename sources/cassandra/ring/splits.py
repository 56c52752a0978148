"""The splits of the ring: equal parts, by the upper half of the token (see docs/adr/0008). Pure.

A place on the ring is the upper half of a token, counted from the lowest: from 0 to `RING` - 1.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headrace.plugins import TokenRange

RING: Final = 1 << 32
SPLITS_MAX: Final = 4_096
SPLITS_MIN: Final = 8  # Without a configured number.
PER_WORKER: Final = 4  # To balance the load.
_HALF_BITS: Final = 32
_LOWEST: Final = 1 << 31
_NAME: Final = re.compile(r"([1-9][0-9]{0,3})-of-([1-9][0-9]{0,3})")


class Arc(NamedTuple):
    """The places from `first` to the one before `behind`."""

    first: int = 0
    behind: int = RING

    def has(self, place: int) -> bool:
        """Return whether *place* is in the arc."""
        return self.first <= place < self.behind

    def common(self, other: "Arc") -> "Arc":
        """Return the places that are in both arcs; the result may be empty."""
        return Arc(max(self.first, other.first), min(self.behind, other.behind))


def names(count: int) -> Sequence[str]:
    """Return the names of *count* splits, from the lowest token on.

    A name contains the count: after resplitting, no split has the name of another one.
    """
    return [name_of(number, count) for number in range(count)]


def name_of(number: int, count: int) -> str:
    """Return the name of split *number*, from 0, of *count*."""
    return f"{number + 1}-of-{count}"


def parts_of(name: str, parts: int) -> Sequence[str]:
    """Return the names of *parts* equal parts of a split, or of as many as the limit allows."""
    number, count = map(int, name.split("-of-"))
    parts = max(1, min(parts, SPLITS_MAX // count))
    return names(count * parts)[(number - 1) * parts : number * parts]


def count_for(workers: int, nodes: int) -> int:
    """Return a suitable number of splits: a power of two, so that most changes halve splits.

    Several per worker, and at least one per node, so that a worker beside a node can read its
    tokens.
    """
    least = max(SPLITS_MIN, PER_WORKER * workers, nodes)
    return min(SPLITS_MAX, 1 << (least - 1).bit_length())


def count_in(splits: Sequence[str]) -> int | None:
    """Return the number of splits in the ring of *splits*; None if the names do not form a ring."""
    return (
        len(splits)
        if 0 < len(splits) <= SPLITS_MAX and sorted(splits) == sorted(names(len(splits)))
        else None
    )


def arc_of(name: str) -> Arc | None:
    """Return the arc of a split; None if *name* is not that of a split."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) <= int(match[2]) <= SPLITS_MAX:
        return None
    return _arc(int(match[1]) - 1, int(match[2]))


def _arc(number: int, count: int) -> Arc:
    # Rounded up: `place * count // RING` is the number, from 0, of the split that has a place.
    return Arc(*(-(-(n * RING) // count) for n in (number, number + 1)))


def tokens_of(number: int, count: int) -> tuple[int, int]:
    """Return the first and the last token of split *number*, from 0, of *count*."""
    first, behind = ((place - _LOWEST) << _HALF_BITS for place in _arc(number, count))
    return first, behind - 1


def token_range(name: str) -> TokenRange | None:
    """Return the tokens of a split by its name; None if *name* is not that of a split."""
    arc = arc_of(name)
    if arc is None:
        return None
    first, behind = ((place - _LOWEST) << _HALF_BITS for place in arc)
    return TokenRange(number=int(name.partition("-")[0]), first=first, behind=behind)


def arcs_of(numbers: Iterable[int], count: int) -> tuple[tuple[int, int], ...]:
    """Return the token ranges of splits, first and last, ascending; empty if they are all.

    *numbers* are from 0, of *count*.
    """
    made: list[tuple[int, int]] = []
    for number in sorted(numbers):
        first, last = tokens_of(number, count)
        if made and made[-1][1] == first - 1:
            first = made.pop()[0]
        made.append((first, last))
    return () if made == [(-(1 << 63), (1 << 63) - 1)] else tuple(made)


def covered(arcs: Iterable[Arc]) -> tuple[Arc, ...]:
    """Return the same places in the fewest possible arcs, ascending."""
    made: list[Arc] = []
    for arc in sorted(arcs):
        if made and arc.first <= made[-1].behind:
            made[-1] = Arc(made[-1].first, max(arc.behind, made[-1].behind))
        elif arc.first < arc.behind:
            made.append(arc)
    return tuple(made)


def without(arc: Arc, others: Iterable[Arc]) -> tuple[Arc, ...]:
    """Return the places of *arc* that are in none of *others*."""
    left, at = [], arc.first
    for other in covered(others):
        left.append(Arc(at, min(other.first, arc.behind)))
        at = max(at, other.behind)
    return covered([*left, Arc(at, arc.behind)])


def place_of(token: int) -> int:
    """Return the place of a token on the ring."""
    return (token >> _HALF_BITS) + _LOWEST


def number_of(token: int, count: int) -> int:
    """Return the number of the split that has *token*, from 0, of *count*."""
    return place_of(token) * count // RING

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
PER_WORKER: Final = 4  # So that loads can be levelled.
_HALF_BITS: Final = 32
_LOWEST: Final = 1 << 31
_NAME: Final = re.compile(r"([1-9][0-9]{0,3})-of-([1-9][0-9]{0,3})")


class Arc(NamedTuple):
    """The places from `first` to the one before `behind`."""

    first: int = 0
    behind: int = RING

    def has(self, place: int) -> bool:
        """Say whether a place is one of them."""
        return self.first <= place < self.behind

    def common(self, other: "Arc") -> "Arc":
        """Return the places that are in both; they may be none."""
        return Arc(max(self.first, other.first), min(self.behind, other.behind))


def names(count: int) -> Sequence[str]:
    """Return the names of so many splits, from the lowest token on.

    Each says of how many it is one: other parts are other splits, never the same ones moved.
    """
    return [name_of(number, count) for number in range(count)]


def name_of(number: int, count: int) -> str:
    """Return the name of split *number*, counted from 0, of so many."""
    return f"{number + 1}-of-{count}"


def parts_of(name: str, parts: int) -> Sequence[str]:
    """Return the names of so many equal parts of a split, or of as many as there can be."""
    number, count = map(int, name.split("-of-"))
    parts = max(1, min(parts, SPLITS_MAX // count))
    return names(count * parts)[(number - 1) * parts : number * parts]


def count_for(workers: int, nodes: int) -> int:
    """Return how many splits suit a ring and its workers: a power of two, so most changes halve.

    Several for each worker, and one for each node, so that a worker beside it has what is near.
    """
    least = max(SPLITS_MIN, PER_WORKER * workers, nodes)
    return min(SPLITS_MAX, 1 << (least - 1).bit_length())


def count_in(splits: Sequence[str]) -> int | None:
    """Return how many splits a ring of the names *splits* has; None: they are not a ring."""
    return (
        len(splits)
        if 0 < len(splits) <= SPLITS_MAX and sorted(splits) == sorted(names(len(splits)))
        else None
    )


def arc_of(name: str) -> Arc | None:
    """Return where the tokens of a split are; None if the name is not a split's."""
    match = _NAME.fullmatch(name)
    if match is None or not int(match[1]) <= int(match[2]) <= SPLITS_MAX:
        return None
    return _arc(int(match[1]) - 1, int(match[2]))


def _arc(number: int, count: int) -> Arc:
    # Rounded up: `place * count // RING` is the number, from 0, of the split that has a place.
    return Arc(*(-(-(n * RING) // count) for n in (number, number + 1)))


def tokens_of(number: int, count: int) -> tuple[int, int]:
    """Return the first token and the last one of a split; *number* is from 0, of *count*."""
    first, behind = ((place - _LOWEST) << _HALF_BITS for place in _arc(number, count))
    return first, behind - 1


def token_range(name: str) -> TokenRange | None:
    """Return the tokens of a split by its name; None if the name is not a split's."""
    arc = arc_of(name)
    if arc is None:
        return None
    first, behind = ((place - _LOWEST) << _HALF_BITS for place in arc)
    return TokenRange(number=int(name.partition("-")[0]), first=first, behind=behind)


def arcs_of(numbers: Iterable[int], count: int) -> tuple[tuple[int, int], ...]:
    """Return the tokens of splits, first and last, ascending; nothing where they are all.

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
    """Return the same places in as few arcs as can be, ascending."""
    made: list[Arc] = []
    for arc in sorted(arcs):
        if made and arc.first <= made[-1].behind:
            made[-1] = Arc(made[-1].first, max(arc.behind, made[-1].behind))
        elif arc.first < arc.behind:
            made.append(arc)
    return tuple(made)


def without(arc: Arc, others: Iterable[Arc]) -> tuple[Arc, ...]:
    """Return the places of *arc* that are in none of the *others*."""
    left, at = [], arc.first
    for other in covered(others):
        left.append(Arc(at, min(other.first, arc.behind)))
        at = max(at, other.behind)
    return covered([*left, Arc(at, arc.behind)])


def place_of(token: int) -> int:
    """Return where a token is."""
    return (token >> _HALF_BITS) + _LOWEST


def number_of(token: int, count: int) -> int:
    """Return the split, from 0 and of *count*, that a token is in."""
    return place_of(token) * count // RING

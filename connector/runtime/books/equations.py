"""The books (I3): equations that must hold for the counts of read, agreed and delivered. Pure.

The equations of changes are the framework's. A source declares those of its own counters, in
`Source.bookkeeping`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.stores import Counters, TableCounts
from headrace.plugins import NO_COUNTERS, Bookkeeping, CounterGroup, Gap

Books = Mapping[str, int]

REPEATS: Final = "repeats."


@dataclass(frozen=True, slots=True)
class SplitBooks:
    """The source's own counters and the framework's counters of one split.

    `keeping` is the source's declaration of its counters. `span` says which range of each part the
    books cover. `contradictions` says, in words, where the stored position disagrees with them.
    `gaps` are those that the split met.
    """

    split: str
    books: Books
    counters: Counters
    keeping: Bookkeeping
    span: Sequence[str] = ()
    contradictions: Sequence[str] = ()
    gaps: Sequence[Gap] = ()


def total(splits: Iterable[SplitBooks]) -> SplitBooks:
    """Add up all splits, which are of one source."""
    books: dict[str, int] = {}
    counters: dict[str, TableCounts] = {}
    keeping = NO_COUNTERS
    for split in splits:
        keeping = split.keeping
        for name, count in split.books.items():
            books[name] = books.get(name, 0) + count
        for table, counts in split.counters.items():
            counters[table] = counters[table] + counts if table in counters else counts
    return SplitBooks("", books, counters, keeping)


def closed(split: SplitBooks) -> SplitBooks:
    """Return final books: the waiting count moves to the counter that the next books start with."""
    books, waiting = dict(split.books), split.keeping.waiting
    if waiting is not None and waiting.counter in books:
        books[waiting.passed_on] = books.pop(waiting.counter)
    return replace(split, books=books)


def differences(split: SplitBooks) -> Sequence[str]:
    """Return the equations that do not hold, in words; empty if the books balance."""
    lines = []
    for group in split.keeping.groups:
        if not group.left or not _differs(split.books, group):
            continue
        for part, counts in by_part(split.books, group).items():
            if part or not counts.keys().isdisjoint(group.left):
                left, right = (
                    {name: counts.get(name, 0) for name in side}
                    for side in (group.left, group.right)
                )
                lines.append(_equation(title(group, part), left, right))
    for table, c in sorted(split.counters.items()):
        fates = dict(c.fates)
        cut = {"cut": fates.pop("cut")}
        lines.append(_equation(f"changes of {table or 'unknown tables'}", cut, fates))
    place = f"split {split.split}: " if split.split else ""
    return [place + line for line in (*lines, *split.contradictions) if line]


def books_differences(books: Sequence[SplitBooks]) -> Sequence[str]:
    """Return all equations that do not hold, of each split and of their sum."""
    return [line for split in (*books, total(books)) for line in differences(split)]


def repeats(split: SplitBooks) -> Books:
    """Return how much may have been delivered twice, by cause.

    The framework's causes `window`, `zombie` and `resend` count changes; the source's own causes
    count in its own units.
    """
    found = Counter(dict.fromkeys(TableCounts().repeats, 0))
    for counts in split.counters.values():
        found.update(counts.repeats)
    for name, count in split.books.items():
        if name.startswith(REPEATS):
            found[name.removeprefix(REPEATS)] += count
    for cause, each in split.keeping.repeats.items():
        if each.counter in split.books:
            found[cause] += split.books[each.counter]
    return dict(found)


def by_part(books: Books, group: CounterGroup) -> Mapping[str, Books]:
    """Return the counters of a group by their last words, for each part of the source.

    Parts and counters are in alphabetical order. A group without parts has one with an empty name.
    """
    found: dict[str, dict[str, int]] = {} if group.part else {"": {}}
    for part, last, count in _counters(books, group):
        found.setdefault(part, {})[last] = count
    return {part: dict(sorted(found[part].items())) for part in sorted(found)}


def title(group: CounterGroup, part: str) -> str:
    """Return the prefix of the lines about a part."""
    return group.title.replace("{part}", part)


def _differs(books: Books, group: CounterGroup) -> bool:
    """Return whether the equation of any part does not hold: most do, and most counters are 0."""
    prefix, has_parts = f"{group.name}.", bool(group.part and group.label)
    rest = len(prefix)
    found: Counter[str] = Counter()
    for name, count in books.items():
        if count and name.startswith(prefix):
            part, _, last = name[rest:].rpartition(".") if has_parts else ("", "", name[rest:])
            found[part] += count * ((last in group.left) - (last in group.right))
    return any(found.values())


def _counters(books: Books, group: CounterGroup) -> Iterator[tuple[str, str, int]]:
    """Yield the part, the last word and the count of each counter of a group."""
    prefix = f"{group.name}."
    for name, count in books.items():
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            # The name of a part may have dots, and so may a counter of a group without parts.
            part, _, last = rest.rpartition(".") if group.part and group.label else ("", "", rest)
            yield (part, last, count) if group.label else (rest, "", count)


def _equation(subject: str, left: Mapping[str, int], right: Mapping[str, int]) -> str:
    """Return the equation in words if it does not hold, else an empty string."""
    amount, other = sum(left.values()), sum(right.values())
    if amount == other:
        return ""
    first = _sum(left) or f"{[*left][-1]} 0"
    return f"{subject}: {first} is not {_sum(right) or 'nothing'} = {other}"


def _sum(counts: Mapping[str, int]) -> str:
    return " + ".join(f"{name} {count}" for name, count in counts.items() if count)

"""The books (I3): the equations that must hold for what was read, agreed and delivered. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.stores import Counters, TableCounts, add_counters

Books = Mapping[str, int]

_ENTRY_FATES: Final = ("first", "counted", "surplus", "repeat", "damaged")
_MUTATION_FATES: Final = (
    "agreed",
    "reencoded",
    "expired",
    "expired_published",
    "not_replica",
    "filtered",
    "overflow",
    "passed_on",
    "pending",
)
_GAPS: Final = "gaps."
_REPEATS: Final = "repeats."
# Causes of repeats that are counted under other names, too.
_ALSO: Final = {
    "shortened": "memory_shortened",
    "expired": "mutations.expired_published",
    "overflow": "mutations.overflow",
}


@dataclass(frozen=True, slots=True)
class SplitBooks:
    """The source's own counters and the framework's counters of one split.

    `span` says of each part what the books are of; `contradictions`, in words, what the stored
    position says that they deny.
    """

    split: str
    books: Books
    counters: Counters
    span: Sequence[str] = ()
    contradictions: Sequence[str] = ()


def total(splits: Iterable[SplitBooks]) -> SplitBooks:
    """Add up all splits."""
    books: Counter[str] = Counter()
    counters: Counters = {}
    for split in splits:
        books.update(split.books)
        counters = add_counters(counters, split.counters)
    return SplitBooks("", dict(books), counters)


def closed(split: SplitBooks) -> SplitBooks:
    """Return books that end: what still waits is passed on, and others open with it."""
    books = dict(split.books)
    if "mutations.pending" in books:
        books["mutations.passed_on"] = books.pop("mutations.pending")
    return replace(split, books=books)


def differences(split: SplitBooks) -> Sequence[str]:
    """Return the equations that do not hold, in words; none when the books balance."""
    lines = []
    for node in nodes(split.books):
        fates = {name: split.books.get(f"entries.{node}.{name}", 0) for name in _ENTRY_FATES}
        read = split.books.get(f"entries.{node}.read", 0)
        lines.append(_equation(f"entries of {node}", "read", read, fates))
    if "mutations.first" in split.books or "mutations.opening" in split.books:
        fates = {name: split.books.get(f"mutations.{name}", 0) for name in _MUTATION_FATES}
        fates["pending"] = fates["pending"] or split.books.get("pending", 0)
        opening = split.books.get("mutations.opening", 0)
        left = f"opening {opening} + first" if opening else "first"
        amount = opening + split.books.get("mutations.first", 0)
        lines.append(_equation("mutations", left, amount, fates))
    for table, c in sorted(split.counters.items()):
        fates = {
            "delivered": c.delivered,
            "filtered": c.filtered,
            "dead_lettered": c.dead_lettered,
            "quarantined": c.quarantined,
        }
        lines.append(_equation(f"changes of {table or 'unknown tables'}", "cut", c.cut, fates))
    place = f"split {split.split}: " if split.split else ""
    return [place + line for line in (*lines, *split.contradictions) if line]


def gap_counts(books: Books) -> Books:
    """Return how many gaps were met in each part of the source, for those that had some."""
    return {k.removeprefix(_GAPS): n for k, n in sorted(books.items()) if k.startswith(_GAPS) and n}


def repeats(split: SplitBooks) -> Books:
    """Return how much may have come twice, by cause (line 36 of the agreement).

    Changes of `window`, `zombie` and `resend`, mutations of the source's own causes.
    """
    found = Counter(dict.fromkeys(TableCounts().repeats, 0))
    for counts in split.counters.values():
        found.update(counts.repeats)
    for name, count in split.books.items():
        if name.startswith(_REPEATS):
            found[name.removeprefix(_REPEATS)] += count
    for cause, name in _ALSO.items():
        if name in split.books:
            found[cause] += split.books[name]
    return dict(found)


def nodes(books: Books) -> Sequence[str]:
    """Return the nodes whose logs the books tell of."""
    names = {key.removeprefix("entries.").rpartition(".")[0] for key in books if _of_entries(key)}
    return sorted(names)


def _of_entries(key: str) -> bool:
    return key.startswith("entries.")


def _equation(subject: str, left: str, amount: int, fates: Mapping[str, int]) -> str:
    """Return the equation in words if it does not hold, else nothing."""
    if amount == sum(fates.values()):
        return ""
    right = " + ".join(f"{name} {count}" for name, count in fates.items() if count) or "nothing"
    return f"{subject}: {left} {amount} is not {right} = {sum(fates.values())}"

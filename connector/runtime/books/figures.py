"""The figures of a job for people: a headline, and a line for each figure. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.connector.runtime.books.equations import (
    SplitBooks,
    books_differences,
    by_part,
    repeats,
    total,
)
from headrace.plugins import Gap

_INDENT: Final = "  "

Row = tuple[str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The outcome of everything that was read, by the committed books.

    `dropped` is None for a source without copies, `waits` is empty for one in which nothing waits.
    `unpublished` counts mutations that never became records, by the source's counter; `repeats` how
    much may be in the sink twice, by cause; `differences` the equations that do not hold;
    `open_bytes` and `lost_bytes` the damaged bytes in gaps.
    """

    published: int
    dropped: int | None = None
    waiting: int = 0
    waits: str = ""
    repeats: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: int = 0
    filtered: int = 0
    unpublished: Mapping[str, int] = field(default_factory=dict)
    gaps_open: int = 0
    gaps_lost: int = 0
    open_bytes: int = 0
    lost_bytes: int = 0
    differences: int = 0

    @property
    def repeated(self) -> int:
        """The upper bound of repeated changes in the sink."""
        return sum(self.repeats.values())

    @property
    def lost(self) -> int:
        """How many parts of logs were not read: the job stopped before them, or skipped them."""
        return self.gaps_open + self.gaps_lost


def figures_of(books: Sequence[SplitBooks], differences: Sequence[str] | None = None) -> Figures:
    """Return the figures of all splits together; *differences* are computed if None."""
    if differences is None:
        differences = books_differences(books)
    everything = total(books)
    keeping, counters = everything.keeping, everything.counters.values()
    waiting = keeping.waiting
    count = 0 if waiting is None else everything.books.get(waiting.counter, 0)
    copies = [group for group in keeping.groups if group.copies]
    gaps: Sequence[Gap] = [gap for gap in gaps_met(books) if gap.is_open or gap.is_lost]
    held_back = [name for name in keeping.held_back if waiting is None or name != waiting.counter]
    return Figures(
        published=sum(each.delivered for each in counters),
        dropped=sum(
            counts.get(fate, 0)
            for group in copies
            for counts in by_part(everything.books, group).values()
            for fate in group.copies
        )
        if copies
        else None,
        waiting=count,
        waits="" if waiting is None else waiting.one if count == 1 else waiting.many,
        repeats={cause: most for cause, most in repeats(everything).items() if most},
        dead_lettered=sum(each.dead_lettered + each.quarantined for each in counters),
        filtered=sum(each.filtered for each in counters),
        unpublished={
            name: everything.books[name] for name in held_back if everything.books.get(name)
        },
        gaps_open=sum(gap.is_open for gap in gaps),
        gaps_lost=sum(gap.is_lost for gap in gaps),
        open_bytes=sum(gap.size_bytes for gap in gaps if gap.is_open),
        lost_bytes=sum(gap.size_bytes for gap in gaps if gap.is_lost),
        differences=len(differences),
    )


def gaps_met(books: Sequence[SplitBooks]) -> Sequence[Gap]:
    """Return the gaps of all splits, one for each name: an open one, if there is one."""
    found: dict[str, Gap] = {}
    for gap in (gap for split in books for gap in split.gaps):
        if gap.name not in found or gap.is_open:
            found[gap.name] = gap
    return list(found.values())


def open_gaps(books: Sequence[SplitBooks]) -> Sequence[Gap]:
    """Return the gaps that a user must decide about, each once."""
    return [gap for gap in gaps_met(books) if gap.is_open]


def headline(figures: Figures) -> str:
    """Return the figures in one line: `6,451 changes, each once; 0 lost`."""
    changes = "1 change" if figures.published == 1 else f"{figures.published:,} changes"
    phrases = [f"{changes}, each once" if figures.published else changes]
    if figures.repeated:
        phrases = [f"{changes}, of which at most {figures.repeated:,} came twice"]
    if figures.lost:
        phrases.append(
            "1 part of a log lost" if figures.lost == 1 else f"{figures.lost:,} parts lost"
        )
    else:
        phrases.append("the books differ" if figures.differences else "0 lost")
    if figures.waiting:
        phrases.append(f"{figures.waiting:,} {figures.waits}")
    if figures.dead_lettered:
        phrases.append(f"{figures.dead_lettered:,} dead-lettered")
    return "; ".join(phrases)


def figures_text(figures: Figures, job: str) -> str:
    """Return the headline and a line for each figure; *job* are the arguments that name the job.

    A figure that needs attention names the command that shows more.
    """
    rows = figure_rows(figures, job)
    width = max(len(label) for label, _, _ in rows)
    digits = max(len(f"{count:,}") for _, count, _ in rows)
    lines = [
        f"{_INDENT}{label:<{width}}{_INDENT}{count:>{digits},}{_INDENT}{note}".rstrip()
        for label, count, note in rows
    ]
    return "\n".join([headline(figures), *lines, ""])


def figure_rows(figures: Figures, job: str) -> Sequence[Row]:
    """Return a label, a count and a note for each figure; *job* as in `figures_text`."""
    has_copies = figures.dropped is not None
    rows: list[Row] = [("changes published", figures.published, "")]
    if figures.dropped is not None:
        rows.append(("copies dropped", figures.dropped, ""))
    if figures.waits:
        label = "waiting for a copy" if has_copies else "waiting"
        rows.append((label, figures.waiting, f"headrace waiting {job}" if figures.waiting else ""))
    why = f"at most; why: headrace verify {job} --books" if figures.repeated else ""
    rows.append(("possibly repeated", figures.repeated, why))
    look = f"headrace dlq list {job}" if figures.dead_lettered else ""
    rows.append(("dead-lettered", figures.dead_lettered, look))
    if figures.filtered:
        rows.append(("filtered", figures.filtered, ""))
    rows += [("not published", count, name) for name, count in figures.unpublished.items()]
    return [*rows, ("lost", figures.lost, _lost(figures, job))]


def _lost(figures: Figures, job: str) -> str:
    opened, lost = figures.gaps_open, figures.gaps_lost
    phrases = []
    if opened:
        many = "1 gap is open" if opened == 1 else f"{opened:,} gaps are open"
        phrases.append(many + _bytes(figures.open_bytes))
    if lost:
        many = "1 part of a log is lost" if lost == 1 else f"{lost:,} parts of logs are lost"
        phrases.append(many + _bytes(figures.lost_bytes))
    look = [f"{'; '.join(phrases)}: headrace gaps {job}"] if phrases else []
    if figures.differences:
        look.append(f"the books differ: headrace verify --books {job}")
    return "; ".join(look)


def _bytes(count: int) -> str:
    return f" ({count:,} damaged bytes)" if count else ""

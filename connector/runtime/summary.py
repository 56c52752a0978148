"""What a run came to, for machines (`--summary-json`) and for people. Pure."""

from collections.abc import Mapping, Sequence

from headrace.connector.runtime.books import (
    SplitBooks,
    differences,
    gap_counts,
    nodes,
    repeats,
    total,
)
from headrace.connector.runtime.report import Report

Json = Mapping[str, object]


def books_differences(books: Sequence[SplitBooks]) -> Sequence[str]:
    """Return all equations that do not hold, of each split and of their sum."""
    return [line for split in (*books, total(books)) for line in differences(split)]


def summary_of(job: str, report: Report) -> Json:
    """Return the summary as an object of JSON.

    `splits` and `total` hold the source's `books` and the framework's `tables`; `differences` is
    empty when they balance; `run` is about this process and this run alone.
    """
    seconds = report.wall_seconds
    return {
        "job": job,
        "splits": {split.split: _json(split) for split in report.books},
        "total": _json(total(report.books)),
        "differences": list(books_differences(report.books)),
        "failures": [{"code": error.code, "message": str(error)} for error in report.failures],
        "run": {
            "changes": report.changes,
            "batches": report.batches,
            "commits": report.commits,
            "wall_seconds": round(seconds, 6),
            "cpu_seconds": round(report.cpu_seconds, 6),
            "changes_per_second": round(report.changes / seconds, 1) if seconds else 0.0,
            "memory_bytes_max": report.memory_bytes_max,
        },
    }


def books_text(books: Sequence[SplitBooks]) -> str:
    """Return the books of all splits together, a line for each node and table."""
    everything = total(books)
    lines = []
    for node in nodes(everything.books):
        prefix = f"entries.{node}."
        lines.append(_line(f"entries of {node}", _under(everything.books, prefix)))
        skipped = _under(everything.books, f"skipped.{node}.")
        if any(skipped.values()):
            shown = ", ".join(f"{reason} {count}" for reason, count in skipped.items() if count)
            lines.append(f"passed over in {node}: {shown}")
    gaps = gap_counts(everything.books)
    if gaps:
        lines.append(f"gaps: {', '.join(f'{part} {count}' for part, count in gaps.items())}")
    mutations = _under(everything.books, "mutations.")
    if mutations:
        lines.append(_line("mutations", mutations))
    for table, counts in sorted(everything.counters.items()):
        lines.append(_line(f"changes of {table or 'unknown tables'}", counts.fates))
    again = {cause: count for cause, count in repeats(everything).items() if count}
    if again:
        lines.append(_line("may have come twice", again))
    return "".join(f"{line}\n" for line in lines)


def spans_text(books: Sequence[SplitBooks]) -> str:
    """Return what the books are of: which splits, which part of each log, which earlier plans."""
    spans: dict[str, list[str]] = {}
    for split in books:
        for span in split.span:
            spans.setdefault(span, []).append(split.split)
    lines = []
    for span, splits in spans.items():
        of_now = sum(1 for split in books if split.span)
        which = "all splits" if len(splits) == of_now else f"splits {', '.join(splits)}"
        lines.append(f"{span}: {which}\n")
    before = [split.split for split in books if split.books and not split.span]
    if lines and before:
        lines.append(f"and what was read before that: {', '.join(before)}\n")
    return "".join(lines)


def verdict_of(job: str, books: Sequence[SplitBooks]) -> Json:
    """Return what `headrace verify --json` prints."""
    return {
        "job": job,
        "splits": {split.split: {"span": list(split.span), **_json(split)} for split in books},
        "total": _json(total(books)),
        "differences": list(books_differences(books)),
    }


def _json(split: SplitBooks) -> Json:
    return {
        "books": dict(sorted(split.books.items())),
        "tables": {t: dict(c.fates) for t, c in sorted(split.counters.items())},
        "repeats": repeats(split),
    }


def _under(books: Mapping[str, int], prefix: str) -> Mapping[str, int]:
    return {k.removeprefix(prefix): n for k, n in sorted(books.items()) if k.startswith(prefix)}


def _line(subject: str, counts: Mapping[str, int]) -> str:
    first, *_ = counts
    shown = [f"{name} {count}" for name, count in counts.items() if count or name == first]
    return f"{subject}: {', '.join(shown)}"

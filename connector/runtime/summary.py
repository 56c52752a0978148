"""What a run came to, for machines (`--summary-json`) and for people. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headrace.connector.runtime.books import (
    SplitBooks,
    differences,
    gap_counts,
    nodes,
    repeats,
    total,
)
from headrace.connector.runtime.report import Report
from headrace.plugins.notes import Observed, Seen

Json = Mapping[str, object]

# By cause: what is counted, and why it may be in the sink twice. See `books.repeats`.
_AGAIN: Final = {
    "window": ("changes", "a worker died, or a split restarted, before it committed what it sent"),
    "zombie": ("changes", "a worker lost a split and may have sent more of it afterwards"),
    "resend": ("changes", "a delivery failed in part and was sent again"),
    "late": ("mutations", "a copy came after `memory_seconds`"),
    "shortened": ("mutations", "records of agreement were forgotten for lack of room"),
    "reencoded": ("mutations", "a streamed copy could not be compared with what was published"),
    "expired": ("mutations", "they were published without enough copies (`expired: publish`)"),
    "overflow": ("mutations", "they were set aside for lack of room"),
}


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
            "set_aside": report.set_aside,
            "batches": report.batches,
            "commits": report.commits,
            "wall_seconds": round(seconds, 6),
            "cpu_seconds": round(report.cpu_seconds, 6),
            "changes_per_second": round(report.changes / seconds, 1) if seconds else 0.0,
            "memory_bytes_max": report.memory_bytes_max,
        },
    }


def waiting_text(books: Sequence[SplitBooks], file: str) -> str:
    """Return a line that says how much waits for copies and how to look at it; none if nothing."""
    count = total(books).books.get("mutations.pending", 0)
    if not count:
        return ""
    verb = "mutations wait" if count > 1 else "mutation waits"
    return f"{count} {verb} for copies: `headrace waiting {file}` lists them\n"


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
    for cause, count in repeats(everything).items():
        if count:
            unit, why = _AGAIN.get(cause, ("mutations", "see the page about agreement"))
            lines.append(f"at most {count} {unit} may be in the sink twice ({cause}): {why}")
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


def failed_splits(seen: Mapping[str, Seen], splits: Collection[str]) -> Mapping[str, str]:
    """Return the *splits* that failed, or are tried again after an error, each with the reason."""
    states = (Observed.FAILED, Observed.RESTARTING)
    return {n: each.reason for n, each in seen.items() if n in splits and each.state in states}


def failed_text(failed: Mapping[str, str], count: int) -> str:
    """Return which of *count* splits failed and why, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for split, reason in failed.items():
        reasons.setdefault(reason or "no reason is known", []).append(split)
    return "".join(
        f"{len(splits)} of {count} splits failed ({', '.join(splits)}): {reason}\n"
        for reason, splits in reasons.items()
    )


def set_aside_text(set_aside: int, hint: str) -> str:
    """Return the warning that a run ends with that set records aside; nothing without any.

    The *hint* says how to look at them.
    """
    if not set_aside:
        return ""
    records = "1 record was" if set_aside == 1 else f"{set_aside} records were"
    return f"warning [records_set_aside]: {records} not delivered but set aside\nhint: {hint}\n"


def verdict_of(job: str, books: Sequence[SplitBooks], failed: Mapping[str, str]) -> Json:
    """Return what `headrace verify --json` prints; *failed* as `failed_splits` has it."""
    return {
        "job": job,
        "failed": dict(failed),
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

"""The result of a run, for programs (`--summary-json`) and for people. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final

from headrace.connector.runtime.books.equations import (
    Books,
    SplitBooks,
    books_differences,
    by_part,
    repeats,
    title,
    total,
)
from headrace.connector.runtime.books.figures import figures_of, gaps_met
from headrace.connector.runtime.books.report import Report
from headrace.connector.serde.content import ChecksumError
from headrace.plugins import CounterGroup, HeadraceError, MiscountError
from headrace.plugins.stores.control_store import Observed, Seen

Json = Mapping[str, object]

OPEN_STATUS: Final = 4  # The exit status of a command that finds open gaps.

# Why changes may be in the sink twice. The source declares its own causes.
_CAUSES: Final = {
    "window": "a worker died, or a split restarted, before it committed what it sent",
    "zombie": "a worker lost a split and may have sent more of it afterwards",
    "resend": "a delivery failed in part and was sent again",
}


def summary_of(job: str, report: Report) -> Json:
    """Return the summary as a JSON object.

    `splits` and `total` hold the source's `books` and the framework's `tables`; `differences` is
    empty if they balance; `gaps` are those that the job met; `figures` are the figures for people;
    `run` is about this run of this process alone.
    """
    seconds = report.wall_seconds
    differences = books_differences(report.books)
    return {
        "job": job,
        "splits": {split.split: _json(split) for split in report.books},
        "total": _json(total(report.books)),
        "differences": list(differences),
        "gaps": _gaps_json(report.books),
        "figures": asdict(figures_of(report.books, differences)),
        "failures": [{"code": error.code, "message": str(error)} for error in report.failures],
        "run": {
            "changes": report.changes,
            "dead_lettered": report.dead_lettered,
            "batches": report.batches,
            "commits": report.commits,
            "wall_seconds": round(seconds, 6),
            "cpu_seconds": round(report.cpu_seconds, 6),
            "changes_per_second": round(report.changes / seconds, 1) if seconds else 0.0,
            "memory_bytes_max": report.memory_bytes_max,
        },
    }


def books_text(books: Sequence[SplitBooks]) -> str:
    """Return the books of all splits together, a line for each table and part of the source."""
    everything = total(books)
    lines = _source_lines(everything)
    for table, counts in sorted(everything.counters.items()):
        lines.append(_line(f"changes of {table or 'unknown tables'}", counts.fates))
    for cause, count in repeats(everything).items():
        if count:
            why = everything.keeping.repeats.get(cause)
            unit = "changes" if cause in _CAUSES or why is None else why.unit
            reason = _CAUSES.get(cause) or (why.why if why else "the source does not say why")
            lines.append(f"at most {count} {unit} may be in the sink twice ({cause}): {reason}")
    return "".join(f"{line}\n" for line in lines)


def _source_lines(split: SplitBooks) -> list[str]:
    """Return the source's own counters: first part by part, then those without a part."""
    groups = split.keeping.groups
    of_parts: list[tuple[str, str]] = []
    of_all: list[str] = []
    of_none: list[str] = []
    for group in groups:
        counts = by_part(split.books, group)
        if not group.part:
            of_none.append(_group_line(group, "", counts[""]))
        elif group.label:
            of_parts += [(part, _group_line(group, part, each)) for part, each in counts.items()]
        else:
            of_all.append(_shown(group.title, {part: each[""] for part, each in counts.items()}))
    lines = [line for _, line in sorted(of_parts, key=lambda each: each[0])]
    return [line for line in (*lines, *of_all, *of_none) if line]


def _group_line(group: CounterGroup, part: str, counts: Books) -> str:
    show = _line if group.left else _shown
    return show(title(group, part), counts) if counts else ""


def spans_text(books: Sequence[SplitBooks]) -> str:
    """Return the range that the books cover: the splits, the part of each log, earlier plans."""
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
    """Return the *splits* that failed or are retried after an error, each with the reason."""
    states = (Observed.FAILED, Observed.RESTARTING)
    return {n: each.reason for n, each in seen.items() if n in splits and each.state in states}


def miscounted(failed: Mapping[str, str]) -> Sequence[str]:
    """Return the splits of *failed* that stopped because records were missing."""
    codes = (MiscountError.code, ChecksumError.code)
    return [split for split, reason in failed.items() if reason.partition(":")[0] in codes]


def failed_text(failed: Mapping[str, str], count: int) -> str:
    """Return which of *count* splits failed and why, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for split, reason in failed.items():
        reasons.setdefault(reason or "no reason is known", []).append(split)
    return "".join(
        f"{len(splits)} of {count} splits failed ({', '.join(splits)}): {reason}\n"
        for reason, splits in reasons.items()
    )


def dead_letters_text(dead_lettered: int, hint: str) -> str:
    """Return the warning at the end of a run with dead letters; empty if it has none.

    The *hint* says how to list them.
    """
    if not dead_lettered:
        return ""
    records = "1 record was" if dead_lettered == 1 else f"{dead_lettered} records were"
    found = f"{records} not delivered but dead-lettered"
    return f"warning [records_dead_lettered]: {found}\nhint: {hint}\n"


def books_summary(
    job: str,
    books: Sequence[SplitBooks],
    failed: Mapping[str, str],
    sources: Iterable[HeadraceError],
) -> Json:
    """Return the document of `headrace verify --json`; *failed* is the result of `failed_splits`.

    *sources* are the errors of data sources that were stopped while others continued.
    """
    differences = books_differences(books)
    return {
        "job": job,
        "failed": dict(failed),
        "failed_sources": [str(error) for error in sources],
        "splits": {split.split: {"span": list(split.span), **_json(split)} for split in books},
        "total": _json(total(books)),
        "differences": list(differences),
        "gaps": _gaps_json(books),
        "figures": asdict(figures_of(books, differences)),
    }


def _gaps_json(books: Sequence[SplitBooks]) -> Sequence[Json]:
    return [
        {"gap": gap.name, "kind": gap.kind, "state": gap.state, "bytes": gap.size_bytes}
        for gap in gaps_met(books)
    ]


def _json(split: SplitBooks) -> Json:
    return {
        "books": dict(sorted(split.books.items())),
        "tables": {t: dict(c.fates) for t, c in sorted(split.counters.items())},
        "repeats": repeats(split),
    }


def _shown(subject: str, counts: Mapping[str, int]) -> str:
    """Return a line about the counters that are not 0; empty if all are."""
    shown = [f"{name} {count}" for name, count in counts.items() if count]
    return f"{subject}: {', '.join(shown)}" if shown else ""


def _line(subject: str, counts: Mapping[str, int]) -> str:
    first, *_ = counts
    shown = [f"{name} {count}" for name, count in counts.items() if count or name == first]
    return f"{subject}: {', '.join(shown)}"

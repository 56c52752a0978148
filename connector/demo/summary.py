"""The summary of the demo: the numbers of the run, and the result of the check. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headrace.connector.demo.expected import QUORUM, canonical
from headrace.connector.demo.play import Outcome
from headrace.connector.runtime.books.figures import Figures

EXAMPLES_MAX: Final = 3
_EXAMPLE_CHARACTERS: Final = 300
# A recorded ring is intact: an unreadable entry was damaged later.
_NEVER: Final = ("damaged", "overflow", "not_replica", "expired", "dead_lettered", "quarantined")

Line = tuple[str, str]


class CheckOutcome(msgspec.Struct, frozen=True):
    """The problems that the check found; none if the demo succeeded."""

    problems: tuple[str, ...]
    examples: tuple[str, ...] = ()


def check_outcome(outcome: Outcome, expected: "Counter[bytes]") -> CheckOutcome:
    """Compare the consumer's changes with the expected ones, and check the books."""
    received = Counter(canonical(r.table, r.key, r.value) for r in outcome.received)
    missing, surplus = expected - received, received - expected
    hasty = sum(record.value["copies"] < QUORUM for record in outcome.received)
    problems = [str(line) for line in outcome.summary["differences"]]
    problems += [f"{failure['message']}" for failure in outcome.summary["failures"]]
    problems += [f"{name}: {count}" for name, count in _unwanted(outcome.summary["total"])]
    if missing:
        problems.append(f"{missing.total()} justified changes were not received")
    if surplus:
        problems.append(f"{surplus.total()} received changes are not justified, or came again")
    if hasty:
        problems.append(f"{hasty} changes were published with fewer than {QUORUM} copies")
    examples = [f"missing: {change.decode()}" for change in list(missing)[:EXAMPLES_MAX]]
    examples += [f"not justified: {change.decode()}" for change in list(surplus)[:EXAMPLES_MAX]]
    return CheckOutcome(tuple(problems), tuple(text[:_EXAMPLE_CHARACTERS] for text in examples))


def figures_in(outcome: Outcome) -> Figures:
    """Return the figures in the worker's summary."""
    return Figures(**outcome.summary["figures"])


def summary_lines(outcome: Outcome, checked: CheckOutcome, expected_count: int) -> list[Line]:
    """Return facts beyond the figures, as pairs of a label and a text."""
    run, books = outcome.summary["run"], outcome.summary["total"]["books"]
    entries = {name.split(".")[1] for name in books if name.startswith("entries.")}
    lines = [
        (f"{node}", f"{books[f'entries.{node}.read']:,} entries read") for node in sorted(entries)
    ]
    lines += [
        ("first change after", _first(outcome)),
        ("speed", f"{run['changes_per_second']:,.0f} changes/s"),
        ("CPU", f"{1e6 * run['cpu_seconds'] / max(run['changes'], 1):,.0f} µs per change"),
        ("books", "differ" if outcome.summary["differences"] else "balance"),
        ("consumer", f"{len(outcome.received):,} received, {expected_count:,} justified"),
    ]
    return [*lines, ("check", "passed" if not checked.problems else "FAILED")]


def plain(lines: Sequence[Line]) -> str:
    """Return *lines* with their values in one column."""
    width = max(len(label) for label, _ in lines)
    return "".join(f"  {label:<{width}}  {text}\n" for label, text in lines)


def _first(outcome: Outcome) -> str:
    if not outcome.received:
        return "-"
    first_s = min(record.monotonic_s for record in outcome.received)
    return f"{1000 * (first_s - outcome.started_s):,.0f} ms from the start of the worker"


def _unwanted(total: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, int]]:
    for name, count in total["books"].items():
        if name.rpartition(".")[2] in _NEVER and isinstance(count, int) and count:
            yield name, count
    for name in _NEVER:
        if count := _tables(total, name):
            yield name, count


def _tables(total: Mapping[str, Mapping[str, object]], fate: str) -> int:
    counts = total["tables"].values()
    return sum(int(count.get(fate, 0)) for count in counts if isinstance(count, Mapping))

"""Declares the counters of a split: which of them must balance, and what may be delivered twice."""

from typing import Final

from headrace.plugins.bookkeeping import Bookkeeping, CounterGroup, RepeatCause, WaitingCounter

_ENTRIES: Final = CounterGroup(
    name="entries",
    part="node",
    title="entries of {part}",
    metric="headrace_entries_total",
    doc="Log entries by what became of them; read is all.",
    left=("read",),
    right=("first", "counted", "surplus", "repeat", "damaged"),
    copies=("counted", "surplus", "repeat"),
)
_SKIPPED: Final = CounterGroup(
    name="skipped",
    part="node",
    label="reason",
    title="passed over in {part}",
    metric="headrace_entries_skipped_total",
    doc="Log entries of no concern, by reason.",
)
_GAPS: Final = CounterGroup(
    name="gaps",
    part="node",
    label="",
    title="gaps",
    metric="headrace_gaps_total",
    doc="Parts of a log that were lost before they were read.",
)
_MUTATIONS: Final = CounterGroup(
    name="mutations",
    title="mutations",
    metric="headrace_mutations_total",
    doc="Mutations by what became of them.",
    left=("opening", "first"),
    right=(
        "agreed",
        "reencoded",
        "expired",
        "expired_published",
        "not_replica",
        "filtered",
        "overflow",
        "passed_on",
        "pending",
    ),
)
BOOKKEEPING: Final = Bookkeeping(
    groups=(_ENTRIES, _SKIPPED, _GAPS, _MUTATIONS),
    waiting=WaitingCounter(
        counter="mutations.pending",
        passed_on="mutations.passed_on",
        one="mutation waits for another copy",
        many="mutations wait for another copy",
        metric="headrace_mutations_pending",
        doc="Mutations that wait for copies.",
    ),
    held_back=("mutations.pending", "mutations.expired", "mutations.not_replica"),
    repeats={
        "late": RepeatCause(unit="mutations", why="a copy came after `dedup_window_seconds`"),
        "shortened": RepeatCause(
            unit="mutations",
            why="records of agreement were forgotten because there was no room",
            counter="memory_shortened",
        ),
        "reencoded": RepeatCause(
            unit="mutations", why="a streamed copy could not be compared with what was published"
        ),
        "expired": RepeatCause(
            unit="mutations",
            why="they were published without enough copies (`expired: publish`)",
            counter="mutations.expired_published",
        ),
        "overflow": RepeatCause(
            unit="mutations",
            why="they were quarantined because there was no room",
            counter="mutations.overflow",
        ),
    },
)

"""The metrics of a running job: the counts of its pipeline, its books and its source.

They are collected on the caller's thread. All data belongs to other threads and is only read here:
integers, and objects that are replaced, never changed.
"""

import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import Final

from headrace.connector.foundation.catch_up import Looks, catch_up_seconds
from headrace.connector.foundation.job_file import PER_SPLIT, RuntimeConfig
from headrace.connector.runtime.books.equations import (
    REPEATS,
    SplitBooks,
    by_part,
    differences,
    repeats,
)
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.runtime.splits.split_task import SplitRun
from headrace.connector.runtime.splits.watch import SplitWatch
from headrace.connector.runtime.tally import Tally
from headrace.plugins import Backlog, Bookkeeping, Clock, CounterGroup, HeadraceError, Source, Split
from headrace.plugins.metrics import (
    SPLIT,
    Across,
    Kind,
    Measure,
    Sample,
    counter,
    gauge,
    of_the_job,
)

BACKLOG_EVERY_MS: Final = 10_000  # Listing all logs takes time.
_NEVER_AGAIN_MS: Final = 1 << 62
_US: Final = 1_000_000


def in_detail(measures: Iterable[Measure], runtime: RuntimeConfig) -> Iterable[Measure]:
    """Return *measures* by split, or summed up for the whole job, as *runtime* configures."""
    return measures if runtime.metrics_detail == PER_SPLIT else of_the_job(measures)


class JobMeasures:
    """See the module. The *onlooker* is a separate, read-only source that reports the lag."""

    def __init__(
        self,
        pipeline: Pipeline,
        watch: SplitWatch,
        source: Source,
        onlooker: Callable[[], Source],
        clock: Clock,
    ) -> None:
        """*onlooker* is called at the first request of the lag."""
        self._pipeline = pipeline
        self._watch = watch
        self._source = source
        self._make_onlooker = onlooker
        self._onlooker: Source | None = None
        self._asking = Lock()  # For the onlooker, which several threads may use.
        self._clock = clock
        self._backlogs: Sequence[tuple[str, Backlog]] = ()
        self._backlogs_ms = -BACKLOG_EVERY_MS
        self._looks = Looks(lambda: clock.monotonic_ms() / 1000)
        self._catch_up_seconds: float | None = None

    def all(self) -> Iterator[Measure]:
        """Return all metrics with their current values."""
        runs, all_runs = self._pipeline.runs, self._pipeline.runs_and_ended
        yield from _flow(self._pipeline, runs, self._clock)
        yield from _times(self._pipeline.stats)
        if self._source.stages:
            yield from _delays(self._pipeline, runs)
        yield from _committed(all_runs)
        yield from book_measures(
            [
                SplitBooks(
                    r.split,
                    r.position.books() if r.position else {},
                    r.counters,
                    self._source.bookkeeping,
                )
                for r in all_runs
            ],
            self._source.bookkeeping,
        )
        yield gauge(
            "headrace_split_state",
            "How many splits are seen in a state.",
            [({SPLIT: s, "state": state.value}, 1) for s, state in self._watch.states().items()],
        )
        if self._pipeline.modes is not None:
            yield from self._pipeline.modes.measures()
        yield from self._lag(runs)
        yield from self._source.measures()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        cpu_seconds = usage.ru_utime + usage.ru_stime
        yield counter("headrace_cpu_seconds_total", "Of all threads.", [({}, cpu_seconds)])
        most = usage.ru_maxrss * 1024
        yield gauge("headrace_memory_bytes_max", "The most that was resident.", [({}, most)])

    def close(self) -> None:
        """Close the onlooker."""
        with self._asking:
            if self._onlooker is not None:
                self._onlooker.close()
            self._backlogs_ms = _NEVER_AGAIN_MS

    def _lag(self, runs: Sequence[SplitRun]) -> Iterable[Measure]:
        with self._asking:
            self._look(runs)
        yield from backlog_measures(self._backlogs)
        left = self._catch_up_seconds
        yield gauge(
            "headrace_catch_up_seconds",
            "How long the backlog lasts at the pace of the last minutes; none if that is unknown.",
            [] if left is None else [({}, left)],
        )

    def _look(self, runs: Sequence[SplitRun]) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._backlogs_ms < BACKLOG_EVERY_MS:
            return
        self._backlogs_ms = now_ms
        try:
            onlooker = self._onlooker = self._onlooker or self._make_onlooker()
            self._backlogs = [
                (run.split, part)
                for run in runs
                for part in onlooker.backlog(Split(run.split), run.position)
                if not part.problem
            ]
        except (HeadraceError, OSError):
            self._backlogs = ()  # The reader reports why.
            self._catch_up_seconds = None
            return
        parts: dict[tuple[tuple[str, str], ...], int] = {}
        for _, part in self._backlogs:
            key = tuple(part.partition.items())
            parts[key] = max(parts.get(key, 0), part.size_bytes)
        left_bytes = sum(parts.values())
        pace = self._looks.add("", left_bytes)
        self._catch_up_seconds = catch_up_seconds(left_bytes, pace)


def _flow(pipeline: Pipeline, runs: Sequence[SplitRun], clock: Clock) -> Iterator[Measure]:
    now_ms = clock.monotonic_ms()
    amounts: Mapping[str, tuple[str, Callable[[SplitRun], float], Across | None]] = {
        "headrace_split_token": ("The fencing token of the lease.", lambda r: r.lease.token, None),
        "headrace_outstanding_bytes": (
            "Read and not settled.",
            lambda r: r.ledger.outstanding_bytes + r.read_bytes,
            sum,
        ),
        "headrace_outstanding_records": (
            "Records that were read and are not settled.",
            lambda r: r.ledger.outstanding_records,
            sum,
        ),
        "headrace_uncommitted_bytes": (
            "What comes again after a crash.",
            lambda r: r.ledger.uncommitted_bytes,
            sum,
        ),
        "headrace_still_seconds": (
            "Since something was last read or settled, or there was nothing to read.",
            lambda r: (now_ms - pipeline.moved_ms(r)) / 1000,
            max,
        ),
    }
    for name, (doc, amount, across) in amounts.items():
        yield gauge(name, doc, [({SPLIT: run.split}, amount(run)) for run in runs], across)
    yield gauge(
        "headrace_written_timestamp_seconds",
        "The write time of the change that was encoded last.",
        [({SPLIT: r.split}, r.written_us / _US) for r in runs if r.written_us is not None],
        max,
    )


def _times(tally: Tally) -> Iterator[Measure]:
    timings = {
        "headrace_read_seconds": ("Reading a batch: logs, agreement.", tally.reads),
        "headrace_publish_seconds": ("From a batch's submission to its result.", tally.publishes),
        "headrace_commit_seconds": ("Committing what is settled.", tally.commit_times),
    }
    for name, (doc, timing) in timings.items():
        yield Measure(name, doc, Kind.HISTOGRAM, [({}, timing)])
    yield counter(
        "headrace_errors_total",
        "Errors by what was done about them: retried, failed (the split stops) or lost.",
        [({"done": d, "code": code}, n) for (d, code), n in dict(tally.errors).items()],
    )


def _delays(pipeline: Pipeline, runs: Sequence[SplitRun]) -> Iterator[Measure]:
    stages = pipeline.stats.stages
    yield Measure(
        "headrace_stage_seconds",
        "How long changes took from a stage to the next one; by samples of each batch.",
        Kind.HISTOGRAM,
        [({"stage": name}, timing) for name, timing in stages.timings.items()],
    )
    yield counter(
        "headrace_stage_negative_total",
        "Changes for which that was negative, because clocks differ: they count as 0.",
        [({"stage": name}, stages.negative[name]) for name in stages.timings],
    )
    lags = [(run.split, pipeline.lag_ms(run)) for run in runs]
    yield gauge(
        "headrace_lag_seconds",
        "How long ago what is not acknowledged could be read, at most.",
        [({SPLIT: split}, lag / 1000) for split, lag in lags if lag is not None],
        max,
    )


def _committed(runs: Sequence[SplitRun]) -> Iterator[Measure]:
    """Return, for each part of the source, the committed position of the split furthest behind."""
    found: dict[tuple[tuple[str, str], ...], Mapping[str, int]] = {}
    for run in runs:
        for partition, offset in run.position.describe() if run.position is not None else ():
            numbers = {name: n for name, n in offset.items() if isinstance(n, int)}
            part = tuple(partition.items())
            found[part] = min(found.get(part, numbers), numbers, key=lambda each: [*each.values()])
    yield gauge(
        "headrace_committed_position",
        "Up to where all splits have committed.",
        [
            ({**dict(part), "of": name}, number)
            for part, numbers in found.items()
            for name, number in numbers.items()
        ],
    )


def backlog_measures(backlogs: Sequence[tuple[str, Backlog]]) -> Iterator[Measure]:
    """Return the backlogs of splits."""
    labelled = [({SPLIT: split, **part.partition}, part) for split, part in backlogs]
    yield gauge(
        "headrace_backlog_bytes",
        "What is to be read behind the committed position.",
        [(labels, part.size_bytes) for labels, part in labelled],
        max,
    )
    yield gauge(
        "headrace_backlog_files",
        "The files that it is in.",
        [(labels, part.files) for labels, part in labelled],
        max,
    )


def book_measures(splits: Sequence[SplitBooks], keeping: Bookkeeping) -> Iterator[Measure]:
    """Return the committed books, and whether they balance (I3); *keeping* is the source's."""
    yield counter(
        "headrace_changes_total",
        "Changes by what became of them, as committed; cut is the sum of the others.",
        [
            ({SPLIT: each.split, "table": table, "fate": fate}, count)
            for each in splits
            for table, counts in each.counters.items()
            for fate, count in counts.fates.items()
        ],
    )
    yield counter(
        "headrace_repeats_total",
        "What may have come twice, by cause; see docs/agreement.md, Duplicates.",
        [
            ({SPLIT: each.split, "cause": cause}, count)
            for each in splits
            for cause, count in repeats(each).items()
        ],
    )
    yield gauge(
        "headrace_books_differ",
        "Equations of a split's committed books that do not hold: more than 0 is a bug.",
        [({SPLIT: each.split}, len(differences(each))) for each in splits if each.books],
    )
    yield from _source_measures([each for each in splits if each.books], keeping)


def _source_measures(splits: Sequence[SplitBooks], keeping: Bookkeeping) -> Iterator[Measure]:
    """Return the source's own counters, under the names that it gives its groups."""
    waiting = keeping.waiting
    if waiting is not None:
        yield gauge(
            waiting.metric,
            waiting.doc,
            [
                ({SPLIT: each.split}, each.books[waiting.counter])
                for each in splits
                if waiting.counter in each.books
            ],
        )
    for group in keeping.groups:
        skipped = waiting.counter if waiting is not None else ""
        samples: list[Sample] = [
            ({SPLIT: each.split, **labels}, count)
            for each in splits
            for part, counts in by_part(each.books, group).items()
            for last, count in counts.items()
            if f"{group.name}.{last}" != skipped
            for labels in [_labels(group, part, last)]
        ]
        yield counter(group.metric, group.doc, samples)
    known = (REPEATS, *(f"{group.name}." for group in keeping.groups))
    yield counter(
        "headrace_book_total",
        "What else is in the books, by its name there.",
        [
            ({SPLIT: each.split, "book": name}, count)
            for each in splits
            for name, count in each.books.items()
            if not name.startswith(known) and (waiting is None or name != waiting.counter)
        ],
    )


def _labels(group: CounterGroup, part: str, last: str) -> dict[str, str]:
    labels = {group.part: part} if group.part else {}
    return labels | ({group.label: last} if group.label else {})

"""Metrics of a job that runs on Spark: of its micro-batches, and its committed books."""

from collections.abc import Iterator, Sequence

from headrace.connector.runtime.books.committed import books_of
from headrace.connector.runtime.metrics import backlog_measures, book_measures
from headrace.connector.stores import SplitState
from headrace.plugins import Backlog, HeadraceError, Source, Split
from headrace.plugins.metrics import Kind, Measure, Timing, counter


class StreamMeasures:
    """Metrics of a job on Spark: the thread that follows the job updates them, others read them."""

    def __init__(self, source: Source) -> None:
        """Read nothing yet. *source* is the driver's."""
        self._source = source
        self._batches = 0
        self._records = 0
        self._took = Timing()
        self._seqs: Sequence[int] = ()
        self._books: Sequence[Measure] = ()
        self._left_bytes: int | None = None

    @property
    def left_bytes(self) -> int | None:
        """The durable bytes that are not committed, of all logs together; None: not known yet."""
        return self._left_bytes

    def note(self, records: int, took_ms: int) -> None:
        """Count a micro-batch."""
        self._batches += 1
        self._records += records
        self._took.observe(took_ms)

    def all(self) -> Iterator[Measure]:
        """Return all metrics."""
        yield counter("headrace_micro_batches_total", "Since the start.", [({}, self._batches)])
        yield counter("headrace_micro_batch_records_total", "In them.", [({}, self._records)])
        doc = "From the planning of a micro-batch to its commit."
        yield Measure("headrace_micro_batch_seconds", doc, Kind.HISTOGRAM, [({}, self._took)])
        yield from self._books

    def look(self, states: Sequence[SplitState]) -> None:
        """Take new commits. Ignores errors, which tasks report."""
        seqs = [state.seq for state in states]
        if seqs == self._seqs:
            return
        source = self._source
        try:
            backlogs = list(_backlogs(source, states))
            books = books_of(states, source)
        except (HeadraceError, OSError):
            return
        self._seqs = seqs
        # Each split has the same logs to read.
        most: dict[str, int] = {}
        for _, each in backlogs:
            name = str(sorted(each.partition.items()))
            most[name] = max(most.get(name, 0), each.size_bytes)
        self._left_bytes = sum(most.values())
        self._books = [*book_measures(books, source.bookkeeping), *backlog_measures(backlogs)]


def _backlogs(source: Source, states: Sequence[SplitState]) -> Iterator[tuple[str, Backlog]]:
    for state in states:
        position = None if state.position is None else source.decode_position(state.position)
        for part in source.backlog(Split(state.split), position):
            if not part.problem:
                yield state.split, part

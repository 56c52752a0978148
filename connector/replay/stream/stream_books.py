"""Books and metrics of a job that runs on Spark, from its checkpoint. Needs no Spark."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from headrace.connector.replay.shards import SourceSpec, inside
from headrace.connector.replay.stream.checkpoint import Checkpoint
from headrace.connector.runtime.books.committed import books_of
from headrace.connector.runtime.books.equations import SplitBooks
from headrace.connector.runtime.metrics import backlog_measures, book_measures
from headrace.connector.stores import SplitState, add_counters
from headrace.plugins import Backlog, HeadraceError, Source, Split
from headrace.plugins.metrics import Kind, Measure, Timing, counter


def stream_states(checkpoint: Checkpoint, source: Source) -> Sequence[SplitState]:
    """Return the state of every split at the end of the last batch that Spark committed.

    Raises:
        StateLostError: the checkpoint is incomplete.

    """
    committed = checkpoint.committed()
    if committed is None:
        return []
    batch, offset = committed
    states = []
    for split, delivered in zip(source.plan(), checkpoint.delivered(batch), strict=True):
        known = checkpoint.states.load(offset, split.split_id)
        counters = add_counters(known.counters, delivered)
        states.append(
            SplitState(
                split=split.split_id,
                plan=0,
                token=0,
                seq=batch,
                position=known.position,
                counters=counters,
            )
        )
    return states


def stream_books(spec: SourceSpec, job_key: bytes, checkpoint: Checkpoint) -> Sequence[SplitBooks]:
    """Return the last committed books of every split, each checked against its position.

    Raises:
        StateLostError: the checkpoint is incomplete.

    """
    with inside(spec.directory), closing(spec.open(job_key=job_key)) as source:
        return books_of(stream_states(checkpoint, source), source, thorough=True)


def _backlogs(source: Source, states: Sequence[SplitState]) -> Iterator[tuple[str, Backlog]]:
    for state in states:
        position = None if state.position is None else source.decode_position(state.position)
        for part in source.backlog(Split(state.split), position):
            if not part.problem:
                yield state.split, part


class StreamMeasures:
    """Metrics of a job on Spark: the thread that follows the job updates them, others read them."""

    def __init__(self, spec: SourceSpec, job_key: bytes, checkpoint: Checkpoint) -> None:
        """Read nothing yet."""
        self._spec = spec
        self._job_key = job_key
        self._checkpoint = checkpoint
        self._batches = 0
        self._records = 0
        self._took = Timing()
        self._batch = -1
        self._books: Sequence[Measure] = ()

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

    def look(self) -> None:
        """Read the last commit, if it is new. Ignores errors: tasks report them."""
        try:
            committed = self._checkpoint.committed()
            if committed is None or committed[0] == self._batch:
                return
            spec = self._spec
            with inside(spec.directory), closing(spec.open(job_key=self._job_key)) as source:
                states = stream_states(self._checkpoint, source)
                backlogs = list(_backlogs(source, states))
                books = books_of(states, source)
                keeping = source.bookkeeping
        except (HeadraceError, OSError):
            return
        self._batch = committed[0]
        self._books = [*book_measures(books, keeping), *backlog_measures(backlogs)]

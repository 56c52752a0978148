"""Plans the micro-batches of a job, and reads the parts of each. Needs no Spark.

An offset has the position in each part of the source, and how long the source has been read to its
end. The checkpoint has the rest of the state at an offset, by split.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import EARLIEST
from headrace.connector.foundation.offered import located
from headrace.connector.replay.errors import LogShortError
from headrace.connector.replay.framing.framed_shards import Framing, framing_of
from headrace.connector.replay.shards import Shard, SourceSpec, batches, inside, opened
from headrace.connector.replay.stream.checkpoint import Checkpoint, Known, Offset
from headrace.connector.replay.stream.terms import Term
from headrace.connector.stores import Counters, add_counters
from headrace.plugins import Batch, Clock, MicroBatches, Position, Source

ALL_BYTES: Final = 1 << 62
STEP_MS: Final = 10_000
"""Split time advances in steps of this length; without changes, each step is a batch."""
_PARTS: Final = "parts"
_RESTED_MS: Final = "rested_ms"


def offset_of(position: Position | None, rested_ms: int = 0) -> Offset:
    """Return *position* as Spark stores it; None is the beginning."""
    shown = [] if position is None else position.describe()
    parts = [[dict(partition), dict(place)] for partition, place in shown]
    return {_PARTS: parts, _RESTED_MS: rested_ms}


def position_at(source: Source, offset: Offset) -> Position | None:
    """Return the position of an offset, without its state in the checkpoint."""
    parts = offset[_PARTS]
    if not parts:
        return None
    position = located(source, source.plan()[0], None, EARLIEST)
    for partition, place in parts:
        assert position is not None  # noqa: S101 (of a source that goes ahead)
        position = position.moved(partition, place)
    return position


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of a micro-batch: a split, between two offsets."""

    shard: Shard
    start: Offset
    end: Offset
    term: Term | None = None
    """Exactly once, the terms of the split's commits."""


class Course:
    """Plans the micro-batches of a job. Runs on the driver: lists files and opens none."""

    def __init__(
        self,
        spec: SourceSpec,
        checkpoint: Checkpoint,
        *,
        start: str,
        job_key: bytes,
        clock: Clock | None = None,
    ) -> None:
        """Open nothing yet; *start* is the start of a job that has read nothing."""
        self._spec = spec
        self._checkpoint = checkpoint
        self._start = start
        self._job_key = job_key
        self._clock = clock or SystemClock()
        self._made: Source | None = None
        self._rests: tuple[Offset, int] | None = None  # An offset without new changes, and when.
        self._ends = False

    def initial(self) -> Offset:
        """Return the start of the first batch, where the state of every split is stored."""
        begun = self._checkpoint.begun()
        if begun is not None and begun.offset is not None:
            return begun.offset
        with inside(self._spec.directory):
            source = self._source()
            splits = source.plan()
            position = None
            if self._start != EARLIEST:
                position = located(source, splits[0], None, self._start)
        offset = offset_of(position)
        for split in splits:
            encoded = None if position is None else position.encode()
            self._checkpoint.states.store(offset, split.split_id, Known(encoded))
        return offset

    def ahead(self, start: Offset, size_bytes: int = ALL_BYTES) -> Offset:
        """Return the end of a batch of about *size_bytes*; *start* itself if nothing is new.

        Elapsed time also counts as new, but only while all durable changes have been read.
        """
        now_ms = self._clock.monotonic_ms()  # Changes durable at this time are seen below.
        with inside(self._spec.directory):
            source = self._source()
            steps = MicroBatches.of(source)
            reached = steps.ahead(position_at(source, start), size_bytes)
            rests = not self._ends and _is_same(steps.ahead(reached, ALL_BYTES), reached)
        rested_ms = 0
        if rests and self._rests is not None and self._rests[0] == start:
            rested_ms = now_ms - self._rests[1]
        grown_ms = min(rested_ms, STEP_MS)  # Without calls, more time may have passed.
        offset = offset_of(reached, start.get(_RESTED_MS, 0) + grown_ms)
        if offset[_PARTS] == start[_PARTS] and not _steps(start, offset):
            offset = start
        self._rests = (offset, now_ms - (rested_ms if offset is start else 0)) if rests else None
        return offset

    def end_here(self) -> None:
        """End at the current end of the logs: later changes are not read."""
        with inside(self._spec.directory):
            source = self._source()
            source.plan()
            steps = MicroBatches.of(source)
            steps.limit(until=steps.ahead(None, ALL_BYTES))
        self._ends = True

    def parts(self, start: Offset, end: Offset) -> Sequence[Part]:
        """Return the work of a batch: a part for each split."""
        terms = self._checkpoint.terms()
        with inside(self._spec.directory):
            source = self._source()
            until = position_at(source, end)
            splits = source.plan()
        return [
            Part(
                shard=Shard(
                    number=number,
                    split=split.split_id,
                    source=self._spec,
                    until=None if until is None else until.encode(),
                    elapsed_ms=_steps(start, end) * STEP_MS,
                    job_key=self._job_key,
                ),
                start=start,
                end=end,
                term=terms.get(split.split_id),
            )
            for number, split in enumerate(splits, start=1)
        ]

    def framing(self, parts: Sequence[Part]) -> Framing | None:
        """Return the framing of a batch's logs for its *parts*; None: each part reads the logs."""
        start = parts[0].start
        if start[_PARTS] == parts[0].end[_PARTS]:
            return None  # Only time passes.
        return framing_of(
            [part.shard for part in parts], begins=lambda source: [position_at(source, start)]
        )

    def close(self) -> None:
        """Close the source. Safe to call twice."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _source(self) -> Source:
        if self._made is None:
            self._made = self._spec.open(job_key=self._job_key)
        return self._made


class Reading:
    """A part of a micro-batch. For one thread."""

    def __init__(
        self, part: Part, checkpoint: Checkpoint, framed: str = "", known: Known | None = None
    ) -> None:
        """Load the state of the split at the start, unless it is *known*.

        *framed* are the blocks of its logs, if any.

        Raises:
            StateLostError: it no longer exists.

        """
        self._part = part
        self._checkpoint = checkpoint
        self._framed = framed
        self._known = known or checkpoint.states.load(part.start, part.shard.split)
        self._end: Position | None = None

    @property
    def place(self) -> str:
        """A description of the part, for users."""
        return f"split {self._part.shard.split}"

    @property
    def known(self) -> Known:
        """The state of the split, up to the last batch read."""
        return self._known

    @property
    def shard(self) -> Shard:
        """The part as a shard, from the state of the split on."""
        return replace(self._part.shard, resume=self._known.position, framed=self._framed)

    def count(self, counters: Counters) -> None:
        """Add the counters of a batch (I3)."""
        counted = add_counters(self._known.counters, counters)
        self._known = replace(self._known, counters=counted)

    def batches(self) -> Iterator[Batch]:
        """Yield the split's batches up to the end of the part; then store its state there.

        Raises:
            LogShortError: a log is shorter than when the batch was planned.
            HeadraceError: the source cannot be read, as at a gap.

        """
        shard = self.shard
        with self.source() as source:
            for batch in batches(source, shard):
                self.note(batch)
                yield batch
        self.store()

    @contextmanager
    def source(self) -> Iterator[Source]:
        """Yield the source, bounded by the part; those of the other splits are the same.

        Raises:
            LogShortError: at the end, if a log is shorter than when the batch was planned.

        """
        part = self._part
        # Records in the logs' directories which parts this split needs, as a worker does (I5).
        with opened(self.shard, read_only=False) as source:
            was_short = is_short(source, part)
            yield source
            if was_short or is_short(source, part):
                raise LogShortError(
                    "the logs end before the batch does",
                    place=self.place,
                    hint="the batch is repeated; check that all nodes' logs exist",
                )

    def note(self, batch: Batch) -> None:
        """Remember the end of *batch*, if it has one: the last batch of the part does."""
        self._end = batch.end if batch.has_end else None

    def store(self) -> None:
        """Store the state of the split at the end of the part, which was read completely."""
        if self._end is not None:
            self._known = replace(self._known, position=self._end.encode())
        self._checkpoint.states.store(self._part.end, self._part.shard.split, self._known)


def is_short(source: Source, part: Part) -> bool:
    """Return whether the logs end before the end of the batch."""
    reached = MicroBatches.of(source).ahead(position_at(source, part.start), ALL_BYTES)
    return bool(offset_of(reached)[_PARTS] != part.end[_PARTS])


def _is_same(one: Position, other: Position) -> bool:
    return offset_of(one) == offset_of(other)


def _steps(start: Offset, end: Offset) -> int:
    """Return the number of steps by which split time advances between two offsets."""
    before, after = (int(each.get(_RESTED_MS, 0)) // STEP_MS for each in (start, end))
    return after - before

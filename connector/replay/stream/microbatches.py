"""Where the micro-batches of a job begin and end, and what one task does of each. Needs no Spark.

An offset tells for each part of the source how far it was read, and for how long all of it was read
to its end; what is remembered there is in the checkpoint, by split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import EARLIEST
from headrace.connector.foundation.offered import located
from headrace.connector.replay.errors import LogShortError
from headrace.connector.replay.shards import Shard, SourceSpec, batches, inside, opened
from headrace.connector.replay.stream.checkpoint import Checkpoint, Known, Offset
from headrace.connector.stores import Counters, add_counters
from headrace.plugins import Batch, Clock, MicroBatches, Position, Source

ALL_BYTES: Final = 1 << 62
STEP_MS: Final = 10_000
"""Split time grows by so much at once: each step is a batch, if nothing else is."""
_PARTS: Final = "parts"
_RESTED_MS: Final = "rested_ms"


def offset_of(position: Position | None, rested_ms: int = 0) -> Offset:
    """Return *position* as Spark keeps it; None is the beginning."""
    shown = [] if position is None else position.describe()
    parts = [[dict(partition), dict(place)] for partition, place in shown]
    return {_PARTS: parts, _RESTED_MS: rested_ms}


def position_at(source: Source, offset: Offset) -> Position | None:
    """Return the position that an offset tells of, without what is remembered there."""
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
    """What one task reads of a micro-batch: a split, from an offset to another."""

    shard: Shard
    start: Offset
    end: Offset


class Course:
    """Plans the micro-batches of a job. The driver's part: it lists files and opens none."""

    def __init__(
        self,
        spec: SourceSpec,
        checkpoint: Checkpoint,
        *,
        start: str,
        job_key: bytes,
        clock: Clock | None = None,
    ) -> None:
        """Open nothing yet; *start* is where a job begins that has read nothing."""
        self._spec = spec
        self._checkpoint = checkpoint
        self._start = start
        self._job_key = job_key
        self._clock = clock or SystemClock()
        self._made: Source | None = None
        self._rests: tuple[Offset, int] | None = None  # Where nothing was new, and when.
        self._ends = False

    def initial(self) -> Offset:
        """Return where the first batch begins, and let every split begin there."""
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
        """Return where a batch of about *size_bytes* ends; *start* itself when nothing is new.

        That time has passed is new, too: only while everything was read that was durable.
        """
        now_ms = self._clock.monotonic_ms()  # What was durable then is seen.
        with inside(self._spec.directory):
            source = self._source()
            steps = MicroBatches.of(source)
            reached = steps.ahead(position_at(source, start), size_bytes)
            rests = not self._ends and _is_same(steps.ahead(reached, ALL_BYTES), reached)
        rested_ms = 0
        if rests and self._rests is not None and self._rests[0] == start:
            rested_ms = now_ms - self._rests[1]
        grown_ms = min(rested_ms, STEP_MS)  # Of a longer time in which nobody looked.
        offset = offset_of(reached, start.get(_RESTED_MS, 0) + grown_ms)
        if offset[_PARTS] == start[_PARTS] and not _steps(start, offset):
            offset = start
        self._rests = (offset, now_ms - (rested_ms if offset is start else 0)) if rests else None
        return offset

    def end_here(self) -> None:
        """Go no further than what is there now: what is logged later is not read."""
        with inside(self._spec.directory):
            source = self._source()
            source.plan()
            steps = MicroBatches.of(source)
            steps.limit(until=steps.ahead(None, ALL_BYTES))
        self._ends = True

    def parts(self, start: Offset, end: Offset) -> Sequence[Part]:
        """Return the work of a batch: a part for each split."""
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
            )
            for number, split in enumerate(splits, start=1)
        ]

    def close(self) -> None:
        """Give back what was opened. Safe to call twice."""
        if self._made is not None:
            self._made.close()
            self._made = None

    def _source(self) -> Source:
        if self._made is None:
            self._made = self._spec.open(job_key=self._job_key)
        return self._made


class Reading:
    """One task's part of a micro-batch. For one thread."""

    def __init__(self, part: Part, checkpoint: Checkpoint) -> None:
        """Look for what the split knew at the start.

        Raises:
            StateLostError: it is not there any more.

        """
        self._part = part
        self._checkpoint = checkpoint
        self._known = checkpoint.states.load(part.start, part.shard.split)

    def count(self, counters: Counters) -> None:
        """Count what became of a batch's changes (I3)."""
        counted = add_counters(self._known.counters, counters)
        self._known = replace(self._known, counters=counted)

    def batches(self) -> Iterator[Batch]:
        """Yield what the split has up to the end of the part; then keep what it knows there.

        Raises:
            LogShortError: a log shows less than when the batch was planned.
            HeadraceError: the source cannot be read on, as at a gap.

        """
        part = self._part
        shard = replace(part.shard, resume=self._known.position)
        # What this split needs of the logs is noted there, as a worker does (I5).
        with opened(shard, spectator=False) as source:
            was_short = is_short(source, part)
            end: Position | None = None
            for batch in batches(source, shard):
                end = batch.end if batch.has_end else None
                yield batch
            if end is not None:
                self._known = replace(self._known, position=end.encode())
            if was_short or is_short(source, part):
                raise LogShortError(
                    "the logs end before the batch does",
                    place=f"split {shard.split}",
                    hint="the batch is repeated; look whether all nodes' logs are there",
                )
        self._checkpoint.states.store(part.end, shard.split, self._known)


def is_short(source: Source, part: Part) -> bool:
    """Say whether the logs, which are to end where the batch does, end before."""
    reached = MicroBatches.of(source).ahead(position_at(source, part.start), ALL_BYTES)
    return bool(offset_of(reached)[_PARTS] != part.end[_PARTS])


def _is_same(one: Position, other: Position) -> bool:
    return offset_of(one) == offset_of(other)


def _steps(start: Offset, end: Offset) -> int:
    """Return by how many steps split time grows between two offsets."""
    before, after = (int(each.get(_RESTED_MS, 0)) // STEP_MS for each in (start, end))
    return after - before

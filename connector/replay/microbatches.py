"""Where the micro-batches of a job begin and end, and what one task does of each. Needs no Spark.

An offset tells for each part of the source how far it was read; what is remembered there is in the
checkpoint, by split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.connector.replay.checkpoint import Checkpoint, Offset
from headrace.connector.replay.errors import LogShortError
from headrace.connector.replay.shards import Shard, SourceSpec, batches, inside, opened
from headrace.plugins import Batch, Position, Source

ALL_BYTES: Final = 1 << 62
_PARTS: Final = "parts"
_EARLIEST: Final = "earliest"


def offset_of(position: Position | None) -> Offset:
    """Return *position* as Spark keeps it; None is the beginning."""
    shown = [] if position is None else position.describe()
    return {_PARTS: [[dict(partition), dict(place)] for partition, place in shown]}


def position_at(source: Source, offset: Offset) -> Position | None:
    """Return the position that an offset tells of, without what is remembered there."""
    parts = offset[_PARTS]
    if not parts:
        return None
    position = source.locate(source.plan()[0], None, _EARLIEST)
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
        self, spec: SourceSpec, checkpoint: Checkpoint, *, start: str, job_key: bytes
    ) -> None:
        """Open nothing yet; *start* is where a job begins that has read nothing."""
        self._spec = spec
        self._checkpoint = checkpoint
        self._start = start
        self._job_key = job_key
        self._made: Source | None = None

    def initial(self) -> Offset:
        """Return where the first batch begins, and let every split begin there."""
        with inside(self._spec.directory):
            source = self._source()
            splits = source.plan()
            position = None
            if self._start != _EARLIEST:
                position = source.locate(splits[0], None, self._start)
        offset = offset_of(position)
        for split in splits:
            encoded = None if position is None else position.encode()
            self._checkpoint.states.store(offset, split.split_id, encoded)
        return offset

    def ahead(self, start: Offset, size_bytes: int = ALL_BYTES) -> Offset:
        """Return where a batch of about *size_bytes* ends; *start* itself when nothing is new."""
        with inside(self._spec.directory):
            source = self._source()
            return offset_of(source.ahead(position_at(source, start), size_bytes))

    def end_here(self) -> None:
        """Go no further than what is there now: what is logged later is not read."""
        with inside(self._spec.directory):
            source = self._source()
            source.plan()
            source.limit(until=source.ahead(None, ALL_BYTES))

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


def read(part: Part, checkpoint: Checkpoint) -> Iterator[Batch]:
    """Yield what a split has up to the end of the batch; then keep what it knows there.

    Raises:
        StateLostError: what it knew at the start is not there any more.
        LogShortError: a log shows less than when the batch was planned.
        HeadraceError: the source cannot be read on, as at a gap.

    """
    states, split = checkpoint.states, part.shard.split
    resume = states.load(part.start, split)
    shard = replace(part.shard, resume=resume)
    # What this split needs of the logs is noted there, as a worker does (I5).
    with opened(shard, spectator=False) as source:
        was_short = is_short(source, part)
        for batch in batches(source, shard):
            resume = batch.end.encode()
            yield batch
        if was_short or is_short(source, part):
            raise LogShortError(
                "the logs end before the batch does",
                place=f"split {split}",
                hint="the batch is repeated; look whether all nodes' logs are there",
            )
    states.store(part.end, split, resume)


def is_short(source: Source, part: Part) -> bool:
    """Say whether the logs, which are to end where the batch does, end before."""
    return offset_of(source.ahead(position_at(source, part.start), ALL_BYTES)) != part.end

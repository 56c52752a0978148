"""Delivers several shards in one pass over the logs, as a worker reads its splits. Needs no Spark.

Each byte is read once for all shards of a pass, and the source, the sink and its writer are made
once. The shards start and end together; one that fails does not end the others.
"""

import contextlib
import gc
import time
from collections.abc import Iterator, Sequence
from typing import Final

from headrace.connector.replay.delivery import (
    ShardDelivery,
    ShardReport,
    Work,
    problem_of,
    sending_of,
    sink_and_encoder,
)
from headrace.connector.replay.framing.framed_shards import (
    PART_BYTES,
    SEVERAL,
    SHARDS_MIN,
    framing_of,
)
from headrace.connector.replay.framing.turns import read_in_turns
from headrace.connector.replay.sending import OUTSTANDING_RECORDS_MAX, Sending
from headrace.connector.replay.shards import inside, opened, reader_of, short_of, split_of
from headrace.plugins import CloseReason, HeadraceError, Reader, Source

PASS_BYTES: Final = 1024 * 1024 * 1024
"""Of logs, for one pass: what is delivered again if the process dies."""
_COLLECT_AFTER: Final = 20_000  # New objects that can have references, during a pass.


def passes_of(works: Sequence[Work], width: int) -> Sequence[Sequence[Work]]:
    """Divide *works* into passes, of which *width* run at once; none if passes do not suit them.

    Each pass reads all logs, so many passes cost more than framing the logs once for all shards.
    Passes do not suit works into files, which have a file open for each table, nor works with a
    rate: a long pass would be delivered again from its beginning.
    """
    targets = [work.target for work in works]
    if len(works) < SEVERAL or any(target.sink is None or target.rate for target in targets):
        return ()
    framing = framing_of([work.shard for work in works], at_least=SEVERAL)
    if framing is None:
        return ()
    count = max(width, -(-len(framing.parts) * PART_BYTES // PASS_BYTES))
    if count >= SHARDS_MIN:
        return ()
    return [works[number::count] for number in range(min(count, len(works)))]


def deliver_together(works: Sequence[Work]) -> Sequence[ShardReport]:
    """Deliver the shards of a pass; return their reports, in order, which have errors of headrace.

    Each shard gets an equal part of the CPU seconds.
    """
    started, cpu = time.monotonic(), time.process_time()
    reports = [ShardReport(number=work.shard.number) for work in works]
    try:
        with (
            opened(works[0].shard, sparing=True) as source,
            _sendings(works) as sendings,
            contextlib.closing(_Pass(source, works, sendings, reports)) as one,
            _spared(),
        ):
            one.run()
    except HeadraceError as error:
        for report in reports:
            report.problem = report.problem or problem_of(error)
    seconds = (time.process_time() - cpu) / len(works)
    for report in reports:
        report.cpu_seconds = seconds
        report.wall_seconds = time.monotonic() - started
        report.ended_ms = time.time_ns() // 1_000_000
    return reports


@contextlib.contextmanager
def _spared() -> Iterator[None]:
    """Run few garbage collections in a pass, and exclude its long-lived objects and all modules.

    Each would visit the records that wait to be settled, and empty the cache of the processor.
    """
    is_task = gc.get_freeze_count() > 0  # Of Spark: see `keep_modules`.
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _COLLECT_AFTER), *before[1:])
    if not is_task:
        gc.freeze()
    try:
        yield
    finally:
        if not is_task:
            gc.unfreeze()
        gc.set_threshold(*before)


@contextlib.contextmanager
def _sendings(works: Sequence[Work]) -> Iterator[Sequence[Sending]]:
    """Yield a sender of the records of each work, all through one writer."""
    first = works[0]
    target, origin = first.target, first.shard.source.origin
    assert target.sink is not None  # noqa: S101 (see `passes_of`)
    with (
        inside(target.directory),
        sink_and_encoder(target.sink, first.run, origin) as (sink, encoder),
        contextlib.closing(sink.open()) as writer,
    ):
        yield [
            sending_of(work.shard, target, work.run, work.attempt, sink, encoder, writer)
            for work in works
        ]


class _Pass:
    """The shards of a pass that have not failed."""

    def __init__(
        self,
        source: Source,
        works: Sequence[Work],
        sendings: Sequence[Sending],
        reports: Sequence[ShardReport],
    ) -> None:
        """Open a reader for each of *works*; a shard that cannot be opened fails alone."""
        self._reading: dict[ShardDelivery, Reader] = {}
        self._sendings: dict[ShardDelivery, Sending] = {}
        self._readers = contextlib.ExitStack()
        splits = source.plan()
        for work, sending, report in zip(works, sendings, reports, strict=True):
            shard = work.shard
            delivery = ShardDelivery(shard, sending, report)
            with self._alone(delivery):
                reader = reader_of(source, split_of(shard, splits), shard)
                self._readers.callback(reader.close, CloseReason.FINISHED)
                self._reading[delivery] = reader
                self._sendings[delivery] = sending

    def run(self) -> None:
        """Read to the end and deliver."""
        short = read_in_turns(
            self._reading, ShardDelivery.take, self._settle_many, alone=self._alone
        )
        for delivery in list(self._sendings):
            with self._alone(delivery):
                if delivery in short:
                    raise short_of(delivery.shard)
                delivery.finish()

    def _settle_many(self) -> None:
        """Wait until all records are settled, if many are outstanding."""
        if sum(each.outstanding for each in self._sendings.values()) > OUTSTANDING_RECORDS_MAX:
            for delivery, sending in list(self._sendings.items()):
                with self._alone(delivery):
                    sending.finish()

    @contextlib.contextmanager
    def _alone(self, delivery: ShardDelivery) -> Iterator[None]:
        """Limit an error to the shard of *delivery*."""
        try:
            yield
        except HeadraceError as error:
            delivery.report.problem = problem_of(error)
            self._reading.pop(delivery, None)
            self._sendings.pop(delivery, None)

    def close(self) -> None:
        """Close the readers."""
        self._readers.close()

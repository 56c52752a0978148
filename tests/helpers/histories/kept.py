"""Histories in files of tests, filled through the sink as a worker does."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import msgspec

from headrace.connector.history.config import SCOPES
from headrace.connector.history.reading import History
from headrace.connector.history.sink import HistorySink
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.history.store.places import opened
from headrace.connector.history.writing.writer import HistoryWriter
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, Delivery, Encoding, Failure, parse_config
from headrace.plugins.testing.doubles import DrivenClock, context
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.histories import places
from helpers.recordings.batches import recorded_batches

FOREVER_MS = 1 << 62


def settled(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
    """Take a report, and forget it."""
    del delivered
    assert not failures


def beside(folder: Path, **options: str) -> dict[str, str]:
    """Return options of a sink that keeps all images in the history of *folder*."""
    return {**places.chosen.options(folder), "include": ",".join(SCOPES)} | options


class Kept:
    """The history of one table."""

    def __init__(self, clock: DrivenClock, **options: str) -> None:
        """Open its sink; *options* are the sink's."""
        self.clock = clock
        config = parse_config(HistorySink.config_class, options)
        self.sink = HistorySink(config, replace(context(clock), origin=ORIGIN))
        self.sink.open().close()

    def writer(self, split: str = "1-of-1") -> HistoryWriter:
        """Return a writer that is ready."""
        writer = self.sink.open_split(split)
        assert isinstance(writer, HistoryWriter)
        assert writer.begin(FOREVER_MS) is not None
        return writer

    def history(self) -> History:
        """Return the history, to be read."""
        file = opened(self.sink.config.place, self.clock)
        return History(file, frozenset(self.sink.config.include), self.clock)


def file_of(of: HistoryWriter | History) -> HistoryFile:
    """Return the file that a writer or a reader uses."""
    file = of.file if isinstance(of, History) else of._file  # noqa: SLF001 (its disk)
    assert isinstance(file, HistoryFile)
    return file


RECORDED = "hazel_patient.onyx_walnut"  # Of 4.1-ops: hundreds of changes in one millisecond.


def recorded_history(folder: Path) -> Kept:
    """Return the history of the recorded table in *folder*, of many commits."""
    made = Kept(DrivenClock(), **beside(folder, table=RECORDED, seed="empty"))
    sent = [of_table(batch, RECORDED) for batch in recorded_batches("4.1-ops")]
    fill(made, sent, per_commit=90, step_ms=3)
    return made


@lru_cache
def whole(batch: Batch) -> Delivery:
    """Return what a sink gets of a recorded batch."""
    encoded = Encoder(Encoding(codec="avro", envelope="cep44")).encode(batch, token=1)
    return Delivery(batch, encoded, {each.schema_id: each for each in batch.schemas()})


def of_table(batch: Batch, table: str) -> Delivery:
    """Return what a sink gets of one table's changes in a recorded batch."""
    made = whole(batch)
    mine = [number for number, name in enumerate(made.encoded.tables) if name == table]
    return msgspec.structs.replace(made, encoded=made.encoded.chosen(mine))


def fill(kept: Kept, deliveries: Sequence[Delivery], *, per_commit: int, step_ms: int) -> None:
    """Write *deliveries*, in commits of so many changes; the clock steps before each commit."""
    writer = kept.writer()
    for delivery in deliveries:
        count = len(delivery.encoded)
        for begin in range(0, count, per_commit):
            part = delivery.encoded.chosen(range(begin, min(count, begin + per_commit)))
            writer.submit(Delivery(delivery.batch, part, delivery.schemas), settled)
            kept.clock.advance(step_ms)
            assert writer.commit({}, FOREVER_MS)
    writer.close()

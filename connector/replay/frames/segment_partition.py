"""A task of `headrace.segments`: the rows of one shard. Imports pyspark."""

import contextlib
import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.connector.replay.errors import bad_option
from headrace.connector.replay.frames.typed_columns import chosen, typed_batch
from headrace.connector.replay.framing.framed_shards import warn_of
from headrace.connector.replay.framing.shared_blocks import SharedFraming
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.shards import Shard, batches, encoded_changes, keep_modules, opened
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, EncodedRecords, Encoding, HeadraceError, Origin, Source
from headrace.plugins.records.columns import TableType

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

AVRO: Final = "avro"
MUTATIONS: Final = "mutations"
NO_MESSAGES: Final = "none"
_SPARK_FOLDERS: Final = "SPARK_LOCAL_DIRS"  # Spark sets it in its Python processes.


@dataclass(frozen=True, slots=True)
class SegmentPartition(InputPartition):
    """The work of one task; with `target`, it returns typed columns of one table.

    If the logs are `shared`, the tasks on a machine read them once, in a folder of Spark's there.
    """

    shard: Shard
    format: str
    target: TableType | None = None
    shared: SharedFraming | None = None

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """Read the shard. Blocking."""
        room = _room()
        if self.shared is None or room is None:
            with opened(self.shard, sparing=True) as source:
                for batch in batches(source, self.shard):
                    yield from self._some(batch, source)
        else:
            yield from self._of_blocks(self.shared, room)
        keep_modules()

    def _of_blocks(self, shared: SharedFraming, room: Path) -> "Iterator[pa.RecordBatch]":
        shard = self.shard
        # For the first rows of a frame, such as those of `show`, Spark starts only its first task.
        if shard.number == 1:
            with opened(shard, sparing=True) as source:
                for batch in batches(source, shard, position_due=True):
                    yield from self._some(batch, source)
                    if batch.has_end:
                        shard = replace(shard, resume=batch.end.encode())
                        break
                else:
                    return
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(shared.blocks(room, shard.split))
            except HeadraceError as error:
                warn_of(str(error))
                file = ""
            shard = replace(shard, framed=file)
            source = stack.enter_context(opened(shard, sparing=True))
            for batch in batches(source, shard):
                yield from self._some(batch, source)

    def _some(self, batch: Batch, source: Source) -> "Iterator[pa.RecordBatch]":
        rows = self._rows(batch, source.origin)
        if rows.num_rows:
            yield rows

    def _rows(self, batch: Batch, origin: Origin) -> "pa.RecordBatch":
        selection, target = self.shard.selection, self.target
        if self.format == MUTATIONS:
            if MUTATIONS not in batch.forms:
                raise bad_option("format", "this source has no mutations", "avro or json")
            return record_batch(selection.apply(batch.encode(MUTATIONS)), arrow_schema(origin))
        if target is None:
            return record_batch(selection.apply(self._messages(batch)), arrow_schema(origin))
        changes = batch.typed(target, with_messages=self.format == AVRO)
        encoded = changes.encoded
        if encoded is None and self.format != NO_MESSAGES:
            only = Selection(tables=frozenset((target.table,)))
            encoded = only.apply(self._messages(batch))
        return chosen(typed_batch(changes, target, encoded, origin), selection)

    def _messages(self, batch: Batch) -> EncodedRecords:
        return encoded_changes(_encoder(self.format), batch)


def _room() -> Path | None:
    """Return a folder that tasks on this machine share, and that ends with Spark's application."""
    places = os.environ.get(_SPARK_FOLDERS, "").split(",")
    return Path(places[0]) / "headrace-framed" if places[0] else None


@cache
def _encoder(codec: str) -> Encoder:
    """Return the encoder of a task's process."""
    return Encoder(Encoding(codec=codec), joined=True)

"""Changes as Parquet files, a folder for each table; a shard's files appear when it ends.

A file is named after its run and shard, so a shard that is done again replaces what it wrote.
"""

from itertools import groupby
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.columns import ARROW_SCHEMA, record_batch
from headrace.connector.replay.files import begun_name, folder_name
from headrace.connector.replay.shards import encoded_changes
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, EncodedRecords, MissingRequirementError

ROWS_PER_GROUP: Final = 100_000
_REPEATED: Final = ["table", "operation", "schema_id", "copies", "index", "node", "segment"]
_RISING: Final = {"write_time": "DELTA_BINARY_PACKED", "position": "DELTA_BINARY_PACKED"}
# Values fast rather than small: a tenth larger for a third less CPU. Random bytes have no pattern.
_COMPRESSION: Final = dict.fromkeys(ARROW_SCHEMA.names, "zstd") | {"mutation": "none"}
_LEVELS: Final = {"value": -3}


class TargetUnwritableError(MissingRequirementError):
    """The folder of a target cannot be written."""

    code = "target_unwritable"


def check_folder(folder: Path) -> None:
    """Refuse a place where no folder can be made; makes nothing itself.

    Raises:
        TargetUnwritableError: something else is there, or above it.

    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        hint = "name a folder that every machine can write"
        raise TargetUnwritableError("is not a folder", place=str(there), hint=hint)


class ParquetFiles:
    """The files of one shard. Readers do not see them before `finish`."""

    def __init__(self, folder: Path, *, name: str, encoder: Encoder) -> None:
        """Write below *folder*, in files that are called *name*."""
        self.rejected = 0
        self.notes: list[str] = []
        self._folder = folder
        self._name = name
        self._encoder = encoder
        self._begun = begun_name(name)
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode as the folder's format says."""
        return encoded_changes(self._encoder, batch)

    def take(self, encoded: EncodedRecords, batch: Batch) -> None:
        """Write the records to the files of their tables."""
        del batch
        rows = record_batch(encoded)
        if not rows.num_rows:
            return
        if encoded.tables.count(encoded.tables[0]) == rows.num_rows:
            self._add(encoded.tables[0], rows)
            return
        start = 0
        for table, run in groupby(encoded.tables):
            count = sum(1 for _ in run)
            self._add(table, rows.slice(start, count))
            start += count

    def finish(self) -> None:
        """Let the files appear, and those go that an earlier attempt has left."""
        for table in self._waiting:
            self._flush(table)
        for writer in self._writers.values():
            writer.close()
        for table in self._writers:
            self._path(table, self._begun).replace(self._path(table, f"{self._name}.parquet"))
        done = {folder_name(table) for table in self._writers}
        for stale in self._folder.glob(f"*/{self._name}.parquet"):
            if stale.parent.name not in done:
                stale.unlink()
        self._writers.clear()

    def close(self) -> None:
        """Take away what was not finished."""
        for table, writer in self._writers.items():
            writer.close()
            self._path(table, self._begun).unlink(missing_ok=True)
        self._writers.clear()

    def _add(self, table: str, rows: pa.RecordBatch) -> None:
        self._writer(table)  # A folder that cannot be written is told before the shard is read.
        waiting = self._waiting.setdefault(table, [])
        waiting.append(rows)
        if sum(each.num_rows for each in waiting) >= ROWS_PER_GROUP:
            self._flush(table)

    def _flush(self, table: str) -> None:
        waiting = self._waiting[table]
        if waiting:
            self._writer(table).write_table(pa.Table.from_batches(waiting))
            self._waiting[table] = []

    def _writer(self, table: str) -> pq.ParquetWriter:
        if table not in self._writers:
            path = self._path(table, self._begun)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._writers[table] = pq.ParquetWriter(
                    path,
                    ARROW_SCHEMA,
                    compression=_COMPRESSION,
                    compression_level=_LEVELS,
                    use_dictionary=_REPEATED,
                    column_encoding=_RISING,
                )
            except OSError as error:
                hint = "name a folder that every machine can write"
                raise TargetUnwritableError(str(error), place=str(path), hint=hint) from error
        return self._writers[table]

    def _path(self, table: str, name: str) -> Path:
        return self._folder / folder_name(table) / name

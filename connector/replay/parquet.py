"""Writes changes as Parquet files, a folder for each table; a shard's files appear when it ends.

A file is named after its run and shard, so a shard that is repeated replaces its files.
"""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connector.replay.columns import record_batch
from headrace.connector.replay.shards import encoded_changes
from headrace.connector.serde import Encoder
from headrace.plugins import Batch, EncodedRecords, MissingRequirementError

ROWS_PER_GROUP: Final = 100_000
_UNIQUE: Final = ("write_time", "key", "value", "mutation")
_DELTA: Final = "DELTA_BINARY_PACKED"
_NO_PATTERN: Final = "mutation"  # Random bytes.
# Compresses values fast rather than small: they are a tenth larger, for a third less CPU.
_LEVELS: Final = {"value": -3}


class TargetUnwritableError(MissingRequirementError):
    """The folder of a target cannot be written."""

    code = "target_unwritable"


def check_folder(folder: Path) -> None:
    """Raise if a folder cannot be created at the path. Creates nothing itself.

    Raises:
        TargetUnwritableError: the path, or one above it, is not a folder.

    """
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        hint = "name a folder that every machine can write"
        raise TargetUnwritableError("is not a folder", place=str(there), hint=hint)


class ParquetFiles:
    """The files of one shard. Readers do not see them before `finish`."""

    def __init__(self, folder: Path, *, name: str, encoder: Encoder, schema: pa.Schema) -> None:
        """Write rows of *schema* below *folder*, in files named *name*."""
        self.rejected = 0
        self.notes: list[str] = []
        self._folder = folder
        self._name = name
        self._encoder = encoder
        self._schema = schema
        self._begun = begun_name(name)
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[pa.RecordBatch]] = {}

    def encode(self, batch: Batch) -> EncodedRecords:
        """Encode in the folder's format."""
        return encoded_changes(self._encoder, batch)

    def take(self, encoded: EncodedRecords, batch: Batch) -> None:
        """Write the records to the files of their tables."""
        del batch
        rows = record_batch(encoded, self._schema)
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
        """Make the files visible, and delete those of an earlier attempt."""
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
        """Delete files that were not finished."""
        for table, writer in self._writers.items():
            writer.close()
            self._path(table, self._begun).unlink(missing_ok=True)
        self._writers.clear()

    def _add(self, table: str, rows: pa.RecordBatch) -> None:
        self._writer(table)  # Raises before the shard is read, if the folder is not writable.
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
                self._writers[table] = _writer_of(path, self._schema)
            except OSError as error:
                hint = "name a folder that every machine can write"
                raise TargetUnwritableError(str(error), place=str(path), hint=hint) from error
        return self._writers[table]

    def _path(self, table: str, name: str) -> Path:
        return self._folder / folder_name(table) / name


def _writer_of(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a file that stores repeated strings as a dictionary, numbers as deltas."""
    rising = {e.name for e in schema if e.name == "write_time" or e.type == pa.int64()}
    return pq.ParquetWriter(
        path,
        schema,
        compression=dict.fromkeys(schema.names, "zstd") | {_NO_PATTERN: "none"},
        compression_level=_LEVELS,
        use_dictionary=[name for name in schema.names if name not in {*rising, *_UNIQUE}],
        column_encoding=dict.fromkeys(rising, _DELTA),
    )


def files_of(folder: Path, run: str, shard: int) -> Sequence[Path]:
    """Return the files of a shard of a run."""
    return sorted(folder.glob(f"*/{file_name(run, shard)}.parquet"))


def file_name(run: str, shard: int) -> str:
    """Return the name of the files of a shard, without suffix."""
    return f"{run}-{shard:05d}"


def attempt_name(run: str, shard: int, attempt: int) -> str:
    """Return the name of the files of one attempt, if each attempt has files of its own."""
    return f"{file_name(run, shard)}-{attempt:03d}"


def begun_name(name: str) -> str:
    """Return the name of a file while it is written. Two attempts may overlap."""
    return f".{name}-{uuid4().hex[:8]}.part"


def forget_begun(folder: Path, run: str) -> None:
    """Delete unfinished files of killed attempts of *run*. No other attempt is running."""
    for path in folder.glob(f"*/.{run}-*.part"):
        path.unlink(missing_ok=True)


def folder_name(table: str) -> str:
    """Return the name of a table's folder."""
    return quote(table, safe="")

"""The checkpoint folder of a job that runs on Spark: the state of its splits between micro-batches.

A batch that is repeated starts from the same files and yields the same records. All machines of a
cluster see the folder; calls are independent, from any process. Needs no Spark.
"""

import contextlib
import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.files import write_durably
from headrace.connector.replay.errors import RunBusyError
from headrace.connector.stores import Counters, Loss, StateLostError, TableCounts, add_counters
from headrace.connector.stores.job import Job
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import EncodedPosition, MissingRequirementError, RecordSchema

# A place in the source, as Spark stores it. Any: JSON.
Offset = Mapping[str, Any]

SUFFIX: Final = ".spark"
_NAME_CHARS: Final = 32
_WHOLE: Final = "restore the checkpoint folder as a whole; or delete all of it, and start again"


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A file: its offset and split, and the position; without one, the beginning."""

    offset: str
    split: str
    head: bytes | None
    chunks: dict[str, bytes]
    counters: dict[str, TableCounts] = {}


@dataclass(frozen=True, slots=True)
class Known:
    """The state of a split: its position, None at the beginning, and its counters up to there."""

    position: EncodedPosition | None = None
    counters: Counters = field(default_factory=dict)


class States:
    """The positions of splits at offsets: a folder for each offset, a file for each split."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*, which every machine has."""
        self._folder = folder

    def store(self, offset: Offset, split: str, known: Known) -> None:
        """Store the state of *split* at *offset*, whole or not at all. Safe to repeat.

        Raises:
            MissingRequirementError: the folder cannot be written.

        """
        position = known.position
        head, chunks = (None, {}) if position is None else (position.head, dict(position.chunks))
        kept = _Kept(_text(offset), split, head, chunks, dict(known.counters))
        _write(self._path(offset, split), msgspec.msgpack.encode(kept))

    def load(self, offset: Offset, split: str) -> Known:
        """Return the state of *split* at *offset*.

        Raises:
            StateLostError: it is missing or cannot be read. Nothing can replace it.

        """
        path = self._path(offset, split)
        try:
            kept = msgspec.msgpack.decode(path.read_bytes(), type=_Kept)
        except OSError as error:
            raise _lost(path, split, str(error.strerror)) from error
        except msgspec.MsgspecError as error:
            raise _lost(path, split, str(error)) from error
        if (kept.offset, kept.split) != (_text(offset), split):
            raise _lost(path, split, f"it is of split {kept.split} at {kept.offset}")
        position = None if kept.head is None else EncodedPosition(kept.head, kept.chunks)
        return Known(position, kept.counters)

    def forget_before(self, offset: Offset) -> None:
        """Delete offsets that were stored before *offset*: no batch starts there any more."""
        folders = list(self._folder.iterdir()) if self._folder.is_dir() else []
        times = {folder: folder.stat().st_mtime_ns for folder in folders}
        since = times.get(self._folder / _name(offset), 0)
        for folder, stored in times.items():
            if stored < since:
                shutil.rmtree(folder, ignore_errors=True)  # The next call deletes the rest.

    def _path(self, offset: Offset, split: str) -> Path:
        return self._folder / _name(offset) / quote(split, safe="")


class Checkpoint:
    """See the module. `spark` is the part that Spark writes."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*; the first write creates it."""
        self.folder = folder
        self.spark = folder / "offsets"
        self.states = States(folder / "states")
        self.lost = folder / "dead-letters"
        self._schemas = folder / "schemas"
        self._delivered = folder / "delivered"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Prevent other drivers from running the job during the block.

        Raises:
            RunBusyError: another driver runs it.
            MissingRequirementError: the folder cannot be written.

        """
        path = self.folder / "lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("w")
        except OSError as error:
            raise _unwritable(path, error) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                hint = "one driver at a time: stop the other one"
                said = "another process runs this job on Spark"
                raise RunBusyError(said, place=str(self.folder), hint=hint) from error
            yield

    def set_aside(self, name: str, losses: Sequence[Loss]) -> None:
        """Store records that could not be delivered, a line of JSON each; replaces *name*."""
        if losses:
            content = b"".join(msgspec.json.encode(loss) + b"\n" for loss in losses)
            _write(self.lost / f"{name}.jsonl", content)

    def committed(self) -> tuple[int, Offset] | None:
        """Return the number of the last batch that Spark committed and its end, if there is one.

        Raises:
            StateLostError: Spark committed a batch, but its end cannot be read.

        """
        numbers = [int(each.name) for each in self.spark.glob("commits/[0-9]*")]
        if not numbers:
            return None
        path = self.spark / "offsets" / str(max(numbers))
        try:
            offset: Offset = json.loads(path.read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError) as error:
            raise StateLostError(
                f"where the last batch ends cannot be read: {error}", place=str(path), hint=_WHOLE
            ) from error
        return max(numbers), offset

    def count_delivered(self, batch: int, counted: Sequence[Counters]) -> None:
        """Add the counters of a batch, by the split's index in the plan. Safe to repeat.

        Raises:
            StateLostError: the counters of the batch before are missing.

        """
        before = self.delivered(batch - 1) or [{}] * len(counted)
        both = zip(before, counted, strict=True)
        content = [add_counters(old, new) for old, new in both]
        _write(self._delivered / str(batch), msgspec.msgpack.encode(content))
        for path in self._delivered.glob("[0-9]*"):
            if int(path.name) < batch - 1:  # That of the batch before stays, for a repetition.
                path.unlink(missing_ok=True)

    def delivered(self, batch: int) -> Sequence[Counters]:
        """Return the counters up to the end of *batch*, by the split's index in the plan.

        Raises:
            StateLostError: they cannot be read.

        """
        if batch < 0:
            return []
        path = self._delivered / str(batch)
        try:
            found = msgspec.msgpack.decode(path.read_bytes(), type=list[dict[str, TableCounts]])
        except (OSError, msgspec.MsgspecError) as error:
            said = f"what was delivered up to batch {batch} cannot be read: {error}"
            raise StateLostError(said, place=str(path), hint=_WHOLE) from error
        return found

    def keep_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """Store the schemas of records."""
        for schema in schemas:
            path = self._schemas / f"{schema.schema_id.hex()}.json"
            if not path.exists():
                _write(path, msgspec.json.encode(schema))

    def schemas(self) -> Sequence[RecordSchema]:
        """Return the schemas of all records so far.

        Raises:
            StateLostError: one cannot be read.

        """
        found = []
        for path in sorted(self._schemas.glob("[!.]*.json")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=RecordSchema))
            except (OSError, msgspec.MsgspecError) as error:
                said = f"the schema of records cannot be read: {error}"
                raise StateLostError(said, place=str(path), hint=_WHOLE) from error
        return found


def checkpoint_of(state: Path, job: str) -> Checkpoint:
    """Return the checkpoint of *job*, beside the state file *state*."""
    return Checkpoint(state.with_name(state.name + SUFFIX) / quote(job, safe=""))


def known_schemas(job: JobText | Job) -> Mapping[bytes, RecordSchema]:
    """Return the schemas that the job's state knows, or its checkpoint on Spark, by their ids."""
    found = [*checkpoint_of(job.state, job.name).schemas()]
    if job.notes.exists():
        with contextlib.closing(open_notes(job.notes, create=False)) as connection:
            found += connection.store(job.name).schemas()
    return {schema.schema_id: schema for schema in found}


def _write(path: Path, content: bytes) -> None:
    """Write a file durably, whole or not at all."""
    try:
        write_durably(path, content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> MissingRequirementError:
    hint = "the folder of the job's state must be one that every task may write"
    said = f"cannot be written: {error.strerror}"
    return MissingRequirementError(said, place=str(path), hint=hint)


def _text(offset: Offset) -> str:
    return json.dumps(offset, sort_keys=True, separators=(",", ":"))


def _name(offset: Offset) -> str:
    return hashlib.sha256(_text(offset).encode()).hexdigest()[:_NAME_CHARS]


def _lost(path: Path, split: str, said: str) -> StateLostError:
    return StateLostError(
        f"what split {split} knew where this batch begins cannot be read: {said}",
        place=str(path),
        hint=_WHOLE,
    )

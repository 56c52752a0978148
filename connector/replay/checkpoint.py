"""The folder of a job that runs on Spark: what its splits know between micro-batches, and more.

A batch that is repeated begins with the same files and gives the same records. All machines of a
cluster see the folder; each call stands for itself, in any process. Needs no Spark.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec

from headrace.connector.job import JobText
from headrace.connector.replay.errors import RunBusyError
from headrace.connector.stores import Loss, StateLostError
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins import (
    Document,
    EncodedPosition,
    MissingRequirementError,
    RecordSchema,
)

# A place in the source as Spark keeps it. Any: as JSON has it.
Offset = Mapping[str, Any]

SUFFIX: Final = ".spark"
_NAME_CHARS: Final = 32


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A file: of which offset and split it is, and the position; without one, the beginning."""

    offset: str
    split: str
    head: bytes | None
    chunks: dict[str, bytes]


class States:
    """The positions of splits at offsets: a folder for each offset, a file for each split."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*, which every machine has."""
        self._folder = folder

    def store(self, offset: Offset, split: str, position: EncodedPosition | None) -> None:
        """Keep the position of *split* at *offset*, whole or not at all; again is the same.

        Raises:
            MissingRequirementError: the folder cannot be written.

        """
        head, chunks = (None, {}) if position is None else (position.head, dict(position.chunks))
        content = msgspec.msgpack.encode(_Kept(_text(offset), split, head, chunks))
        _write(self._path(offset, split), content)

    def load(self, offset: Offset, split: str) -> EncodedPosition | None:
        """Return the position of *split* at *offset*; None is the beginning.

        Raises:
            StateLostError: there is none, or it cannot be read: nothing may be guessed from here.

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
        return None if kept.head is None else EncodedPosition(kept.head, kept.chunks)

    def forget_before(self, offset: Offset) -> None:
        """Forget the offsets that were stored before *offset*: no batch begins there any more."""
        folders = list(self._folder.iterdir()) if self._folder.is_dir() else []
        times = {folder: folder.stat().st_mtime_ns for folder in folders}
        since = times.get(self._folder / _name(offset), 0)
        for folder, stored in times.items():
            if stored < since:
                shutil.rmtree(folder, ignore_errors=True)  # What stays is removed next time.

    def _path(self, offset: Offset, split: str) -> Path:
        return self._folder / _name(offset) / quote(split, safe="")


class Checkpoint:
    """See the module. `spark` is Spark's own part of it."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*; it is made when something is written."""
        self.folder = folder
        self.spark = folder / "offsets"
        self.states = States(folder / "states")
        self._lost = folder / "set-aside"
        self._schemas = folder / "schemas"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Keep other drivers from running the job meanwhile.

        Raises:
            RunBusyError: one does.
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
        """Keep what could not be delivered, a line of JSON each; *name* again replaces them."""
        if losses:
            content = b"".join(msgspec.json.encode(loss) + b"\n" for loss in losses)
            _write(self._lost / f"{name}.jsonl", content)

    def keep_schemas(self, schemas: Sequence[RecordSchema]) -> None:
        """Keep what tells how records are read."""
        for schema in schemas:
            path = self._schemas / f"{schema.schema_id.hex()}.avsc"
            if not path.exists():
                _write(path, msgspec.json.encode(schema.value))

    def schemas(self) -> Mapping[bytes, Document]:
        """Return the schemas of values, by their ids."""
        files = self._schemas.glob("[!.]*.avsc")
        return {bytes.fromhex(file.stem): msgspec.json.decode(file.read_bytes()) for file in files}


def checkpoint_of(state: Path, job: str) -> Checkpoint:
    """Return the checkpoint of *job*, beside the state file *state*."""
    return Checkpoint(state.with_name(state.name + SUFFIX) / quote(job, safe=""))


def known_schemas(text: JobText) -> Mapping[bytes, Document]:
    """Return the schemas of values that the job's state knows, or its checkpoint on Spark."""
    kept = checkpoint_of(text.state, text.name).schemas()
    if not text.state.exists():
        return kept
    store = SqliteStore.open(text.state, text.name, create=False)
    try:
        return {**kept, **{schema.schema_id: schema.value for schema in store.schemas()}}
    finally:
        store.close()


def _write(path: Path, content: bytes) -> None:
    """Write a file durably, all of it or nothing."""
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
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
        hint="restore the checkpoint folder as a whole; or remove it as a whole, and begin anew",
    )

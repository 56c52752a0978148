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
from uuid import uuid4

import msgspec

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.files import write_durably
from headrace.connector.replay.errors import JobBusyError
from headrace.connector.replay.stream.terms import Term
from headrace.connector.stores import Counters, Loss, StateLostError, TableCounts, add_counters
from headrace.connector.stores.job import Job
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import (
    ConfigError,
    EncodedPosition,
    MissingRequirementError,
    Problem,
    RecordSchema,
)

# A place in the source, as Spark stores it. Any: JSON.
Offset = Mapping[str, Any]

SUFFIX: Final = ".spark"
_NAME_CHARS: Final = 32
_RECORDS_OF: Final = 1_000  # Batches.
_WHOLE: Final = "restore the checkpoint folder as a whole; or delete all of it, and start again"


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    """A file: its offset and split, and the position; without one, the beginning."""

    offset: str
    split: str
    head: bytes | None
    chunks: dict[str, bytes]
    counters: dict[str, TableCounts] = {}


class _Delivered(msgspec.Struct, frozen=True):
    """The counters of each split, and how many records the last batches had."""

    splits: list[dict[str, TableCounts]]
    records: list[int]


class Begun(msgspec.Struct, frozen=True):
    """Where the first batch of a checkpoint starts; `seqs` are the commits of splits before it.

    Each committed batch is one commit more of each split in the job's store. `offset` is None in a
    checkpoint that a program made with Spark's API.
    """

    offset: dict[str, Any] | None
    seqs: dict[str, int]
    checkpoint: str = ""
    """The id of the checkpoint in commits of the sink, exactly once."""

    def seq_after(self, split: str, batch: int) -> int:
        """Return the number of the commit of *split* at the end of *batch*; -1: at the start."""
        return self.seqs.get(split, 0) + batch + 1

    def batch_of(self, split: str, seq: int) -> int:
        """Return the last batch that *split* has at its commit *seq*; -1: none."""
        return seq - self.seqs.get(split, 0) - 1


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
        """Store the state of *split* at *offset*, atomically. Safe to repeat.

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
        """Delete offsets that were stored before *offset*: batches no longer start there."""
        folders = list(self._folder.iterdir()) if self._folder.is_dir() else []
        times = {folder: folder.stat().st_mtime_ns for folder in folders}
        since = times.get(self._folder / name_of(offset), 0)
        for folder, stored in times.items():
            if stored < since:
                shutil.rmtree(folder, ignore_errors=True)  # The next call deletes the rest.

    def _path(self, offset: Offset, split: str) -> Path:
        return self._folder / name_of(offset) / quote(split, safe="")


class Checkpoint:
    """See the module. `spark` is the part that Spark writes."""

    def __init__(self, folder: Path) -> None:
        """Use *folder*; the first write creates it."""
        self.folder = folder
        self.spark = folder / "offsets"
        self.states = States(folder / "states")
        self.lost = folder / "dead-letters"
        self._open = self.lost / "open"
        self._terms = folder / "terms"
        self._schemas = folder / "schemas"
        self._delivered = folder / "delivered"
        self._begun = folder / "begun"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Prevent other drivers from running the job during the block.

        Raises:
            JobBusyError: another driver runs it.
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
                raise JobBusyError(said, place=str(self.folder), hint=hint) from error
            try:
                yield
            finally:  # A process that was just forked may still have the file open, too.
                fcntl.flock(file, fcntl.LOCK_UN)

    def is_running(self) -> bool:
        """Return whether a driver runs the job, as far as this machine knows."""
        if not self.folder.exists():
            return False
        try:
            with self.running():
                return False
        except JobBusyError:
            return True

    def begin(self, offset: Offset, known: Mapping[str, Known], seqs: Mapping[str, int]) -> Begun:
        """Start over at *offset*, with the *known* state of each split; remove the old contents.

        Returns the new result of `begun`. If the process dies meanwhile, call it again.
        """
        for folder in (self.spark, self.lost, self._delivered):
            if folder.exists():
                shutil.rmtree(folder)
        for split, each in known.items():
            self.states.store(offset, split, each)
        return self.note_begun(Begun(dict(offset), dict(seqs)))

    def note_begun(self, begun: Begun) -> Begun:
        """Store the start of the checkpoint, with a new id; return it."""
        named = msgspec.structs.replace(begun, checkpoint=uuid4().hex)
        _write(self._begun, msgspec.json.encode(named))
        return named

    def begun(self) -> Begun | None:
        """Return the start; None if it has not started, or Spark's API made it.

        Raises:
            StateLostError: it cannot be read.

        """
        try:
            return msgspec.json.decode(self._begun.read_bytes(), type=Begun)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            said = f"where the first batch starts cannot be read: {error}"
            raise StateLostError(said, place=str(self._begun), hint=_WHOLE) from error

    def put_terms(self, terms: Mapping[str, Term]) -> None:
        """Store the terms of tasks that commit splits, exactly once."""
        _write(self._terms, msgspec.json.encode(terms))

    def terms(self) -> Mapping[str, Term]:
        """Return the terms by split; empty if no driver stored any.

        Raises:
            StateLostError: they cannot be read.

        """
        try:
            return msgspec.json.decode(self._terms.read_bytes(), type=dict[str, Term])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            said = f"the terms of its splits cannot be read: {error}"
            raise StateLostError(said, place=str(self._terms), hint=_WHOLE) from error

    def keep_open(self, batch: int, split: int, name: str, losses: Sequence[Loss]) -> None:
        """Store, as *name*, the losses that an attempt is about to commit.

        They count from `settle_open` on. *split* is its index in the plan.
        """
        content = b"".join(msgspec.json.encode(loss) + b"\n" for loss in losses)
        _write(self._open / f"{batch}-{split}-{name}", content)

    def open_losses(self, batch: int, split: int, name: str) -> Sequence[Loss]:
        """Return the losses kept as *name*; none if they are settled. Raises StateLostError."""
        path = self._open / f"{batch}-{split}-{name}"
        return _read_losses(path) if name and path.exists() else ()

    def settle_open(self, batch: int, names: Mapping[int, str]) -> None:
        """Keep the committed losses of *batch*, by the split's index; forget other attempts."""
        for split, name in names.items():
            path = self._open / f"{batch}-{split}-{name}"
            if name and path.exists():
                path.replace(self.lost / f"{batch}-{split}.jsonl")
        for path in self._open.glob("[0-9]*-*"):
            if int(path.name.partition("-")[0]) <= batch:
                path.unlink(missing_ok=True)

    def has_losses(self) -> bool:
        """Return whether there are losses that are not copied yet."""
        return any(self.lost.glob("[0-9]*-*.jsonl")) or any(self._open.glob("[0-9]*-*"))

    def has_open_losses(self) -> bool:
        """Return whether there are losses of a batch that Spark did not commit, exactly once."""
        return any(self._open.glob("[0-9]*-*"))

    def set_aside(self, batch: int, split: int, losses: Sequence[Loss]) -> None:
        """Store the losses of a split, a line of JSON each. Safe to repeat.

        *split* is its index in the plan.
        """
        content = b"".join(msgspec.json.encode(loss) + b"\n" for loss in losses)
        path = self.lost / f"{batch}-{split}.jsonl"
        if content:
            _write(path, content)
        else:  # An earlier attempt may have had some.
            path.unlink(missing_ok=True)

    def losses(self, batch: int, copied: Sequence[int]) -> Mapping[int, Sequence[Loss]]:
        """Return the losses of the batches up to *batch*, by the index of the split.

        *copied* is the last batch, by that index, whose losses the job's store has: an attempt that
        another one overtook may write later than that.

        Raises:
            StateLostError: some of it cannot be read.

        """
        found: dict[int, list[Loss]] = {}
        for path in self._set_aside(batch):
            of_batch, split = _numbers(path)
            if of_batch <= copied[split]:
                continue
            found.setdefault(split, []).extend(_read_losses(path))
        return found

    def forget_losses(self, batch: int) -> None:
        """Delete the losses that `losses` returns: the job's store has them."""
        for path in self._set_aside(batch):
            path.unlink(missing_ok=True)

    def _set_aside(self, batch: int) -> Sequence[Path]:
        """Return the files of the batches up to *batch*, in their order."""
        paths = sorted(self.lost.glob("[0-9]*-*.jsonl"), key=lambda p: (_numbers(p), p.name))
        return [path for path in paths if _numbers(path)[0] <= batch]

    def committed(self) -> tuple[int, Offset] | None:
        """Return the number of the last batch that Spark committed and its end, if there is one.

        Raises:
            StateLostError: Spark committed a batch, but its end cannot be read.

        """
        numbers = [int(each.name) for each in self.spark.glob("commits/[0-9]*")]
        if not numbers:
            return None
        return max(numbers), self._end_of(max(numbers))

    def planned(self, batch: int) -> Offset | None:
        """Return the end of *batch* if Spark has planned it. Raises StateLostError."""
        is_planned = (self.spark / "offsets" / str(batch)).exists()
        return self._end_of(batch) if is_planned else None

    def _end_of(self, batch: int) -> Offset:
        path = self.spark / "offsets" / str(batch)
        try:
            offset: Offset = json.loads(path.read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError) as error:
            raise StateLostError(
                f"where batch {batch} ends cannot be read: {error}", place=str(path), hint=_WHOLE
            ) from error
        return offset

    def count_delivered(self, batch: int, counted: Sequence[Counters]) -> None:
        """Add the counters of a batch, by the split's index in the plan. Safe to repeat.

        Raises:
            StateLostError: the counters of the batch before are missing.

        """
        before = self._delivered_at(batch - 1)
        both = zip(before.splits or [{}] * len(counted), counted, strict=True)
        content = _Delivered(
            [add_counters(old, new) for old, new in both],
            [*before.records, sum(map(_records, counted))][-_RECORDS_OF:],
        )
        _write(self._delivered / str(batch), msgspec.msgpack.encode(content))
        for path in self._delivered.glob("[0-9]*"):
            if int(path.name) < batch - 1:  # The last batch's file stays, for a repetition.
                path.unlink(missing_ok=True)

    def delivered(self, batch: int) -> Sequence[Counters]:
        """Return the counters up to the end of *batch*, by the split's index in the plan.

        Raises:
            StateLostError: they cannot be read.

        """
        return self._delivered_at(batch).splits

    def records(self, batch: int) -> int:
        """Return how many records *batch* had, for the last thousand batches; 0 for others."""
        newest = max((int(each.name) for each in self._delivered.glob("[0-9]*")), default=-1)
        if newest < batch:
            return 0
        of = self._delivered_at(newest).records
        back = newest - batch + 1
        return of[-back] if back <= len(of) else 0

    def _delivered_at(self, batch: int) -> _Delivered:
        if batch < 0:
            return _Delivered([], [])
        path = self._delivered / str(batch)
        try:
            return msgspec.msgpack.decode(path.read_bytes(), type=_Delivered)
        except (OSError, msgspec.MsgspecError) as error:
            said = f"what was delivered up to batch {batch} cannot be read: {error}"
            raise StateLostError(said, place=str(path), hint=_WHOLE) from error

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


def refuse_stream(job: Job) -> None:
    """Return if a worker may run *job*: Spark does not run it, and the store has its commits.

    Raises:
        JobBusyError: Spark runs it.
        ConfigError: Spark committed more than it copied into the store.

    """
    checkpoint = checkpoint_of(job.state, job.name)
    if checkpoint.is_running():
        hint = "one at a time: stop it first"
        raise JobBusyError("Spark runs it", place=f"job {job.name}", hint=hint)
    committed = checkpoint.committed()
    is_ahead = checkpoint.has_open_losses()
    if committed is not None and not is_ahead:
        begun = checkpoint.begun() or Begun(None, {})
        with contextlib.closing(job.open_store()) as store:
            states = store.states()
        is_ahead = not states or any(s.seq < begun.seq_after(s.split, committed[0]) for s in states)
    if is_ahead:
        hint = "run it once with --engine spark --until-idle; then a worker can continue"
        said = f"{job.name} runs on Spark, whose checkpoint has its position"
        raise ConfigError([Problem("job", said, hint)])


def known_schemas(job: JobText | Job) -> Mapping[bytes, RecordSchema]:
    """Return the schemas in the job's state, or in its checkpoint on Spark, by their ids."""
    found = [*checkpoint_of(job.state, job.name).schemas()]
    if job.notes.exists():
        with contextlib.closing(open_notes(job.notes, create=False)) as connection:
            found += connection.store(job.name).schemas()
    return {schema.schema_id: schema for schema in found}


def _write(path: Path, content: bytes) -> None:
    """Write a file durably and atomically."""
    try:
        write_durably(path, content)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> MissingRequirementError:
    hint = "the folder of the job's state must be one that every task may write"
    said = f"cannot be written: {error.strerror}"
    return MissingRequirementError(said, place=str(path), hint=hint)


def _read_losses(path: Path) -> list[Loss]:
    try:
        lines = path.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=Loss) for line in lines]
    except (OSError, msgspec.MsgspecError) as error:
        said = f"records that could not be delivered cannot be read: {error}"
        raise StateLostError(said, place=str(path), hint=_WHOLE) from error


def _numbers(path: Path) -> tuple[int, int]:
    """Return the batch and the split of a file with losses."""
    batch, split = path.stem.split("-")
    return int(batch), int(split)


def _records(counters: Counters) -> int:
    return sum(each.delivered + each.dead_lettered for each in counters.values())


def _text(offset: Offset) -> str:
    return json.dumps(offset, sort_keys=True, separators=(",", ":"))


def name_of(offset: Offset) -> str:
    """Return a name of an offset, of fixed length."""
    return hashlib.sha256(_text(offset).encode()).hexdigest()[:_NAME_CHARS]


def _lost(path: Path, split: str, said: str) -> StateLostError:
    return StateLostError(
        f"what split {split} knew where this batch begins cannot be read: {said}",
        place=str(path),
        hint=_WHOLE,
    )

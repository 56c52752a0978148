"""Blocks that the tasks of a query frame together, each part of a log once. Needs no Spark.

Spark plans a data source without a stage before its tasks. So the tasks on a machine share a
folder: each frames the parts that no other task frames, and waits for the others. Parts of a task
that died are framed again by another one. The blocks stay for the next query of the same frame,
until a task of another plan starts while no task uses them.
"""

import contextlib
import fcntl
import os
import pickle
import shutil
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from headrace.connector.foundation.clock import ThreadWake
from headrace.connector.replay.framing.framed_shards import Framing, SplitFiles, write_piece
from headrace.plugins import HeadraceError, MissingRequirementError

WAIT_SECONDS_MAX: Final = 600
"""How long a task waits without seeing that any other has framed a part."""
_LOOK_MS: Final = 20
_TRIES_MAX: Final = 100  # Each time another plan removed the folder, before it was in use.
_LOCK, _GONE, _SPLIT = ".lock", ".gone-", ".split-"


@dataclass(frozen=True, slots=True)
class SharedFraming:
    """A framing that the tasks of a plan share on each machine. It is sent with each task."""

    name: str
    """The name of the plan's folder, in a folder that the tasks of a machine share."""
    packed: bytes
    """The framing: the names of many parts of logs, which are much alike."""

    @classmethod
    def of(cls, framing: Framing) -> Self:
        """Return the shared framing of a new plan."""
        return cls(uuid.uuid4().hex, zlib.compress(pickle.dumps(framing), level=1))

    @contextlib.contextmanager
    def blocks(self, room: Path, split: str) -> Iterator[str]:
        """Yield a file of the blocks of *split*, after all parts have been framed in *room*.

        As `SplitFiles.file_of`; the file is removed at the end. Blocking, with a bound.

        Raises:
            HeadraceError: they cannot be framed or written, or another task does not end.

        """
        framing: Framing = pickle.loads(zlib.decompress(self.packed))  # noqa: S301 (made by `of`)
        with contextlib.ExitStack() as undo:
            try:
                folder = undo.enter_context(_used(room, self.name))
                pieces = _framed_together(framing, folder)
                own = tempfile.TemporaryDirectory(prefix=_SPLIT, dir=folder)
                files = SplitFiles(Path(undo.enter_context(own)))
            except OSError as error:
                said = f"the folder of tasks cannot be used: {error.strerror}"
                hint = "it is one of Spark's, which spark.local.dir names"
                raise MissingRequirementError(said, place=str(room), hint=hint) from error
            files.join(split, [piece / split for piece in pieces])
            yield files.file_of(split)


@contextlib.contextmanager
def _used(room: Path, name: str) -> Iterator[Path]:
    """Yield the folder *name*, which stays while a task uses it; remove unused folders."""
    folder = room / name
    for _ in range(_TRIES_MAX):
        with contextlib.ExitStack() as undo:
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            if is_new:
                _remove_unused(room, name)
            if _is_locked(undo, folder, fcntl.LOCK_SH):
                yield folder
                return
    raise MissingRequirementError("other queries remove the folder of tasks", place=str(folder))


def _remove_unused(room: Path, name: str) -> None:
    for other in room.iterdir():
        with contextlib.ExitStack() as undo, contextlib.suppress(OSError):
            if other.name != name and _is_locked(undo, other, fcntl.LOCK_EX | fcntl.LOCK_NB):
                # Rename it first to a name that no plan has: blocks may be incomplete while they
                # are removed.
                gone = other.rename(room / f"{_GONE}{uuid.uuid4().hex}")
                shutil.rmtree(gone, ignore_errors=True)


def _is_locked(undo: contextlib.ExitStack, place: Path, how: int) -> bool:
    """Lock the file at *place* until *undo*; return whether it is still there."""
    try:
        handle = os.open(place, os.O_RDONLY)
    except FileNotFoundError:
        return False
    undo.callback(os.close, handle)
    try:
        fcntl.flock(handle, how)
        return os.path.samestat(os.fstat(handle), place.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _framed_together(framing: Framing, folder: Path) -> Sequence[Path]:
    """Return a folder of blocks for each part; wait for those that other tasks frame."""
    pieces = [folder / str(number) for number in range(len(framing.parts))]
    wake, seen = ThreadWake(), time.monotonic()
    left = pieces
    while left:
        for piece in left:
            _frame_free(framing, piece)
        before, left = left, [piece for piece in left if not piece.exists()]
        if len(left) < len(before):
            seen = time.monotonic()
        elif time.monotonic() - seen > WAIT_SECONDS_MAX:
            said = f"another task has not read its part of a log for {WAIT_SECONDS_MAX} s"
            raise MissingRequirementError(said, place=str(left[0]))
        if left:
            wake.wait(_LOOK_MS)
    return pieces


def _frame_free(framing: Framing, piece: Path) -> None:
    """Frame the part of *piece*, unless it exists, or another task frames it now."""
    if piece.exists():
        return
    with contextlib.ExitStack() as undo:
        lock = piece.with_name(piece.name + _LOCK)
        lock.touch()
        if not _is_locked(undo, lock, fcntl.LOCK_EX | fcntl.LOCK_NB) or piece.exists():
            return
        try:
            made = write_piece(framing, piece.parent, framing.parts[int(piece.name)])
        except HeadraceError:
            undo.close()  # Another task may succeed.
            raise
        (piece.parent / made).rename(piece)

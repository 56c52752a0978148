"""Pins: what jobs still need of one node's log, in a file for each job and split beside it.

They lie in the folder `.headrace` of `cdc_raw`, and each is replaced atomically. Nothing is decided
here: `hold` writes for a job, `disposal` reads those of all jobs. Blocking file I/O.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from headrace.plugins import MissingRequirementError, RetriableError
from headrace.sources.cassandra.commitlog.manifest import (
    Manifest,
    Stored,
    file_of,
    number_in,
    place_of,
)
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.state.cdc_state import Marker

FOLDER: Final = ".headrace"
_REPLACED: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
NAMES_MAX: Final = 4_096
COPIES_MAX: Final = 64  # Of one split in one segment; where there are more, all of it is needed.

# Segments behind the marker, and where in them copies lie: position and length; no place means
# that all of the segment is needed.
Pending = Mapping[int, Sequence[tuple[int, int]]]


class HoldError(RetriableError):
    """The hold of a job, or a segment that may go, cannot be written."""

    code = "hold"


class HoldDeniedError(MissingRequirementError):
    """The hold or the archive cannot be written at all."""

    code = "hold_denied"


class Need(msgspec.Struct, frozen=True):
    """What one split of one job needs.

    All after `marker`, which is in a `generation` of the log, and all that is not in `listed`; of
    what is before it `segments` as a whole, and of others `copies` alone. Segments are named by
    the ids in their files' names.
    """

    job: str
    split: str
    marker: Marker
    segments: tuple[int, ...]
    copies: dict[int, list[tuple[int, int]]] = {}
    generation: int = msgspec.field(default=0, name="incarnation")  # The name in the files.
    listed: Stored = ()

    @classmethod
    def of(
        cls, job: str, split: str, marker: Marker, pending: Pending, listed: Stored = ()
    ) -> "Need":
        """Return what is to be noted of a split that stands at *marker* and knows what is *listed*.

        What lies in the segment of the marker is needed with it as a whole.
        """
        few = {
            segment: list(copies)
            for segment, copies in pending.items()
            if 0 < len(copies) <= COPIES_MAX and Marker(segment, END_OFFSET) <= marker
        }
        generation, file_id = place_of(marker.segment_id)
        return cls(
            job,
            split,
            Marker(file_id, marker.offset),
            tuple(sorted({file_of(segment) for segment in pending.keys() - few.keys()})),
            {file_of(segment): copies for segment, copies in few.items()},
            generation,
            listed,
        )

    def says(self) -> object:
        """Return what makes a new note worth writing.

        Segments go whole, so a marker that moved within one says nothing new; and of one that was
        left behind copies only become fewer.
        """
        ended = self.marker.offset == END_OFFSET
        place = self.generation, self.marker.segment_id, ended
        return place, self.segments, tuple(sorted(self.copies))

    def whole(self, segment_id: int) -> bool:
        """Say whether all of the segment with a number is needed."""
        file_id = file_of(segment_id)
        number = _known(self.listed).number(file_id) if self.listed else segment_id
        stands = Marker(number_in(self.generation, self.marker.segment_id), self.marker.offset)
        if number is None or file_id in self.segments:
            return True
        return stands < Marker(number, END_OFFSET)


@lru_cache(maxsize=64)  # The splits of a job know the same.
def _known(listed: Stored) -> Manifest:
    return Manifest(listed)


def write(folder: Path, name: str, content: bytes) -> None:
    """Replace the file *name* in *folder*, which may have to be made, atomically.

    Not the directory that it is in: where a disk is gone, nothing is to look like one.
    """
    temporary = f"{folder}/.{name}.{os.getpid()}"
    try:
        try:
            file = os.open(temporary, _REPLACED, 0o666)
        except FileNotFoundError:
            folder.mkdir(exist_ok=True)
            file = os.open(temporary, _REPLACED, 0o666)
        try:
            if os.write(file, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
        finally:
            os.close(file)
        os.replace(temporary, f"{folder}/{name}")  # noqa: PTH105 (a split has one for each log)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 (as above)
        raise


def write_new(folder: Path, names: Sequence[str], content: bytes) -> Sequence[str]:
    """Leave a note with the same *content* under each of *names* where there is none, atomically.

    Returns these names. The notes are links of one file: to make one costs a fifth of a file, and a
    job has one for each split and log.
    """
    there = names_in(folder)
    missing = [name for name in names if name not in there]
    if not missing:
        return ()
    shared = f".{missing[0]}"
    write(folder, shared, content)
    try:
        for name in missing:
            try:
                os.link(f"{folder}/{shared}", f"{folder}/{name}")
            except FileExistsError:  # Its split has said just now what it needs.
                continue
            except OSError:  # Not every file system has links, or so many.
                write(folder, name, content)
    finally:
        os.unlink(f"{folder}/{shared}")  # noqa: PTH108 (as above)
    return missing


def read_all(folder: Path) -> Sequence[Need]:
    """Return the needs that are noted in *folder*.

    Raises:
        HoldError: one cannot be read, so it is unknown what may go.

    """
    return [_need_in(path) for path in _notes(folder)]


def names_in(folder: Path) -> set[str]:
    """Return the names of the notes in *folder*, which need not exist."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (a split has one for each log)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {name for name in names if not name.startswith(".")}


@lru_cache(maxsize=NAMES_MAX)  # A split has the same name beside each log.
def name_of(job: str, split: str, store: str) -> str:
    """Return the name of a split's note, of the job whose state has the mark *store*."""
    return f"{quote(job, safe='')}.{quote(split, safe='')}.{store}"


@lru_cache(maxsize=1)  # It is the same beside each log.
def everything(job: str) -> bytes:
    """Return the content of the note of a split of *job* that needs all of a log."""
    return msgspec.json.encode(Need.of(job, "", Marker(0, 0), {}))


class Note(msgspec.Struct, frozen=True):
    """What a note says, the mark of the state it is of, and when it was written: ms since 1970."""

    store: str
    written_ms: float
    need: Need


def notes_in(folder: Path) -> Sequence[Note]:
    """Return the notes in *folder*. Raises as `read_all`."""
    found = []
    for path in _notes(folder):
        with contextlib.suppress(FileNotFoundError):  # It was withdrawn just now.
            written_ms = path.stat().st_mtime * 1000
            found.append(Note(path.name.rpartition(".")[2], written_ms, _need_in(path)))
    return found


class Noted(msgspec.Struct, frozen=True):
    """A note of what a split needs: of which state, up to which segment, and how old it is."""

    job: str
    store: str
    split: str
    segment: int
    age_seconds: float


def noted_in(folder: Path, job: str) -> list[Noted]:
    """Return what is noted of *job*. Raises as `read_all`."""
    now_ms = time.time() * 1000
    return [
        Noted(
            job,
            note.store,
            note.need.split,
            note.need.marker.segment_id,
            max(0, now_ms - note.written_ms) / 1000,
        )
        for note in notes_in(folder)
        if note.need.job == job
    ]


def remove(folder: Path, names: Iterable[str]) -> None:
    """Remove notes. Raises HoldError."""
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise HoldError(f"cannot be removed: {error.strerror}", place=str(folder)) from error


def _notes(folder: Path) -> Iterable[Path]:
    return [folder / name for name in names_in(folder)]


def _need_in(path: Path) -> Need:
    try:
        need = msgspec.json.decode(path.read_bytes(), type=Need)
        if need.split:
            return need
        # It is one of several with the same content: `write_new`.
        quoted = path.name.removeprefix(f"{quote(need.job, safe='')}.").rpartition(".")[0]
        return msgspec.structs.replace(need, split=unquote(quoted))
    except (OSError, msgspec.MsgspecError) as error:
        raise HoldError(
            f"expected the needs of a job, found {error}",
            place=str(path),
            hint="nothing is disposed of while a note cannot be read; remove it if its job is gone",
        ) from error

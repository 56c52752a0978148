"""Pins: what jobs still need of one node's log, one file per job and split, beside the log.

They are in the folder `.headrace` of `cdc_raw`; each is replaced atomically. This module decides
nothing: `hold` writes the pins of a job, `disposal` reads those of all jobs. Blocking file I/O.
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
COPIES_MAX: Final = 64  # Per split and segment; with more copies, the whole segment is needed.

# Segments before the marker, and the copies needed in each: position and length. An empty sequence
# means the whole segment.
Pending = Mapping[int, Sequence[tuple[int, int]]]


class HoldError(RetriableError):
    """The hold of a job, or a segment to be removed, cannot be written."""

    code = "hold"


class HoldDeniedError(MissingRequirementError):
    """The hold or the archive can never be written."""

    code = "hold_denied"


class Need(msgspec.Struct, frozen=True):
    """The part of a log that one split of one job needs.

    It needs everything after `marker`, which is in a `generation` of the log, and all segments that
    are not in `listed`. Before the marker, it needs `segments` as a whole and, of others, only
    `copies`. Segments are named by the ids in their file names.
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
        """Return the need of a split at *marker* whose manifest is *listed*.

        The marker's segment is needed as a whole, with all copies in it.
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
        """Return the part whose change makes a new pin worth writing.

        Segments are kept whole, so a marker that moves within one changes nothing; and the copies
        in a segment before the marker only become fewer.
        """
        ended = self.marker.offset == END_OFFSET
        place = self.generation, self.marker.segment_id, ended
        return place, self.segments, tuple(sorted(self.copies))

    def whole(self, segment_id: int) -> bool:
        """Return whether all of a segment is needed."""
        file_id = file_of(segment_id)
        number = _known(self.listed).number(file_id) if self.listed else segment_id
        stands = Marker(number_in(self.generation, self.marker.segment_id), self.marker.offset)
        if number is None or file_id in self.segments:
            return True
        return stands < Marker(number, END_OFFSET)


@lru_cache(maxsize=64)  # The splits of a job share one manifest.
def _known(listed: Stored) -> Manifest:
    return Manifest(listed)


def write(folder: Path, name: str, content: bytes) -> None:
    """Replace the file *name* in *folder* atomically, creating *folder* if necessary.

    Its parent directory is not created: a missing disk must not look like an empty one.
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
        os.replace(temporary, f"{folder}/{name}")  # noqa: PTH105 (once per split and log)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108 (as above)
        raise


def write_new(folder: Path, names: Sequence[str], content: bytes) -> Sequence[str]:
    """Write the same *content* under each of *names* that does not exist, atomically.

    Returns the names that it left unchanged. The notes are links of one file: to make one costs a
    fifth of a file, and a job has one for each split and log.
    """
    there = names_in(folder)
    missing = [name for name in names if name not in there]
    if not missing:
        return ()
    shared, left = f".{missing[0]}", []
    write(folder, shared, content)
    try:
        for name in missing:
            try:
                os.link(f"{folder}/{shared}", f"{folder}/{name}")
            except FileExistsError:  # Its split has just written its own need.
                continue
            except OSError:  # The file system has no links, or not so many.
                write(folder, name, content)
            left.append(name)
    finally:
        os.unlink(f"{folder}/{shared}")  # noqa: PTH108 (as above)
    return left


def listed_in(folder: Path) -> set[Stored]:
    """Return what the jobs that left pins in *folder* know of the log.

    Of notes that are links of one file, as `write_new` leaves them, one is read.

    Raises:
        HoldError: one cannot be read.
        OSError: the folder cannot be.

    """
    found, seen = set[Stored](), set[int]()
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.inode() not in seen:
                seen.add(entry.inode())
                found.add(_need_in(Path(entry.path)).listed)
    return found


def names_in(folder: Path) -> set[str]:
    """Return the names of the pins in *folder*, which need not exist."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 (once per split and log)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    return {name for name in names if not name.startswith(".")}


@lru_cache(maxsize=NAMES_MAX)  # A split has the same name beside each log.
def name_of(job: str, split: str, store: str) -> str:
    """Return the name of a split's pin; *store* is the mark of the job's state."""
    return f"{quote(job, safe='')}.{quote(split, safe='')}.{store}"


@lru_cache(maxsize=1)  # The same beside each log.
def everything(job: str) -> bytes:
    """Return the content of a pin for a split of *job* that needs the whole log."""
    return msgspec.json.encode(Need.of(job, "", Marker(0, 0), {}))


class Note(msgspec.Struct, frozen=True):
    """The content of a pin, the mark of its job's state, and its write time in ms since 1970."""

    store: str
    written_ms: float
    need: Need


def notes_in(folder: Path) -> Sequence[Note]:
    """Return the notes in *folder*.

    Raises:
        HoldError: one cannot be read, so it is unknown what may go.

    """
    found = []
    for path in (folder / name for name in names_in(folder)):
        with contextlib.suppress(FileNotFoundError):  # It was withdrawn just now.
            written_ms = path.stat().st_mtime * 1000
            found.append(Note(path.name.rpartition(".")[2], written_ms, _need_in(path)))
    return found


class Noted(msgspec.Struct, frozen=True):
    """A pin of a split: the mark of its state, its segment and its age."""

    job: str
    store: str
    split: str
    segment: int
    age_seconds: float


def noted_in(folder: Path, job: str) -> list[Noted]:
    """Return what is noted of *job*. Raises as `notes_in`."""
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
    """Remove pins. Raises HoldError."""
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise HoldError(f"cannot be removed: {error.strerror}", place=str(folder)) from error


def _need_in(path: Path) -> Need:
    try:
        need = msgspec.json.decode(path.read_bytes(), type=Need)
        if need.split:
            return need
        # It is one of several files with the same content: `write_new`.
        quoted = path.name.removeprefix(f"{quote(need.job, safe='')}.").rpartition(".")[0]
        return msgspec.structs.replace(need, split=unquote(quoted))
    except (OSError, msgspec.MsgspecError) as error:
        raise HoldError(
            f"expected the needs of a job, found {error}",
            place=str(path),
            hint="nothing is disposed of while a note cannot be read; remove it if its job is gone",
        ) from error

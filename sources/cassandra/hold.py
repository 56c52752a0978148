"""Which segments may go: every job that reads a `cdc_raw` directory leaves its markers beside it.

The folder `.headrace` in the directory has one small file per job and split, replaced atomically.
A segment is disposed of only when all of them are past it (I5), so two jobs, also of different
stores, cannot rob each other. Blocking file I/O.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final
from urllib.parse import quote

import msgspec

from headrace.plugins import MissingRequirementError, RetriableError
from headrace.sources.cassandra.directory import LogDirectory
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.segment import index_name
from headrace.sources.cassandra.state import Marker

FOLDER: Final = ".headrace"
_STORE_CHARS: Final = 8


class HoldError(RetriableError):
    """The hold of a job, or a segment that may go, cannot be written."""

    code = "hold"


class HoldDeniedError(MissingRequirementError):
    """The hold or the archive cannot be written at all."""

    code = "hold_denied"


class _Need(msgspec.Struct, frozen=True):
    """What one split of one job still needs: `marker`, and older segments of pending copies."""

    job: str
    split: str
    marker: Marker
    segments: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Disposal:
    """What becomes of a finished segment: kept, deleted, or moved to `archive`."""

    keep: bool = True
    archive: Path | None = None


class Hold:
    """One job's needs in one node's directory, and the disposal of what nobody needs."""

    def __init__(self, log: LogDirectory, job: str, disposal: Disposal, *, store: str = "") -> None:
        """Touch nothing yet; *store* is the job's `store_mark`."""
        self._log = log
        self._job = job
        self._store = store
        self._disposal = disposal
        self._folder = log.path / FOLDER
        self._noted: dict[str, object] = {}

    def check(self) -> None:
        """Make sure that segments can be disposed of, if they are to be.

        Raises:
            HoldDeniedError: the directory, or the archive, is not for us to write.

        """
        if self._disposal.keep:
            return
        for folder in (self._folder, self._disposal.archive or self._folder):
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with NamedTemporaryFile(prefix=".", dir=folder):
                    pass
            except OSError as error:
                raise HoldDeniedError(
                    f"cannot be written: {error.strerror}",
                    place=str(folder),
                    hint="disposal: keep needs no right to write",
                ) from error

    def register_all(self, splits: Iterable[str]) -> None:
        """Let every split of the job that left no note yet need everything."""
        for split in splits:
            if not (self._folder / self._name(split)).exists():
                self.register(split, Marker(0, 0), frozenset())

    def register(self, split: str, marker: Marker, pending: AbstractSet[int]) -> None:
        """Note what *split* needs from now on: all after *marker*, and the *pending* segments.

        Raises:
            HoldError: the folder cannot be written though segments may be disposed of.

        """
        need = _Need(self._job, split, marker, tuple(sorted(pending)))
        # Segments are disposed of whole: a marker that moved within one says nothing new.
        said = (marker.segment_id, marker.offset == END_OFFSET, need.segments)
        if self._noted.get(split) == said:
            return
        name = self._name(split)
        try:
            self._folder.mkdir(exist_ok=True)
            temporary = self._folder / f".{name}.{os.getpid()}"
            temporary.write_bytes(msgspec.json.encode(need))
            temporary.replace(self._folder / name)
            self._noted[split] = said
        except OSError as error:
            if self._disposal.keep:  # A directory we may only read: other jobs' care.
                return
            raise HoldError(str(error), place=str(self._folder)) from error

    def withdraw(self, splits: Iterable[str]) -> None:
        """Need nothing any more: the job is gone for good."""
        for split in splits:
            with contextlib.suppress(OSError):  # Then its segments stay, which is safe.
                (self._folder / self._name(split)).unlink(missing_ok=True)

    def dispose(self) -> int:
        """Dispose of the final segments that no registered split needs; return how many.

        The newest one stays until there is a newer one: while nobody looks, it is the witness that
        nothing behind it was removed (see `gaps`).
        """
        if self._disposal.keep:
            return 0
        needs = [_need_in(path) for path in self._files()]
        count = 0
        for segment in self._log.segments()[:-1]:
            if not segment.final or any(_needed(need, segment.segment_id) for need in needs):
                continue
            for name in (segment.name, index_name(segment.name)):
                self._remove(self._log.path / name)
            count += 1
        return count

    def _name(self, split: str) -> str:
        return f"{quote(self._job, safe='')}.{quote(split, safe='')}.{self._store}"

    def _files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in self._folder.iterdir() if not path.name.startswith(".")]

    def _remove(self, path: Path) -> None:
        try:
            if self._disposal.archive is not None and path.exists():
                self._disposal.archive.mkdir(parents=True, exist_ok=True)
                shutil.move(path, self._disposal.archive / path.name)
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HoldError(str(error), place=str(path)) from error


def store_mark(job_key: bytes) -> str:
    """Return what tells jobs of one name in different stores apart, and does not tell the key."""
    return sha256(job_key).hexdigest()[:_STORE_CHARS]


def _need_in(path: Path) -> _Need:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Need)
    except (OSError, msgspec.MsgspecError) as error:
        raise HoldError(
            f"expected the needs of a job, found {error}",
            place=str(path),
            hint="nothing is disposed of while a note cannot be read; remove it if its job is gone",
        ) from error


def _needed(need: _Need, segment_id: int) -> bool:
    return need.marker < Marker(segment_id, END_OFFSET) or segment_id in need.segments

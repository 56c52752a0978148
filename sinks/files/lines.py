"""Appends complete lines to a file that processes may share. Knows nothing of records."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from errno import EAGAIN, EINVAL
from io import FileIO
from mmap import PROT_READ, mmap
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Final

from headrace.plugins import HeadraceError

LOCK_SECONDS_MAX: Final = 5.0
_PAUSE_SECONDS: Final = 0.001
_FULL: Final = "is the disk full? Else name a file of whole lines, or a new one, in a folder that "
_LOCKED: Final = "a process that writes to it is stopped: end it, or let it continue"


def append_lines(path: Path, lines: bytes, *, cuts: bool = True) -> None:
    """Append *lines* to the file, durably: all of them, or none and OSError.

    Bytes after the last line feed are removed first if a dead process of ours left them: unless
    *cuts* confirms that, they are an error.

    Raises:
        BlockingIOError: another process locks the file for longer than an append takes.

    """
    with path.open("a+b", buffering=0) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(EINVAL, "expected a file that lines can be appended to, found a device")
        _lock(file)  # Until the file is closed.
        end = 0
        if size := file.seek(0, os.SEEK_END):  # An empty file cannot be mapped.
            with mmap(file.fileno(), 0, prot=PROT_READ) as content:
                end = content.rfind(b"\n") + 1
        if end < size and not cuts:
            raise OSError(EINVAL, "expected whole lines, found a last one without a line feed")
        file.truncate(end)
        try:
            while lines:
                lines = lines[file.write(lines) :]
            os.fsync(file)
        except OSError:
            file.truncate(end)
            raise


def why_unwritable(path: Path) -> str:
    """Return why lines cannot be appended at *path*, or nothing. Changes nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        folder = path.parent
        if not folder.is_dir():
            return f"there is no folder {folder}"
        return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} may not be written"
    except OSError as error:
        return error.strerror or str(error)
    if S_ISDIR(mode):
        return "it is a folder"
    if not S_ISREG(mode):
        return "it is a device"
    return "" if os.access(path, os.R_OK | os.W_OK) else "the right to read and write it is missing"


@contextlib.contextmanager
def unwritable(path: Path, kind: type[HeadraceError]) -> Iterator[None]:
    """Raise an OSError of the block as an error of that *kind*, which names the file."""
    try:
        yield
    except OSError as error:
        hint = _LOCKED if isinstance(error, BlockingIOError) else f"{_FULL}may be written"
        raise kind(error.strerror or str(error), place=str(path), hint=hint) from error


@contextlib.contextmanager
def unreadable(path: Path, kind: type[HeadraceError]) -> Iterator[None]:
    """Raise an OSError of the block as an error of that *kind*, which names the file."""
    try:
        yield
    except OSError as error:
        raise kind(error.strerror or str(error), place=str(path)) from error


def _lock(file: FileIO) -> None:
    """Wait for others' appends, but not for a process that was stopped during one."""
    deadline = time.monotonic() + LOCK_SECONDS_MAX
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                message = f"another process has had it locked for {LOCK_SECONDS_MAX} s"
                raise BlockingIOError(EAGAIN, message) from None
        else:
            return
        time.sleep(_PAUSE_SECONDS)

"""Opens only regular files of a log: opening a FIFO could block forever."""

import os
import stat
from pathlib import Path
from typing import Final

from headrace.sources.cassandra.errors import NotAFileError

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_HINT: Final = "remove it: only Cassandra, and what copies its files, should write there"


def open_regular(path: Path, *, follow_symlinks: bool = False) -> int:
    """Return a descriptor for reading the file at *path*.

    Raises:
        NotAFileError: *path* is not a regular file.
        OSError: it cannot be opened.

    """
    flaw = flaw_of(path, follow_symlinks=follow_symlinks)  # Opening a device can have side effects.
    if flaw is not None:
        raise flaw
    descriptor = os.open(path, _FLAGS if follow_symlinks else _FLAGS | os.O_NOFOLLOW)
    found = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(found):
        os.close(descriptor)
        raise _error(path, found)
    return descriptor


def read_regular(path: Path, size: int, *, follow_symlinks: bool = False) -> bytes:
    """Return the first *size* bytes of a file. Raises as `open_regular`."""
    return read_with_time(path, size, follow_symlinks=follow_symlinks)[0]


def read_with_time(path: Path, size: int, *, follow_symlinks: bool = False) -> tuple[bytes, int]:
    """Return the result of `read_regular`, and the file's modification time in ms since 1970."""
    descriptor = open_regular(path, follow_symlinks=follow_symlinks)
    try:
        content = os.read(descriptor, size)
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
        return content, os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)


def reread(path: str, size: int) -> tuple[bytes, int]:
    """Return the result of `read_with_time` for a path that is known to be a regular file.

    Raises OSError.
    """
    descriptor = os.open(path, _FLAGS | os.O_NOFOLLOW)
    try:
        return os.read(descriptor, size), os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)


def flaw_of(path: Path, *, follow_symlinks: bool = False) -> NotAFileError | None:
    """Return the error for *path*, None if it is a regular file. Raises OSError.

    With *follow_symlinks* a link to a file is accepted; a link to nothing, or to itself, is not.
    """
    try:
        found = os.stat(path, follow_symlinks=follow_symlinks).st_mode  # noqa: PTH116 (one call for both)
    except OSError:
        if not (follow_symlinks and path.is_symlink()):
            raise
        found = path.lstat().st_mode
    return None if stat.S_ISREG(found) else _error(path, found)


def _error(path: Path, mode: int) -> NotAFileError:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return NotAFileError(f"expected a file, found {kind}", place=str(path), hint=_HINT)

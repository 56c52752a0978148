"""Opens regular files of a log only: opening a FIFO would wait without end."""

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
    """Return a descriptor of the file at *path*, to read.

    Raises:
        NotAFileError: it is something else.
        OSError: it cannot be opened.

    """
    flaw = flaw_of(path, follow_symlinks=follow_symlinks)  # Opening a device can do something.
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
    """Return what `read_regular` does, and when the file was written to last, in ms since 1970."""
    descriptor = open_regular(path, follow_symlinks=follow_symlinks)
    try:
        content = os.read(descriptor, size)
        while len(content) < size and (more := os.read(descriptor, size - len(content))):
            content += more
        return content, os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)


def reread(path: str, size: int) -> tuple[bytes, int]:
    """Return what `read_with_time` does, of a path that was a file and was not replaced since.

    Raises OSError.
    """
    descriptor = os.open(path, _FLAGS | os.O_NOFOLLOW)
    try:
        return os.read(descriptor, size), os.fstat(descriptor).st_mtime_ns // 1_000_000
    finally:
        os.close(descriptor)


def flaw_of(path: Path, *, follow_symlinks: bool = False) -> NotAFileError | None:
    """Return what is wrong with *path*, unless it is a file. Raises OSError.

    With *follow_symlinks* a link to a file is one; a link to nothing, or to itself, is not.
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

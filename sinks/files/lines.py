"""Whole lines at the end of a file, which processes may share. Knows nothing of records."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from errno import EINVAL
from mmap import PROT_READ, mmap
from pathlib import Path
from stat import S_ISREG

from headrace.plugins import HeadraceError


def append_lines(path: Path, lines: bytes, *, cuts: bool = True) -> None:
    """Add *lines* to the file, durably: all of them, or none and OSError.

    What follows the last line feed is cut off before, if a process of ours that died has left it:
    unless that is known, as *cuts* says, it is an error.
    """
    with path.open("a+b", buffering=0) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(EINVAL, "expected a file that lines can be appended to, found a device")
        fcntl.flock(file, fcntl.LOCK_EX)  # Until the file is closed.
        end = 0
        if size := file.seek(0, os.SEEK_END):  # What is empty cannot be mapped.
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


@contextlib.contextmanager
def unwritable(path: Path, kind: type[HeadraceError]) -> Iterator[None]:
    """Raise an OSError of the block as an error of that *kind*, which names the file."""
    try:
        yield
    except OSError as error:
        hint = "is the disk full? Else name a file of whole lines, or a new one, in a folder"
        said = error.strerror or str(error)
        raise kind(said, place=str(path), hint=f"{hint} that may be written") from error

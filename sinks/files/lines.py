"""Whole lines at the end of a file, which processes may share. Knows nothing of records."""

import fcntl
import os
from mmap import PROT_READ, mmap
from pathlib import Path


def append_lines(path: Path, lines: bytes) -> None:
    """Add *lines* to the file, durably: all of them, or none and OSError.

    What follows the last line feed, which a process that died has left, is cut off before.
    """
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # Until the file is closed.
        end = 0
        if file.seek(0, os.SEEK_END):  # What is empty cannot be mapped.
            with mmap(file.fileno(), 0, prot=PROT_READ) as content:
                end = content.rfind(b"\n") + 1
        file.truncate(end)
        try:
            while lines:
                lines = lines[file.write(lines) :]
            os.fsync(file)
        except OSError:
            file.truncate(end)
            raise

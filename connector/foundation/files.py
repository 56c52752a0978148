"""Writes files atomically and durably."""

import os
import secrets
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file, and make its folder; other processes may write the same path. Blocking.

    When it returns, content, name and new folders are on disk.

    Raises:
        OSError: it cannot be written, or its name is not on disk yet; it is the old file or the new
            one, as a whole.

    """
    new = [folder for folder in path.parents if not folder.exists()]
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
    for folder in (path.parent, *(each.parent for each in new)):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

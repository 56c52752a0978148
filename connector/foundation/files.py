"""Files that are on disk as a whole, or not at all."""

import os
import secrets
from pathlib import Path


def write_durably(path: Path, content: bytes) -> None:
    """Replace a file, and make its folder; others may write the same path. Blocking.

    Raises:
        OSError: it cannot be written; what was there stays.

    """
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)

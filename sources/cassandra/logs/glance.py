"""Whether a log looks as it did when it was listed, where no event tells: for less than a listing.

What is looked at is what the node writes to: the index files of the newest segments, and the names
in its directories. For one thread.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headrace.sources.cassandra.logs.index_files import INDEX_BYTES_MAX

# A folder that changed so recently may change again without another time: clocks of file systems
# are coarse.
RECENT_NS: Final = 100_000_000
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Glance:
    """See the module."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Note how *folders* look, which are listed next."""
        self._folders: dict[str, int] | None = None  # None is as if all were changed.
        self._indexes: dict[str, bytes] = {}
        try:
            self._folders = {str(each): os.stat(each).st_mtime_ns for each in folders}  # noqa: PTH116 (often)
        except OSError:
            return
        if time.time_ns() - max(self._folders.values(), default=0) < RECENT_NS:
            self._folders = None

    def note(self, path: Path, content: bytes) -> None:
        """Note what an index file that may be written to had in it when it was listed."""
        self._indexes[str(path)] = content

    def is_other(self) -> bool:
        """Return whether anything looks otherwise than it did."""
        if self._folders is None:
            return True
        try:
            return any(_content(path) != known for path, known in self._indexes.items()) or any(
                os.stat(path).st_mtime_ns != known  # noqa: PTH116 (often)
                for path, known in self._folders.items()
            )
        except OSError:
            return True


def _content(path: str) -> bytes:
    descriptor = os.open(path, _FLAGS)
    try:
        return os.read(descriptor, INDEX_BYTES_MAX)
    finally:
        os.close(descriptor)

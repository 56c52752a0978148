"""Detects changes of a log since its listing where events do not exist; cheaper than a listing.

It compares the parts that the node writes: the index files of the newest segments, and the names in
its directories. For one thread.
"""

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from headrace.sources.cassandra.logs.index_files import INDEX_BYTES_MAX

# A folder that changed this recently may change again within the same time stamp: file systems have
# coarse clocks.
RECENT_NS: Final = 100_000_000
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class Glance:
    """The state of a log's folders and newest indexes at its last listing."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Note the times of *folders*, which the caller lists next."""
        self._folders: dict[str, int] | None = None  # None: treated as changed.
        self._indexes: dict[str, bytes] = {}
        try:
            self._folders = {str(each): os.stat(each).st_mtime_ns for each in folders}  # noqa: PTH116 (often)
        except OSError:
            return
        if time.time_ns() - max(self._folders.values(), default=0) < RECENT_NS:
            self._folders = None

    def note(self, path: Path, content: bytes) -> None:
        """Note the content of an index file that may still be written, as listed."""
        self._indexes[str(path)] = content

    def is_other(self) -> bool:
        """Return whether anything differs from the listing."""
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

"""Disk space of the logs, from the names, sizes and times of their files."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace.plugins import LogSpace
from headrace.sources.cassandra.logs.directory import sizes_in

LATELY_SECONDS: Final = 3600.0  # The growth rate is measured over this period.
MOMENT_SECONDS: Final = 1.0  # Too short to measure a rate.


def spaces(paths: Mapping[str, Path], bytes_max: int | None) -> Sequence[LogSpace]:
    """Return the space of each node's `cdc_raw` in *paths*; *bytes_max* is `cdc_total_space`."""
    found = []
    for node, path in paths.items():
        with suppress(OSError):  # Its reader reports the error.
            sizes, disk = sizes_in(path), os.statvfs(path)
            space = LogSpace(
                partition={"node": node},
                used_bytes=sum(sizes.values()),
                limit_bytes=bytes_max,
                free_bytes=disk.f_bavail * disk.f_frsize,
                growth=_growth(path, sizes),
            )
            found.append(space)
    return found


def _growth(path: Path, sizes: Mapping[str, int]) -> float | None:
    """Return the recent growth in bytes per second, from the files' times; None if unknown."""
    now = time.time()
    times = sorted((now - (path / name).stat().st_mtime, size) for name, size in sizes.items())
    lately = [(age, size) for age, size in times if age <= LATELY_SECONDS]
    if len(times) > len(lately):  # Older files exist, so none of the period's were removed.
        return sum(size for _, size in lately) / LATELY_SECONDS
    oldest = lately[-1][0] if lately else 0.0
    if oldest < MOMENT_SECONDS:
        return None
    return sum(size for age, size in lately if age < oldest) / oldest

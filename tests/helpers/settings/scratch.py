"""Where tests keep their files: in memory, if there is room.

State files are synced with every commit, which takes a disk milliseconds.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 (nothing of ours has a fixed name there)
FREE_BYTES_MIN: Final = 6 << 30  # Real servers store files there, too.


def prefer_memory() -> None:
    """Put temporary files of this process and its children there, unless TMPDIR is set."""
    if "TMPDIR" not in os.environ and is_roomy(MEMORY_DISK):
        os.environ["TMPDIR"] = str(MEMORY_DISK)
        tempfile.tempdir = None  # Forget the folder that was found before.


def is_roomy(folder: Path) -> bool:
    """Return whether a disk in memory has room, and allows programs."""
    try:
        disk = os.statvfs(folder)
        memory = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return False
    found = re.search(r"MemAvailable:\s+(\d+) kB", memory)
    available = int(found[1]) * 1024 if found else 0
    free = min(available, disk.f_bavail * disk.f_frsize)
    return free >= FREE_BYTES_MIN and not disk.f_flag & os.ST_NOEXEC

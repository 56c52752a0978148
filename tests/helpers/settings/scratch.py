"""Where tests keep their files: in memory, where there is room.

State files are synced with every commit, for which a disk takes milliseconds.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import Final

MEMORY_DISK: Final = Path("/dev/shm")  # noqa: S108 (nothing of ours has a fixed name there)
FREE_BYTES_MIN: Final = 6 << 30  # Real servers keep theirs there, too.


def prefer_memory() -> None:
    """Let temporary files of this process and its children lie there, unless TMPDIR says where."""
    if "TMPDIR" not in os.environ and is_roomy(MEMORY_DISK):
        os.environ["TMPDIR"] = str(MEMORY_DISK)
        tempfile.tempdir = None  # What was found before.


def is_roomy(folder: Path) -> bool:
    """Tell whether a disk in memory has room, and programs there may be run."""
    try:
        disk = os.statvfs(folder)
        memory = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return False
    found = re.search(r"MemAvailable:\s+(\d+) kB", memory)
    available = int(found[1]) * 1024 if found else 0
    free = min(available, disk.f_bavail * disk.f_frsize)
    return free >= FREE_BYTES_MIN and not disk.f_flag & os.ST_NOEXEC

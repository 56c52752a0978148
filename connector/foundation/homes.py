"""Names a file of this machine, so that a process can say whether it has the same one."""

import platform
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")  # The same in all containers of a machine.


def file_home(path: Path) -> str:
    """Return a name of the file at *path*, or of its absence, on the machine that runs now.

    Equal in processes that have the same file, also where containers have it at other paths. Of a
    file on a share each machine has another name: locks and shared memory do not reach so far.
    """
    try:
        found = path.stat()
    except OSError:
        return f"{_machine()}: no {path.name}"
    return f"{_machine()}: {found.st_dev}.{found.st_ino}"


def _machine() -> str:
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return platform.node()

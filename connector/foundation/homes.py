"""Names a file of this machine, so that a process can say whether it has the same one."""

import platform
from pathlib import Path

from headrace.connector.foundation.processes import boot_id


def file_home(path: Path) -> str:
    """Return a name of the file at *path*, or of its absence, on the machine that runs now.

    Equal in processes that have the same file, also where containers have it at other paths. A file
    on a network share has another name on each machine, because locks and shared memory do not work
    across machines.
    """
    machine = boot_id() or platform.node()
    try:
        found = path.stat()
    except OSError:
        return f"{machine}: no {path.name}"
    return f"{machine}: {found.st_dev}.{found.st_ino}"

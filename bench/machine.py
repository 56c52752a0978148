"""What the numbers were measured on."""

import os
import platform
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_LIBRARIES: Final = ("cassandra-driver", "confluent-kafka", "cython", "fastavro", "msgspec")
_FRAMER: Final = "headrace.sources.cassandra.commitlog.framer"


def compiled() -> bool:
    """Tell whether the hot modules are machine code."""
    spec = find_spec(_FRAMER)
    return bool(spec and spec.origin and spec.origin.endswith(tuple(EXTENSION_SUFFIXES)))


def machine_facts() -> dict[str, object]:
    """Return processor, load and versions, as JSON has them."""
    processor = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": processor[1] if processor else platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "compiled": compiled(),
        "libraries": {name: version(name) for name in _LIBRARIES},
    }


def memory_bytes_max() -> int:
    """Return the most that was resident; getrusage would count the process that started us."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kilobytes) * 1024


def busy_ticks() -> tuple[int, int]:
    """Return what all processors were busy so far, and what they had."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # Idle, and waiting for a disk.

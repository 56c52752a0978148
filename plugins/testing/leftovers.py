"""Finds what a plugin leaves behind after it is closed: running threads and open files."""

import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SETTLE_SECONDS_MAX: Final = 5.0  # What a library or the peer of a connection ends later.
_LOOK_SECONDS: Final = 0.1
_ROUNDS: Final = 2
_DESCRIPTORS: Final = Path("/proc/self/fd")  # Linux; elsewhere only threads are compared.


def leftovers(use: Callable[[], object]) -> str:
    """Return what each *use* leaves, including opening and closing. Blocks up to 5 s.

    The results are kept meanwhile, so that Python closes nothing for them. The first use does not
    count: it may create what all later ones share.
    """
    used = [use()]
    threads, files = set(threading.enumerate()), _open_files()
    used += [use() for _ in range(_ROUNDS)]
    pause = threading.Event()
    found = _since(threads, files)
    until = time.monotonic() + SETTLE_SECONDS_MAX
    while found and time.monotonic() < until:
        gc.collect()
        pause.wait(_LOOK_SECONDS)
        found = _since(threads, files)
    return ", ".join(found)


def _since(threads: set[threading.Thread], files: dict[str, str]) -> list[str]:
    """Return what is new since then; a single thread or file may belong to others."""
    running = [f"thread {each.name!r}" for each in set(threading.enumerate()) - threads]
    now = _open_files()
    opened = [f"file {name}" for number, name in now.items() if files.get(number) != name]
    is_more = len(now) - len(files) >= _ROUNDS
    return sorted([*(running if len(running) >= _ROUNDS else ()), *(opened if is_more else ())])


def _open_files() -> dict[str, str]:
    """Return the target of each descriptor, by its number."""
    found: dict[str, str] = {}
    for link in _DESCRIPTORS.iterdir() if _DESCRIPTORS.exists() else ():
        try:
            found[link.name] = str(link.readlink())
        except OSError:  # That of the listing itself.
            continue
    return found

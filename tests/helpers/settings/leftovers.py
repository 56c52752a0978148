"""Sees that nothing is left: neither processes nor files, in a folder or open."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from helpers.jobs.children import until

MARK = "HEADRACE_TEST_RUN"


def open_files(folder: Path) -> int:
    """Return how many files below *folder* this process has open."""
    held = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(each).startswith(str(folder)) for each in held)


def processes_of(mark: str) -> list[int]:
    """Return the processes that inherited *mark*."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if folder.name.isdigit() and f"{MARK}={mark}".encode() in environment:
            found.append(int(folder.name))
    return found


@contextlib.contextmanager
def spotless(folder: Path) -> Iterator[dict[str, str]]:
    """Give an environment whose temporary folder is *folder*; see that nothing is left of it."""
    mark = str(uuid.uuid4())
    folder.mkdir()
    yield {**os.environ, MARK: mark, "TMPDIR": str(folder)}
    # A child that lost its parent is about to notice.
    until(lambda: not processes_of(mark), "a process lives on")
    assert [] == list(folder.iterdir())

"""Sees that a command leaves neither processes nor files."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from helpers.jobs.children import until

MARK = "HEADRACE_TEST_RUN"


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

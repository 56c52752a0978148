"""Notes and jobs that several stores share as machines do, without a server."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.connector.stores import ALL_JOBS
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins.testing.memory_values import Memory, MemoryValues


@dataclass(frozen=True, slots=True)
class Kept:
    """What all of them share; *path* is the state file of this machine, which stores nothing."""

    path: Path
    memory: Memory = field(default_factory=Memory)


def shared_notes(kept: Kept) -> NoteCopy:
    """Return another connection to *kept*."""
    values = MemoryValues(kept.memory)
    file = kept.path.with_name("worker.yaml")
    return NoteCopy(values, ALL_JOBS, partial(Store, values), file=file, beside=kept.path)

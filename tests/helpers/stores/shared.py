"""Notes and jobs that several stores share as machines do, without a server."""

from dataclasses import dataclass, field
from pathlib import Path

from headrace.connector.stores import ALL_JOBS
from headrace.connector.stores.keyed.notes import Notes
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
    notes = Notes(values, ALL_JOBS, lambda job: Store(values, job))
    return NoteCopy(notes, file=kept.path.with_name("worker.yaml"), beside=kept.path)

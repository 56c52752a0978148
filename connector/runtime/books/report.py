"""The outcome and the result of a run of a job."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.connector.runtime.books.equations import SplitBooks
from headrace.plugins import HeadraceError


class Outcome(Enum):
    """The reason why a run ended."""

    ENDED = "ended"
    """A stop was requested, nothing is left to read, or everything failed."""
    CHANGED = "changed"
    """The job's configuration changed: the job must be read and run again."""
    RESTART = "restart"
    """A restart was requested."""
    STOPPED = "stopped"
    """The target state of the job is STOPPED."""


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a run. `books` are those of all splits as committed, by any process."""

    books: Sequence[SplitBooks]
    failures: Sequence[HeadraceError]
    changes: int
    dead_lettered: int
    batches: int
    commits: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes_max: int
    outcome: Outcome = Outcome.ENDED

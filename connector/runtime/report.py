"""How a run of a job ended, and what it came to."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.connector.runtime.books import SplitBooks
from headrace.plugins import FatalError, HeadraceError


class PluginHungError(FatalError):
    """A call of a plugin did not return (R8): the process ends, so that others may take over."""

    code = "plugin_hung"
    restartable = True


class Outcome(Enum):
    """Why a run ended."""

    ENDED = "ended"
    """It was told to, or there is nothing more, or everything failed."""
    CHANGED = "changed"
    """The job's configuration is another one now: read it and run again."""
    RESTART = "restart"
    """Somebody asked for a restart."""
    STOPPED = "stopped"
    """The job is to stop until it is wanted again."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to. `books` are those of all splits as committed, by whichever process."""

    books: Sequence[SplitBooks]
    failures: Sequence[HeadraceError]
    changes: int
    set_aside: int
    batches: int
    commits: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes_max: int
    outcome: Outcome = Outcome.ENDED

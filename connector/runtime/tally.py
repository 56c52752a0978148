"""The counters of a pipeline for its metrics: counted at most per batch, never per record."""

from collections import Counter
from dataclasses import dataclass, field

from headrace.plugins.metrics import Stages, Timing


@dataclass(slots=True)
class Tally:
    """Counted on the data thread, read by others. `errors` are by handling and code."""

    changes: int = 0
    dead_lettered: int = 0
    records_read: int = 0
    batches: int = 0
    commits: int = 0
    reads: Timing = field(default_factory=Timing)
    publishes: Timing = field(default_factory=Timing)
    commit_times: Timing = field(default_factory=Timing)
    stages: Stages = field(default_factory=Stages)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)

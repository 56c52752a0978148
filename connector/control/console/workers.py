"""The changes that each worker publishes, by the growth of committed books between looks."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.connector.control.console.records import jobs_of
from headrace.connector.control.service import ControlService
from headrace.connector.stores.keyed.store import Store

NO_WORKER: Final = "no worker"
"""The name of the entry for splits without a worker."""


class WorkerPace(msgspec.Struct, frozen=True):
    """How many splits a worker has, and how many changes they published since the last look."""

    splits: int
    published: int


class KeptWorkers:
    """Looks at all jobs; reads only splits that committed since the last look.

    For one thread at a time.
    """

    def __init__(self) -> None:
        """Start without counts."""
        self._jobs: dict[str, _KeptSplits] = {}

    def look(self, service: ControlService) -> Mapping[str, WorkerPace]:
        """Return the workers by name: a change counts for the current owner of its split.

        A split's first look counts no changes. Raises StoreUnavailableError.
        """
        statuses = jobs_of(service.commands)
        self._jobs = {job: self._jobs.get(job) or _KeptSplits() for job in statuses}
        splits, published = Counter[str](), Counter[str]()
        for job, status in statuses.items():
            grown = self._jobs[job].look(service.notes.store(job))
            for each in status.splits:
                worker = each.worker or NO_WORKER
                splits[worker] += 1
                published[worker] += grown.get(each.split, 0)
        return {name: WorkerPace(count, published[name]) for name, count in splits.items()}


class _KeptSplits:
    """How many changes each split of a job has published."""

    def __init__(self) -> None:
        self._stamps: dict[str, int] = {}
        self._published: dict[str, int] = {}

    def look(self, store: Store) -> Mapping[str, int]:
        """Return how many changes each split has published since the last look."""
        self._stamps, changed = store.changed_states(self._stamps)
        before = self._published
        now = {
            state.split: sum(c.fates["delivered"] for c in state.counters.values())
            for state in changed
        }
        self._published = {s: now.get(s, before.get(s, 0)) for s in self._stamps}
        return {s: max(0, count - before[s]) for s, count in now.items() if s in before}

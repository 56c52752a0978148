"""The books of a job, for consumers: the committed numbers of changes of each table."""

from collections.abc import Mapping
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Self

import msgspec

from headrace.connector.stores import Counters, StateFileError, TableCounts, add_counters
from headrace.connector.stores.job import state_of
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.records.codecs import CONTROL_TABLE


class JobBooks(msgspec.Struct, frozen=True):
    """The committed books of the named job, in a given state.

    The state is a state file, or a file that names a store; any number of threads may read.
    """

    state: Path
    job: str

    @classmethod
    def of_job(cls, path: str | Path) -> Self:
        """Return the books of a job file's job. Raises ConfigError."""
        return cls(*state_of(Path(path)))

    def read(self) -> Mapping[str, TableCounts]:
        """Return the counts of each table, for all plans, at the last commits.

        Raises:
            StateFileError: there is no state, or it does not have the job.
            StoreUnavailableError: the store does not answer.

        """
        with closing(open_notes(self.state, create=False)) as notes:
            store = notes.store(self.job)
            plans = store.plans()
            if not plans.in_force.splits:
                hint = "is it the job's name, and did it run? Books of jobs on Spark are not read"
                found = f"holds nothing of job {self.job}"
                raise StateFileError(found, place=str(self.state), hint=hint)
            parts = [plan.counters for plan in plans.ended]
            parts += [state.counters for state in store.states()]
        none: Counters = {}
        whole = reduce(add_counters, parts, none)
        return {table: whole[table] for table in sorted(whole) if table not in {"", CONTROL_TABLE}}

"""What is shown of a job that two processes run, both of a recorded ring."""

from contextlib import closing
from pathlib import Path

from headrace.connector.control.status import live_workers, split_status
from headrace.connector.foundation.processes import is_dead
from headrace.connector.foundation.states import Observed
from headrace.connector.runtime.splits.watch import REFRESH_MS
from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.jobs.children import ring_job, stop, until

SPLITS = 8


def test_states_of_a_job_that_two_processes_share(tmp_path: Path) -> None:
    """Every split is RUNNING whenever someone looks, also of the one that gave half of them away.

    After a clean end all are UNASSIGNED.
    """
    job = ring_job(tmp_path, "5.0-ring")
    job.lease(seconds=6)
    with job.running() as first:
        until(lambda: [SPLITS] == job.owned(), "the first process never had all splits")
        with job.running() as second:
            until(lambda: job.is_shared(owners=2, splits=SPLITS), "the splits were never shared")
            with closing(SqliteStore.open(tmp_path / "state.db", "crash")) as store:
                until(lambda: {Observed.RUNNING} == shown(store), "one never reported its splits")
                since_ms = max(row.seen_ms for row in store.seen().values())
                looks: list[set[Observed]] = []

                def reported_again() -> bool:
                    looks.append(shown(store))
                    seen = store.seen().values()
                    return all(row.seen_ms > since_ms + REFRESH_MS for row in seen)

                until(reported_again, "one of them did not tell again")
                assert [{Observed.RUNNING}] * len(looks) == looks
                assert {row.owner for row in store.leases()} == {
                    row.worker for row in store.seen().values()
                }
                assert (0, 0) == (stop(first), stop(second))
                assert {Observed.UNASSIGNED} == shown(store)
                assert {Observed.UNASSIGNED} == {row.state for row in store.seen().values()}


def shown(store: SqliteStore) -> set[Observed]:
    """Return the states that are shown of the splits."""
    seen, workers = store.seen(), live_workers(store, is_dead)
    return {
        split_status(0, row.split, row, seen.get(row.split), workers).state
        for row in store.leases()
    }

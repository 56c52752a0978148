"""Updates the positions in the store to those in the sink, for a job that does not run.

Exactly once, a worker that dies between a commit and the copy of it leaves an old copy. A run
detects that by itself. A caller that uses positions without a run, such as a forked job that starts
from a copy of them, must update them first.
"""

import contextlib

import structlog

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.processes import this_process
from headrace.connector.runtime.making import made_sink
from headrace.connector.runtime.starting import lease_times, planning_store
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import Context, FencedError, LeaseLostError, Sink


def catch_up(job: Job, log: structlog.stdlib.BoundLogger) -> bool:
    """Copy all commits to the store; return whether it has them all. If not, call again.

    No live worker may own a split of the job.

    Raises:
        HeadraceError: the sink cannot be read, or its positions are lost.

    """
    clock = SystemClock()
    with contextlib.closing(job.open_store()) as store:
        context = Context(job=job.name, clock=clock, job_key=store.job_key(), log=log)
        sink: Sink = made_sink(job, context)
        if not sink.is_transactional:  # Its old positions do not count.
            store.state_copies().believe()
            return True
        with planning_store(job, sink, store) as known:
            return _load_all(job, known, log)


def _load_all(job: Job, store: Store, log: structlog.stdlib.BoundLogger) -> bool:
    owner = this_process()
    store.enroll(owner)
    try:
        rows = store.leases()
        tokens = store.claim(owner.worker, rows, lease_times(job)[0])
        for split, token in tokens.items():
            store.load(split, token)
            store.release(owner.worker, split, token)
    except (StoreUnavailableError, LeaseLostError, FencedError) as error:
        log.info("catching_up_waits", job=job.name, reason=str(error))
        return False
    finally:
        store.dismiss(owner.worker)
    log.info("caught_up", job=job.name)
    return len(tokens) == len(rows)

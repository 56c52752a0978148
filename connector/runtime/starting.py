"""What a run begins with: the bounds of its pipeline, and where new splits begin."""

from collections.abc import Iterable

from headrace.connector.job import EARLIEST, Job
from headrace.connector.runtime.clock import SystemClock
from headrace.connector.runtime.pipeline import Limits
from headrace.connector.runtime.processes import this_process
from headrace.connector.runtime.watch import RestartPolicy
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import Commit, Store
from headrace.connector.stores.sqlite_file import connect
from headrace.connector.stores.transactional import TransactionalStore
from headrace.plugins import HeadraceError, Source, Split

_LEASE_MS = 15_000


def begin(job: Job, source: Source) -> None:
    """Commit where the splits begin that have never committed anything, before they are read.

    All at once: else `latest` would be another place for each, and after a crash.

    Raises:
        ConfigError: the source knows no such place.
        HeadraceError: somebody else has begun meanwhile.

    """
    if job.start != EARLIEST:
        store = job.open_store()
        try:
            _begin(store, source, job.start)
        finally:
            store.close()


def _begin(store: Store, source: Source, start: str) -> None:
    new = {s.split: s for s in store.states() if s.position is None and not s.seq}
    places = {split: source.locate(Split(split), None, start) for split in new}
    if not any(places.values()):
        return
    owner = this_process()
    store.enroll(owner)
    try:
        rows = [row for row in store.leases() if places.get(row.split) and row.owner is None]
        commits = [
            Commit(
                split=split,
                plan=new[split].plan,
                token=token,
                owner=owner.worker,
                previous=0,
                seq=1,
                position=position.encode(),
                counters={},
            )
            for split, token in store.claim(owner.worker, rows, _LEASE_MS).items()
            if (position := places[split]) is not None
        ]
        _raise_first(store.commit(commits).values())
    finally:
        store.dismiss(owner.worker)


def _raise_first(refusals: Iterable[HeadraceError]) -> None:
    for refusal in refusals:
        raise refusal


def limits_of(job: Job) -> Limits:
    """Return the bounds that *job* gives its pipeline."""
    runtime = job.runtime
    return Limits(
        tick_ms=runtime.tick_min_ms,
        commit_ms_max=in_ms(runtime.commit_max_seconds),
        commit_bytes_max=runtime.commit_max_bytes,
        outstanding_bytes_max=runtime.outstanding_bytes_max,
        outstanding_records_max=runtime.outstanding_records_max,
        batch_bytes_max=runtime.batch_bytes_max,
        batch_records_max=runtime.batch_records_max,
        retry_ms_max=in_ms(runtime.retry_seconds_max),
        stop_ms_max=in_ms(runtime.stop_seconds_max),
    )


def restarts_of(job: Job, *, until_idle: bool) -> RestartPolicy:
    """Return how often what failed is begun anew; never while all there is is taken."""
    return RestartPolicy(
        restarts_max=0 if until_idle else job.runtime.restarts_max,
        pause_ms=in_ms(job.runtime.restart_pause_seconds),
    )


def store_of(job: Job, writers: Writers) -> Store:
    """Open the store of *job*: exactly once, the sink keeps the positions."""
    if not writers.transactional:
        return job.open_store()
    return TransactionalStore(
        connect(job.state),
        job.name,
        writer_of=writers.claimed,
        clock=SystemClock(),
        quarantine_bytes_max=job.runtime.quarantine_bytes_max,
    )


def in_ms(seconds: float) -> int:
    """Return whole milliseconds."""
    return round(seconds * 1000)

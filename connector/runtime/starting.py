"""What a run begins with: the bounds of its pipeline, and where new splits begin."""

from headrace.connector.job import EARLIEST, Job
from headrace.connector.runtime.pipeline import Limits
from headrace.connector.stores.sqlite import SqliteStore
from headrace.plugins import Source, Split


def begin(store: SqliteStore, source: Source, start: str) -> None:
    """Commit where the splits begin that have never committed anything, before they are read.

    All at once: else `latest` would be another place for each, and after a crash.

    Raises:
        ConfigError: the source knows no such place.

    """
    if start == EARLIEST:
        return
    new = [state.split for state in store.states() if state.position is None and not state.seq]
    places = {split: source.locate(Split(split), None, start) for split in new}
    store.begin({split: place.encode() for split, place in places.items() if place is not None})


def limits_of(job: Job) -> Limits:
    """Return the bounds that *job* gives its pipeline."""
    runtime = job.runtime
    return Limits(
        tick_ms=runtime.tick_min_ms,
        commit_ms_max=_ms(runtime.commit_max_seconds),
        commit_bytes_max=runtime.commit_max_bytes,
        outstanding_bytes_max=runtime.outstanding_bytes_max,
        outstanding_records_max=runtime.outstanding_records_max,
        batch_bytes_max=runtime.batch_bytes_max,
        batch_records_max=runtime.batch_records_max,
        retry_ms_max=_ms(runtime.retry_seconds_max),
        stop_ms_max=_ms(runtime.stop_seconds_max),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)

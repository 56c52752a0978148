"""Prepares a run: its stores, the bounds of its pipeline, and the positions of new splits."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Final

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.job_file import EARLIEST
from headrace.connector.foundation.offered import located, tokens_of
from headrace.connector.foundation.processes import this_process
from headrace.connector.runtime.failures.hung import returned
from headrace.connector.runtime.failures.tolerance import ErrorPolicy, topic_problems
from headrace.connector.runtime.limits import Limits
from headrace.connector.runtime.splits.watch import RestartPolicy, SplitWatch
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import Commit, SplitState, StateLostError
from headrace.connector.stores.cassandra.cdc_state import PublishedStates, job_of
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.transactional import Found, transactional
from headrace.plugins import (
    ConfigError,
    JobTraces,
    Position,
    Problem,
    Resplitting,
    Sink,
    SinkOptions,
    Source,
    Split,
    declared_options,
)

POLL_MS_MAX: Final = 1_000
_BESIDE: Final = ("-wal", "-shm", ".audit")  # The suffixes of files beside a state file.
_LEASE_MS = 15_000


def begin(job: Job, source: Source) -> None:
    """Commit the start positions of splits that have never committed, before they are read.

    All at once: else `latest` would be a different place for each, and after a crash.

    Raises:
        ConfigError: the source does not know the start position.
        HeadraceError: another process has started meanwhile.

    """
    if job.start != EARLIEST:
        with contextlib.closing(job.open_store(create=False)) as store:
            _begin(store, source, job)


def _begin(store: Store, source: Source, job: Job) -> None:
    new = {s.split: s for s in store.states() if s.position is None and not s.seq}
    if not new:
        return
    asked = partial(returned, where="finding the start", seconds=job.runtime.call_seconds_max)
    published = job_of(job.start)
    if published:
        states = _published(store, published)
        places = asked(partial(_resplit, source, published, states))
    else:
        places = asked(
            lambda: {split: located(source, Split(split), None, job.start) for split in new}
        )
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
                tokens=tokens_of(source, split),
            )
            for split, token in store.claim(owner.worker, rows, _LEASE_MS).items()
            if (position := places[split]) is not None
        ]
        for refusal in store.commit(commits).values():
            raise refusal
    finally:
        store.dismiss(owner.worker)


def begin_run(job: Job, notes: NoteCopy, store: Store) -> bytes:
    """Start a run of *job*; return its key, which is that of published states if it starts there.

    A state file keeps the path of the job file; a shared store does not, as each machine has its
    own.
    """
    if isinstance(store, PublishedStates) and (published := job_of(job.start)):
        store.adopt(published)  # `begin` refuses a store without one.
    return store.begin_run("" if job.file is None or notes.file is not None else str(job.file))


def _published(store: Store, job: str) -> Sequence[SplitState]:
    """Return the published states of *job*."""
    if not isinstance(store, PublishedStates):
        hint = "they are in a store of the plugin `cassandra`"
        raise ConfigError([Problem("start", "this job's store has no states of others", hint)])
    states, key = store.published(job)
    if key != store.job_key():
        hint = "give the new job another name"
        said = f"the states of {job} name mutations by another key than this job, which is not new"
        raise ConfigError([Problem("start", said, hint)])
    return states


def _resplit(
    source: Source, job: str, states: Sequence[SplitState]
) -> Mapping[str, Position | None]:
    """Return the start positions of splits by the published *states* of *job*."""
    positions: dict[str, Position | None] = {
        state.split: source.decode_position(state.position) for state in states if state.position
    }
    made = source.resplit(positions) if isinstance(source, Resplitting) else None
    if made is None:
        raise ConfigError([Problem("start", f"the splits of {job} are none of this source")])
    return made


def is_sink_noted(job: Job, store: Store, host: str) -> bool | None:
    """Return whether *job* last opened its current sink on *host*; None without a note."""
    mark = store.opened_sink(host)
    return None if mark is None else mark == mark_of(job)


def mark_of(job: Job) -> str:
    """Return a fingerprint of the place that *job* writes to; it does not reveal the place."""
    identity = json.dumps(
        [str(job.directory), job.sink.__qualname__, _strings_of(job)], sort_keys=True
    )
    return hashlib.sha256(identity.encode()).hexdigest()


def _strings_of(job: Job) -> Mapping[str, str]:
    """Return the sink's own options that are strings; no secrets."""
    shared = {field.name for field in fields(SinkOptions)}
    found = {
        key: getattr(job.sink_config, field.name)
        for key, (field, identity) in declared_options(type(job.sink_config)).items()
        if field.name not in shared and not identity.secret
    }
    return {key: value for key, value in found.items() if isinstance(value, str)}


def check_sink(job: Job, sink: Sink, errors: ErrorPolicy) -> None:
    """Check that *sink* fits *job* and *errors*. Raises ConfigError."""
    ours = {os.path.realpath(f"{job.state}{ending}") for ending in ("", *_BESIDE)}
    hint = "name another file: what keeps the job would be overwritten"
    problems = [
        Problem(f"sink.{key}", "is the job's own state file", hint)
        for key, value in _strings_of(job).items()
        if "\0" not in value and os.path.realpath(job.directory / value) in ours
    ]
    if problems:
        raise ConfigError(problems)
    if unheeded := topic_problems(sink, errors.topic):
        raise ConfigError(unheeded)


def check_traces(job: Job, source: Source) -> None:
    """Check that a job without state in the store has not run with another state.

    Raises:
        StateLostError: pins beside the logs show that it has run.

    """
    if not isinstance(source, JobTraces):
        return
    seconds = job.runtime.call_seconds_max
    look = partial(source.traces, everywhere=False)
    traces = returned(look, "looking for earlier runs", seconds=seconds)
    older = [trace for trace in traces if trace.begun and not trace.mine]
    if not older:
        return
    newest = min(older, key=lambda trace: trace.age_seconds)
    raise StateLostError(
        f"holds nothing of job {job.name}, which has run before: {newest.place} has notes of it, "
        f"{newest.age_seconds:.0f} s old",
        place=str(job.notes),
        hint="restore the state, or correct its path. To start over, which delivers again what the "
        "logs still hold, give --new-state; `headrace forget` removes the notes",
    )


@contextlib.contextmanager
def planning_store(job: Job, sink: Sink, store: Store) -> Iterator[Store]:
    """Yield the store with the states of all splits; exactly once, the sink's states included.

    With the sink, loading a state also fences the split's former writer.
    """
    if not sink.is_transactional:
        yield store
        return
    seconds = job.runtime.call_seconds_max
    writers = returned(partial(Writers, sink, SystemClock()), "opening the sink", seconds=seconds)
    try:
        with contextlib.closing(store_of(job, writers)) as opened:
            yield opened
    finally:
        writers.close()


def limits_of(job: Job) -> Limits:
    """Return the configured bounds of the pipeline of *job*."""
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


def watch_of(job: Job, worker: str, generation: int, *, until_idle: bool) -> SplitWatch:
    """Return the watch of the splits; with *until_idle* failed splits are not restarted."""
    return SplitWatch(
        worker=worker,
        generation=generation,
        stall_ms=in_ms(job.runtime.stall_seconds),
        policy=RestartPolicy(
            restarts_max=0 if until_idle else job.runtime.restarts_max,
            pause_ms=in_ms(job.runtime.restart_pause_seconds),
        ),
    )


def store_of(job: Job, writers: Writers, found: Found | None = None) -> Store:
    """Open the store of *job*; exactly once, the sink keeps positions, and *found* gets them."""
    if not writers.transactional:
        return job.open_store(create=False)
    store = job.open_as(transactional(job.store))
    store.write_with(writers.claimed, SystemClock(), found)
    return store


def lease_times(job: Job) -> tuple[int, int]:
    """Return the duration of a lease, and the interval of checks which workers live, in ms.

    A silent owner counts as live for up to one interval too long. So the lease is shorter by two
    intervals: its splits have another owner `lease_seconds` after it fell silent.
    """
    whole_ms = in_ms(job.runtime.lease_seconds)
    look_ms = min(POLL_MS_MAX, whole_ms // 10)
    return whole_ms - 2 * look_ms, look_ms


def in_ms(seconds: float) -> int:
    """Return *seconds* as whole milliseconds."""
    return round(seconds * 1000)

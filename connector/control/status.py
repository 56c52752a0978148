"""The status of connectors, from the store alone, without a broker, node or worker."""

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from typing import Final

import msgspec
from msgspec.structs import replace

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.control.entries import ONLY
from headrace.connector.control.job_files import start_command
from headrace.connector.foundation.processes import is_dead
from headrace.connector.foundation.states import (
    Desired,
    Observed,
    connector_state,
    split_state,
    worst,
)
from headrace.connector.runtime.unread import UnreadPart, missing_tables_in, unread_parts
from headrace.connector.stores import LeaseRow, Owner, Seen
from headrace.connector.stores.asked_runs import (
    ASKED,
    OVER,
    AskedRun,
    AskedRuns,
    Progress,
    RunKind,
    RunState,
)
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import WHOLE_JOB, Failure, Route

SILENT_MS_MIN: Final = 10_000
NOT_STARTED: Final = "not_started"
_HINT: Final = "hint: "  # Prefix of the line of an error's text that says what to do.


_AS_SEEN: Final = {
    RunState.RUNNING: Observed.RUNNING,
    RunState.PAUSED: Observed.PAUSED,
    RunState.FAILED: Observed.FAILED,
}


class SplitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A split. `reason` says what failed or delays it; `generation` is the configuration it runs.

    `hint` says what to do about it. `worker` is `host:pid`, or empty if no worker owns the split;
    then its `rate`, in bytes a second, is 0. Times are ms since 1970.
    """

    task: int
    split: str
    state: Observed
    generation: int = 0
    worker: str = ""
    reason: str = ""
    hint: str = ""
    rate: int = 0
    attempt: int = 0
    next_attempt_ms: int | None = None
    since_ms: int | None = None


class ConnectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A connector: its target state (`desired`, `generation`), its observed state, and its splits.

    `job_state` is that of the whole job: FAILED or RESTARTING if none of its splits runs. It is
    also FAILED for a source whose table is missing, while the job runs the others. `unread` has the
    parts of the source, such as logs of nodes, that cannot be read while the others can.
    """

    name: str
    job: str
    desired: Desired
    state: Observed
    job_state: Observed
    generation: int
    worker: str = ""
    reason: str = ""
    hint: str = ""
    attempt: int = 0
    next_attempt_ms: int | None = None
    splits: Sequence[SplitStatus] = ()
    unread: Sequence[UnreadPart] = ()


def connector_statuses(
    notes: NoteCopy, *, dead: Callable[[Owner], bool] = is_dead
) -> Sequence[ConnectorStatus]:
    """Return the status of every source, by name. *dead* returns True only if it is certain."""
    board, catalogue = notes.board, Catalogue(notes)
    start = cache(partial(start_command, notes))  # It reads the job file.
    with notes.snapshot():
        sources = catalogue.sources()
        tables = {s.name: s.table_text for s in sources}
        asked = AskedRuns(notes).all() if notes.all(ASKED) else ()
        only = {s.name for s in sources if asked and s.snapshot == ONLY}
        runs = _chosen([each for each in asked if _is_shown(each[0], only)])
        jobs: dict[str, tuple[ConnectorStatus, Mapping[str, str]]] = {}
        found = []
        for route in board.routes():
            if route.job not in jobs:
                generation = board.wanted(route.job).generation
                store = notes.store(route.job)
                jobs[route.job] = _job_status(route.job, store, generation, dead)
            job, missing_tables = jobs[route.job]
            if (problem := missing_tables.get(tables.get(route.source, ""))) is not None:
                job = replace(job, job_state=Observed.FAILED, reason=problem, hint="")
            if (failure := route.failure) is not None:
                reason = failure_text(failure)
                job = replace(job, job_state=Observed.FAILED, reason=reason, hint=failure.hint)
            status = _status(route, job, start)
            if (run := runs.get(route.source)) is not None:
                status = _with_run(status, *run, is_only=route.source in only)
            found.append(status)
    return found


def _is_shown(run: AskedRun, only: Collection[str]) -> bool:
    """Return whether to show a run: a source of snapshots *only* has no other state."""
    return run.source not in only or run.order.kind is RunKind.SNAPSHOT


def _chosen(found: Sequence[tuple[AskedRun, Progress]]) -> dict[str, tuple[AskedRun, Progress]]:
    """Return, for each source, the newest run that is not over, or else the newest.

    *found* starts with the newest.
    """
    going = [(each, seen) for each, seen in found if each.state(seen) not in OVER]
    return {each.source: (each, seen) for each, seen in reversed([*going, *found])}


def _with_run(
    status: ConnectorStatus, run: AskedRun, seen: Progress, *, is_only: bool
) -> ConnectorStatus:
    """Return the status of a source with a run; if *is_only*, it has only snapshots."""
    state = run.state(seen)
    if is_only and status.desired is Desired.PAUSED:
        return replace(status, state=Observed.PAUSED)
    if is_only and status.desired is Desired.RUNNING and state is not RunState.WAITING:
        as_seen = _AS_SEEN.get(state, Observed.STOPPED)
        status = replace(status, state=as_seen, reason="", hint="")
    is_shown = state is RunState.FAILED or not status.reason
    if state is RunState.COMPLETED or not is_shown:
        return status
    first, _ = _reason_and_hint(seen.problem)
    hint = f"RESUME RUN '{run.name}'" if state is RunState.FAILED else ""
    done = f"{seen.done} of {seen.shards} shards, {seen.changes} changes"
    if run.order.kind is RunKind.SNAPSHOT:
        done = f"{seen.done} of {seen.shards} ranges, {seen.changes} rows"
    said = f"{run.name}: {state.value}, {done}"
    said = "; ".join(filter(None, (status.reason, f"{said}: {first}" if first else said)))
    return replace(status, reason=said, hint=status.hint or hint)


def file_job_status(
    notes: NoteCopy, job: str, *, dead: Callable[[Owner], bool] = is_dead
) -> ConnectorStatus:
    """Return the status of a job whose file has its sink; it has the job's name."""
    with notes.snapshot():
        board = notes.board
        found, _ = _job_status(job, notes.store(job), board.wanted(job).generation, dead)
        start = partial(start_command, notes)
        return _status(Route(job, job, "", Desired.RUNNING), found, start)


def _status(route: Route, job: ConnectorStatus, start: Callable[[str], str]) -> ConnectorStatus:
    """Return the status of a source of a *job*; *start* returns the command that starts a job."""
    desired = route.state
    state = connector_state(desired, job.job_state, [s.state for s in job.splits])
    troubled = next((s for s in job.splits if s.state is state and s.reason), None)
    cause = job if job.reason or troubled is None else troubled
    reason, hint = cause.reason or unread_text(job.unread), cause.hint
    if state is Observed.UNASSIGNED and desired is Desired.RUNNING and not reason:
        hint = f"start it: {start(route.job)}"
        reason = f"{NOT_STARTED}: no worker runs job {route.job}; {hint}"
    if state is Observed.STOPPED:
        reason = hint = ""
    return replace(
        job,
        name=route.source,
        desired=desired,
        state=state,
        reason=reason,
        hint=hint,
        attempt=cause.attempt,
        next_attempt_ms=cause.next_attempt_ms,
    )


def failure_text(failure: Failure) -> str:
    """Return the code of the failure that stopped one source, its time, its cause and its hint."""
    code, _, text = failure.problem.partition(": ")
    return f"{code}: since {time_text(failure.since_ms)} {text}; {failure.hint}"


def unread_text(parts: Sequence[UnreadPart]) -> str:
    """Return which parts cannot be read, since when, and the consequences."""
    return "; ".join(f"{code}: {text}" for code, text in map(unread_since, parts))


def unread_since(part: UnreadPart) -> tuple[str, str]:
    """Return the code of why a part cannot be read; then since when, and the consequences."""
    code, _, text = part.reason.partition(": ")
    return code, f"since {time_text(part.since_ms)} {text}"


def time_text(time_ms: int | None) -> str:
    """Return a time of ms since 1970 in ISO 8601, or an empty string."""
    if time_ms is None:
        return ""
    return f"{dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


def sink_status(name: str, users: Sequence[ConnectorStatus]) -> ConnectorStatus:
    """Return the status of a sink: the worst status of its sources *users*, and all their splits.

    Without sources it does not run.
    """
    state = worst(user.state for user in users)
    job_state = worst(user.job_state for user in users)
    nothing = ConnectorStatus(
        name=name, job="", desired=Desired.RUNNING, state=state, job_state=job_state, generation=0
    )
    cause = next((user for user in users if user.state is state), nothing)
    jobs = {user.job: user for user in users}.values()
    splits = [split for user in jobs for split in user.splits]
    return replace(
        cause,
        name=name,
        job_state=job_state,
        generation=max((user.generation for user in users), default=0),
        worker=next((user.worker for user in users if user.worker), ""),
        splits=[replace(split, task=number) for number, split in enumerate(splits)],
        unread=list(dict.fromkeys(part for user in jobs for part in user.unread)),
    )


def _job_status(
    job: str, store: Store, generation: int, dead: Callable[[Owner], bool]
) -> tuple[ConnectorStatus, Mapping[str, str]]:
    """Return the status of a whole job, and why some of its tables are not delivered."""
    problem, seen = store.problem(), store.seen()
    workers = live_workers(store, dead)
    leases = {row.split: row for row in store.leases()}
    splits = [
        split_status(task, split, leases.get(split), seen.get(split), workers)
        for task, split in enumerate(store.plans().in_force.splits)
    ]
    whole = seen.get(WHOLE_JOB)
    state = whole.state if whole else Observed.UNASSIGNED
    if problem and state is not Observed.RESTARTING:
        state = Observed.FAILED
    reason, hint = _reason_and_hint(problem or (whole.reason if whole else ""))
    status = ConnectorStatus(
        name=job,
        job=job,
        desired=Desired.RUNNING,
        state=state,
        job_state=state,
        generation=generation,
        worker=next((split.worker for split in splits if split.worker), ""),
        reason=reason,
        hint=hint,
        attempt=whole.attempt if whole else 0,
        next_attempt_ms=whole.next_attempt_ms if whole else None,
        splits=splits,
        unread=unread_parts(seen, workers),
    )
    return status, missing_tables_in(seen)


def split_status(
    task: int,
    split: str,
    lease: LeaseRow | None,
    seen: Seen | None,
    workers: Mapping[str, str],
) -> SplitStatus:
    """Return the status of a split; *workers* are the `live_workers` of its job."""
    owner = lease.owner if lease is not None and lease.owner in workers else None
    problem = lease.problem if lease is not None else ""
    state = split_state(owner, problem, seen)
    if seen is None or seen.state is not state or owner not in (None, seen.worker):
        seen = Seen(split=split, state=state, generation=0)  # The record that exists is outdated.
    reason, hint = _reason_and_hint(problem or seen.reason)
    return SplitStatus(
        task=task,
        split=split,
        state=state,
        worker=workers.get(owner or "", ""),
        reason=reason,
        hint=hint,
        rate=lease.rate if lease is not None and owner else 0,
        generation=seen.generation,
        attempt=seen.attempt,
        next_attempt_ms=seen.next_attempt_ms,
        since_ms=seen.since_ms or None,
    )


def live_workers(store: Store, dead: Callable[[Owner], bool]) -> dict[str, str]:
    """Return `host:pid` of each worker of a job that is not known to be dead.

    A worker that did not write for twice its lease is not returned.
    """
    grants = {row.owner: row.lease_ms for row in store.leases()}
    return {
        row.owner.worker: f"{row.owner.host}:{row.owner.pid}"
        for row in store.workers()
        if not dead(row.owner)
        and row.silent_ms <= 2 * max(SILENT_MS_MIN, grants.get(row.owner.worker, 0))
    }


def _reason_and_hint(text: str) -> tuple[str, str]:
    """Return the first line of a stored error, and the hint in a later line."""
    first, *others = text.split("\n")
    return first, next((line.removeprefix(_HINT) for line in others if line.startswith(_HINT)), "")

"""`headrace forget`: removes the pins of a job that no longer exists, which keep segments."""

import contextlib
import os
import secrets
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import msgspec

from headrace.connector.commands.job_parser import job_parser
from headrace.connector.control.jobs import job_text, read_source
from headrace.connector.control.status import live_workers
from headrace.connector.foundation.processes import is_dead
from headrace.connector.runtime.making import read_only_context
from headrace.connector.stores.job import kept_in, state_of
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.connector.stores.stored import JOB_KEY_BYTES
from headrace.plugins import FatalError, HeadraceError, JobTraces
from headrace.plugins.traces import Trace


class JobInUseError(FatalError):
    """The job to forget runs, or can continue."""

    code = "job_in_use"


def main(arguments: Sequence[str]) -> int:
    """Remove the notes of a job; return 0."""
    parser = job_parser(
        "forget",
        "Remove the pins of a removed job beside the logs, so that the segments it needed can be "
        "deleted. Refused while the job runs or can continue.",
    )
    parser.add_argument("--state", metavar="MARK", help="only the pins of this state of the job")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the files without removing them"
    )
    given = parser.parse_args(arguments)
    place, name = state_of(given.job_file, given.job)
    in_use = _in_use(given.job_file, place, name)
    kind, config = read_source(given.job_file, name, alone=True)
    os.chdir(given.job_file.absolute().parent)
    job_key = in_use.key if in_use else secrets.token_bytes(JOB_KEY_BYTES)
    with contextlib.closing(kind(config, read_only_context(name, job_key))) as source:
        traces = source.traces() if isinstance(source, JobTraces) else ()
        found = [trace for trace in traces if given.state in (None, trace.state)]
        if in_use and not given.dry_run and any(trace.mine for trace in found):
            raise in_use.error
        if found and not given.dry_run:
            JobTraces.of(source).forget(found)
    sys.stdout.writelines(_lines(found))
    sys.stdout.write(f"{len(found)} notes {'found' if given.dry_run else 'removed'}\n")
    return 0


class _InUse(msgspec.Struct, frozen=True):
    """The reason to keep the notes of a job's current state, and the job's key in that state."""

    key: bytes
    error: JobInUseError


def _in_use(path: Path, place: Path, name: str) -> _InUse | None:
    """Return why a job must not be forgotten: a worker runs it, or it can continue; else None."""
    state, kind, config = kept_in(path)
    if kind is None and not state.exists():
        return None
    with contextlib.closing(
        SqliteStore.open(state, name, create=False)
        if kind is None
        else kind.open_job(config, name, create=False)
    ) as store:
        if not store.leases():
            return None
        if busy := live_workers(store, is_dead):
            said = f"job {name} runs: {', '.join(sorted(busy.values()))}"
            hint = "stop its workers first"
        elif _is_defined(path, name):
            said = f"job {name} has its state and can continue"
            hint = "remove its sources by DROP DATA_SOURCE, or its state file, first; --state MARK "
            hint += "removes the notes of a former state"
        else:
            return None
        return _InUse(store.job_key(), JobInUseError(said, place=str(place), hint=hint))


def _is_defined(path: Path, name: str) -> bool:
    """Return whether a job file or statements define the job."""
    try:
        job_text(path, name)
    except HeadraceError:
        return False
    return True


def _lines(found: Sequence[Trace]) -> Sequence[str]:
    """Return a line for each place and state: how many notes, and how old the newest is."""
    by_place = sorted(found, key=lambda t: (t.place, t.state))
    lines = []
    for (place, state), notes in groupby(by_place, key=lambda t: (t.place, t.state)):
        listed = list(notes)
        age = min(note.age_seconds for note in listed)
        whose = "the present one" if listed[0].mine else "a former one"
        facts = (place, f"state {state}, {whose}", f"{len(listed)} splits", f"{age:.0f} s old")
        lines.append("\t".join(facts) + "\n")
    return lines

"""The job file that a job last ran with: only this file has the options of its source."""

import contextlib
from pathlib import Path

from headrace.connector.control.errors import NotAvailableError
from headrace.connector.control.jobs import job_text
from headrace.connector.foundation.job_file import read_job_file
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import FORK_MARK
from headrace.plugins import HeadraceError, Source
from headrace.plugins.discovery import load


def job_file(notes: NoteCopy, job: str) -> Path:
    """Return the file that *job*, or the job that it was forked from, last ran with.

    Raises:
        NotAvailableError: it has never run.

    """
    if notes.file is not None:
        return notes.file
    path = _noted(notes, job)
    if not path:
        hint = (
            "start it: headrace run JOB.yaml, or headrace worker WORKER.yaml; "
            "or give the worker's file in place of the state"
        )
        raise NotAvailableError("table", f"job {job} has never run on this state", hint)
    return Path(path)


def start_command(notes: NoteCopy, job: str) -> str:
    """Return the command that starts *job*: with the file that it ran with, if it is known."""
    path = notes.file or _noted(notes, job)
    if not path:
        # Imported here because few jobs have never run.
        from headrace.connector.control.catalogue import is_own_job  # noqa: PLC0415

        return f"headrace worker {notes.beside if is_own_job(notes, job) else 'WORKER.yaml'}"
    with contextlib.suppress(HeadraceError):
        if read_job_file(Path(path)).job is not None:
            return f"headrace run {path}"
    return f"headrace worker {path}"


def source_class(notes: NoteCopy, job: str) -> type[Source]:
    """Return the class of the source in the file that *job* last ran with.

    The options are not read: they may refer to secrets that only the worker has.

    Raises:
        NotAvailableError: it has never run.
        ConfigError: the file cannot be read.

    """
    source = job_text(job_file(notes, job), job).source
    found: type[Source] = load("sources", str(source.get("plugin")))
    return found


def _noted(notes: NoteCopy, job: str) -> str:
    """Return the file that *job* ran with, or the job that it was forked from."""
    path = notes.store(job).job_file()
    if not path and FORK_MARK in job:
        path = notes.store(job.partition(FORK_MARK)[0]).job_file()
    return path

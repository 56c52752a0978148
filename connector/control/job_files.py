"""Which job file a job was run with last: only there stands what its source is made of."""

import sqlite3
from pathlib import Path

from headrace.connector.control.errors import NotAvailableError
from headrace.connector.job import job_text
from headrace.connector.stores.board import FORK_MARK
from headrace.connector.stores.notes import SharedNotes
from headrace.connector.stores.sqlite_file import named_errors, transaction
from headrace.plugins import Source
from headrace.plugins.discovery import load

_TABLE = "CREATE TABLE IF NOT EXISTS job_files (job TEXT PRIMARY KEY, path TEXT NOT NULL) STRICT"


def note_job_file(connection: sqlite3.Connection, job: str, path: Path) -> None:
    """Remember that *job* is run with the file at *path*, which is absolute.

    Where machines share the notes, each has a file of its own.
    """
    if isinstance(connection, SharedNotes) or _noted(connection, job) == str(path):
        return
    with transaction(connection):
        connection.execute(_TABLE)
        connection.execute("INSERT OR REPLACE INTO job_files VALUES (?, ?)", (job, str(path)))


def job_file(connection: sqlite3.Connection, job: str) -> Path:
    """Return the file that *job*, or the job that it was separated from, was run with last.

    Raises:
        NotAvailableError: it has never run.

    """
    if isinstance(connection, SharedNotes):
        return connection.file
    path = _noted(connection, job) or _noted(connection, job.partition(FORK_MARK)[0])
    if path is None:
        hint = "start it: headrace run JOB.yaml"
        raise NotAvailableError("table", f"job {job} has never run on this state", hint)
    return Path(path)


def source_class(connection: sqlite3.Connection, job: str) -> type[Source]:
    """Return the source of the file that *job* was run with last.

    Its options are not looked at: they may name secrets that only the worker has.

    Raises:
        NotAvailableError: it has never run.
        ConfigError: the file cannot be read.

    """
    source = job_text(job_file(connection, job), job).source
    found: type[Source] = load("sources", str(source.get("plugin")))
    return found


def _noted(connection: sqlite3.Connection, job: str) -> str | None:
    with named_errors(connection):
        known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'job_files'")
        if not known.fetchone():
            return None
        found = connection.execute("SELECT path FROM job_files WHERE job = ?", (job,)).fetchone()
    return str(found[0]) if found else None

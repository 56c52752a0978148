"""The row of a job in SQLite, and the leases and heads that must be there with it."""

import json
import secrets
import sqlite3
from collections.abc import Collection, Mapping, Sequence

from headrace.connector.stores import LeaseRow, Owner, StateLostError, WorkerRow
from headrace.connector.stores.board import FORK_MARK
from headrace.connector.stores.sqlite_file import file_of, named_errors, snapshot, transaction
from headrace.connector.stores.sqlite_shape import RESTORE
from headrace.connector.stores.stored import (
    BEGINS_ANEW,
    JOB_KEY_BYTES,
    PARTED,
    PLAN,
    UnreadableError,
    check_plan,
    key_of,
    names,
)


def job_key(connection: sqlite3.Connection, job: str) -> bytes:
    """Do what `Store.job_key` promises: a job that nothing is kept of gets a row and a key.

    Raises:
        StateLostError: the row is gone, and what it names is there.

    """
    if key := _key(connection, job):  # Whoever only looks waits for no writer.
        return key
    with transaction(connection):
        if key := _key(connection, job):
            return key
        for table in ("leases", "heads", "chunks", "seen"):
            query = f"SELECT 1 FROM {table} WHERE job = ? AND split != ''"  # noqa: S608 (constants)
            if connection.execute(query, (job,)).fetchone():
                what = f"table jobs has no row of it, but table {table} has"
                raise lost(connection, job, what)
        key = secrets.token_bytes(JOB_KEY_BYTES)
        connection.execute(
            "INSERT INTO jobs (job, job_key, plan, splits) VALUES (?, ?, ?, '[]')", (job, key, PLAN)
        )
    return key


def _key(connection: sqlite3.Connection, job: str) -> bytes | None:
    with named_errors(connection):
        row = connection.execute("SELECT job_key FROM jobs WHERE job = ?", (job,)).fetchone()
        return row and key_of(row[0], f"table jobs, job {job}, column job_key")


def is_known(connection: sqlite3.Connection, job: str) -> bool:
    """Say whether there is a row of the job."""
    with named_errors(connection):
        row = connection.execute("SELECT 1 FROM jobs WHERE job = ?", (job,)).fetchone()
    return row is not None


def splits_of(connection: sqlite3.Connection, job: str) -> tuple[int, tuple[str, ...]]:
    """Return the plan in force and its splits; of an unknown job the first, without any."""
    query = "SELECT plan, splits FROM jobs WHERE job = ?"
    with named_errors(connection):
        plan, text = connection.execute(query, (job,)).fetchone() or (PLAN, "[]")
        return plan, names(text, f"table jobs, job {job}, column splits")


def leases(connection: sqlite3.Connection, job: str) -> Sequence[LeaseRow]:
    """Do what `Store.leases` promises.

    Raises:
        StateLostError: they are not those of the splits that the job has.

    """
    query = (
        "SELECT split, owner, token, beat, lease_ms, problem, rate FROM leases "
        "WHERE job = ? ORDER BY split"
    )
    with snapshot(connection):
        rows = connection.execute(query, (job,)).fetchall()
        _, known = splits_of(connection, job)
    found = [
        LeaseRow(
            split=split,
            owner=owner,
            token=token,
            beat=beat,
            lease_ms=lease_ms,
            problem=problem,
            rate=rate,
        )
        for split, owner, token, beat, lease_ms, problem, rate in rows
    ]
    _check_rows(connection, job, known, "leases", {row.split for row in found})
    return found


def workers(connection: sqlite3.Connection, job: str) -> Sequence[WorkerRow]:
    """Do what `Store.workers` promises."""
    query = (
        "SELECT worker, host, boot, pid_space, pid, started, beat, places, heirs, wants "
        "FROM workers WHERE job = ? ORDER BY worker"
    )
    with named_errors(connection):
        return [_worker(*row) for row in connection.execute(query, (job,)).fetchall()]


def _worker(  # noqa: PLR0913, PLR0917 (the columns)
    worker: str,
    host: str,
    boot: str,
    pid_space: str,
    pid: int,
    started: int,
    beat: int,
    places: str,
    heirs: str,
    wants: str,
) -> WorkerRow:
    what = f"table workers, worker {worker}, column"
    return WorkerRow(
        Owner(worker=worker, host=host, boot=boot, pid_space=pid_space, pid=pid, started=started),
        beat,
        places=names(places, f"{what} places"),
        heirs=names(heirs, f"{what} heirs"),
        wants=names(wants, f"{what} wants"),
    )


def heads(connection: sqlite3.Connection, job: str) -> Mapping[str, int]:
    """Return the splits that the job has, and the plan in the head of each.

    Raises:
        StateLostError: there is not exactly one head for each.

    """
    query = "SELECT split, plan FROM heads WHERE job = ? ORDER BY split"
    with snapshot(connection):
        found = dict(connection.execute(query, (job,)).fetchall())
        _, known = splits_of(connection, job)
    _check_rows(connection, job, known, "heads", found)
    return found


def add_splits(connection: sqlite3.Connection, job: str, new: Sequence[str]) -> None:
    """Make leases and heads of splits that the job has not had, in the open transaction.

    Raises:
        StateLostError: those of the splits that it has are not all there, or there are others.

    """
    plan, known = splits_of(connection, job)
    leases(connection, job)
    for split, found in heads(connection, job).items():
        try:
            check_plan(found, plan)
        except UnreadableError as error:
            raise lost(connection, job, f"table heads, {error}", split) from error
        if found < 0 and not _is_joining(connection):
            what = f"table heads, column plan: found {found}, and the job becomes one with no other"
            raise lost(connection, job, what, split)
    connection.executemany(
        "INSERT INTO leases (job, split, token, beat, lease_ms) VALUES (?, ?, 0, 0, 0)",
        [(job, split) for split in new],
    )
    connection.executemany(
        "INSERT INTO heads (job, split, plan, token, seq, chunks, counters, kept_in) "
        "VALUES (?, ?, ?, 0, 0, ?, '{}', ?)",
        [(job, split, plan, BEGINS_ANEW, PARTED if FORK_MARK in job else "") for split in new],
    )
    connection.execute(
        "UPDATE jobs SET splits = ? WHERE job = ?", (json.dumps([*known, *new]), job)
    )


def _is_joining(connection: sqlite3.Connection) -> bool:
    """Say whether somebody makes two jobs one, for which heads are frozen; see `joins`."""
    query = "SELECT 1 FROM sqlite_schema WHERE name = 'joins'"
    if connection.execute(query).fetchone() is None:
        return False
    return connection.execute("SELECT 1 FROM joins WHERE owner != ''").fetchone() is not None


def lost(connection: sqlite3.Connection, job: str, what: str, split: str = "") -> StateLostError:
    """Return an error that says which part of the state of a job or a split is lost."""
    place = _place(connection, job)
    return StateLostError(what, place=f"{place}, split {split}" if split else place, hint=RESTORE)


def _check_rows(
    connection: sqlite3.Connection,
    job: str,
    known: Sequence[str],
    table: str,
    found: Collection[str],
) -> None:
    """Hold the rows of *table* against the splits that a job knows."""
    for split in known:
        if split not in found:
            raise lost(connection, job, f"the split is known, but not in {table}", split)
    for split in sorted(found):
        if split not in known:
            what = f"the split is in table {table}, but not in column splits of table jobs"
            raise lost(connection, job, what, split)


def _place(connection: sqlite3.Connection, job: str) -> str:
    file = file_of(connection)
    return f"{file}: job {job}" if file else f"job {job}"

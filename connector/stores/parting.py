"""Jobs that part: a route that wants something else than the others gets a job of its own."""

import sqlite3
from collections.abc import Collection

from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.board import Board, Route, differ, fork_name, leading
from headrace.connector.stores.joins import Joins
from headrace.connector.stores.notes import job_store
from headrace.connector.stores.sqlite_file import transaction


def begin_beside(connection: sqlite3.Connection, job: str, source: str) -> str:
    """Make a job for *source* that begins anew beside *job*, and return its name.

    It knows mutations by the same digests, so that the two can become one.

    Raises:
        StoreUnavailableError: *job* and another become one just now.

    """
    if Joins(connection).is_begun(job):
        said = "is becoming one with a job that had parted from it"
        raise StoreUnavailableError(said, place=f"job {job}", hint="repeat it")
    fork = fork_name(job, source)
    job_store(connection, fork).begin_beside(job)
    return fork


def separate(connection: sqlite3.Connection, job: str, *, busy: Collection[str]) -> bool:
    """Give each route that wants something else than the others a job of its own.

    The new job begins with a copy of what *job* has committed, so nothing is lost or repeated: from
    here on both go their ways. *busy* are the workers that are not known to be dead. Returns False
    while one of them owns a split, a sink may have committed more (see `notes.behind`), or the job
    and another become one: then it is to be repeated.
    """
    board = Board(connection)
    with transaction(connection):
        routes = board.routes(job)
        if not differ(routes):
            return True
        if Joins(connection).is_begun(job):
            return False
        parting = [route for route in routes if route.wish != leading(routes)]
        return all(_part(connection, board, route, busy=busy) for route in parting)


def _part(
    connection: sqlite3.Connection, board: Board, route: Route, *, busy: Collection[str]
) -> bool:
    fork = fork_name(route.job, route.source)
    if not job_store(connection, fork).become_copy(route.job, busy=busy):
        return False
    board.point(route.source, job=fork, sink=route.sink)
    return True

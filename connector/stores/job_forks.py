"""Forked jobs: a source that is to do something else than the others of its job.

It gets a job of its own, and keeps it. Its name, `job~source`, says which job it was forked from.
"""

from collections.abc import Collection

from headrace.connector.foundation import crash
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import Board, Route, differ, fork_name, leading


def begin_apart(notes: NoteCopy, job: str, source: str) -> str:
    """Make a forked job for *source* that begins without positions, and return its name.

    All forks have the key of *job*: what a sink or a log's notes have of a former one is then no
    other job's.
    """
    fork = fork_name(job, source)
    notes.store(fork).begin_beside(job)
    return fork


def separate(notes: NoteCopy, job: str, *, busy: Collection[str]) -> bool:
    """Give each route that wants something else than the others a job of its own.

    The new job begins with a copy of what *job* has committed, so nothing is lost or repeated.
    *busy* are the workers that are not known to be dead. Returns False while one of them owns a
    split, or a sink may have committed more (see `NoteCopy.behind`): repeat it then.
    """
    board = notes.board
    if not differ(board.routes(job)):  # No other process is to wait for this one.
        return True
    with notes.transaction():
        routes = board.routes(job)
        leaving = [route for route in routes if route.target != leading(routes)]
        return all(_fork(notes, board, route, busy=busy) for route in leaving)


def _fork(notes: NoteCopy, board: Board, route: Route, *, busy: Collection[str]) -> bool:
    fork = fork_name(route.job, route.source)
    if not notes.store(fork).become_copy(route.job, busy=busy):
        return False
    crash.reached("fork_copied")
    board.point(route.source, job=fork, sink=route.sink)
    return True

"""Forked jobs: for a source whose target differs from the others of its job.

The source gets a job of its own, and keeps it. Its name, `job~source`, shows which job it was
forked from.
"""

from collections.abc import Collection

from headrace.connector.foundation import crash
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import Board, Route, differ, fork_name, leading


def begin_apart(notes: NoteCopy, job: str, source: str) -> str:
    """Make a forked job for *source* without positions, and return its name.

    All forks have the key of *job*: so a sink's states and a log's pins from a former fork do not
    count as another job's.
    """
    fork = fork_name(job, source)
    notes.store(fork).begin_beside(job)
    return fork


def separate(notes: NoteCopy, job: str, *, busy: Collection[str]) -> bool:
    """Give each route whose target differs from the others a job of its own.

    The new job starts with a copy of the committed state of *job*, so nothing is lost or repeated.
    *busy* are the workers that are not known to be dead. Returns False while one of them owns a
    split, or a sink may have committed more (see `NoteCopy.behind`): then call it again.
    """
    board = notes.board
    if not differ(board.routes(job)):  # Other processes need not wait for this one.
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

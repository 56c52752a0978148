"""The board keeps what is wanted, and separates what differs."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connector.states import Desired
from headrace.connector.stores import Commit, Owner, StateLostError, TableCounts
from headrace.connector.stores.board import WHOLE_JOB, Board, Route, Wanted
from headrace.connector.stores.parting import separate
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect, transaction
from headrace.plugins import EncodedPosition
from shared import Kept, shared_notes

RUNNING, PAUSED = Desired.RUNNING, Desired.PAUSED
OWNER = Owner(worker="w", host="h", boot="b", pid_space="p", pid=1, started=2)


@pytest.fixture(params=["file", "shared"])
def connection(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """Return a connection to a new state file, and one to notes that machines share."""
    path = tmp_path / "state.db"
    opened = connect(path) if request.param == "file" else shared_notes(Kept(path))
    with contextlib.closing(opened):
        yield opened


@pytest.fixture
def board(connection: sqlite3.Connection) -> Board:
    """Return a board with three sources of one job."""
    board = Board(connection)
    with transaction(connection):
        for name in "xyz":
            board.add_route(Route(name, "j", "k", RUNNING))
    return board


def wanted(board: Board) -> tuple[Desired, int, bool]:
    """Return what is wanted of the job."""
    found = board.wanted("j")
    return found.state, found.generation, found.mixed


def test_unknown_job(board: Board) -> None:
    """A job without sources runs, and nobody has asked it for anything."""
    assert Wanted() == board.wanted("other")


def test_generations(board: Board, connection: sqlite3.Connection) -> None:
    """Each change counts; what is wanted of a state does not."""
    assert (RUNNING, 3, False) == wanted(board)
    with transaction(connection):
        assert 4 == board.changed("j")
        board.want("x", PAUSED)

    assert (RUNNING, 4, True) == wanted(board)


def test_restarts(board: Board, connection: sqlite3.Connection) -> None:
    """Each request for a restart counts, by split."""
    with transaction(connection):
        board.ask_restart("j", ["a"])
        board.ask_restart("j", ["a", WHOLE_JOB])

    assert ({"a": 2, WHOLE_JOB: 1}, 3) == (
        board.wanted("j").restarts,
        board.wanted("j").generation,
    )


def committed(store: SqliteStore) -> None:
    """Commit something to the job's only split, and give it back."""
    store.register(["s"])
    store.enroll(OWNER)
    token = store.claim("w", store.leases(), 1_000)["s"]
    assert not store.commit(
        [
            Commit(
                split="s",
                plan=1,
                token=token,
                owner="w",
                previous=0,
                seq=1,
                position=EncodedPosition(b"head", {"c": b"chunk"}),
                counters={"t": TableCounts(2, 2)},
            )
        ]
    )


def test_separate(board: Board, connection: sqlite3.Connection, tmp_path: Path) -> None:
    """Who wants something else than most goes on alone from what was committed together."""
    store = SqliteStore.open(tmp_path / "state.db", "j")
    committed(store)
    with transaction(connection):
        board.want("x", PAUSED)

    assert not separate(connection, "j", busy=frozenset({"w"}))
    store.dismiss("w")
    assert separate(connection, "j", busy=frozenset({"w"}))

    assert {"x": "j~x", "y": "j", "z": "j"} == {r.source: r.job for r in board.routes()}
    assert (RUNNING, 4, False) == wanted(board)
    assert PAUSED is board.wanted("j~x").state
    fork = SqliteStore.open(tmp_path / "state.db", "j~x")
    assert [replace(state, token=0, counters={}) for state in store.states()] == [
        replace(state, token=0) for state in fork.states()
    ]
    assert store.job_key() == fork.job_key()
    assert fork.claim("v", fork.leases(), 1_000)
    fork.close()
    store.close()


def test_separate_once_more(board: Board, connection: sqlite3.Connection, tmp_path: Path) -> None:
    """What a source committed alone, long ago, does not count when it leaves again."""
    store = SqliteStore.open(tmp_path / "state.db", "j")
    committed(store)
    store.dismiss("w")
    for _ in range(2):
        with transaction(connection):
            board.want("x", PAUSED)
        assert separate(connection, "j", busy=frozenset())
        with transaction(connection):
            board.point("x", job="j", sink="k")
            board.want("x", RUNNING)
    store.close()

    assert {"j"} == {route.job for route in board.routes()}


def test_uniform_jobs_stay_whole(board: Board, connection: sqlite3.Connection) -> None:
    """Nothing is separated where all want the same."""
    assert separate(connection, "j", busy=frozenset({"w"}))
    assert {"j"} == {route.job for route in board.routes()}


def test_older_file(tmp_path: Path) -> None:
    """The sources of a file that has no board yet run in the job they name, or their sink's."""
    connection = connect(tmp_path / "state.db")
    connection.execute("CREATE TABLE sources (name, sink, job, statement, config)")
    connection.execute("INSERT INTO sources VALUES ('a', 'k', '', '', ''), ('b', 'k', 'j', '', '')")

    assert [("a", "k", RUNNING), ("b", "j", RUNNING)] == [
        (route.source, route.job, route.state) for route in Board(connection).routes()
    ]
    connection.close()


def test_a_lost_board_is_not_made_anew(tmp_path: Path) -> None:
    """Without its routes a board that was written to is lost: made anew, it would run all."""
    connection = connect(tmp_path / "state.db")
    Board(connection)
    connection.execute("DROP TABLE routes")
    with pytest.raises(StateLostError, match="table routes: found no such table"):
        Board(connection)

    connection.close()

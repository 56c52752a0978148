"""The board keeps what is wanted, and separates what differs."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from headrace.connector.foundation.states import Desired
from headrace.connector.stores import Commit, Owner, StateLostError, TableCounts
from headrace.connector.stores.job_forks import separate
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.connector.stores.target_state import (
    FORK_BYTES_MAX,
    LOG_LEVEL,
    ROUTES,
    WHOLE_JOB,
    Board,
    Failure,
    Route,
    Wanted,
    fork_name,
)
from headrace.plugins import EncodedPosition
from helpers.stores.shared import Kept, shared_notes

RUNNING, PAUSED = Desired.RUNNING, Desired.PAUSED
OWNER = Owner(worker="w", host="h", boot="b", pid_space="p", pid=1, started=2)


@pytest.fixture(params=["file", "shared"])
def notes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[NoteCopy]:
    """Return the notes of a new state file, and those that machines share."""
    path = tmp_path / "state.db"
    opened = open_notes(path) if request.param == "file" else shared_notes(Kept(path))
    with contextlib.closing(opened):
        yield opened


@pytest.fixture
def board(notes: NoteCopy) -> Board:
    """Return a board with three sources of one job."""
    board = notes.board
    with notes.transaction():
        for name in "xyz":
            board.add_route(Route(name, "j", "k", RUNNING))
    return board


def wanted(board: Board) -> tuple[Desired, int, bool]:
    """Return what is wanted of the job."""
    found = board.wanted("j")
    return found.state, found.generation, found.mixed


def test_unknown_job(board: Board) -> None:
    """A job without sources runs, and nothing was asked of it."""
    assert Wanted() == board.wanted("other")


def test_the_log_level(board: Board) -> None:
    """What is wanted of any job has the log level that was set for all."""
    board.set_setting(LOG_LEVEL, "debug")

    assert ["debug", "debug"] == [board.wanted(job).log_level for job in ("j", "other")]


def test_what_is_wanted_is_read_again_when_a_note_changed(board: Board, notes: NoteCopy) -> None:
    """Of notes that are the same it is the same object; a change counts at once, undone or not."""
    first = board.wanted("j")
    assert first is board.wanted("j")

    with contextlib.suppress(LookupError), notes.transaction():
        board.want("x", PAUSED)
        assert board.wanted("j").mixed
        raise LookupError
    assert not board.wanted("j").mixed

    notes.board.set_setting(LOG_LEVEL, "debug")
    assert ("debug", None) == (board.wanted("j").log_level, first.log_level)


def test_generations(board: Board, notes: NoteCopy) -> None:
    """Each change counts; what is wanted of a state does not."""
    assert (RUNNING, 3, False) == wanted(board)
    with notes.transaction():
        assert 4 == board.changed("j")
        board.want("x", PAUSED)

    assert (RUNNING, 4, True) == wanted(board)


def test_restarts(board: Board, notes: NoteCopy) -> None:
    """Each request for a restart counts, by split."""
    with notes.transaction():
        board.ask_restart("j", ["a"])
        board.ask_restart("j", ["a", WHOLE_JOB])

    assert ({"a": 2, WHOLE_JOB: 1}, 3) == (
        board.wanted("j").restarts,
        board.wanted("j").generation,
    )


def committed(store: Store) -> None:
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


def test_separate(board: Board, notes: NoteCopy) -> None:
    """A source with another target state than most continues alone from the common commit."""
    store = notes.store("j")
    committed(store)
    with notes.transaction():
        board.want("x", PAUSED)

    assert not separate(notes, "j", busy=frozenset({"w"}))
    store.dismiss("w")
    assert separate(notes, "j", busy=frozenset({"w"}))

    assert {"x": "j~x", "y": "j", "z": "j"} == {r.source: r.job for r in board.routes()}
    assert (RUNNING, 4, False) == wanted(board)
    assert PAUSED is board.wanted("j~x").state
    fork = notes.store("j~x")
    assert [replace(state, token=0, counters={}) for state in store.states()] == [
        replace(state, token=0) for state in fork.states()
    ]
    assert store.job_key() == fork.job_key()
    assert fork.claim("v", fork.leases(), 1_000)


def test_separate_once_more(board: Board, notes: NoteCopy) -> None:
    """What a source committed alone, long ago, does not count when it leaves again."""
    store = notes.store("j")
    committed(store)
    store.dismiss("w")
    for _ in range(2):
        with notes.transaction():
            board.want("x", PAUSED)
        assert separate(notes, "j", busy=frozenset())
        with notes.transaction():
            board.point("x", job="j", sink="k")
            board.want("x", RUNNING)

    assert {"j"} == {route.job for route in board.routes()}


@pytest.mark.parametrize(
    ("job", "source", "name"),
    [
        ("j", "cdc.s.t", "j~cdc.s.t"),
        ("j~cdc.s.t", "cdc.s.t", "j~cdc.s.t"),
        ("j", "s" * 300, f"j~{'s' * 189}."),
        ("é" * 30, "ö" * 300, f"{'é' * 30}~ö"),
    ],
)
def test_the_name_of_a_fork(job: str, source: str, name: str) -> None:
    """It names the job and the source, and fits where names of jobs go; it is always the same."""
    found = fork_name(job, source)
    assert name == found[: len(name)]
    assert len(quote(found)) <= FORK_BYTES_MAX
    assert found == fork_name(job, source) != fork_name(job, f"{source}x")


def test_a_source_that_failed_leaves(board: Board, notes: NoteCopy) -> None:
    """It parts and rests as one that is stopped does, though it is wanted to run as before."""
    notes.store("j").job_key()
    with notes.transaction():
        board.fail("x", Failure("code: text", "hint", 5))
    assert (RUNNING, 3, True) == wanted(board)
    assert separate(notes, "j", busy=frozenset())

    assert Route("x", "j~x", "k", RUNNING, Failure("code: text", "hint", 5)) in board.routes()
    assert Desired.STOPPED is board.wanted("j~x").state
    generation = board.wanted("j~x").generation
    with notes.transaction():
        board.want("x", RUNNING)
    assert (RUNNING, generation + 1) == (
        board.wanted("j~x").state,
        board.wanted("j~x").generation,
    )


def test_uniform_jobs_stay_whole(board: Board, notes: NoteCopy) -> None:
    """Nothing is separated where all want the same."""
    assert separate(notes, "j", busy=frozenset({"w"}))
    assert {"j"} == {route.job for route in board.routes()}


def test_a_route_that_cannot_be_read_is_named(board: Board, notes: NoteCopy) -> None:
    """The target state is not guessed: the error says which note it is."""
    notes.put(ROUTES, "x", '{"source": "x", "job": "j", "sink": "k", "state": "ASLEEP"}')

    with pytest.raises(StateLostError, match="note 'x' of routes cannot be read: Invalid enum"):
        board.routes()

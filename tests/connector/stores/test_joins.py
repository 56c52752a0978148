"""Who makes two jobs one."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.states import Desired
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.board import Board, Route
from headrace.connector.stores.joins import Joins, Pair
from headrace.connector.stores.parting import begin_beside, separate
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect, transaction
from shared import Kept, shared_notes

PAIR = Pair("orders~a", "orders")


def test_of_two_that_claim_at_once_one_makes_them_one(tmp_path: Path) -> None:
    """The second learns who lives when the first has claimed: nothing comes in between."""
    state = tmp_path / "state.db"
    SqliteStore.open(state, "orders").close()
    with contextlib.closing(connect(state)) as one, contextlib.closing(connect(state)) as two:
        two.execute("PRAGMA busy_timeout = 0")
        first, second = Joins(one), Joins(two)
        first.ask(PAIR)

        def meanwhile() -> set[str]:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                two.execute("BEGIN IMMEDIATE")
            return {"second"}

        assert first.claim(PAIR, "first", others=meanwhile)
        assert not second.claim(PAIR, "second", others=lambda: {"first"})
        assert second.claim(PAIR, "second", others=set)  # The first is dead.


@pytest.fixture(params=["a file", "shared"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[sqlite3.Connection]]:
    """Return the connections of two processes to the notes of two jobs that want the same."""
    kept = Kept(tmp_path / "state.db")
    connect(kept.path).close()
    shared = request.param == "shared"
    opened = [shared_notes(kept) if shared else connect(kept.path) for _ in range(2)]
    with contextlib.closing(opened[0]), contextlib.closing(opened[1]):
        board = Board(opened[0])
        Joins(opened[0])
        with transaction(opened[0]):
            for source, job in (("a", PAIR.fork), ("b", PAIR.base)):
                board.add_route(Route(source, job, "k", Desired.RUNNING))
        yield opened


def test_who_was_taken_for_dead_decides_nothing(both: list[sqlite3.Connection]) -> None:
    """Whoever claimed last decides, once, and nobody else gives up for it; then they are one."""
    first, second = (Joins(connection) for connection in both)
    board = Board(both[1])
    before = board.wanted(PAIR.base).generation
    first.ask(PAIR)
    assert first.claim(PAIR, "first", others=set)
    assert second.claim(PAIR, "second", others=set)

    assert not first.decide(PAIR, "first")
    first.give_up(PAIR, "first")
    assert second.decide(PAIR, "second")
    assert second.is_decided(PAIR)
    assert {"orders"} == {route.job for route in board.routes()}
    assert before < board.wanted(PAIR.base).generation
    assert PAIR == second.pair("orders")
    second.finish(PAIR)
    assert second.pair("orders") is None


def test_what_is_begun_is_ended(both: list[sqlite3.Connection]) -> None:
    """Also when the two want something else by now; until then nobody parts, or begins beside."""
    joins, board = Joins(both[0]), Board(both[0])
    joins.ask(PAIR)
    assert joins.claim(PAIR, "first", others=set)
    with transaction(both[0]):
        board.add_route(Route("c", "orders", "k", Desired.STOPPED))

    assert not joins.decide(PAIR, "first")
    assert PAIR == joins.pair("orders~a") == joins.pair("orders")
    assert not separate(both[0], "orders", busy=())
    with pytest.raises(StoreUnavailableError), transaction(both[0]):
        begin_beside(both[0], "orders", "a")
    joins.give_up(PAIR, "first")
    assert joins.pair("orders") is None
    assert separate(both[0], "orders", busy=())


def test_of_two_that_claim_shared_notes_at_once_one_is_told(tmp_path: Path) -> None:
    """What it saw is not what is there when it writes: it has claimed nothing."""
    kept = Kept(tmp_path / "state.db")
    with (
        contextlib.closing(shared_notes(kept)) as one,
        contextlib.closing(shared_notes(kept)) as two,
    ):
        first, second = Joins(one), Joins(two)
        first.ask(PAIR)

        def meanwhile() -> set[str]:
            assert second.claim(PAIR, "second", others=set)
            return set()

        with pytest.raises(StoreUnavailableError):
            first.claim(PAIR, "first", others=meanwhile)
        assert not first.decide(PAIR, "first")

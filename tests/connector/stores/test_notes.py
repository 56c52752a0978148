"""The copy of shared notes is as new as they are, and changes them wholly or not at all."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.control.catalogue import Catalogue
from headrace.connector.states import Desired
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.board import Board, Route
from headrace.connector.stores.sqlite_file import snapshot, transaction
from shared import Kept, shared_notes

ROUTE = Route("cdc.ks.t", "j", "k", Desired.RUNNING)


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Return notes of nothing."""
    return Kept(tmp_path / "state.db")


@pytest.fixture
def here(kept: Kept) -> Iterator[sqlite3.Connection]:
    """Return a connection to them."""
    with contextlib.closing(shared_notes(kept)) as connection:
        yield connection


@pytest.fixture
def there(kept: Kept) -> Iterator[sqlite3.Connection]:
    """Return another one."""
    with contextlib.closing(shared_notes(kept)) as connection:
        yield connection


def add(connection: sqlite3.Connection, route: Route = ROUTE) -> None:
    """Let a job take a source."""
    with transaction(connection):
        Board(connection).add_route(route)


def test_everybody_sees_a_change(here: sqlite3.Connection, there: sqlite3.Connection) -> None:
    """What one adds, changes and takes away, another finds when it looks next."""
    add(here)
    with transaction(there):
        Board(there).want(ROUTE.source, Desired.PAUSED)
    with transaction(here):
        (paused,) = Board(here).routes()
        Board(here).remove_route(ROUTE.source)
    with snapshot(there):
        gone = Board(there).routes()

    assert Desired.PAUSED is paused.state
    assert [] == list(gone)


def test_of_two_at_once_one_changes(here: sqlite3.Connection, there: sqlite3.Connection) -> None:
    """The other one is told, has changed nothing, and sees at once what was done."""
    begun = transaction(here)
    begun.__enter__()
    Board(here).add_route(Route("x", "mine", "k", Desired.RUNNING))
    add(there)
    with pytest.raises(StoreUnavailableError, match="at the same time"):
        begun.__exit__(None, None, None)

    with transaction(here):
        assert [ROUTE] == list(Board(here).routes())


def test_an_error_changes_nothing(here: sqlite3.Connection, kept: Kept) -> None:
    """What a transaction had changed before it failed is neither here nor there."""
    with contextlib.suppress(ZeroDivisionError), transaction(here):
        Board(here).add_route(ROUTE)
        _ = 1 // 0

    assert [] == list(Board(here).routes())
    assert {} == kept.rows


def test_nothing_to_change_writes_nothing(here: sqlite3.Connection, kept: Kept) -> None:
    """A transaction that only looked leaves the version."""
    add(here)
    version = kept.version
    with transaction(here):
        Board(here).routes()

    assert version == kept.version


def test_while_the_store_is_away(here: sqlite3.Connection, kept: Kept) -> None:
    """Nothing is changed, and nothing forgotten."""
    add(here)
    kept.away = True
    with pytest.raises(StoreUnavailableError), transaction(here):
        Board(here).want(ROUTE.source, Desired.STOPPED)
    kept.away = False

    with transaction(here):
        assert [ROUTE] == list(Board(here).routes())


def test_notes_of_a_newer_kind_stay(here: sqlite3.Connection, kept: Kept) -> None:
    """What is of no table that is known here is left alone."""
    kept.rows["wonders", "7"] = "?"
    kept.version = 1
    add(here)

    assert "?" == kept.rows["wonders", "7"]


def test_services_are_shown(here: sqlite3.Connection, kept: Kept) -> None:
    """Their configurations are told, as plain text, and that they are gone."""
    catalogue = Catalogue(here)
    with catalogue.changing():
        catalogue.set_service("cdc", {"topic": "t"})
    shown = dict(kept.services)
    with catalogue.changing():
        catalogue.set_service("cdc", None)

    assert {"cdc": {"topic": "t"}} == shown
    assert {} == kept.services

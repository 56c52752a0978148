"""Who makes two jobs one."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from headrace.connector.stores.joins import Joins, Pair
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect

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

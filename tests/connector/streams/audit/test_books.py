"""The books of a job, as a consumer reads them: all splits, of the plan in force and of others."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from headrace.connector.stores import StateFileError, add_counters
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore
from headrace.connector.streams.audit.books import JobBooks
from headrace.plugins.stores.contract import SplitState, Successor
from helpers.stores.store_driver import COUNTS, claim, commit, commit_of


def test_all_splits_and_plans_add_up(tmp_path: Path) -> None:
    """What a split of an ended plan delivered counts, and what those that took its place did."""
    path = tmp_path / "state.db"
    books = JobBooks(path, "j")
    with closing(SqliteStore.open_job(SqliteConfig(path=str(path)), "j")) as store:
        store.register(["a", "b"])
        assert {} == books.read()
        commit(store, commit_of(claim(store)))
        commit(store, commit_of(claim(store, split="b"), split="b"))
        both = add_counters(COUNTS, COUNTS)
        assert both == books.read()

        def succeed(states: Sequence[SplitState]) -> Successor:
            assert 2 == len(states)
            return Successor({"c": None}, {}, both)

        store.announce(["c"], after=1)
        store.replan("w1", {split: claim(store, split=split) for split in "ab"}, succeed)
        assert both == books.read()


def test_a_state_without_the_job_is_named(tmp_path: Path) -> None:
    """Neither a missing state file nor another job's counts as books without changes."""
    path = tmp_path / "state.db"
    with pytest.raises(StateFileError, match="the state file does not exist"):
        JobBooks(path, "j").read()
    SqliteStore.open_job(SqliteConfig(path=str(path)), "j").close()

    with pytest.raises(StateFileError, match="holds nothing of job other"):
        JobBooks(path, "other").read()

"""Parts of a source that cannot be read now: what a worker tells the store of them, and when."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.runtime.splits.watch import REFRESH_MS
from headrace.connector.runtime.unread import Unread, unread_parts
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import HeadraceError, PartialReading, Problem
from headrace.plugins.testing.doubles import MemoryConfig, MemorySource, context


class Partly(MemorySource, PartialReading):
    """A source of which some parts cannot be read."""

    parts: tuple[str, ...] = ()

    def unreadable(self) -> dict[str, Problem]:
        """Return them."""
        return {part: Problem(part, f"away: {part}", "others go on") for part in self.parts}

    def unread(self) -> list[HeadraceError]:
        """Return none."""
        return []


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return the store of a job."""
    made = SqliteStore.open(tmp_path / "state.db", "j")
    made.job_key()
    yield made
    made.close()


def test_what_is_reported(store: SqliteStore) -> None:
    """A part is reported when it cannot be read, periodically, and when it can be read again."""
    source = Partly(MemoryConfig(splits={}), context())
    unread = Unread(source, "w", 1)
    unread.look(store, 0)
    assert {} == store.seen()
    source.parts = ("n2", "n3")
    unread.look(store, 1)
    first = unread_parts(store.seen(), ["w"])
    assert [("n2", "away: n2; others go on"), ("n3", "away: n3; others go on")] == [
        (part.name, part.reason) for part in first
    ]

    other = Unread(source, "w2", 1)
    other.look(store, 1)
    assert [] == unread_parts(store.seen(), ["w"])
    unread.look(store, 2)
    assert [] == unread_parts(store.seen(), ["w"])
    unread.look(store, 1 + REFRESH_MS)
    assert first == unread_parts(store.seen(), ["w"])
    source.parts = ("n3",)
    unread.look(store, 2 + REFRESH_MS)
    assert ["n3"] == [part.name for part in unread_parts(store.seen(), ["w"])]


def test_what_a_dead_worker_reported(store: SqliteStore) -> None:
    """What a dead worker reported does not count."""
    source = Partly(MemoryConfig(splits={}), context())
    source.parts = ("n2",)
    Unread(source, "w", 1).look(store, 0)

    assert [] == unread_parts(store.seen(), ["another"])

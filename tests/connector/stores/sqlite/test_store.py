"""The SQLite store: what every store must do, unsure commits, and the chunks in the file."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.foundation.states import Observed
from headrace.connector.stores import Seen, StateLostError, StoreUnavailableError
from headrace.connector.stores.sqlite.file import StateConnection, connect
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore, SqliteValues
from headrace.plugins.discovery import load
from headrace.plugins.testing import KeyValueSuite
from headrace.plugins.testing.key_value_suite import Open
from helpers.stores.drivers import SqliteDriver
from helpers.stores.store_driver import claim, commit, commit_of
from helpers.stores.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    """The SQLite store passes the suite."""

    @pytest.fixture
    def driver(self, path: Path) -> SqliteDriver:
        """Return a driver of a file that does not exist yet."""
        return SqliteDriver(path)


class TestSqliteValues(KeyValueSuite):
    """Its backend passes the suite of backends."""

    @pytest.fixture
    def opened(self, path: Path) -> Open:
        """Return what opens a file that does not exist yet."""
        return lambda: SqliteValues.open(SqliteConfig(path=str(path)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state file is."""
    return tmp_path / "state.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Return a store of a job with splits a and b."""
    store = SqliteStore.open(path, "job")
    store.register(["a", "b"])
    yield store
    store.close()


def test_is_found_by_its_name() -> None:
    """The default store is a plugin like any other."""
    assert SqliteStore is load("stores", "sqlite")


def test_of_many_leases_only_those_are_renewed_that_were_not_taken(path: Path) -> None:
    """Those of one partition are replaced together, each if it is as it was (I2)."""
    splits = [f"s{number:03}" for number in range(200)]
    stolen = set(splits[::7])
    with (
        contextlib.closing(SqliteStore.open(path, "job")) as mine,
        contextlib.closing(SqliteStore.open(path, "job")) as other,
    ):
        mine.register(splits)
        tokens = mine.claim("w1", mine.leases(), 1_000)
        assert splits == sorted(tokens)
        taken = other.claim("w2", [row for row in other.leases() if row.split in stolen], 1_000)
        assert stolen == taken.keys()
        before = {row.split: row for row in other.leases()}
        assert stolen == mine.renew("w1", tokens, {splits[1]: 7})
        after = {row.split: row for row in other.leases()}

        assert {"w2"} == {after[split].owner for split in stolen}
        assert all(before[split] == after[split] for split in stolen)
        kept = [split for split in splits if split not in stolen]
        assert all(before[split].beat + 1 == after[split].beat for split in kept)
        assert 7 == after[splits[1]].rate
        assert frozenset() == mine.renew("w1", {split: tokens[split] for split in kept})


class Forgetful(StateConnection):
    """A connection whose COMMIT fails: before it takes effect, or after; its ROLLBACK may, too."""

    applied = True
    failing: tuple[str, ...] = ()

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        """Fail at each of the failing statements once."""
        if sql in self.failing:
            self.failing = tuple(each for each in self.failing if each != sql)
            if self.applied:
                super().execute(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # As sqlite3 takes them.


def forgetful(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SqliteStore, Forgetful]:
    """Return a store over such a connection, and the connection."""
    real = sqlite3.connect
    monkeypatch.setattr(
        "sqlite3.connect", lambda *args, **more: real(*args, **{**more, "factory": Forgetful})
    )
    connection = connect(path)
    assert isinstance(connection, Forgetful)
    return SqliteStore(SqliteValues(connection), "job"), connection


@pytest.mark.parametrize("applied", [True, False])
def test_unknown_outcome_is_read_back(
    path: Path,
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    applied: bool,  # noqa: FBT001 (a table of cases)
) -> None:
    """A COMMIT that failed is done if it took effect, and can be repeated if it did not."""
    token = claim(store)
    unsure, connection = forgetful(path, monkeypatch)
    connection.failing, connection.applied = ("COMMIT",), applied
    if not applied:
        with pytest.raises(StoreUnavailableError, match="disk I/O error"):
            unsure.commit([commit_of(token)])

    assert {} == unsure.commit([commit_of(token)])
    assert 1 == store.load("a", token).seq
    unsure.close()


def test_what_is_neither_committed_nor_rolled_back_is_not_done(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection sees it, and no other process does: it is not durable (I7)."""
    token = claim(store)
    unsure, connection = forgetful(path, monkeypatch)
    connection.failing, connection.applied = ("COMMIT", "ROLLBACK"), False
    with pytest.raises(StoreUnavailableError, match="disk I/O error"):
        unsure.commit([commit_of(token)])
    unsure.close()

    assert 0 == store.load("a", token).seq
    commit(store, commit_of(token))


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.just(b"c"), max_size=6), max_size=6))
def test_chunks_are_always_those_listed(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    """With any lists of heads one after another, exactly the last one's chunks are kept."""
    path = tmp_path_factory.mktemp("state") / "state.db"
    store = SqliteStore.open(path, "job")
    store.register(["a"])
    token = claim(store)
    for number, chunks in enumerate(versions):
        commit = commit_of(token, previous=number, seq=number + 1, chunks=chunks)
        assert {} == store.commit([commit])
    raw = sqlite3.connect(path)
    rows = raw.execute("SELECT name FROM rows WHERE partition LIKE '[\"chunks\"%'")
    names = {name.partition("/")[2] for (name,) in rows}
    raw.close()
    store.close()

    assert names == set(versions[-1] if versions else ())


@pytest.mark.parametrize("kind", ["leases", "seen"])
def test_a_job_without_its_row_gets_no_new_key(path: Path, store: SqliteStore, kind: str) -> None:
    """With another key all digests differ: what is left of the job says that it had one."""
    commit = commit_of(claim(store), chunks={"c": b"c"})
    assert {} == store.commit([commit])
    store.see([Seen(split="a", state=Observed.RUNNING, generation=0, worker="w1")])
    others = {"job", "leases", "seen"} - {kind}
    where = " OR ".join(f"partition LIKE '[\"{other}\"%'" for other in others)
    execute(path, f"DELETE FROM rows WHERE {where}")  # noqa: S608 (constants)
    with pytest.raises(StateLostError, match="the job's row is missing"):
        store.job_key()


def execute(path: Path, script: str) -> None:
    """Change the file behind the store's back."""
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.executescript(script)

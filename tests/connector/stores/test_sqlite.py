"""The SQLite store: fencing, atomic replacement, and what happens when state is missing."""

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connector.stores import (
    Commit,
    LeaseRow,
    Loss,
    Owner,
    PlanChangedError,
    QuarantineFullError,
    StateLostError,
    StoreUnavailableError,
    TableCounts,
)
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect
from headrace.plugins import EncodedPosition, LeaseLostError, RecordSchema

COUNTS = {"ks.t": TableCounts(cut=5, delivered=3, dead_lettered=1, quarantined=1)}


def owner(worker: str = "w1") -> Owner:
    """Return a worker's identity."""
    return Owner(worker=worker, host="h", boot="b", pid_space="p", pid=1, started=2)


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


def lease(store: SqliteStore, split: str = "a") -> LeaseRow:
    """Return a lease as it stands."""
    return next(row for row in store.leases() if row.split == split)


def claim(store: SqliteStore, worker: str = "w1", split: str = "a") -> int:
    """Claim a lease and return the token."""
    return store.claim(worker, [lease(store, split)], 1_000)[split]


def commit_of(  # noqa: PLR0913 (each with its default)
    token: int,
    *,
    split: str = "a",
    worker: str = "w1",
    previous: int = 0,
    seq: int = 1,
    head: bytes = b"head",
    chunks: Mapping[str, bytes] | None = None,
) -> Commit:
    """Return a commit."""
    return Commit(
        split=split,
        plan=1,
        token=token,
        owner=worker,
        previous=previous,
        seq=seq,
        position=EncodedPosition(head, chunks or {}),
        counters=COUNTS,
    )


def test_job_key_is_made_once(path: Path, store: SqliteStore) -> None:
    """Every process of a job finds the same 16 bytes; another job has others."""
    other = SqliteStore.open(path, "job")
    stranger = SqliteStore.open(path, "other")

    assert 16 == len(store.job_key())
    assert store.job_key() == other.job_key()
    assert store.job_key() != stranger.job_key()
    other.close()
    stranger.close()


def test_token_grows_with_each_claim(store: SqliteStore) -> None:
    """A claim takes the next token; a row that changed meanwhile cannot be claimed."""
    stale = lease(store)

    assert 1 == claim(store, "w1")
    assert {} == store.claim("w2", [stale], 1_000)
    assert 2 == claim(store, "w2")
    assert ("w2", 2) == (lease(store).owner, lease(store).token)


def test_token_exceeds_that_of_the_head(path: Path, store: SqliteStore) -> None:
    """A lease row that was lost or set back does not bring old tokens back."""
    raw = sqlite3.connect(path)
    raw.execute("UPDATE heads SET token = 41 WHERE split = 'a'")
    raw.commit()
    raw.close()

    assert 42 == claim(store)


def test_old_token_commits_nothing(store: SqliteStore) -> None:
    """After a take-over the former owner's commit is refused and changes nothing (I2)."""
    old = claim(store, "w1")
    store.commit([commit_of(old)])
    new = claim(store, "w2")
    refused = store.commit([commit_of(old, previous=1, seq=2, head=b"late", chunks={"x": b"x"})])

    assert isinstance(refused["a"], LeaseLostError)
    state = store.load("a", new)
    assert state.position == EncodedPosition(b"head", {})
    assert 1 == state.seq
    with pytest.raises(LeaseLostError):
        store.load("a", old)


def test_one_lost_split_does_not_hold_up_another(store: SqliteStore) -> None:
    """In one transaction the splits that are still mine are committed, the lost one is named."""
    old, mine = claim(store, "w1", "a"), claim(store, "w1", "b")
    claim(store, "w2", "a")
    refused = store.commit([commit_of(old), commit_of(mine, split="b")])

    assert ["a"] == list(refused)
    assert 1 == store.load("b", mine).seq


def test_commit_replaces_head_chunks_and_counters(store: SqliteStore) -> None:
    """Chunks that the new head does not list are dropped with the old head (I7)."""
    token = claim(store)
    first = commit_of(token, chunks={"one": b"1", "two": b"2"})
    second = commit_of(token, previous=1, seq=4, head=b"next", chunks={"two": b"2", "three": b"3"})

    assert {} == store.commit([first])
    assert {} == store.commit([second])
    state = store.load("a", token)
    assert EncodedPosition(b"next", {"two": b"2", "three": b"3"}) == state.position
    assert (4, COUNTS) == (state.seq, state.counters)


def test_commit_must_follow_the_previous_one(store: SqliteStore) -> None:
    """A commit that skips one is refused: somebody else wrote with this token, or state is lost."""
    token = claim(store)
    refused = store.commit([commit_of(token, previous=3, seq=4)])

    assert isinstance(refused["a"], StateLostError)


def test_repeated_commit_is_recognised(store: SqliteStore) -> None:
    """The same commit again, after an unknown outcome, changes nothing and is not refused."""
    token = claim(store)
    loss = Loss(kind="dead_letter", table="ks.t", place="p", code="c", message="m", content=b"x")
    commit = replace(commit_of(token), losses=[loss])

    assert {} == store.commit([commit])
    assert {} == store.commit([commit])
    assert [loss] == [kept.loss for kept in store.losses()]


class Forgetful(sqlite3.Connection):
    """A connection whose COMMIT fails: before it takes effect, or after."""

    applied = True
    armed = False

    def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
        """Fail at COMMIT when armed."""
        if self.armed and sql == "COMMIT":
            self.armed = False
            if self.applied:
                super().execute(sql)
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, parameters)  # type: ignore[arg-type]  # As sqlite3 takes them.


@pytest.mark.parametrize("applied", [True, False])
def test_unknown_outcome_is_read_back(
    path: Path,
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    applied: bool,  # noqa: FBT001 (a table of cases)
) -> None:
    """A COMMIT that failed is done if it took effect, and can be repeated if it did not."""
    token = claim(store)
    real = sqlite3.connect
    monkeypatch.setattr(
        "sqlite3.connect", lambda *args, **more: real(*args, factory=Forgetful, **more)
    )
    connection = connect(path)
    assert isinstance(connection, Forgetful)
    connection.armed, connection.applied = True, applied
    forgetful = SqliteStore(connection, "job")
    if not applied:
        with pytest.raises(StoreUnavailableError, match="disk I/O error"):
            forgetful.commit([commit_of(token)])

    assert {} == forgetful.commit([commit_of(token)])
    assert 1 == store.load("a", token).seq
    forgetful.close()


@pytest.mark.parametrize("table", ["heads", "chunks"])
def test_lost_state_is_named(path: Path, store: SqliteStore, table: str) -> None:
    """A split without its head, or a head without a chunk, is lost: nobody starts over silently."""
    store.commit([commit_of(claim(store), chunks={"one": b"1"})])
    raw = sqlite3.connect(path)
    raw.execute(f"DELETE FROM {table} WHERE split = 'a'")  # noqa: S608 (a name from above)
    raw.commit()
    raw.close()
    token = claim(store, "w2")
    with pytest.raises(StateLostError, match="is missing") as caught:
        store.load("a", token)

    assert ("state_lost", 1) == (caught.value.code, caught.value.exit_status)


def test_registered_split_without_lease_is_lost(path: Path, store: SqliteStore) -> None:
    """A split that the job knows must be in the tables."""
    raw = sqlite3.connect(path)
    raw.execute("DELETE FROM leases WHERE split = 'a'")
    raw.commit()
    raw.close()
    with pytest.raises(StateLostError, match="split a"):
        store.register(["a", "b"])


def test_plan_may_grow_but_not_lose_a_split(store: SqliteStore) -> None:
    """New splits begin without state; a split that has state must stay in the plan."""
    store.register(["a", "b", "c"])

    assert ["a", "b", "c"] == [row.split for row in store.leases()]
    with pytest.raises(PlanChangedError, match="without 'a'") as caught:
        store.register(["b", "c"])
    assert 2 == caught.value.exit_status


def test_renewal_names_what_was_lost(store: SqliteStore) -> None:
    """A renewal moves the beat of what is still held and names the rest."""
    tokens = {"a": claim(store, "w1", "a"), "b": claim(store, "w1", "b")}
    claim(store, "w2", "b")
    before = lease(store, "a")

    assert frozenset({"b"}) == store.renew("w1", tokens)
    assert before.beat + 1 == lease(store, "a").beat


def test_released_lease_shows_its_problem(store: SqliteStore) -> None:
    """A free lease tells why it was given back, until someone claims it."""
    store.release("w1", "a", claim(store), "fatal: no")

    assert (None, "fatal: no") == (lease(store).owner, lease(store).problem)
    claim(store)
    assert "" == lease(store).problem


def test_release_with_an_old_token_does_nothing(store: SqliteStore) -> None:
    """Only the holder can give a lease back."""
    old = claim(store, "w1")
    claim(store, "w2")
    store.release("w1", "a", old)

    assert "w2" == lease(store).owner


def test_dismissed_worker_holds_nothing(store: SqliteStore) -> None:
    """A worker that leaves frees its leases."""
    store.enroll(owner())
    claim(store)

    assert [owner()] == [row.owner for row in store.workers()]
    store.dismiss("w1")
    assert ([], None) == (list(store.workers()), lease(store).owner)


def test_quarantine_is_bounded(path: Path, store: SqliteStore) -> None:
    """A loss that does not fit stops its split's commit, all of it, and says the bound."""
    token = claim(store)
    small = SqliteStore.open(path, "job", quarantine_bytes_max=10)
    loss = Loss(kind="dead_letter", table="t", place="p", code="c", message="m", content=b"12345")
    fits = replace(commit_of(token), losses=[loss, loss])
    full = replace(commit_of(token, previous=1, seq=2), losses=[loss])

    assert {} == small.commit([fits])
    refused = small.commit([full])
    assert isinstance(refused["a"], QuarantineFullError)
    assert "bound of 10" in str(refused["a"])
    assert 1 == store.load("a", token).seq
    assert [loss, loss] == [kept.loss for kept in store.losses()]
    small.close()


def test_schemas_are_found_by_id(store: SqliteStore) -> None:
    """What was announced is found by its id, whoever asks; an unknown id is not."""
    schema = RecordSchema("ks.t", "CREATE TABLE", b"\1" * 16, {"type": "int"}, {"type": "string"})
    store.put_schemas([schema])
    store.put_schemas([schema])
    found = store.schema(b"\1" * 16)

    assert schema == found
    assert found is not None
    assert ({"type": "int"}, {"type": "string"}) == (found.key, found.value)
    assert None is store.schema(b"\2" * 16)


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.just(b"c"), max_size=6), max_size=6))
def test_chunks_are_always_those_listed(
    tmp_path_factory: pytest.TempPathFactory, versions: list[dict[str, bytes]]
) -> None:
    """Whatever heads list one after another, exactly the last one's chunks are kept."""
    path = tmp_path_factory.mktemp("state") / "state.db"
    store = SqliteStore.open(path, "job")
    store.register(["a"])
    token = claim(store)
    for number, chunks in enumerate(versions):
        commit = commit_of(token, previous=number, seq=number + 1, chunks=chunks)
        assert {} == store.commit([commit])
    raw = sqlite3.connect(path)
    names = {name for (name,) in raw.execute("SELECT name FROM chunks")}
    raw.close()
    store.close()

    assert names == set(versions[-1] if versions else ())

"""A store whose truth is with the sink: which state goes first, and what becomes of losses."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import (
    QUARANTINE_BYTES_MAX,
    Commit,
    Loss,
    StateLostError,
    StoreUnavailableError,
)
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect, transaction
from headrace.connector.stores.sqlite_state import behind, replace_positions
from headrace.connector.stores.transactional import TransactionalStore
from headrace.plugins import AbortedError, EncodedPosition, FencedError, LeaseLostError
from headrace.plugins.testing import StoreSuite
from headrace.plugins.testing.doubles import ChaosConfig, DrivenClock, context
from stores import SqliteDriver
from transactions import Outcome, TransactionalSink

LOSS = Loss(kind="dead_letter", table="ks.t", place="p", code="c", message="m", content=b"x")


class TransactionalStoreDriver(SqliteDriver):
    """A file, and a sink that keeps the states."""

    def __init__(self, path: Path) -> None:
        """Begin with an empty sink."""
        super().__init__(path)
        self._sinks: dict[str, TransactionalSink] = {}

    def open(
        self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX
    ) -> TransactionalStore:
        """Connect to both once more; jobs are apart in the sink, too."""
        clock = DrivenClock()
        sink = self._sinks.setdefault(job, TransactionalSink(ChaosConfig(), context()))
        return TransactionalStore(
            connect(self.path),
            job,
            writer_of=Writers(sink, clock).claimed,
            clock=clock,
            quarantine_bytes_max=quarantine_bytes_max,
        )

    def remove(self, what: str, split: str) -> None:
        """Remove it from the sink, which has the chunks; or from the file."""
        if what != "chunks":
            super().remove(what, split)
            return
        entries = self._sinks[self.job].entries[split]
        for name in [name for name in entries if name.startswith("chunk/")]:
            del entries[name]


class TestTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, path: Path) -> TransactionalStoreDriver:
        """Return a driver of a file that is not there yet."""
        return TransactionalStoreDriver(path)


@pytest.fixture
def sink() -> TransactionalSink:
    """Return what keeps the states."""
    return TransactionalSink(ChaosConfig(), context())


class Process:
    """A worker process: a store of its own over the same file and the same sink."""

    def __init__(self, path: Path, sink: TransactionalSink, job: str = "job") -> None:
        """Claim the one split."""
        clock = DrivenClock()
        self.writers = Writers(sink, clock)
        self.store = TransactionalStore(
            connect(path), job, writer_of=self.writers.claimed, clock=clock
        )
        self.store.register(["a"])
        self.claim()

    def claim(self) -> None:
        """Claim the split anew."""
        self.token = self.store.claim("w", self.store.leases(), 1_000)["a"]

    def found(self) -> tuple[int, EncodedPosition | None]:
        """Load; return number and position."""
        state = self.store.load("a", self.token)
        return state.seq, state.position

    def commit(self, previous: int, seq: int, **chunks: bytes) -> None:
        """Commit, and raise what refuses it."""
        commit = commit_of(self.token, previous, seq, **chunks)
        refused = self.store.commit([commit])
        if refused:
            raise refused["a"]


def commit_of(token: int, previous: int, seq: int, **chunks: bytes) -> Commit:
    """Return a commit of split a."""
    return Commit(
        split="a",
        plan=1,
        token=token,
        owner="w",
        previous=previous,
        seq=seq,
        position=EncodedPosition(b"%d" % seq, chunks),
        counters={},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state file is."""
    return tmp_path / "state.db"


@pytest.fixture
def process(path: Path, sink: TransactionalSink) -> Iterator[Process]:
    """Return a process that has committed number 1 and loaded it."""
    made = Process(path, sink)
    made.store.load("a", made.token)
    made.commit(0, 1, x=b"x")
    yield made
    made.store.close()


def test_only_what_changes_is_written(process: Process, sink: TransactionalSink) -> None:
    """A chunk is written once, and removed when it is listed no more."""
    assert {"head", "chunk/x"} == set(sink.entries["a"])
    sink.entries["a"]["chunk/x"] = b"as it was"
    process.commit(1, 2, x=b"x", y=b"y")
    assert b"as it was" == sink.entries["a"]["chunk/x"]
    process.commit(2, 3, y=b"y")
    assert {"head", "chunk/y"} == set(sink.entries["a"])


def test_what_the_sink_has_goes_before_the_file(process: Process, path: Path) -> None:
    """A process that died between the two is found out, and the copy mended."""
    with transaction(other := connect(path)):
        other.execute("UPDATE heads SET seq = 0, head = NULL, chunks = '[]'")
    other.close()
    process.claim()

    assert (1, EncodedPosition(b"1", {"x": b"x"})) == process.found()
    (copy,) = process.store.states()
    assert (1, EncodedPosition(b"1", {"x": b"x"})) == (copy.seq, copy.position)
    process.commit(1, 2)


def test_a_position_set_by_command_goes_before_the_sinks(process: Process, path: Path) -> None:
    """Also when it lies before, and also twice in a row."""
    for position in (EncodedPosition(b"set", {}), None):
        other = connect(path)
        with transaction(other):
            replace_positions(other, "job", {"a": position})
        other.close()
        process.claim()
        seq, found = process.found()
        assert position == found
        process.commit(seq, seq + 1)
        process.claim()
        assert (seq + 1, EncodedPosition(b"%d" % (seq + 1), {})) == process.found()


def test_a_job_that_was_at_least_once_goes_on(path: Path, sink: TransactionalSink) -> None:
    """Where the sink knows nothing, the file's state is the first."""
    before = SqliteStore.open(path, "job")
    before.register(["a"])
    token = before.claim("w", before.leases(), 1_000)["a"]
    before.commit([commit_of(token, 0, 7)])
    before.close()
    process = Process(path, sink)

    assert (7, EncodedPosition(b"7", {})) == process.found()
    process.commit(7, 8)
    process.store.close()


def test_a_state_that_is_gone_is_lost(process: Process, sink: TransactionalSink) -> None:
    """The split stops, rather than go on from a copy that may be older."""
    del sink.entries["a"]
    with pytest.raises(StateLostError, match="nothing is left"):
        process.found()


def test_a_chunk_that_is_gone_is_lost(process: Process, sink: TransactionalSink) -> None:
    """So is a state of which a part is missing."""
    del sink.entries["a"]["chunk/x"]
    with pytest.raises(StateLostError, match="a chunk is missing"):
        process.found()


def test_another_jobs_state_is_not_taken(
    process: Process, sink: TransactionalSink, tmp_path: Path
) -> None:
    """A job of the same name with another state file has other secrets: it stops."""
    stranger = Process(tmp_path / "other.db", sink)
    with pytest.raises(StateLostError, match="another job's of this name"):
        stranger.found()
    stranger.store.close()
    process.store.close()


def test_a_file_from_a_backup_is_claimed_anew(process: Process, path: Path) -> None:
    """Its tokens are old: the split is claimed until they exceed what consumers have seen."""
    process.claim()
    process.found()
    process.commit(1, 2)
    with transaction(other := connect(path)):
        other.execute("UPDATE heads SET token = 0, seq = 0, head = NULL, chunks = '[]'")
        other.execute("UPDATE leases SET token = 0")
    other.close()
    process.claim()

    assert 1 == process.token
    with pytest.raises(FencedError, match="has seen token 2, mine is 1"):
        process.found()
    process.claim()
    assert 3 == process.token
    assert (2, EncodedPosition(b"2", {})) == process.found()


def test_losses_are_seen_with_the_commit(process: Process, sink: TransactionalSink) -> None:
    """Those of a commit that was aborted are nowhere; a repeated one has them once."""
    commit = replace(commit_of(process.token, 1, 2), losses=[LOSS])
    sink.outcomes.append(Outcome.LATE)
    with pytest.raises(StoreUnavailableError, match="not known yet"):
        process.store.commit([commit])
    assert [] == list(process.store.losses())
    sink.outcomes.append(Outcome.ABORTED)
    assert isinstance(process.store.commit([commit])["a"], AbortedError)
    assert (1, EncodedPosition(b"1", {"x": b"x"})) == process.found()
    assert {} == process.store.commit([commit])
    process.found()

    assert [LOSS] == [kept.loss for kept in process.store.losses()]


def test_an_outcome_that_nobody_told_is_found(process: Process, sink: TransactionalSink) -> None:
    """The transaction was committed, its owner died of it: who claims anew finds it, and all."""
    commit = replace(commit_of(process.token, 1, 2), losses=[LOSS])
    sink.outcomes.append(Outcome.DEAD)
    assert isinstance(process.store.commit([commit])["a"], FencedError)
    with pytest.raises(FencedError):
        process.found()
    process.claim()

    assert (2, EncodedPosition(b"2", {})) == process.found()
    assert [LOSS] == [kept.loss for kept in process.store.losses()]


def test_entries_that_are_not_read_yet_are_asked_for_again(
    process: Process, sink: TransactionalSink
) -> None:
    """Loading is repeated, as a store that does not answer is."""
    sink.outcomes.append(Outcome.LATE)
    with pytest.raises(StoreUnavailableError, match="could not be read yet"):
        process.found()
    assert 1 == process.found()[0]


def test_two_owners_of_one_state(process: Process, path: Path, sink: TransactionalSink) -> None:
    """K02: the second one's claim ends the first one's right, in the file and in the sink."""
    second = Process(path, sink)
    second.found()
    with pytest.raises(LeaseLostError, match="head carries token 2, mine is 1"):
        process.commit(1, 2)
    second.commit(1, 2)
    second.store.close()

    assert {"head"} == set(sink.entries["a"])


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Outcome.DONE, set()), (Outcome.ABORTED, set()), (Outcome.LATE, {"a"}), (Outcome.DEAD, {"a"})],
)
def test_a_copy_that_may_be_behind(
    process: Process, path: Path, sink: TransactionalSink, outcome: Outcome, expected: set[str]
) -> None:
    """It may be while somebody owns the split, and after one who did not hear of his commit."""
    sink.outcomes.append(outcome)
    with contextlib.closing(connect(path)) as other:
        assert {"a"} == behind(other, "job")
        with contextlib.suppress(StoreUnavailableError, AbortedError, FencedError):
            process.commit(1, 2)
        process.store.release("w", "a", process.token)
        assert expected == behind(other, "job")

        is_copied = SqliteStore(other, "job~s").become_copy("job", busy=())
        assert is_copied is not bool(expected)


def test_a_position_set_by_command_is_not_behind(process: Process, path: Path) -> None:
    """It goes before whatever the sink has."""
    with contextlib.closing(connect(path)) as other:
        with transaction(other):
            replace_positions(other, "job", {"a": None})
        assert not behind(other, "job")
    process.claim()
    process.found()
    with contextlib.closing(connect(path)) as other:
        assert {"a"} == behind(other, "job")


def part(connection: sqlite3.Connection, moves: int) -> None:
    """Let a job part from the first one, and be set so often before it runs."""
    assert SqliteStore(connection, "job~s").become_copy("job", busy=())
    with transaction(connection):
        for _ in range(moves):
            replace_positions(connection, "job~s", {"a": EncodedPosition(b"set", {})})


@pytest.mark.parametrize("moves", [0, 1])
def test_a_job_that_parts_again(path: Path, sink: TransactionalSink, moves: int) -> None:
    """It begins where it parted, or was set: what the sink has of its name is of one long gone."""
    base = Process(path, TransactionalSink(ChaosConfig(), context()))
    base.found()
    base.commit(0, 1)
    base.store.release("w", "a", base.token)
    with contextlib.closing(connect(path)) as connection:
        part(connection, moves)
        first = Process(path, sink, "job~s")
        begun, _ = first.found()
        first.commit(begun, begun + 1)
        first.commit(begun + 1, begun + 2)
        part(connection, moves)

    again = Process(path, sink, "job~s")
    seq, position = again.found()
    assert (1 + moves, b"set" if moves else b"1") == (seq, position and position.head)
    sink.outcomes.append(Outcome.DEAD)  # What it commits now is there, and has no copy yet.
    with pytest.raises(FencedError):
        again.commit(seq, seq + 1)
    again.claim()
    assert seq + 1 == again.found()[0]


def test_a_job_that_begins_beside_again(path: Path, sink: TransactionalSink) -> None:
    """It begins anew each time, whatever the sink has of its name."""
    Process(path, TransactionalSink(ChaosConfig(), context()))
    for _ in range(2):
        with contextlib.closing(connect(path)) as connection:
            SqliteStore(connection, "job~s").begin_beside("job")
        beside = Process(path, sink, "job~s")
        assert (0, None) == beside.found()
        beside.commit(0, 1)
        assert 1 == Process(path, sink, "job~s").found()[0]

"""Rules of a store whose sink has the states: which state is the right one, and what is lost."""

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import (
    QUARANTINE_BYTES_MAX,
    Commit,
    Loss,
    SplitState,
    StateLostError,
    StoreUnavailableError,
    Successor,
)
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.target_state import FORK_MARK
from headrace.connector.stores.transactional import TransactionalStore, transactional
from headrace.plugins import (
    AbortedError,
    Clock,
    EncodedPosition,
    FencedError,
    LeaseLostError,
    TransactionalWriter,
)
from headrace.plugins.testing.doubles import ChaosConfig, DrivenClock, context
from helpers.jobs.transactions import Outcome, TransactionalSink
from helpers.stores.store_driver import StoreDriver

LOSS = Loss(kind="dead_letter", table="ks.t", place="p", code="c", message="m", content=b"x")


class Copies(abc.ABC):
    """Where the copies are stored, and how to damage them."""

    kind: type[Store]
    config: Any  # Of `kind`.
    job = "job"

    @property
    def fork(self) -> str:
        """The name of a job that is forked from `job`."""
        return f"{self.job}{FORK_MARK}s"

    def __init__(self) -> None:
        """Start without open stores."""
        self._opened: list[Store] = []

    def close(self) -> None:
        """Close the stores that a test left open."""
        for store in self._opened:
            store.close()

    def plain(self, job: str) -> Store:
        """Open the store of a job as an observer does."""
        self._opened.append(self.kind.open_job(self.config, job))
        return self._opened[-1]

    def transactional(
        self,
        job: str,
        writer_of: Callable[[str, int], TransactionalWriter],
        clock: Clock,
        *,
        quarantine_bytes_max: int = QUARANTINE_BYTES_MAX,
    ) -> TransactionalStore:
        """Open it as the job's worker does."""
        store = transactional(self.kind).open_job(
            self.config, job, quarantine_bytes_max=quarantine_bytes_max
        )
        store.write_with(writer_of, clock)
        self._opened.append(store)
        return store

    @abc.abstractmethod
    def forget_commits(self, *, tokens: bool = False) -> None:
        """Reset split a of `job` to before its commits; with *tokens* also to before its claims."""


class CopyDriver(StoreDriver):
    """The driver for the suite of stores: a store, and a sink with the states of each job."""

    def __init__(self, copies: Copies, plain: StoreDriver) -> None:
        """Start with empty sinks; *plain* damages what the store has."""
        self.job = plain.job
        self._copies = copies
        self._plain = plain
        self._sinks: dict[str, TransactionalSink] = {}

    def open(
        self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX
    ) -> TransactionalStore:
        """Open another connection to both."""
        clock = DrivenClock()
        sink = self._sinks.setdefault(job, TransactionalSink(ChaosConfig(), context()))
        writers = Writers(sink, clock)
        return self._copies.transactional(
            job, writers.claimed, clock, quarantine_bytes_max=quarantine_bytes_max
        )

    def open_notes(self) -> NoteCopy:
        """Open the store's notes."""
        return self._plain.open_notes()

    def set_head_token(self, split: str, token: int) -> None:
        """Set the token in the store."""
        self._plain.set_head_token(split, token)

    def remove(self, what: str, split: str) -> None:
        """Remove chunks from the sink, which has them; remove all else from the store."""
        if what != "chunks":
            self._plain.remove(what, split)
            return
        entries = self._sinks[self.job].entries[split]
        for name in [name for name in entries if name.startswith("chunk/")]:
            del entries[name]


class Process:
    """A worker process: its own connection to the same copies and the same sink."""

    def __init__(self, copies: Copies, sink: TransactionalSink, job: str = "") -> None:
        """Claim the only split."""
        clock = DrivenClock()
        self.writers = Writers(sink, clock)
        self.store = copies.transactional(job or copies.job, self.writers.claimed, clock)
        self.store.register(["a"])
        self.claim()

    def claim(self) -> None:
        """Claim the split again."""
        self.token = self.store.claim("w", self.store.leases(), 1_000)["a"]

    def found(self) -> tuple[int, EncodedPosition | None]:
        """Load the state; return number and position."""
        state = self.store.load("a", self.token)
        return state.seq, state.position

    def commit(self, previous: int, seq: int, **chunks: bytes) -> None:
        """Commit, and raise what rejects it."""
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


def _fork(fork: Store, base: str, moves: int) -> None:
    """Fork a job from *base*, and move it *moves* times before it runs."""
    assert fork.become_copy(base, busy=())
    for _ in range(moves):
        fork.reposition({"a": EncodedPosition(b"set", {})})


class CopySuite:
    """Subclass it with a fixture `copies`."""

    @pytest.fixture
    def sink(self) -> TransactionalSink:
        """Return the sink that has the states."""
        return TransactionalSink(ChaosConfig(), context())

    @pytest.fixture
    def process(self, copies: Copies, sink: TransactionalSink) -> Iterator[Process]:
        """Return a process that has committed number 1 and loaded it."""
        made = Process(copies, sink)
        made.store.load("a", made.token)
        made.commit(0, 1, x=b"x")
        yield made
        made.store.close()

    def test_only_what_changes_is_written(self, process: Process, sink: TransactionalSink) -> None:
        """A chunk is written once, and removed when no head names it."""
        assert {"head", "chunk/x"} == set(sink.entries["a"])
        sink.entries["a"]["chunk/x"] = b"as it was"
        process.commit(1, 2, x=b"x", y=b"y")
        assert b"as it was" == sink.entries["a"]["chunk/x"]
        process.commit(2, 3, y=b"y")
        assert {"head", "chunk/y"} == set(sink.entries["a"])

    def test_what_the_sink_has_goes_before_the_copy(self, process: Process, copies: Copies) -> None:
        """After a crash between sink and copy, the next claim repairs the copy from the sink."""
        copies.forget_commits()
        process.claim()

        assert (1, EncodedPosition(b"1", {"x": b"x"})) == process.found()
        (copy,) = process.store.states()
        assert (1, EncodedPosition(b"1", {"x": b"x"})) == (copy.seq, copy.position)
        process.commit(1, 2)

    def test_a_position_set_by_command_goes_before_the_sinks(
        self, process: Process, copies: Copies
    ) -> None:
        """A position that a command set is loaded, also an earlier one, and twice in a row."""
        for position in (EncodedPosition(b"set", {}), None):
            with contextlib.closing(copies.plain(copies.job)) as other:
                other.reposition({"a": position})
            process.claim()
            seq, found = process.found()
            assert position == found
            process.commit(seq, seq + 1)
            process.claim()
            assert (seq + 1, EncodedPosition(b"%d" % (seq + 1), {})) == process.found()

    def test_a_job_that_was_at_least_once_goes_on(
        self, copies: Copies, sink: TransactionalSink
    ) -> None:
        """If the sink has no state, the store's state is loaded."""
        before = copies.plain(copies.job)
        before.register(["a"])
        token = before.claim("w", before.leases(), 1_000)["a"]
        before.commit([commit_of(token, 0, 7)])
        before.close()
        process = Process(copies, sink)

        assert (7, EncodedPosition(b"7", {})) == process.found()
        process.commit(7, 8)
        process.store.close()

    def test_a_state_that_is_gone_is_lost(self, process: Process, sink: TransactionalSink) -> None:
        """Without the sink's state the split fails: the store's copy may be older."""
        del sink.entries["a"]
        with pytest.raises(StateLostError, match="the store has a copy, of commit"):
            process.found()

    def test_a_chunk_that_is_gone_is_lost(self, process: Process, sink: TransactionalSink) -> None:
        """A state without one of its chunks is lost."""
        del sink.entries["a"]["chunk/x"]
        with pytest.raises(StateLostError, match="a chunk is missing"):
            process.found()

    def test_another_jobs_state_is_not_taken(
        self, process: Process, copies: Copies, sink: TransactionalSink
    ) -> None:
        """A job whose secrets differ from those of the stored state fails."""
        stranger = Process(copies, sink, f"{copies.job}-other")
        with pytest.raises(StateLostError, match="another job's of this name"):
            stranger.found()
        stranger.store.close()
        process.store.close()

    def test_a_store_from_a_backup_is_claimed_again(self, process: Process, copies: Copies) -> None:
        """After a restore tokens are old: claims repeat until they exceed the sink's."""
        process.claim()
        process.found()
        process.commit(1, 2)
        copies.forget_commits(tokens=True)
        process.claim()

        assert 1 == process.token
        with pytest.raises(FencedError, match="has seen token 2, mine is 1"):
            process.found()
        process.claim()
        assert 3 == process.token
        assert (2, EncodedPosition(b"2", {})) == process.found()

    def test_losses_are_seen_with_the_commit(
        self, process: Process, sink: TransactionalSink
    ) -> None:
        """A loss in an aborted commit is not stored; when the commit is repeated, it is once."""
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

    def test_an_outcome_without_an_answer_is_found(
        self, process: Process, sink: TransactionalSink
    ) -> None:
        """If the owner died after its commit, the next owner finds the commit and the losses."""
        commit = replace(commit_of(process.token, 1, 2), losses=[LOSS])
        sink.outcomes.append(Outcome.DEAD)
        assert isinstance(process.store.commit([commit])["a"], FencedError)
        with pytest.raises(FencedError):
            process.found()
        process.claim()

        assert (2, EncodedPosition(b"2", {})) == process.found()
        assert [LOSS] == [kept.loss for kept in process.store.losses()]

    def test_entries_that_are_not_read_yet_are_asked_for_again(
        self, process: Process, sink: TransactionalSink
    ) -> None:
        """While the sink's entries cannot be read yet, loading is retried."""
        sink.outcomes.append(Outcome.LATE)
        with pytest.raises(StoreUnavailableError, match="could not be read yet"):
            process.found()
        assert 1 == process.found()[0]

    def test_two_owners_of_one_state(
        self, process: Process, copies: Copies, sink: TransactionalSink
    ) -> None:
        """K02: the second claim fences the first owner, in the store and in the sink."""
        second = Process(copies, sink)
        second.found()
        assert process.token < second.token
        with pytest.raises(
            LeaseLostError, match=r"head carries (plan 1, )?token 2[,;] mine is (1, )?1"
        ):
            process.commit(1, 2)
        second.commit(1, 2)
        second.store.close()

        assert {"head"} == set(sink.entries["a"])

    def test_a_former_owner_forgets_nothing(
        self, process: Process, copies: Copies, sink: TransactionalSink
    ) -> None:
        """A former owner does not remove losses of the new owner's commit in flight."""
        new_owner = Process(copies, sink)
        new_owner.found()
        commit = replace(commit_of(new_owner.token, 1, 2), losses=[LOSS])
        sink.outcomes.append(Outcome.LATE)
        with pytest.raises(StoreUnavailableError):
            new_owner.store.commit([commit])
        with pytest.raises(LeaseLostError):
            process.store.state_copies().cover("a", process.token, 0)
        with pytest.raises(LeaseLostError):
            process.store.load("a", process.token)
        assert {} == new_owner.store.commit([commit])

        assert [LOSS] == [kept.loss for kept in new_owner.store.losses()]

    @pytest.mark.parametrize("outcome", Outcome)
    def test_a_copy_that_may_be_behind(
        self, process: Process, copies: Copies, sink: TransactionalSink, outcome: Outcome
    ) -> None:
        """A copy may be behind while its split has an owner, or a commit has no answer."""
        expected = {"a"} if outcome in {Outcome.LATE, Outcome.DEAD} else set()
        sink.outcomes.append(outcome)
        with contextlib.closing(copies.plain(copies.job)) as other:
            assert {"a"} == other.state_copies().behind()
            with contextlib.suppress(StoreUnavailableError, AbortedError, FencedError):
                process.commit(1, 2)
            process.store.release("w", "a", process.token)
            assert expected == other.state_copies().behind()
        with contextlib.closing(copies.plain(copies.fork)) as fork:
            assert fork.become_copy(copies.job, busy=()) is not bool(expected)

    def test_plans_succeed_what_the_sink_has(
        self, process: Process, sink: TransactionalSink
    ) -> None:
        """A new plan starts from the sink's state; a reused name starts with its new state."""
        sink.outcomes.append(Outcome.DEAD)
        with pytest.raises(FencedError):
            process.commit(1, 2)
        process.claim()
        found: list[bytes] = []
        for number, names in enumerate((["b"], ["a"]), 1):

            def succeed(states: Sequence[SplitState], names: Sequence[str] = names) -> Successor:
                found.extend(state.position.head for state in states if state.position)
                positions = {name: EncodedPosition(name.encode(), {}) for name in names}
                return Successor(positions=positions, books={}, counters={})

            process.store.announce(names, after=number)
            tokens = process.store.claim("w", process.store.leases(), 1_000)
            process.store.replan("w", tokens, succeed)
        process.claim()

        assert [b"2", b"b"] == found
        assert EncodedPosition(b"a", {}) == process.found()[1]

    def test_a_position_set_by_command_is_not_behind(
        self, process: Process, copies: Copies
    ) -> None:
        """A position that a command set is newer than the sink's state."""
        with contextlib.closing(copies.plain(copies.job)) as other:
            other.reposition({"a": None})
            assert not other.state_copies().behind()
            process.claim()
            process.found()
            assert {"a"} == other.state_copies().behind()
            other.state_copies().believe()
            assert not other.state_copies().behind()

    @pytest.mark.parametrize("moves", [0, 1])
    def test_a_job_that_is_forked_again(
        self, copies: Copies, sink: TransactionalSink, moves: int
    ) -> None:
        """A job that is forked again starts at its base's position, or where it was set."""
        base = Process(copies, TransactionalSink(ChaosConfig(), context()))
        base.found()
        base.commit(0, 1)
        base.store.release("w", "a", base.token)
        with contextlib.closing(copies.plain(copies.fork)) as fork:
            _fork(fork, copies.job, moves)
            first = Process(copies, sink, copies.fork)
            begun, _ = first.found()
            first.commit(begun, begun + 1)
            first.commit(begun + 1, begun + 2)
            _fork(fork, copies.job, moves)

        again = Process(copies, sink, copies.fork)
        seq, position = again.found()
        assert (1 + moves, b"set" if moves else b"1") == (seq, position and position.head)
        sink.outcomes.append(Outcome.DEAD)  # The sink has this commit, and the copy does not.
        with pytest.raises(FencedError):
            again.commit(seq, seq + 1)
        again.claim()
        assert seq + 1 == again.found()[0]

    def test_a_job_that_begins_beside_again(self, copies: Copies, sink: TransactionalSink) -> None:
        """A job that is started beside again has no state, also if the sink has one of its name."""
        Process(copies, TransactionalSink(ChaosConfig(), context()))
        for _ in range(2):
            with contextlib.closing(copies.plain(copies.fork)) as fork:
                fork.begin_beside(copies.job)
            beside = Process(copies, sink, copies.fork)
            assert (0, None) == beside.found()
            beside.commit(0, 1)
            assert 1 == Process(copies, sink, copies.fork).found()[0]

    def test_a_job_that_is_forked_after_a_start_beside(
        self, copies: Copies, sink: TransactionalSink
    ) -> None:
        """In both ways it has the key of its base job, so that the sink's state is its own."""
        base = Process(copies, TransactionalSink(ChaosConfig(), context()))
        base.found()
        base.commit(0, 1)
        base.store.release("w", "a", base.token)
        with contextlib.closing(copies.plain(copies.fork)) as fork:
            fork.begin_beside(copies.job)
            beside = Process(copies, sink, copies.fork)
            beside.found()
            beside.commit(0, 1)
            _fork(fork, copies.job, 0)

        for _ in range(2):
            assert 1 == Process(copies, sink, copies.fork).found()[0]

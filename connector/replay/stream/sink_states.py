"""Exactly once, the driver's part in the states that the sink keeps.

It reads them when it starts, as a worker does, which fences the tasks of a former driver. From then
on tasks commit, and the driver copies what Spark has committed. For one thread.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.replay.stream.checkpoint import Begun, Checkpoint, name_of
from headrace.connector.replay.stream.terms import BatchNote, Term
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.starting import store_of
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import Commit, Loss, SplitState, StoreUnavailableError
from headrace.connector.stores.job import Job
from headrace.connector.stores.kept_state import KeptState, digest_of
from headrace.connector.stores.keyed.heads import Copied, Heads
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import HeadraceError, Sink


class SinkStates:
    """See the module."""

    def __init__(self, job: Job, checkpoint: Checkpoint, splits: Sequence[str]) -> None:
        """Read nothing yet; *splits* are those of the plan, in order."""
        self._job, self._checkpoint, self._splits = job, checkpoint, splits
        self._clock = SystemClock()
        self._places: dict[str, str] = {}
        self._moved: dict[str, int] = {}
        self._notes: dict[str, BatchNote | None] = {}  # For splits whose state the sink had.
        self._key = ""
        self._home = ""

    def ask(
        self,
        sink: Sink,
        store: Store,
        held: Callable[[], Mapping[str, SplitState]],
        owner: str,
    ) -> None:
        """Copy the states in *sink* into *store*, with the dead letters up to them.

        *held* renews the leases, and returns the states in the store; *owner* is this process.
        Blocks until the sink responds, within the time for retries.

        Raises:
            RetriesExhaustedError: the sink did not respond.
            HeadraceError: its states cannot be used.

        """
        copies, begun = store.state_copies(), self._checkpoint.begun() or Begun(None, {})
        self._key = digest_of(store.job_key())
        self._notes.clear()

        def found(mine: SplitState, kept: KeptState) -> None:
            note = BatchNote.of(kept, begun.checkpoint)
            self._notes[mine.split] = note
            if note is None or kept.seq <= mine.seq:
                return
            commit = Commit(
                split=mine.split,
                plan=mine.plan,
                token=mine.token,
                owner=owner,
                previous=mine.seq,
                seq=kept.seq,
                position=kept.position,
                counters=kept.counters,
                losses=self._losses(begun, mine, note),
            )
            _, error = copies.prepare(commit)
            if error is not None:
                raise error

        with (
            closing(Writers(sink, self._clock)) as writers,
            closing(store_of(self._job, writers, found)) as asked,
        ):
            for split in self._splits:
                token = self._ask(asked, split, held)
                self._places[split] = writers.claimed(split, token).place
                self._moved[split] = copies.copied(split).moved
        self._home = sink.home() or ""

    def under_way(self, batch: int) -> Collection[str]:
        """Return the splits whose tasks have committed *batch*, which Spark has planned."""
        planned = self._checkpoint.planned(batch)
        if planned is None:
            return ()
        end = name_of(planned)
        return {
            split
            for split, note in self._notes.items()
            if note is not None and (note.batch, note.end) == (batch, end)
        }

    def terms(self, begun: Begun, states: Sequence[SplitState]) -> Mapping[str, Term]:
        """Return the terms of tasks that commit splits; the driver starts with their *states*."""
        return {
            state.split: Term(
                checkpoint=begun.checkpoint,
                key=self._key,
                token=state.token,
                moved=self._moved[state.split],
                first=begun.seq_after(state.split, -1),
                seq=state.seq,
                is_kept=state.split in self._notes,
                home=self._home,
            )
            for state in states
        }

    def copy(self, commits: Sequence[Commit], copies: Heads) -> Mapping[str, HeadraceError]:
        """Copy the commits of tasks; return why some were refused."""
        refused: dict[str, HeadraceError] = {}
        for commit in commits:
            split = commit.split
            _, error = copies.prepare(commit)
            error = error or copies.copy(commit, Copied(self._places[split], self._moved[split]))
            if error is not None:
                refused[split] = error
        return refused

    def _ask(self, store: Store, split: str, held: Callable[[], Mapping[str, SplitState]]) -> int:
        """Load the state of a split; return the token used."""
        policy = ErrorPolicy.of_job(self._job)
        retry, wake = Retry(policy.retry_ms_max), ThreadWake()
        while True:
            try:
                token = held()[split].token
                store.load(split, token)
            except StoreUnavailableError as error:
                now_ms = self._clock.monotonic_ms()
                wake.wait(retry.failed(now_ms, error) - now_ms)
            else:
                return token

    def _losses(self, begun: Begun, mine: SplitState, note: BatchNote) -> Sequence[Loss]:
        """Return the losses of a split after the copy, up to the batch in *note*."""
        index = self._splits.index(mine.split)
        copied = [begun.batch_of(mine.split, mine.seq)] * len(self._splits)
        settled = self._checkpoint.losses(note.batch, copied).get(index, ())
        return [*settled, *self._checkpoint.open_losses(note.batch, index, note.losses)]

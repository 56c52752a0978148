"""A driver's use of a job's store: the leases of all splits, and a copy of Spark's commits.

Spark's checkpoint is the truth while a stream runs, and the store is a batch behind at most when it
ends. So status, positions, books, dead letters and disposal are those of a worker's job, and any
engine that runs the job next continues from there. For one thread.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from headrace.connector.control.status import live_workers
from headrace.connector.foundation import crash
from headrace.connector.foundation.clock import SystemClock, ThreadWake
from headrace.connector.foundation.offered import tokens_of
from headrace.connector.foundation.processes import is_dead, this_process
from headrace.connector.replay.errors import JobBusyError
from headrace.connector.replay.stream.checkpoint import Begun, Checkpoint, Known, Offset
from headrace.connector.replay.stream.microbatches import offset_of
from headrace.connector.replay.stream.sink_states import SinkStates
from headrace.connector.runtime.failures.dead_letters import DeadLetters
from headrace.connector.runtime.failures.retry import (
    RetriesExhaustedError,
    Retry,
    call_with_retries,
)
from headrace.connector.runtime.failures.tolerance import ErrorBudget, ErrorPolicy
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.ownership import tell_ownership
from headrace.connector.runtime.starting import in_ms, lease_times
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import (
    Commit,
    Counters,
    Loss,
    SplitState,
    StateLostError,
    StoreUnavailableError,
    add_counters,
)
from headrace.connector.stores.job import Job
from headrace.connector.stores.note_copy import NoteCopy
from headrace.plugins import (
    CloseReason,
    ConfigError,
    FatalError,
    HeadraceError,
    Position,
    Problem,
    Sink,
    Source,
    Split,
)

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.store import Store

LETTERS_SECONDS_MAX: Final = 30.0  # Later ones are sent after the next start.
_DRAIN_MS: Final = 100
_GIVE_BACK_MS_MAX: Final = 10_000  # Leases of the default length have expired by then.


@dataclass(frozen=True, slots=True)
class _Done:
    """Spark's commits: the states at the end of a batch, by split, and the losses."""

    batch: int
    known: Mapping[str, Known]
    losses: Mapping[int, Sequence[Loss]]


class StreamCommits:
    """See the module."""

    def __init__(  # noqa: PLR0913 (what it works with)
        self,
        job: Job,
        notes: NoteCopy,
        source: Source,
        checkpoint: Checkpoint,
        *,
        plan: int,
        once: SinkStates | None = None,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Claim nothing yet. *plan* is the number of the plan in force, whose splits *source* has.

        *notes* are the control store of the job. *once* is given if the sink keeps the states.
        """
        self._job, self._notes, self._source, self._log = job, notes, source, log
        self._store: Store = notes.store(job.name)
        self._checkpoint, self._plan, self._once = checkpoint, plan, once
        self._splits = [split.split_id for split in source.plan()]
        self._clock = SystemClock()
        self._owner = this_process()
        self._lease_holder = LeaseHolder(
            self._store, self._owner, self._clock, lease_ms=lease_times(job)[0]
        )
        self._errors = ErrorPolicy.of_job(job)
        records_max, window_ms = self._errors.budget_records, self._errors.budget_ms
        self._budgets = {
            split: ErrorBudget(records_max=records_max, window_ms=window_ms)
            for split in self._splits
        }
        self._states: dict[str, SplitState] = {}
        self._begun = Begun(None, {})
        self._released = -1  # The batch whose positions were released last.
        self._release_retry = Retry(self._errors.retry_ms_max)
        self._release_ms = 0
        self._letters: tuple[Writers, DeadLetters] | None = None
        self.dead_lettered = 0

    @property
    def worker(self) -> str:
        """The name under which the leases are held."""
        return self._owner.worker

    @property
    def states(self) -> Sequence[SplitState]:
        """The last copied states of all splits."""
        return [self._states[split] for split in self._splits]

    @contextmanager
    def held(self, sink: Sink) -> Iterator[None]:
        """Hold all leases during the block; first make checkpoint and store agree.

        Dead letters go to their topic, if there is one, through *sink*.

        Raises:
            JobBusyError: another process runs the job.
            ConfigError: the splits are at different places, so that no batch can start there.
            HeadraceError: the store, or the checkpoint, cannot be used.

        """
        refuse_others(self._store, self._job.name)  # An enrolled one would get splits.
        self._store.enroll(self._owner)
        try:
            self._claim()
            self._ask_sink(sink)
            self._begin()
            with self._letters_to(sink):
                yield
                self._end_letters()
            self._trust_copies()
        finally:
            with suppress(RetriesExhaustedError):  # The leases expire by themselves.
                self._give_back()

    def _give_back(self) -> None:
        """Free the leases: else the next run, also in this process, would have to wait for them."""
        call = partial(self._store.dismiss, self._owner.worker)
        call_with_retries(call, Retry(_GIVE_BACK_MS_MAX), self._clock, ThreadWake())

    def look(self) -> bool:
        """Renew the leases, and copy Spark's commits; return whether there were any.

        Releases the committed positions, and sends dead letters to their topic.

        Raises:
            JobBusyError: another process now owns a split.
            BudgetSpentError: there are too many dead letters; they are copied.
            HeadraceError: Spark's commits cannot be copied.

        """
        try:
            self._claim()
            copied = self._copy()
        except StoreUnavailableError as error:  # The leases' tokens fence it, so it may be late.
            self._log.warning("store_unavailable", error=str(error))
            copied = False
        self._release()
        if self._letters is not None:
            writers, letters = self._letters
            writers.shared.drain(self._clock.monotonic_ms())
            letters.step(self._splits)
        return copied

    def _claim(self) -> None:
        changes = self._lease_holder.take(self._splits)
        tell_ownership(self._log, changes)
        for lease in changes.gained:
            known = self._states.get(lease.split)
            state = self._loaded(lease.split, lease.token)
            if known is not None and known.seq != state.seq:
                raise _busy(self._job.name, "another process")
            self._states[lease.split] = state
        if len(self._lease_holder.held) < len(self._splits):
            raise _busy(self._job.name, "another process")

    def _loaded(self, split: str, token: int) -> SplitState:
        if self._once is None:
            return self._store.load(split, token)
        return self._store.state_copies().load(split, token)  # Keep losses that it may cover.

    def _ask_sink(self, sink: Sink) -> None:
        """Exactly once, fence all earlier writers, and copy the states in the sink."""
        if self._once is None:
            return
        self._store.put_schemas(self._checkpoint.schemas())
        self._once.ask(sink, self._store, self._held_states, self._owner.worker)
        for split, lease in self._lease_holder.held.items():
            self._states[split] = self._loaded(split, lease.token)

    def _held_states(self) -> Mapping[str, SplitState]:
        """Renew the leases; return the known states of the held splits."""
        self._claim()
        return self._states

    def _trust_copies(self) -> None:
        """Exactly once, record that the store has all commits, unless a batch was cut off."""
        committed = self._checkpoint.committed()
        batch = -1 if committed is None else committed[0]
        if self._once is None or self._checkpoint.planned(batch + 1) is not None:
            return
        if all(s.seq >= self._begun.seq_after(s.split, batch) for s in self.states):
            for split, lease in self._lease_holder.held.items():
                self._store.state_copies().released(split, lease.token)

    def _begin(self) -> None:
        """Continue the checkpoint, unless the store is ahead of it: then start a new one there."""
        committed = self._checkpoint.committed()
        begun = self._checkpoint.begun()
        if begun is None and committed is not None:  # Spark's API made it, without copies.
            begun = self._checkpoint.note_begun(Begun(None, {}))
        batch = -1 if committed is None else committed[0]
        if begun is None or self._is_ahead(begun, batch):
            begun = self._begun_here()
        elif all(s.seq >= begun.seq_after(s.split, batch) for s in self.states):
            self._checkpoint.forget_losses(batch)  # The process died after copying them.
        self._begun = begun
        if self._once is not None:
            self._checkpoint.put_terms(self._once.terms(begun, self.states))

    def _is_ahead(self, begun: Begun, batch: int) -> bool:
        """Return whether the store has commits that Spark did not make, or other splits."""
        others = bool(begun.seqs) and begun.seqs.keys() != set(self._splits)
        # Exactly once, tasks may have committed a batch that Spark has not.
        under_way = () if self._once is None else self._once.under_way(batch + 1)
        return others or any(
            s.seq > begun.seq_after(s.split, batch + (s.split in under_way)) for s in self.states
        )

    def _begun_here(self) -> Begun:
        offset = self._place()
        known = {s.split: Known(s.position, s.counters) for s in self.states}
        seqs = {s.split: s.seq for s in self.states}
        begun = self._checkpoint.begin(offset, known, seqs)
        self._log.info("stream_begins", place=offset)
        return begun

    def _place(self) -> Offset:
        """Return the common place of all splits. Raises ConfigError if their places differ."""
        offsets = {s.split: offset_of(self._position(s)) for s in self.states}
        first = offsets[self._splits[0]]
        for split, offset in offsets.items():
            if offset != first:
                said = f"splits {self._splits[0]} and {split} are at different places"
                hint = (
                    "micro-batches need all splits at one: let workers read to the end "
                    "(`headrace run --until-idle`), or set the position of the whole source"
                )
                raise ConfigError([Problem("job", said, hint)])
        return first

    def _copy(self) -> bool:
        """Copy the end of Spark's last committed batch; return False if the store has it."""
        done = self._done()
        if done is None:
            return False
        commits = []
        for number, split in enumerate(self._splits):
            state, known = self._states[split], done.known[split]
            seq = self._begun.seq_after(split, done.batch)
            if state.seq >= seq or known.position is None:
                continue
            commits.append(
                Commit(
                    split=split,
                    plan=self._plan,
                    token=self._lease_holder.held[split].token,
                    owner=self._owner.worker,
                    previous=state.seq,
                    seq=seq,
                    position=known.position,
                    counters=known.counters,
                    losses=done.losses.get(number, ()),
                    tokens=tokens_of(self._source, split),
                )
            )
        if not commits:
            return False
        crash.reached("stream_committed")
        self._store.put_schemas(self._checkpoint.schemas())
        with self._notes.transaction():  # A fork in between would start at different places.
            for refused in self._put(commits).values():
                raise refused
        crash.reached("stream_copied")
        for commit in commits:
            self._states[commit.split] = SplitState(
                split=commit.split,
                plan=commit.plan,
                token=commit.token,
                seq=commit.seq,
                position=commit.position,
                counters=commit.counters,
            )
        self._spend(commits, done)
        return True

    def _put(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        if self._once is None:
            return self._store.commit(commits)
        return self._once.copy(commits, self._store.state_copies())

    def _spend(self, commits: Sequence[Commit], done: _Done) -> None:
        """Count dead letters. Raises BudgetSpentError."""
        self._checkpoint.forget_losses(done.batch)
        lost = sum(len(commit.losses) for commit in commits)
        if lost and self._letters is not None:
            self._letters[1].more()
        self.dead_lettered += lost
        now_ms = self._clock.monotonic_ms()
        for commit in commits:
            self._budgets[commit.split].spend(len(commit.losses), now_ms)

    def _done(self) -> _Done | None:
        """Return Spark's last commit. Spark continues, and may delete it while it is read."""
        while (committed := self._checkpoint.committed()) is not None:
            try:
                return self._done_at(*committed)
            except StateLostError:
                if self._checkpoint.committed() == committed:
                    raise
        return None

    def _done_at(self, batch: int, offset: Offset) -> _Done | None:
        if all(s.seq >= self._begun.seq_after(s.split, batch) for s in self.states):
            if self._once is not None:  # They may have been copied before Spark committed.
                self._checkpoint.forget_losses(batch)
            return None
        delivered: Sequence[Counters] = self._checkpoint.delivered(batch)
        known = {}
        for split, counted in zip(self._splits, delivered, strict=True):
            each = self._checkpoint.states.load(offset, split)
            known[split] = Known(each.position, add_counters(each.counters, counted))
        copied = [self._begun.batch_of(s.split, s.seq) for s in self.states]
        return _Done(batch, known, self._checkpoint.losses(batch, copied))

    def _release(self) -> None:
        """Release positions to the source: after the commit (R1), until it succeeds (R2)."""
        now_ms = self._clock.monotonic_ms()
        newest = max(state.seq for state in self.states)
        if newest == self._released or now_ms < self._release_ms:
            return
        try:
            for state in self.states:
                if (position := self._position(state)) is None:
                    continue
                reader = self._source.open(Split(state.split), position)
                try:
                    reader.release(position)
                finally:
                    reader.close(CloseReason.FINISHED)
        except FatalError:
            raise
        except Exception as error:  # noqa: BLE001 (a plugin call)
            self._log.warning("release_pauses", error=str(error))
            self._release_ms = self._release_retry.failed(now_ms, error)
        else:
            self._released = newest
            self._release_retry.succeeded()
            crash.reached("positions_released")

    @contextmanager
    def _letters_to(self, sink: Sink) -> Iterator[None]:
        if not self._errors.topic:
            yield
            return
        with closing(Writers(sink, self._clock)) as writers:
            letters = DeadLetters(
                self._errors,
                self._store,
                writers,
                job=self._job.name,
                clock=self._clock,
                log=self._log,
            )
            self._letters = writers, letters
            try:
                yield
            finally:
                self._letters = None

    def _end_letters(self) -> None:
        """Wait, within bounds, until the dead letters are in their topic."""
        if self._letters is None:
            return
        writers, letters = self._letters
        until_ms = self._clock.monotonic_ms() + in_ms(LETTERS_SECONDS_MAX)
        letters.step(self._splits)
        while not letters.idle and self._clock.monotonic_ms() < until_ms:
            writers.shared.drain(self._clock.monotonic_ms() + _DRAIN_MS)
            letters.step(self._splits)

    def _position(self, state: SplitState) -> Position | None:
        return None if state.position is None else self._source.decode_position(state.position)


def refuse_others(store: "Store", job: str) -> None:
    """Raise JobBusyError if a live process owns a split of *job*."""
    busy = live_workers(store, is_dead)
    for row in store.leases():
        if row.owner in busy:
            raise _busy(job, f"process {busy[row.owner]}")


def _busy(job: str, who: str) -> HeadraceError:
    hint = "one at a time: stop it first"
    return JobBusyError(f"{who} runs it", place=f"job {job}", hint=hint)

"""A worker's process as the model drives it, step by step and without threads.

Everything that moves records is real: source, readers, pipeline, ledger, leases, plans, store. What
fails or waits is around it: a store whose calls fail or are answered too late, a sink that settles
when the test says so, a clock of its own.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.limits import Limits
from headrace.connector.runtime.messages import Closed, Gain, HandOver, Idled, Lose, Stop
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.runtime.replanning import WAIT_SECONDS, ConfiguredSplits, Replanning
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.split_task import DeliveryResult, Surroundings
from headrace.connector.runtime.writers import Writers
from headrace.connector.serde import Encoder
from headrace.connector.stores import (
    Commit,
    LeaseRow,
    Owner,
    Plan,
    SplitState,
    StoreUnavailableError,
    Succeed,
)
from headrace.connector.stores.job import Job
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import (
    Batch,
    CloseReason,
    Context,
    Delivery,
    Demand,
    Disposition,
    Done,
    Encoding,
    Failure,
    HeadraceError,
    Idle,
    News,
    Position,
    Reader,
    Settle,
    Sink,
    Split,
    Writer,
)
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.source import CassandraSource
from helpers.model.checks.ends import end_of, whole_of
from helpers.model.checks.job import WINDOW_BYTES
from helpers.model.checks.lines import Flight, Line, head_of
from helpers.model.checks.records import FETCHED_MS

if TYPE_CHECKING:
    from helpers.model.world import World

JOB: Final = "model"
TICK_MS: Final = 100
LEASE_MS: Final = 9_000
RESTART_MS: Final = 1_000
SLOW_MS: Final = 6_000
BATCH_BYTES: Final = 300
WAITS_MAX: Final = 200  # For a plan: more than three leases.
PLANNER: Final = "+"  # Suffix of the name of a worker while it puts a plan in force.
T = TypeVar("T")

_LIMITS: Final = Limits(
    tick_ms=TICK_MS,
    commit_ms_max=1_000,
    commit_bytes_max=WINDOW_BYTES,
    outstanding_bytes_max=1 << 20,
    outstanding_records_max=100,
    batch_bytes_max=BATCH_BYTES,
    batch_records_max=4,
    retry_ms_max=1 << 40,
    stop_ms_max=5_000,
)


class OwnClock:
    """The clock of one machine: all run at the same rate, with different times."""

    def __init__(self, clock: DrivenClock, ahead_ms: int) -> None:
        """Be *ahead_ms* ahead of *clock*."""
        self._clock = clock
        self._ahead_ms = ahead_ms
        self.wall_ahead_ms = 0

    def monotonic_ms(self) -> int:
        """Return the time since this machine started."""
        return self._clock.monotonic_ms() + self._ahead_ms

    def wall_ms(self) -> int:
        """Return the time of the wall clock, which a rule may set."""
        return self._clock.wall_ms() + self.wall_ahead_ms

    def set(self) -> None:
        """Do nothing: no thread waits here."""

    def wait(self, timeout_ms: int, readable: int | None = None) -> None:
        """Let the time pass."""
        del readable
        self._clock.advance(timeout_ms)


class FaultyStore(SqliteStore):
    """A store whose next calls fail as `faults` says: before they had an effect, or after."""

    process: "Process"

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """Claim, perhaps without an answer."""
        sent_ms = self.process.clock.monotonic_ms()
        tokens = self._try(lambda: super(FaultyStore, self).claim(owner, rows, lease_ms))
        self.process.granted(tokens, sent_ms)
        return tokens

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """Renew, perhaps without an answer."""
        sent_ms = self.process.clock.monotonic_ms()
        if self.process.renewals:
            self.process.faults.appendleft(self.process.renewals.popleft())
        lost = self._try(lambda: super(FaultyStore, self).renew(owner, tokens, rates))
        self.process.renewed([split for split in tokens if split not in lost], sent_ms)
        return lost

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """Commit, perhaps without an answer; the checks see what was stored."""

        def call() -> Mapping[str, HeadraceError]:
            before = {state.split: state.seq for state in self.states()}
            refused = super(FaultyStore, self).commit(commits)
            for commit in commits:
                if commit.split not in refused and before.get(commit.split) != commit.seq:
                    self.process.world.checks.stored(commit)
            return refused

        if self.process.commits:
            self.process.faults.appendleft(self.process.commits.popleft())
        return self._try(call)

    def replan(self, owner: str, tokens: Mapping[str, int], succeed: Succeed) -> None:
        """Put a plan in force, perhaps without an answer; the checks see the result."""

        def call() -> None:
            super(FaultyStore, self).replan(owner, tokens, succeed)
            plans = self.plans()
            states = {state.split: state for state in self.states()}
            splits = plans.in_force.splits
            self.process.world.checks.replanned(plans.ended[-1], [states[s] for s in splits])

        self._try(call)

    def load(self, split: str, token: int) -> SplitState:
        """Load, if the store answers."""
        return self._try(lambda: super(FaultyStore, self).load(split, token))

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """Release a lease."""
        super().release(owner, split, token, problem)
        self.process.deadlines.pop(split, None)

    def _try(self, call: Callable[[], T]) -> T:
        fault = self.process.faults.popleft() if self.process.faults else ""
        if fault == "fails":
            raise StoreUnavailableError("does not answer")
        if fault == "slow":
            self.process.world.clock.advance(SLOW_MS)
        result = call()
        if fault == "late":
            raise StoreUnavailableError("answered too late")
        return result


class WatchedReader(Reader):
    """A reader of the source; the checks see each state that it makes."""

    def __init__(self, process: "Process", reader: Reader, line: Line) -> None:
        """Resume at *line*."""
        self._process = process
        self._reader = reader
        self._line = line
        self._unwatched_ms = line.split_time_ms - process.watched_ms

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Read the next batch."""
        process = self._process
        process.look()
        found = self._reader.read(demand)
        if isinstance(found, Batch):
            self._line = process.world.checks.made(
                self._line,
                end_of(self._reader, found),
                now_ms=process.world.clock.monotonic_ms(),
                tau_max=process.watched_ms + self._unwatched_ms,
            )
        return found

    def release(self, position: Position) -> None:
        """Release."""
        self._reader.release(position)

    def close(self, reason: CloseReason) -> None:
        """Close."""
        self._reader.close(reason)


class WatchedSource(CassandraSource):
    """The source, whose readers are observed."""

    process: "Process"

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Open a split."""
        head = head_of(resume.encode()) if resume else None
        line = self.process.world.checks.opened(split.split_id, head)
        return WatchedReader(self.process, super().open(split, resume), line)

    def look(self, demand: Demand) -> News:
        """Look for all splits."""
        self.process.look()
        return super().look(demand)


class HeldSink(Sink, Writer):
    """Holds records until they arrive: nothing is settled before the test says so."""

    process: "Process"

    def open(self) -> Writer:
        """Return the only writer."""
        return self

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Put a delivery in flight."""
        process = self.process
        split = delivery.batch.split
        now_ms = process.clock.monotonic_ms()
        flight = process.world.checks.submitted(
            whole_of(delivery.batch).end,
            delivery.encoded.values,
            process.tokens[split],
            allowed=now_ms < process.deadlines.get(split, 0),
        )
        process.flying.append((flight, settle))

    def drain(self, deadline_ms: int) -> bool:
        """Return whether nothing is in flight."""
        del deadline_ms
        return not self.process.flying

    def close(self) -> None:
        """Do nothing: nothing is open."""


class Settling(Replanning):
    """Replanning by the model's clock; the model knows which processes are dead."""

    def __init__(self, process: "Process", source: WatchedSource, sink: HeldSink) -> None:
        """Use the store and clock of *process*."""
        self._process = process
        folder = process.world.folder
        job = Job(
            name=JOB,
            directory=folder,
            state=folder,
            source=WatchedSource,
            source_config=None,
            sink=HeldSink,
            sink_config=None,
            runtime=RuntimeConfig(),
        )
        super().__init__(
            job, source, sink, process.store, stopped=process.waits, log=process.world.log
        )

    def _put_in_force(self, store: Store, before: int, plan: Plan) -> bool:
        owner = msgspec.structs.replace(
            self._process.owner, worker=f"{self._process.owner.worker}{PLANNER}"
        )
        store.enroll(owner)
        try:
            lease_holder = self._process.lease_holder_of(owner)
            while store.plans().in_force.number == before:
                if self._try(store, lease_holder, owner.worker, plan) and self._stopped(
                    WAIT_SECONDS
                ):
                    return False
        finally:
            store.dismiss(owner.worker)
        return True


class Run:
    """What a process does under one plan, from its settlement to the next plan."""

    def __init__(self, process: "Process", source: WatchedSource, sink: HeldSink) -> None:
        """Start without splits."""
        self.source = source
        self.reported: deque[Closed | Idled] = deque()
        self.is_leaving = False
        process.store.enroll(process.owner)
        self.lease_holder = process.lease_holder_of(process.owner)
        self.pipeline = Pipeline(
            partial(process.around, source, sink), _LIMITS, process.clock, self.reported.append
        )
        self.pipeline.open()

    def keep(self) -> None:
        """Keep the leases, as the control thread does."""
        try:
            changes = (
                self.lease_holder.renew_only() if self.is_leaving else self.lease_holder.step()
            )
        except StoreUnavailableError:
            return
        for split in changes.lost:
            self.pipeline.command(Lose(split))
        for split in changes.hand_over:
            self.pipeline.command(HandOver(split))
        for lease in changes.gained:
            self.pipeline.command(Gain(lease))

    def leave(self) -> None:
        """Settle and commit what is in flight, and release all splits."""
        self.is_leaving = True
        self.pipeline.command(Stop())


class Process:
    """One worker's process, as `Worker` makes it."""

    def __init__(
        self, world: "World", name: str, ahead_ms: int, options: Mapping[str, object]
    ) -> None:
        """Start, and run if no plan prevents it."""
        self.world = world
        self._options = options
        self.name = name
        self.clock = OwnClock(world.clock, ahead_ms)
        self.faults: deque[str] = deque()  # Of the store's next answers.
        self.renewals: deque[str] = deque()  # Of the next answers to renewals.
        self.commits: deque[str] = deque()  # Of the next answers to commits.
        self.flying: list[tuple[Flight, Settle]] = []
        self.tokens: dict[str, int] = {}
        self.deadlines: dict[str, int] = {}
        self.watched_ms = 0
        self._looked_ms = self.clock.monotonic_ms()
        self.store = self._store()
        self.owner = Owner(worker=name, host="h", boot="b", pid_space="p", pid=1, started=1)
        self._configured = ConfiguredSplits()
        self._begun = self._waited = self._plan = 0
        self._run: Run | None = None

    def begin(self) -> None:
        """Run by the current plan, or by one that replaces it, if that can be settled now."""
        self._begun += 1  # Each time as another worker, like `Worker`.
        self.owner = msgspec.structs.replace(self.owner, worker=f"{self.name}@{self._begun}")
        job_key = self.store.job_key()
        context = Context(job=JOB, clock=self.clock, job_key=job_key, log=self.world.log)
        source = WatchedSource(self.world.config(self._options), context)
        sink = HeldSink(None, context)
        source.process = sink.process = self
        self._waited = 0
        try:
            self._plan = Settling(self, source, sink).settle(self._configured)
        except StoreUnavailableError:
            self._plan = 0
        self.deadlines.clear()
        if self._plan:
            self._run = Run(self, source, sink)
        else:
            source.close()

    def waits(self, seconds: float) -> bool:
        """Let the other processes run while they own splits that this one needs; not for ever."""
        self._waited += 1
        self.world.clock.advance(round(seconds * 1_000))
        with self.world.asleep(self):
            self.world.calm(1, begins=False)
        return self._waited > WAITS_MAX

    def lease_holder_of(self, owner: Owner) -> LeaseHolder:
        """Return what renews leases for *owner*."""
        running = self.world.running

        def is_running(other: Owner) -> bool:
            return other.worker.partition("@")[0] in running

        return LeaseHolder(
            self.store,
            owner,
            self.clock,
            lease_ms=LEASE_MS,
            dead=lambda other: self.world.proves_death and not is_running(other),
            alive=is_running,
        )

    def step(self, *, begins: bool = True) -> None:
        """Do a tick of both threads; or start running, unless another process settles a plan."""
        if self._run is None:
            if begins:
                self.begin()
            return
        run = self._run
        run.keep()
        run.pipeline.run_pass()
        while run.reported:
            match run.reported.popleft():
                case Closed(split, token, error):
                    again_ms = self.clock.monotonic_ms() + RESTART_MS
                    run.lease_holder.closed(
                        split, token, failed=error is not None, again_ms=again_ms
                    )
        if not run.is_leaving and self._is_replanned():
            run.leave()
        elif run.is_leaving and not run.pipeline.runs:
            self._end(run)

    def _is_replanned(self) -> bool:
        plans = self.store.plans()
        return plans.announced is not None or plans.in_force.number != self._plan

    def _end(self, run: Run) -> None:
        self._run = None
        run.pipeline.close()
        run.source.close()
        self.store.dismiss(self.owner.worker)
        self.deadlines.clear()

    def granted(self, tokens: Mapping[str, int], sent_ms: int) -> None:
        """Record leases that this process knows it has."""
        for other in self.world.running.values():
            for split in tokens.keys() & other.deadlines.keys() if other is not self else ():
                if other.clock.monotonic_ms() < other.deadlines[split] - LEASE_MS // 5:
                    self.world.checks.complain(f"I2: {split} was taken from an owner that lives")
        self.tokens.update(tokens)
        self.renewed(list(tokens), sent_ms)

    def renewed(self, splits: Sequence[str], sent_ms: int) -> None:
        """Record leases that were renewed."""
        self.deadlines |= dict.fromkeys(splits, sent_ms + LEASE_MS)

    def look(self) -> None:
        """Record that the logs are listed: since the last time they were watched, for a while."""
        now_ms = self.clock.monotonic_ms()
        self.watched_ms += min(now_ms - self._looked_ms, FETCHED_MS)
        self._looked_ms = now_ms

    def settle(self, index: int, verdict: str) -> None:
        """Let the sink report the result of one of the deliveries in flight."""
        flight, settle = self.flying.pop(index % len(self.flying))
        count = len(flight.changes)
        failed: list[Failure] = []
        if verdict == "retry":
            failed = [Failure(flight.number % count, Disposition.RETRY, "busy", "again")]
        elif verdict == "reject":
            failed = [Failure(flight.number % count, Disposition.REJECT, "bad", "never")]
            flight.changes[flight.number % count].rejected = True
        lost = {failure.index for failure in failed}
        if verdict == "miscount":  # The last one has no result.
            lost.add(count - 1)
        for i, change in enumerate(flight.changes):
            change.arrived |= i not in lost
        arrived = [index for index in range(count) if index not in lost]
        settle(arrived, failed)
        if verdict == "twice":
            settle(arrived, failed)

    def kill(self, *, arrives: bool) -> None:
        """Die at once; what was in flight may still arrive."""
        del self.world.running[self.name]
        for flight, _ in self.flying:
            for change in flight.changes:
                change.arrived |= arrives
        if self._run is not None:
            self._run.pipeline.close()
            self._run.source.close()
        self.store.close()

    def _store(self) -> FaultyStore:
        store = FaultyStore.open(self.world.folder / "state.db", JOB)
        store.process = self
        return store

    def around(
        self, source: WatchedSource, sink: HeldSink, post: Callable[[DeliveryResult], None]
    ) -> Surroundings:
        """Return the context of a pipeline."""
        return Surroundings(
            source=source,
            writers=Writers(sink, self.clock),
            encoder=Encoder(Encoding(codec="json", headers=())),
            store=self._store(),
            clock=self.clock,
            log=self.world.log,
            job=JOB,
            worker=self.owner.worker,
            errors=replace(ErrorPolicy(retry_ms_max=1 << 40), tolerant=True),
            settle_ms_max=1 << 40,
            plan=self._plan,
            window_bytes=WINDOW_BYTES,
            post=post,
        )

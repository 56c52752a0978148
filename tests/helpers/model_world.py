"""Workers, a store and a sink around a ring, all driven by hand: by one clock, step by step.

Everything that moves records is real: source, readers, pipeline, ledger, leases, store. What errs
or waits is around it: a store whose calls fail or answer too late, a sink that settles when it is
told, processes that are killed or stopped, a clock that jumps.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import structlog

from headrace.connector.control.gaps import Acceptance, Gaps
from headrace.connector.runtime.leases import LeaseKeeper
from headrace.connector.runtime.messages import Closed, Gain, HandOver, Idled, Lose
from headrace.connector.runtime.pipeline import Limits, Pipeline
from headrace.connector.runtime.splitrun import Surroundings, Verdict
from headrace.connector.runtime.tolerance import ErrorPolicy
from headrace.connector.runtime.writers import Writers
from headrace.connector.serde import Encoder
from headrace.connector.stores import Commit, LeaseRow, Owner, SplitState, StoreUnavailableError
from headrace.connector.stores.sqlite import SqliteStore
from headrace.connector.stores.sqlite_file import connect
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
    Position,
    Reader,
    Settle,
    Sink,
    Split,
    Writer,
    parse_config,
)
from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.config import CassandraConfig
from headrace.sources.cassandra.errors import LogGapError
from headrace.sources.cassandra.source import CassandraSource
from headrace.sources.cassandra.state import CdcState
from model_judge import (
    COMPLETE_S,
    EXPIRY_S,
    FETCHED_MS,
    MEMORY_S,
    WINDOW_BYTES,
    Judge,
)
from model_lines import Flight, Line, head_of
from model_ring import SPLITS, Ring

JOB: Final = "model"
TICK_MS: Final = 100
LEASE_MS: Final = 9_000
RESTART_MS: Final = 1_000
SETTLED_MS: Final = (
    60_000  # More than a lease, and than copies in other bytes wait for one another.
)
SLOW_MS: Final = 6_000
BATCH_BYTES: Final = 300
PASSES_MAX: Final = 2_000
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
    """The clock of one machine: all go at one pace, none shows what another does."""

    def __init__(self, clock: DrivenClock, ahead_ms: int) -> None:
        """Show *ahead_ms* more than *clock*."""
        self._clock = clock
        self._ahead_ms = ahead_ms
        self.wall_ahead_ms = 0

    def monotonic_ms(self) -> int:
        """Return the time since this machine started."""
        return self._clock.monotonic_ms() + self._ahead_ms

    def wall_ms(self) -> int:
        """Return what the wall shows, which anybody may set."""
        return self._clock.wall_ms() + self.wall_ahead_ms

    def set(self) -> None:
        """Nothing waits here that could be woken."""

    def wait(self, timeout_ms: int) -> None:
        """Let the time pass."""
        self._clock.advance(timeout_ms)


class FaultyStore(SqliteStore):
    """A store whose next calls fail as `faults` says: before they did anything, or after."""

    process: "Process"

    def claim(self, owner: str, rows: Sequence[LeaseRow], lease_ms: int) -> Mapping[str, int]:
        """Claim, perhaps without telling."""
        sent_ms = self.process.clock.monotonic_ms()
        tokens = self._try(lambda: super(FaultyStore, self).claim(owner, rows, lease_ms))
        self.process.granted(tokens, sent_ms)
        return tokens

    def renew(
        self, owner: str, tokens: Mapping[str, int], rates: Mapping[str, int] | None = None
    ) -> frozenset[str]:
        """Renew, perhaps without telling."""
        sent_ms = self.process.clock.monotonic_ms()
        if self.process.renewals:
            self.process.faults.appendleft(self.process.renewals.popleft())
        lost = self._try(lambda: super(FaultyStore, self).renew(owner, tokens, rates))
        self.process.renewed([split for split in tokens if split not in lost], sent_ms)
        return lost

    def commit(self, commits: Sequence[Commit]) -> Mapping[str, HeadraceError]:
        """Commit, perhaps without telling; the judge sees what was stored."""

        def call() -> Mapping[str, HeadraceError]:
            before = {state.split: state.seq for state in self.states()}
            refused = super(FaultyStore, self).commit(commits)
            for commit in commits:
                if commit.split not in refused and before[commit.split] != commit.seq:
                    self.process.world.judge.stored(commit)
            return refused

        if self.process.commits:
            self.process.faults.appendleft(self.process.commits.popleft())
        return self._try(call)

    def load(self, split: str, token: int) -> SplitState:
        """Load, if the store answers."""
        return self._try(lambda: super(FaultyStore, self).load(split, token))

    def release(self, owner: str, split: str, token: int, problem: str = "") -> None:
        """Give a lease back."""
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
    """A reader of the source; the judge sees each state that it makes."""

    def __init__(self, process: "Process", reader: Reader, line: Line) -> None:
        """Resume at *line*."""
        self._process = process
        self._reader = reader
        self._line = line
        self._unwatched_ms = line.tau - process.watched_ms

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Read on."""
        process = self._process
        process.look()
        found = self._reader.read(demand)
        if isinstance(found, Batch):
            assert isinstance(found.end, CdcState)
            self._line = process.world.judge.made(
                self._line,
                found.end,
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
    """The source, with readers that are watched."""

    process: "Process"

    def open(self, split: Split, resume: Position | None) -> Reader:
        """Open a split."""
        head = head_of(resume.encode()) if resume else None
        line = self.process.world.judge.opened(split.split_id, head)
        return WatchedReader(self.process, super().open(split, resume), line)


class Sky(Sink, Writer):
    """Where records are until they arrive: nothing is settled before the test says so."""

    process: "Process"

    def open(self) -> Writer:
        """Return the only writer."""
        return self

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Let a delivery fly."""
        process = self.process
        split = delivery.batch.split
        now_ms = process.clock.monotonic_ms()
        flight = process.world.judge.submitted(
            delivery.batch.end,
            delivery.encoded.values,
            process.tokens[split],
            allowed=now_ms < process.deadlines.get(split, 0),
        )
        process.flying.append((flight, settle))

    def drain(self, deadline_ms: int) -> bool:
        """Say whether nothing flies."""
        del deadline_ms
        return not self.process.flying

    def close(self) -> None:
        """Nothing is open."""


class Process:
    """One worker's process, as `Worker` makes it, but without threads."""

    def __init__(
        self, world: "World", name: str, ahead_ms: int, options: Mapping[str, object]
    ) -> None:
        """Start."""
        self.world = world
        self._options = options
        self.name = name
        self.clock = OwnClock(world.clock, ahead_ms)
        self.faults: deque[str] = deque()  # Of the store's next answers.
        self.renewals: deque[str] = deque()  # Of the next to renewals.
        self.commits: deque[str] = deque()  # And to commits.
        self.flying: list[tuple[Flight, Settle]] = []
        self.tokens: dict[str, int] = {}
        self.deadlines: dict[str, int] = {}
        self.watched_ms = 0
        self._looked_ms = self.clock.monotonic_ms()
        self.told: deque[Closed | Idled] = deque()
        self.is_idle = False
        self.store = self._store()
        self.source = self._source()
        self.store.register([split.split_id for split in self.source.plan()])
        self.owner = Owner(worker=name, host="h", boot="b", pid_space="p", pid=1, started=1)
        self.store.enroll(self.owner)
        self.keeper = LeaseKeeper(
            self.store,
            self.owner,
            self.clock,
            lease_ms=LEASE_MS,
            dead=lambda owner: world.proves_death and owner.worker not in world.running,
            alive=lambda owner: owner.worker in world.running,
        )
        self._data_store = self._store()
        self.pipeline = Pipeline(self._around, _LIMITS, self.clock, self.told.append)
        self.pipeline.open()

    def step(self) -> None:
        """Do what both threads do in a tick."""
        self.keep()
        self.pipeline.run_pass()
        while self.told:
            match self.told.popleft():
                case Closed(split, token, error):
                    again_ms = self.clock.monotonic_ms() + RESTART_MS
                    self.keeper.closed(split, token, failed=error is not None, again_ms=again_ms)
                case Idled():
                    self.is_idle = True

    def keep(self) -> None:
        """Keep the leases, as the control thread does."""
        try:
            changes = self.keeper.step()
        except StoreUnavailableError:
            return
        for split in changes.lost:
            self.pipeline.command(Lose(split))
        for split in changes.hand_over:
            self.pipeline.command(HandOver(split))
        for lease in changes.gained:
            self.pipeline.command(Gain(lease))

    def granted(self, tokens: Mapping[str, int], sent_ms: int) -> None:
        """Note leases that this process knows it has."""
        for other in self.world.running.values():
            for split in tokens.keys() & other.deadlines.keys() if other is not self else ():
                if other.clock.monotonic_ms() < other.deadlines[split] - LEASE_MS // 5:
                    self.world.judge.complain(f"I2: {split} was taken from an owner that lives")
        self.tokens.update(tokens)
        self.renewed(list(tokens), sent_ms)

    def renewed(self, splits: Sequence[str], sent_ms: int) -> None:
        """Note leases that were renewed."""
        self.deadlines |= dict.fromkeys(splits, sent_ms + LEASE_MS)

    def look(self) -> None:
        """Note that the logs are looked at: since the last time they were watched, for a while."""
        now_ms = self.clock.monotonic_ms()
        self.watched_ms += min(now_ms - self._looked_ms, FETCHED_MS)
        self._looked_ms = now_ms

    def settle(self, index: int, verdict: str) -> None:
        """Let the sink say what became of one of the deliveries under way."""
        flight, settle = self.flying.pop(index % len(self.flying))
        count = len(flight.changes)
        failed: list[Failure] = []
        if verdict == "retry":
            failed = [Failure(flight.number % count, Disposition.RETRY, "busy", "again")]
        elif verdict == "reject":
            failed = [Failure(flight.number % count, Disposition.REJECT, "bad", "never")]
            flight.changes[flight.number % count].rejected = True
        lost = {failure.index for failure in failed}
        if verdict == "miscount":  # Nothing is heard of the last one.
            lost.add(count - 1)
        for i, change in enumerate(flight.changes):
            change.arrived |= i not in lost
        settle(count - len(lost), failed)
        if verdict == "twice":
            settle(count - len(failed), failed)

    def kill(self, *, arrives: bool) -> None:
        """Die at once; what was on its way may still arrive."""
        del self.world.running[self.name]
        for flight, _ in self.flying:
            for change in flight.changes:
                change.arrived |= arrives
        self.pipeline.close()
        self.source.close()
        self.store.close()

    def _store(self) -> FaultyStore:
        store = FaultyStore.open(self.world.folder / "state.db", JOB)
        store.process = self
        return store

    def _source(self) -> WatchedSource:
        job_key = self.store.job_key()
        context = Context(job=JOB, clock=self.clock, job_key=job_key, log=self.world.log)
        source = WatchedSource(parse_config(CassandraConfig, self._options), context)
        self.sky = Sky(None, context)
        source.process = self.sky.process = self
        return source

    def _around(self, post: Callable[[Verdict], None]) -> Surroundings:
        return Surroundings(
            source=self.source,
            writers=Writers(self.sky, self.clock),
            encoder=Encoder(Encoding(codec="json", headers=())),
            store=self._data_store,
            clock=self.clock,
            log=self.world.log,
            job=JOB,
            worker=self.name,
            errors=replace(ErrorPolicy(retry_ms_max=1 << 40), tolerant=True),
            settle_ms_max=1 << 40,
            tick_ms=TICK_MS,
            post=post,
        )


class World:
    """A ring, a job that reads it, and up to two processes that run the job."""

    def __init__(self, folder: Path, level: str, **more: object) -> None:
        """Start nothing yet; *more* are options of the source."""
        self.folder = folder
        self.clock = DrivenClock()
        self.ring = Ring(folder, level)
        self.options: Mapping[str, object] = {
            "expiry_seconds": EXPIRY_S,
            "memory_seconds": MEMORY_S,
            "complete_seconds": COMPLETE_S,
            **more,
        }
        self.running: dict[str, Process] = {}
        self.proves_death = True
        self.events: list[Mapping[str, object]] = []
        self.log = structlog.wrap_logger(structlog.ReturnLogger(), processors=[self._logged])
        store = SqliteStore.open(folder / "state.db", JOB)
        self.judge = Judge(self.ring, store.job_key(), publishes_expired="expired" in more)
        store.close()
        self._started = 0

    def start(self) -> Process:
        """Start a process."""
        self._started += 1
        name = f"w{self._started}"
        options = {**self.ring.options(self._started), **self.options}
        self.running[name] = process = Process(self, name, 1_000_000 * self._started, options)
        return process

    def accept(self, policy: str) -> None:
        """Let somebody stop all, and say that what was lost is not waited for."""
        for process in list(self.running.values()):
            process.kill(arrives=False)
        with closing(connect(self.folder / "state.db")) as connection:
            gaps = Gaps(connection, dead=lambda _: True)
            names = [each.gap.name for each in gaps.of(JOB, CassandraSource) if each.is_open]
            gaps.accept(Acceptance(job=JOB, names=names, policy=policy), CassandraSource)
        with closing(SqliteStore.open(self.folder / "state.db", JOB)) as store:
            for state in store.states():
                if state.position is not None:
                    self.judge.moved(state.split, state.position)
        self.start()

    def calm(self, passes: int, *, without: Process | None = None) -> None:
        """Let all processes run, or all but one, and the sink deliver."""
        for _ in range(passes):
            for process in [each for each in self.running.values() if each is not without]:
                process.step()
                while process.flying:
                    process.settle(0, "deliver")

    def finish(self) -> None:
        """Heal everything, read all there is, and check what was promised."""
        now_ms = self.clock.monotonic_ms
        for log in self.ring.nodes.values():
            log.roll(now_ms())
        for process in self.running.values():
            process.faults.clear()
            process.renewals.clear()
            process.commits.clear()
            while process.flying:
                process.settle(0, "deliver")
        if not self.running:
            self.start()
        for _ in range(PASSES_MAX):
            if not (unread := self._unread()):
                break
            self.calm(1)
            if any(line.is_stopped for line in self.judge.committed.values()):
                self.accept("expire")
        for what in unread:
            self.judge.complain(f"{what} was never read to its end")
        until_ms = now_ms() + SETTLED_MS
        while now_ms() < until_ms:
            self.calm(1)
            self.clock.advance(LEASE_MS // 2)
        self.judge.verify()
        self.judge.check_end()

    def _unread(self) -> list[str]:
        """Return which logs no split has committed to the end."""
        return [
            f"{node}'s log, by {split},"
            for split, line in self.judge.committed.items()
            for node, log in self.ring.nodes.items()
            if any(copy.counts and not line.covers(node, copy) for copy in log.copies)
        ]

    def close(self) -> None:
        """Stop what runs."""
        for process in list(self.running.values()):
            with suppress(HeadraceError):
                process.kill(arrives=False)

    def _logged(
        self, _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.ProcessorReturnValue:
        self.events.append(event)
        is_gap = event.get("error_code") == LogGapError.code and self.options.get("gaps") == "fail"
        if event["event"] in {"plugin_broken", "split_failed"} and not is_gap:
            self.judge.complain(f"{event}")
        return event


assert {"1-of-2", "2-of-2"} == set(SPLITS)

"""Catches up lagging splits in bulk: the driver holds their leases and commits chunk by chunk.

Workers give up the splits that the driver wants, and later continue from its last commit. The
driver lists files and opens no segment; a task reads a part of a split's tokens, up to the end of
the chunk. If the driver is killed, its leases expire like a worker's, and workers deliver again
what it had not committed.
"""

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from headrace.connector.control.jobs import JobText
from headrace.connector.foundation.clock import SystemClock
from headrace.connector.foundation.offered import located, tokens_of
from headrace.connector.foundation.processes import this_process
from headrace.connector.foundation.states import Desired
from headrace.connector.replay.catching_up.lagging_split_task import PartReport, PartWork
from headrace.connector.replay.engine import Engine
from headrace.connector.replay.errors import ShardFailedError, SplitBusyError
from headrace.connector.replay.framing.framed_shards import SHARDS_MIN
from headrace.connector.replay.options import CHUNK_BYTES, LAG_BYTES
from headrace.connector.replay.planning import all_in_all
from headrace.connector.replay.run_metrics import CatchUpMeasures
from headrace.connector.replay.shards import Shard, SourceSpec
from headrace.connector.replay.stream.microbatches import ALL_BYTES, Part, offset_of, position_at
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.failures.tolerance import ErrorBudget, ErrorPolicy
from headrace.connector.runtime.making import made_sink
from headrace.connector.runtime.splits.leases import LeaseHolder
from headrace.connector.runtime.splits.ownership import Lease, tell_ownership
from headrace.connector.runtime.starting import in_ms, lease_times
from headrace.connector.stores import Commit, SplitState, StoreUnavailableError, add_counters
from headrace.connector.stores.job import Job
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins import (
    ConfigError,
    LeaseLostError,
    MicroBatches,
    Position,
    Problem,
    Resplitting,
    Source,
    Split,
)

if TYPE_CHECKING:
    from headrace.connector.stores.keyed.store import Store

LOOK_SECONDS: Final = 0.2
WAIT_LEASES: Final = 3  # How long the driver waits for a split, in leases.


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The splits to catch up: `splits`, or those with more than `lag_bytes` unread.

    They are read up to `until`, by default the end of the logs now, in chunks of about
    `chunk_bytes`.
    """

    splits: Sequence[str] = ()
    lag_bytes: int = LAG_BYTES
    until: str = ""
    chunk_bytes: int = CHUNK_BYTES


@dataclass(slots=True, kw_only=True)
class CaughtUp:
    """The result: changes read, chunks committed, splits that ended, were lost or failed."""

    changes: int = 0
    chunks: int = 0
    done: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Held:
    """A split whose lease the driver holds, and its position."""

    lease: Lease
    state: SplitState
    position: Position | None
    budget: ErrorBudget


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A chunk of a split that tasks read: the start of each part, by name, and the tasks."""

    held: _Held
    begun: Mapping[str, Position | None]
    works: Sequence[PartWork]


def _read(engine: Engine, works: Sequence[PartWork]) -> Sequence[PartReport]:
    """Read parts of splits; many that end at one place read each log once for all of them."""
    groups: dict[str, list[PartWork]] = {}
    for work in works:
        groups.setdefault(f"{work.part.shard.splits} {work.part.end}", []).append(work)
    reports: dict[str, PartReport] = {}
    alone: list[PartWork] = []
    for group in groups.values():
        if len(group) < SHARDS_MIN:
            alone += group  # Together, so that no core waits.
            continue
        of_split = {work.part.shard.split: work for work in group}
        shards = [work.part.shard for work in group]
        with engine.once(shards, begins=partial(_begins, group)) as over:
            came = over(partial(_reading, of_split), shards)
        reports |= zip(of_split, came, strict=True)
    came = engine.gather(alone)
    reports |= zip((work.part.shard.split for work in alone), came, strict=True)
    return [reports[work.part.shard.split] for work in works]


def _begins(works: Sequence[PartWork], source: Source) -> Sequence[Position | None]:
    """Return the start positions of these parts; parts of one split have the same."""
    places = {str(work.part.start): work.part.start for work in works}
    return [position_at(source, start) for start in places.values()]


def _reading(works: Mapping[str, PartWork], shard: Shard) -> PartWork:
    """Return the work of a part whose logs are framed already."""
    work = works[shard.split]
    return dataclasses.replace(work, part=dataclasses.replace(work.part, shard=shard))


class Driver:
    """Catches up splits of a job, in the job's directory. For one thread."""

    def __init__(
        self,
        text: JobText,
        job: Job,
        orders: Orders,
        *,
        stopped: threading.Event | None = None,
        measures: CatchUpMeasures | None = None,
    ) -> None:
        """Open the job's store. Once *stopped* is set, the driver ends after the current chunk.

        Raises:
            ConfigError: the job cannot be caught up, or does not have the split.

        """
        self._text, self._job, self._orders = text, job, orders
        self._log = structlog.stdlib.get_logger().bind(job=job.name)
        self._clock = SystemClock()
        self._stopped = stopped or threading.Event()
        self._measures = measures or CatchUpMeasures()
        self._lease_ms, poll_ms = lease_times(job)
        self._poll_seconds = poll_ms / 1000
        self._owner = this_process()
        self._store: Store = job.open_store(create=False)
        self._notes = open_notes(job.notes)
        self._board = self._notes.board
        self._job_key = self._store.job_key()
        self._spec = SourceSpec(
            given=dict(text.source), directory=str(text.directory), job=text.name
        )
        self._source = self._spec.open(job_key=self._job_key)
        self._plan = self._store.plans().in_force
        self._lease_holder = LeaseHolder(
            self._store, self._owner, self._clock, lease_ms=self._lease_ms
        )
        self._held: dict[str, _Held] = {}
        self._measures.held = self._held
        self._waiting: set[str] = set()
        self.came_to = CaughtUp()
        self._check()

    def close(self) -> None:
        """Close the store and the source."""
        self._source.close()
        self._notes.close()
        self._store.close()

    def lagging(self) -> Mapping[str, int]:
        """Return the unread bytes of each split to catch up."""
        found = {}
        for state in self._store.states():
            position = self._position(state)
            backlog = all_in_all(self._source.backlog(Split(state.split), position))
            size_bytes = sum(part.size_bytes for part in backlog)
            asked = state.split in self._orders.splits
            if asked or (not self._orders.splits and size_bytes > self._orders.lag_bytes):
                found[state.split] = size_bytes
        self._measures.lag_bytes = found
        self._measures.note()
        return found

    def run(self, splits: Sequence[str], engine: Engine) -> CaughtUp:
        """Take over *splits*, read them up to the end, and release them.

        Raises:
            SplitBusyError: no worker released any of them in time.
            HeadraceError: a task or the store failed; commits stay.

        """
        self._end_somewhere()
        self._waiting = set(splits)
        with self._enrolled(), ThreadPoolExecutor(1, thread_name_prefix="gather") as pool:
            until_ms = self._clock.monotonic_ms() + self._wait_ms()
            while (self._waiting or self._held) and not self._must_end():
                self._look()
                if self._held:
                    self._step(engine, pool)
                elif self._clock.monotonic_ms() > until_ms:
                    names = ", ".join(sorted(self._waiting)[:8])
                    hint = "check its worker, then run `headrace replay catch-up` again"
                    raise SplitBusyError("was not released", place=f"split {names}", hint=hint)
                else:
                    self._stopped.wait(LOOK_SECONDS)
        return self.came_to

    def _check(self) -> None:
        problems = []
        if not self._plan.splits:
            problems.append(Problem("job", "has never run", "start it on a worker"))
        for split in self._orders.splits:
            if split not in self._plan.splits:
                hint = f"there are {', '.join(self._plan.splits[:8])}"
                problems.append(Problem("--split", f"{split!r} is not a split of the job", hint))
        sink = made_sink(self._job, self._source.context)
        if (wanted := self._state()) is not Desired.RUNNING:
            problems.append(Problem("job", f"is {wanted.value}", "resume it first"))
        if sink.is_transactional:
            said = "splits that are written exactly once are not caught up"
            problems.append(Problem("sink", said, "leave this job to its workers"))
        if problems:
            raise ConfigError(problems)
        if isinstance(self._source, Resplitting):
            self._source.follow(self._plan.splits)
        MicroBatches.of(self._source).ahead(None, 0)  # Raises if a log cannot be read now.

    def _end_somewhere(self) -> None:
        """Bound the reads by the end of the logs."""
        source, until = self._source, self._orders.until
        first, steps = source.plan()[0], MicroBatches.of(source)
        steps.limit(
            until=located(source, first, None, until) if until else steps.ahead(None, ALL_BYTES)
        )

    @contextmanager
    def _enrolled(self) -> Iterator[None]:
        """Announce to workers which splits the driver wants; release them all at the end."""
        self._store.enroll(self._owner)
        try:
            self._store.want(self._owner.worker, sorted(self._waiting))
            yield
        finally:
            self._store.dismiss(self._owner.worker)

    def _wait_ms(self) -> int:
        return WAIT_LEASES * self._lease_ms + in_ms(self._job.runtime.stop_seconds_max)

    def _must_end(self) -> bool:
        """Return whether to stop: on request, or if the job pauses, stops or gets new splits."""
        plans = self._store.plans()
        changed = plans.announced is not None or plans.in_force.number != self._plan.number
        return changed or self._stopped.is_set() or self._state() is not Desired.RUNNING

    def _state(self) -> Desired:
        """Return the target state of the job."""
        return self._board.wanted(self._job.name).state

    def _look(self) -> None:
        """Renew the leases, and claim splits that have become free."""
        changes = self._lease_holder.take(self._waiting)
        tell_ownership(self._log, changes)
        for split in changes.lost:
            self._lose(split)
        for lease in changes.gained:
            state = self._store.load(lease.split, lease.token)
            errors = ErrorPolicy.of_job(self._job)
            budget = ErrorBudget(records_max=errors.budget_records, window_ms=errors.budget_ms)
            self._waiting.discard(lease.split)
            self._held[lease.split] = _Held(lease, state, self._position(state), budget)

    def _lose(self, split: str) -> None:
        """Drop a split that another process owns."""
        if self._held.pop(split, None) is not None:
            self.came_to.lost.append(split)

    def _step(self, engine: Engine, pool: Executor) -> None:
        """Read a chunk of each held split; release the splits that have reached the end."""
        parts = max(1, engine.width // len(self._held))
        chunks = []
        for split, held in list(self._held.items()):
            chunk = self._next_chunk(held, parts)
            if chunk is None:
                self.came_to.done.append(split)
                self._give_back(split)
            else:
                chunks.append(chunk)
        works = [work for chunk in chunks for work in chunk.works]
        if not works:
            return
        made = pool.submit(_read, engine, works)
        while not wait([made], timeout=self._poll_seconds).done:
            try:
                self._look()
            except StoreUnavailableError as error:  # The leases stay valid until their deadlines.
                self._log.warning("store_unavailable", error=str(error))
        reports = iter(made.result())
        for chunk in chunks:
            self._take(chunk, [next(reports) for _ in chunk.works])

    def _next_chunk(self, held: _Held, parts: int) -> _Chunk | None:
        """Return the next chunk of a split; None at its end."""
        source, split = self._source, Split(held.lease.split)
        start, steps = offset_of(held.position), MicroBatches.of(source)
        end = offset_of(steps.ahead(held.position, self._orders.chunk_bytes))
        if end == start:
            return None
        until = position_at(source, end)
        begun = steps.divide(split, held.position, parts)
        works = [
            PartWork(
                part=Part(
                    shard=Shard(
                        number=number,
                        split=name,
                        source=self._spec,
                        splits=len(self._plan.splits) * len(begun),
                        resume=None if position is None else position.encode(),
                        until=None if until is None else until.encode(),
                        job_key=self._job_key,
                    ),
                    start=start,
                    end=end,
                ),
                sink=dict(self._text.sink),
                runtime=self._job.runtime,
                token=held.lease.token,
            )
            for number, (name, position) in enumerate(begun.items(), start=1)
        ]
        return _Chunk(held, begun, works)

    def _take(self, chunk: _Chunk, reports: Sequence[PartReport]) -> None:
        """Commit the results of a chunk; release a split that has a problem."""
        held, split = chunk.held, chunk.held.lease.split
        if self._held.get(split) is not held:
            return  # The split was lost meanwhile.
        problem = next((report.problem for report in reports if report.problem), "")
        if problem:
            self._log.error("chunk_failed", split=split, error=problem)
            self.came_to.failed[split] = problem
            self._give_back(split, problem)
            return
        before = held.position
        commit = self._commit_of(chunk, reports)
        self._store.put_schemas([schema for report in reports for schema in report.schemas])
        if not self._commit(commit):
            self._lose(split)
            return
        held.state = replace(held.state, seq=commit.seq, counters=commit.counters)
        held.position = self._source.decode_position(commit.position)
        changes = sum(c.cut for report in reports for c in report.counters.values())
        self.came_to.chunks += 1
        self.came_to.changes += changes
        self._measures.step(split, changes)
        self._log.info("chunk_committed", split=split, changes=changes, tasks=len(reports))
        held.budget.spend(len(commit.losses), self._clock.monotonic_ms())
        if offset_of(held.position) == offset_of(before):
            raise ShardFailedError("a chunk did not advance its split", place=f"split {split}")

    def _commit_of(self, chunk: _Chunk, reports: Sequence[PartReport]) -> Commit:
        held, source = chunk.held, self._source
        ends = {
            work.part.shard.split: source.decode_position(report.position)
            for work, report in zip(chunk.works, reports, strict=True)
            if report.position is not None
        }
        split = Split(held.lease.split)
        counters = held.state.counters
        for report in reports:
            counters = add_counters(counters, report.counters)
        reunited = MicroBatches.of(source).reunite(split, held.position, chunk.begun, ends)
        return Commit(
            split=split.split_id,
            plan=self._plan.number,
            token=held.lease.token,
            owner=self._owner.worker,
            previous=held.state.seq,
            seq=held.state.seq + 1,
            position=reunited.encode(),
            counters=counters,
            losses=[loss for report in reports for loss in report.losses],
            tokens=tokens_of(source, split.split_id),
        )

    def _commit(self, commit: Commit) -> bool:
        """Commit a chunk; return False if another process now owns the split.

        Raises:
            RetriesExhaustedError: the store does not answer; it may have committed the chunk.

        """
        retry = Retry(in_ms(self._job.runtime.retry_seconds_max))
        while True:
            try:
                refused = self._store.commit([commit]).get(commit.split)
            except StoreUnavailableError as error:
                now_ms = self._clock.monotonic_ms()
                self._stopped.wait((retry.failed(now_ms, error) - now_ms) / 1000)
                continue
            if isinstance(refused, LeaseLostError):
                self._log.warning("split_lost", split=commit.split, error=str(refused))
                return False
            if refused is not None:
                raise refused
            return True

    def _give_back(self, split: str, problem: str = "") -> None:
        """Release a split, so that workers continue with it."""
        held = self._held.pop(split)
        self._store.want(self._owner.worker, sorted({*self._waiting, *self._held}))
        self._store.release(self._owner.worker, split, held.lease.token, problem)
        self._lease_holder.closed(split, held.lease.token, failed=False)

    def _position(self, state: SplitState) -> Position | None:
        return None if state.position is None else self._source.decode_position(state.position)

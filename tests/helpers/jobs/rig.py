"""A pipeline that a test runs pass by pass: source and sink in memory, a real store."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.connector.runtime.failures.tolerance import ErrorPolicy
from headrace.connector.runtime.limits import Limits
from headrace.connector.runtime.messages import Closed, Gain, Idled
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.runtime.splits.ownership import Lease
from headrace.connector.runtime.splits.split_task import DeliveryResult, Surroundings
from headrace.connector.runtime.writers import Writers
from headrace.connector.serde import Encoder
from headrace.connector.stores.keyed.store import Store
from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore
from headrace.connector.stores.transactional import transactional
from headrace.plugins import Batch, Demand, Encoding, Source
from headrace.plugins.testing.doubles import (
    ChaosConfig,
    ChaosSink,
    DocumentCodec,
    DrivenClock,
    MemoryConfig,
    MemorySource,
    Mutation,
    context,
    sample_records,
)
from headrace.plugins.testing.doubles import ChaosResult as Fate

TICK_MS = 100
COMMIT_MS = 1_000
LEASE_MS = 60_000
RECORD_BYTES = len(
    b'{"table":"shop.orders","op":"UPDATE","key":{"id":0},"timestamp":1700000000000000,"n":0}'
)


class DrivenWake:
    """Waiting moves the clock; messages posted meanwhile are seen afterwards."""

    def __init__(self, clock: DrivenClock) -> None:
        """Start without waits."""
        self.clock = clock
        self.waits: list[int] = []

    def set(self) -> None:
        """Do nothing, since nothing sleeps."""

    def wait(self, timeout_ms: int, readable: int | None = None) -> None:
        """Let the time pass."""
        del readable
        self.waits.append(timeout_ms)
        self.clock.advance(timeout_ms)


class Rig:
    """A pipeline over a memory source, a chaos sink and a real store."""

    def __init__(
        self, path: Path, *, sink_class: type[ChaosSink] = ChaosSink, **limits: int
    ) -> None:
        """Take *limits* over the defaults."""
        self._sink_class = sink_class
        self.path = path
        self.clock = DrivenClock()
        self.wake = DrivenWake(self.clock)
        self.splits: dict[str, list[Mutation]] = {}
        self.faults: deque[Exception | None] = deque()
        self.script: deque[Fate] = deque()
        self.reported: list[Closed | Idled] = []
        self.store = self.open_store()
        self.limits = Limits(
            **{
                "tick_ms": TICK_MS,
                "commit_ms_max": COMMIT_MS,
                "commit_bytes_max": 1 << 20,
                "outstanding_bytes_max": 1 << 20,
                "outstanding_records_max": 1_000,
                "batch_bytes_max": 1 << 20,
                "batch_records_max": 10,
                "retry_ms_max": 60_000,
                "stop_ms_max": 5_000,
            }
            | limits
        )
        self.errors = ErrorPolicy(retry_ms_max=0)
        self.source: MemorySource
        self.sink: ChaosSink
        self.pipeline: Pipeline

    def open_store(self) -> Store:
        """Open another connection to the store."""
        return SqliteStore.open(self.path, "job")

    def open(
        self, counts: dict[str, int], *, until_idle: bool = False, source: Source | None = None
    ) -> None:
        """Open splits with that many mutations, of one record each; or open another *source*."""
        for split, count in counts.items():
            self.splits[split] = [[record] for record in sample_records(count)]
        config = MemoryConfig(splits=self.splits, faults=self.faults)
        self.source = MemorySource(config, context(self.clock))
        self.sink = self._sink_class(ChaosConfig(script=self.script), context(self.clock))
        self._reads = source or self.source
        self.store.register(list(counts))
        self.pipeline = Pipeline(
            self._around, self.limits, self.wake, self.reported.append, until_idle=until_idle
        )
        self.pipeline.open()

    def gain(
        self, worker: str = "w1", *, former: str | None = None, ended: bool = False
    ) -> dict[str, Lease]:
        """Claim all splits and give them to the pipeline; see `Lease` for the *former* owner."""
        tokens = self.store.claim(worker, self.store.leases(), LEASE_MS)
        deadline_ms = self.clock.monotonic_ms() + LEASE_MS
        leases = {
            split: Lease(
                split,
                token,
                deadline_ms=deadline_ms,
                margin_ms=1_000,
                former=former,
                ended=ended,
            )
            for split, token in tokens.items()
        }
        for lease in leases.values():
            self.pipeline.command(Gain(lease))
        return leases

    def passes(self, count: int) -> None:
        """Run *count* passes."""
        for _ in range(count):
            self.pipeline.run_pass()

    def until(self, condition: Callable[[], bool], *, passes_max: int = 1_000) -> None:
        """Run passes until *condition* holds."""
        for _ in range(passes_max):
            if condition():
                return
            self.pipeline.run_pass()
        raise AssertionError("it never came to that")

    def committed(self, split: str = "a") -> int:
        """Return the committed position of a split."""
        state = next(s for s in self.store.states() if s.split == split)
        return int(state.position.head) if state.position else 0

    def closed(self) -> list[Closed]:
        """Return the splits that ended."""
        return [reported for reported in self.reported if isinstance(reported, Closed)]

    def written(self) -> list[bytes]:
        """Return the values that reached the sink."""
        return [value for _, value in self.sink.written]

    def _around(self, post: Callable[[DeliveryResult], None]) -> Surroundings:
        writers = Writers(self.sink, self.clock)
        store = self.open_store()
        if writers.transactional:
            config = SqliteConfig(path=str(self.path))
            kept = transactional(SqliteStore).open_job(config, "job")
            kept.write_with(writers.claimed, self.clock)
            store = kept
        return Surroundings(
            source=self._reads,
            writers=writers,
            encoder=Encoder(Encoding(codec="json", headers=())),
            store=store,
            clock=self.clock,
            log=context().log,
            job="job",
            worker="w1",
            errors=replace(self.errors, retry_ms_max=self.limits.retry_ms_max),
            settle_ms_max=300_000,
            post=post,
            window_bytes=self.limits.commit_bytes_max,
        )


def expected(count: int, first: int = 0) -> Sequence[bytes]:
    """Return the values of the first *count* sample records."""
    source = MemorySource(MemoryConfig(splits={"x": [sample_records(count)]}), context())
    batch = source.open(source.plan()[0], None).read(_everything())
    assert isinstance(batch, Batch)
    return DocumentCodec().encode(batch).values[first:]


def _everything() -> Demand:
    return Demand(records_max=1 << 30, bytes_max=1 << 30)

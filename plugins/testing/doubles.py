"""Stand-ins for the outside world: a controlled clock, a source in memory, a failing sink.

They obey the contract unless scripted otherwise, as the suites prove. They are for tests of the
framework and of plugins; headrace itself does not use them.
"""

import hashlib
import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final

import structlog

from headrace.plugins.check_results import Failure
from headrace.plugins.config.options import option
from headrace.plugins.context import Context
from headrace.plugins.contract import (
    CloseReason,
    Demand,
    Done,
    Idle,
    Reader,
    Settle,
    Sink,
    Source,
    Split,
    Writer,
)
from headrace.plugins.errors import Disposition, FatalError, RetriableError
from headrace.plugins.positions import NumberPosition, Position
from headrace.plugins.records.batches import Batch, Delivery, RecordBatch
from headrace.plugins.records.codecs import Codec
from headrace.plugins.records.record import Operation, Record, RecordSchema

Mutation = Sequence[Record]


class DrivenClock:
    """A clock that stops until a test moves it."""

    def __init__(self, monotonic_ms: int = 1_000) -> None:
        """Start at *monotonic_ms*; the wall clock is half a century ahead."""
        self._now_ms = monotonic_ms

    def monotonic_ms(self) -> int:
        """Return the time set by the test."""
        return self._now_ms

    def wall_ms(self) -> int:
        """Return the same moment, as milliseconds since 1970."""
        return 1_700_000_000_000 + self._now_ms

    def advance(self, ms: int) -> None:
        """Let *ms* milliseconds pass."""
        self._now_ms += ms


def context(clock: DrivenClock | None = None, *, job: str = "test") -> Context:
    """Return the context of a plugin, for tests; its log writes nothing."""
    return Context(
        job=job,
        clock=clock or DrivenClock(),
        job_key=hashlib.md5(job.encode(), usedforsecurity=False).digest(),
        log=structlog.wrap_logger(structlog.ReturnLogger(), processors=[]),
    )


def sample_records(count: int, *, keys: int = 3, first: int = 0) -> list[Record]:
    """Return *count* records numbered from *first*, whose keys repeat after *keys*."""
    schema = RecordSchema.of(
        "shop.orders",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, n int)",
        key={"type": "record", "name": "k", "fields": [{"name": "id", "type": "int"}]},
        value={"type": "record", "name": "v", "fields": [{"name": "n", "type": "int"}]},
    )
    return [
        Record(
            key={"id": n % keys},
            value={"n": n},
            operation=Operation.UPDATE,
            timestamp_us=1_700_000_000_000_000 + n,
            schema=schema,
        )
        for n in range(first, first + count)
    ]


class DocumentCodec(Codec):
    """Encodes what `Record.document` returns, as compact JSON."""

    def key(self, record: Record) -> bytes | None:
        """Return the key as JSON."""
        return None if record.key is None else _json(record.key)

    def value(self, record: Record) -> bytes:
        """Return the document as JSON."""
        return _json(record.document())


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":"), default=str).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryConfig:
    """The content of a `MemorySource`, and the errors it raises.

    A test may append to `splits` while readers are open. Each read first raises the next error of
    `faults`, unless that is None.
    """

    splits: Mapping[str, list[Mutation]] = option("Mutations by split.", default={})
    bounded: bool = option("End with Done instead of Idle.", default=False)
    faults: deque[Exception | None] = field(default_factory=deque)


class MemoryReader(Reader):
    """Reads one list of mutations; its batches have an end only if required."""

    def __init__(self, source: "MemorySource", split: str, mutations: int) -> None:
        """Start after the first *mutations*."""
        self._source = source
        self._split = split
        self._done = mutations
        self._schemas: set[bytes] = set()
        self._owes_end = False

    def read(self, demand: Demand) -> Batch | Idle | Done:
        """Return the next mutations, at least one if there is any and the demand allows one."""
        config = self._source.config
        if config.faults and (fault := config.faults.popleft()):
            raise fault
        taken: list[Mutation] = []
        records = size_bytes = 0
        waiting = config.splits[self._split][self._done :]
        for mutation in waiting if demand.records_max else ():
            records += len(mutation)
            size = sum(len(_json(record.document())) for record in mutation)
            if taken and (records > demand.records_max or size_bytes + size > demand.bytes_max):
                break
            size_bytes += size
            taken.append(mutation)
        if not (taken or (self._owes_end and not demand.end_may_wait)):
            return Done() if config.bounded else Idle()
        self._done += len(taken)
        more = len(taken) < len(waiting)
        self._owes_end = (more or demand.end_may_wait) and not demand.position_due
        return RecordBatch(
            split=self._split,
            end=NumberPosition(self._done),
            size_bytes=size_bytes,
            made=[record for mutation in taken for record in mutation],
            announced=self._unseen(taken),
            has_end=not self._owes_end,
            more=more,
        )

    def release(self, position: Position) -> None:
        """Record that *position* was released."""
        assert isinstance(position, NumberPosition)
        self._source.released[self._split].append(position.number)

    def close(self, reason: CloseReason) -> None:
        """Record *reason*."""
        self._source.closed.append((self._split, reason))

    def _unseen(self, mutations: Sequence[Mutation]) -> list[RecordSchema]:
        used = {record.schema.schema_id: record.schema for m in mutations for record in m}
        unseen = [used[schema_id] for schema_id in used if schema_id not in self._schemas]
        self._schemas.update(used)
        return unseen


class MemorySource(Source):
    """A source that holds its mutations, records its calls, and fails on demand."""

    word = "memory"
    config_class = MemoryConfig
    reader_class: ClassVar[type[MemoryReader]] = MemoryReader

    def __init__(self, config: MemoryConfig, context: Context) -> None:
        """Share *config* with the test."""
        super().__init__(config, context)
        self.released: dict[str, list[int]] = {split: [] for split in config.splits}
        self.closed: list[tuple[str, CloseReason]] = []

    def plan(self) -> Sequence[Split]:
        """Return one split for each list of mutations."""
        return [Split(split_id) for split_id in self.config.splits]

    def open(self, split: Split, resume: Position | None) -> MemoryReader:
        """Start after *resume*."""
        done = resume.number if isinstance(resume, NumberPosition) else 0
        return self.reader_class(self, split.split_id, done)


class ChaosResult(StrEnum):
    """The behaviour of a `ChaosSink` for a delivery."""

    DELIVER = "deliver"
    HOLD = "hold"
    """Keep it, and settle on another thread when the test says `let_go`, if it ever does."""
    RETRY_LAST = "retry_last"
    REJECT_FIRST = "reject_first"
    FATAL_FIRST = "fatal_first"
    REFUSE = "refuse"
    """Take nothing: `submit` raises RetriableError."""
    BREAK = "break"
    """`submit` raises FatalError."""
    CRASH = "crash"
    """`submit` raises an error that no plugin should raise."""
    MISCOUNT = "miscount"
    """Leave the last record out of the result."""
    CONFUSE = "confuse"
    """Report the first record twice, and the last one not at all."""
    DROP = "drop"
    """Report the last record as delivered, and do not write it."""
    TWICE = "twice"
    """Settle the same delivery twice."""


_RAISED: Final = {
    ChaosResult.REFUSE: RetriableError,
    ChaosResult.BREAK: FatalError,
    ChaosResult.CRASH: ZeroDivisionError,
}
_FAILED: Final = {
    ChaosResult.RETRY_LAST: (-1, Disposition.RETRY),
    ChaosResult.REJECT_FIRST: (0, Disposition.REJECT),
    ChaosResult.FATAL_FIRST: (0, Disposition.FATAL),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosConfig:
    """The results of the next deliveries; after the last one everything is delivered."""

    script: deque[ChaosResult] = field(default_factory=deque)


class ChaosSink(Sink):
    """A sink in memory that fails by its script; `written` is what a consumer would see."""

    schemes = ("chaos",)
    config_class = ChaosConfig

    def __init__(self, config: ChaosConfig, context: Context) -> None:
        """Share *config* with the test."""
        super().__init__(config, context)
        self.written: list[tuple[bytes | None, bytes]] = []
        self.held: deque[tuple[Delivery, Settle]] = deque()
        self.writers_open = 0

    def open(self) -> "ChaosWriter":
        """Return a writer; all writers of a sink write to the same place."""
        self.writers_open += 1
        return ChaosWriter(self)

    def let_go(self) -> None:
        """Deliver and settle the held deliveries, in order, on another thread."""
        thread = threading.Thread(target=self._settle_held)
        thread.start()
        thread.join()

    def deliver(self, delivery: Delivery, *, leave_out: int | None = None) -> list[int]:
        """Write the records of *delivery* except the one at *leave_out*. Return their indexes."""
        encoded = delivery.encoded
        indexes = [index for index in range(len(encoded)) if index != leave_out]
        self.written += [(encoded.keys[index], encoded.values[index]) for index in indexes]
        return indexes

    def _settle_held(self) -> None:
        while self.held:
            delivery, settle = self.held.popleft()
            settle(self.deliver(delivery))


class ChaosWriter(Writer):
    """Writes into its sink's memory."""

    def __init__(self, sink: ChaosSink) -> None:
        """Set the sink."""
        self._sink = sink
        self._closed = False

    def submit(self, delivery: Delivery, settle: Settle) -> None:
        """Execute the next step of the script."""
        sink = self._sink
        result = sink.config.script.popleft() if sink.config.script else ChaosResult.DELIVER
        if result in _RAISED:
            raise _RAISED[result]("as the script says")
        if result is ChaosResult.HOLD:
            sink.held.append((delivery, settle))
        elif result in _FAILED:
            index, disposition = _FAILED[result]
            self._fail(delivery, settle, index % len(delivery.encoded), disposition)
        else:
            self._report(delivery, settle, result)

    def drain(self, deadline_ms: int) -> bool:
        """Return whether nothing is held; held deliveries stay so until the test calls `let_go`."""
        del deadline_ms
        return not self._sink.held

    def close(self) -> None:
        """Count down the open writers, once."""
        if not self._closed:
            self._sink.writers_open -= 1
            self._closed = True

    def _report(self, delivery: Delivery, settle: Settle, result: ChaosResult) -> None:
        reported = list(range(len(delivery.encoded)))
        dropped = reported[-1] if result is ChaosResult.DROP else None
        self._sink.deliver(delivery, leave_out=dropped)
        if result is ChaosResult.MISCOUNT:
            reported = reported[:-1]
        elif result is ChaosResult.CONFUSE:
            reported = [0, *reported[:-1]]
        settle(reported)
        if result is ChaosResult.TWICE:
            settle(reported)

    def _fail(
        self, delivery: Delivery, settle: Settle, index: int, disposition: Disposition
    ) -> None:
        delivered = self._sink.deliver(delivery, leave_out=index)
        settle(delivered, [Failure(index, disposition, "chaos", "as the script says")])

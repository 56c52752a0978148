"""One running split: its reader, its ledger, and its position. Runs on the data thread.

It reads, encodes, submits and settles. Committing several splits together, pacing and the handling
of errors belong to the pipeline.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

import structlog
from msgspec.structs import replace

from headrace.connector.foundation import crash
from headrace.connector.foundation.offered import tokens_of
from headrace.connector.obs.blame import blame, making
from headrace.connector.runtime.failures.retry import Retry
from headrace.connector.runtime.failures.tolerance import (
    ErrorBudget,
    ErrorPolicy,
    NotToleratedError,
)
from headrace.connector.runtime.splits.ledger import (
    PRODUCE_STAGE,
    WINDOW,
    ZOMBIE,
    Ledger,
    Settled,
    Shipment,
    State,
)
from headrace.connector.runtime.splits.ownership import Lease
from headrace.connector.runtime.tally import Tally
from headrace.connector.runtime.writers import Writers
from headrace.connector.serde import Encoder
from headrace.connector.stores import Commit, Counters, add_counters
from headrace.connector.stores.keyed.store import Store
from headrace.plugins import (
    AbortedError,
    Batch,
    Clock,
    CloseReason,
    Demand,
    Disposition,
    Done,
    EncodedPosition,
    EncodedRecords,
    Failure,
    FatalError,
    HeadraceError,
    Idle,
    LeaseLostError,
    Position,
    Reader,
    RecordSchema,
    RetriableError,
    SharedReading,
    Source,
    Split,
)
from headrace.plugins.metrics import Passed
from headrace.plugins.stores.kept_modes import KeptModes, Place

if TYPE_CHECKING:
    from headrace.plugins.telemetry.spans import Trail

_END_ONLY: Final = Demand(records_max=0, bytes_max=0, linger_ms=0)
_US: Final = 1_000  # In a millisecond.
_WINDOW_PARTS: Final = 3  # After one of them batches have ends; half the window is committed.

DeliveryResult = tuple["SplitRun", Ledger, int, int, Collection[int], Sequence[Failure]]


class SettleTimeoutError(FatalError):
    """The sink reported no result for a batch within `settle_seconds_max`."""

    code = "settle_timeout"
    restartable = True


class Progress(Enum):
    """The result of one step of a split."""

    MORE = "more"
    """More can be read at once."""
    MOVED = "moved"
    """Something was read; the next tick may bring more."""
    QUIET = "quiet"
    """Everything durable was read."""
    WAITING = "waiting"
    """It waits for its lease, for the end of a pause, or for data that the source cannot read yet.
    """
    BLOCKED = "blocked"
    """It waits until the sink or a commit makes room."""
    FETCHING = "fetching"
    """A batch that was read waits for data that the source fetches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The objects that all splits of a pipeline share."""

    source: Source
    writers: Writers
    encoder: Encoder
    store: Store
    clock: Clock
    log: structlog.stdlib.BoundLogger
    job: str
    worker: str
    errors: ErrorPolicy
    settle_ms_max: int
    post: Callable[[DeliveryResult], None]
    tally: Tally = field(default_factory=Tally)
    plan: int = 0  # The generation of the splits; 0 is any.
    window_bytes: int = 0  # The most of a split to be uncommitted when its owner dies (I7).
    schemas: dict[bytes, RecordSchema] = field(default_factory=dict)  # Each comes once.
    trail: "Callable[[str], Trail] | None" = None  # Makes the recorder of a split's stage times.


@dataclass(frozen=True, slots=True)
class Offer:
    """A settled prefix, and the commit that makes it durable."""

    commit: Commit
    settled: Settled


class SplitRun:
    """See the module. `closing` says why it will end; `error` is its error."""

    def __init__(self, lease: Lease, around: Surroundings, *, again_bytes: int = 0) -> None:
        """Open nothing: the first step opens the reader, and may fail and be repeated.

        *again_bytes* is the size that an earlier run of the split in this process left uncommitted.
        """
        self.lease = lease
        self.split = lease.split
        self.closing: CloseReason | None = None
        self.error: HeadraceError | None = None
        self.close_by_ms = 0
        self.done = False
        self.bytes_read = 0
        """The bytes of the split that were read since it was gained."""
        self.position: Position | None = None
        """The committed position, to which its books belong."""
        self.counters: Counters = {}
        self.modes: KeptModes | None = None
        """The modes of logs that are stored with the position."""
        self.written_us: int | None = None
        """The write time of the last encoded record."""
        self.moved_ms = around.clock.monotonic_ms()
        self.trouble = ""
        errors = around.errors
        self.retry = Retry(errors.retry_ms_max, pause_ms_max=errors.pause_ms_max)
        self.not_before_ms = 0
        self.release_retry = Retry(errors.retry_ms_max, pause_ms_max=errors.pause_ms_max)
        self.release_not_before_ms = 0
        self.release_due: Position | None = None
        self._around = around
        self._budget = ErrorBudget(records_max=errors.budget_records, window_ms=errors.budget_ms)
        self._trail: Trail | None = None
        self._reader: Reader | None = None
        self.ledger = Ledger(lease.split, last_seq=0)
        self._offer: Offer | None = None
        self._was_asked_last = False  # For the last position before the close.
        self._plan = self._seq = 0
        self._stored: tuple[bytes, frozenset[str]] | None = None  # Head, and names of chunks.
        self._restarting = False
        self.read_last: Batch | None = None
        """The batch that was read and is not in the ledger yet."""
        self._transactional = around.writers.transactional
        self._doubt, self._doubt_bytes = WINDOW, again_bytes
        if lease.former is not None:  # What it sent and did not commit is read again.
            self._doubt = WINDOW if lease.ended else ZOMBIE
            self._doubt_bytes = around.window_bytes
        self.commit_due = False
        """Exactly once: nothing more is submitted until everything submitted is committed."""

    @property
    def read_bytes(self) -> int:
        """The size of a batch that was read and is not in the ledger yet."""
        return 0 if self.read_last is None else self.read_last.size_bytes

    @property
    def end_bytes(self) -> int:
        """The size of the position that could be committed now; 0 with exactly once."""
        settled = None if self._transactional else self.ledger.settled
        return 0 if settled is None or settled.end is None else settled.end.size_bytes

    def is_refused(self, now_ms: int) -> bool:
        """Return whether the sink refused unsent batches, and is not asked again yet."""
        return now_ms < self.not_before_ms and bool(self.ledger.unsent())

    @property
    def is_open(self) -> bool:
        """Whether it has a reader, and continues to read."""
        return self._reader is not None and self.closing is None

    @property
    def is_loaded(self) -> bool:
        """Whether its state is loaded, and no other worker is known to own it."""
        return self._reader is not None and self.closing is not CloseReason.LEASE_LOST

    def places(self) -> Mapping[str, Place]:
        """Return the committed place of each log, if the source names logs with one label."""
        described = self.position.describe() if self.position else ()
        return {name: place for part, place in described for name in part.values()}

    def begin(self) -> bool:
        """Open the reader if it is closed and may open; return whether it was. Raises as `step`.

        All splits of a pass open before one of them reads: what they share, such as a log, is then
        read once for all, not from its start for each split that joins.
        """
        if self._reader is not None and not self._restarting:
            return False
        if self._around.clock.monotonic_ms() < self.not_before_ms:
            return False
        if self._restarting and not self.ledger.sent:
            self.close(CloseReason.FAILED)
        if self._reader is None and not self.closing:
            self._reader = self._open()
            return True
        return False

    def step(self, demand: Demand | None) -> Progress:
        """Send waiting batches, then read one if that is allowed now; without *demand* read none.

        Raises the errors of plugins and store: the pipeline handles them.
        """
        now_ms = self._around.clock.monotonic_ms()
        if now_ms < self.not_before_ms:
            return Progress.WAITING
        self._check_settling(now_ms)
        reader = None if self._restarting else self._reader
        if reader is None:
            return Progress.WAITING
        if self.ledger.retry_due:
            self.ledger.resend()
        return self._go_on(reader, demand, now_ms)

    def _go_on(self, reader: Reader, demand: Demand | None, now_ms: int) -> Progress:
        owes = self.ledger.needs_end or self._owes_last(now_ms)
        needs_end = owes and self.closing is not CloseReason.FAILED
        if not self.commit_due and (not self._send() or (self.closing and not needs_end)):
            return Progress.WAITING
        if demand is None and self.read_last is None and not self.closing:
            return Progress.BLOCKED if self.commit_due else Progress.QUIET
        demand = demand or _END_ONLY
        room = self.read_last is not None or (demand.records_max > 0 and demand.bytes_max > 0)
        if needs_end and (self.closing or not room):
            self._was_asked_last = self.closing is not None
            return self._read(reader, _END_ONLY)
        if self.commit_due or not room:
            return Progress.BLOCKED
        if self._owes_end(demand) and not demand.position_due:
            demand = replace(demand, position_due=True, end_may_wait=False)
        return self._read(reader, demand)

    def _owes_last(self, now_ms: int) -> bool:
        """Return whether the split ends, and its position may have moved since the last request."""
        if self.closing is not CloseReason.HANDED_OVER or self._reader is None or self._restarting:
            return False
        is_asked = self._was_asked_last or self._transactional or now_ms < self.not_before_ms
        return not is_asked and isinstance(self._around.source, SharedReading)

    def rests(self, now_ms: int) -> bool:
        """Return whether there is nothing to do for it until the source has news."""
        return (
            self.ledger.empty
            and self.read_last is None
            and self.release_due is None
            and self._offer is None
            and self.closing is None
            and self._reader is not None
            and not self._restarting
            and now_ms >= self.not_before_ms
        )

    def _owes_end(self, demand: Demand) -> bool:
        """Return whether the next batch must have an end, to be committed in time."""
        window_bytes = self._around.window_bytes
        return (
            demand.position_due
            or self._transactional
            or self.ledger.uncommitted_bytes * _WINDOW_PARTS >= window_bytes
        )

    def held_up(self, now_ms: int) -> str:
        """Return why this split does not move, as far as known; no row, no secret."""
        if now_ms < self.not_before_ms:
            return f"repeated after an error: {self.trouble}"
        oldest_ms = self.ledger.oldest_sent_ms()
        if oldest_ms is not None:
            return f"the sink has reported no result for {(now_ms - oldest_ms) / 1000:g} s"
        if not self.lease.allows(now_ms):
            return "its lease could not be renewed"
        if self._offer is not None:
            return "what is settled could not be committed"
        if self.read_last is not None:
            return "what was read waits for what the source fetches"
        return "nothing was read"

    def settle(
        self, seq: int, attempt: int, delivered: Collection[int], failures: Sequence[Failure]
    ) -> None:
        """Enter a result. Raises when the split must stop or pause."""
        now_ms = self._around.clock.monotonic_ms()
        shipment = self.ledger.awaited(seq)
        if shipment is not None:
            self._around.tally.publishes.observe(now_ms - shipment.sent_ms)
            if self._trail is not None:
                self._trail.settled(seq, attempt, shipment.sent_ms, now_ms)
        before = self.ledger.retrying
        rejected = [f for f in failures if f.disposition is Disposition.REJECT] if failures else ()
        if rejected and not self._around.errors.tolerant:
            failures = [replace(f, disposition=Disposition.FATAL) for f in failures]
        error = self.ledger.settle(seq, attempt, delivered, failures)
        if error:
            raise error
        if self.ledger.retrying and not before:
            first = self.ledger.miscount or failures[0].message
            text = f"batch {seq} was not delivered: {first}"
            if not self._transactional:
                raise RetriableError(text)
            aborted = AbortedError(text)
            aborted.at_once = any(failure.at_once for failure in failures)
            raise aborted
        for each in rejected:
            self._tell(each.code, PRODUCE_STAGE, f"batch {seq}, record {each.index}")
        self._budget.spend(len(rejected), now_ms)
        if shipment is not None and shipment.passed:
            self._note_stages(shipment)
        if not self.ledger.retrying:
            self.retry.succeeded()
            self.moved_ms = now_ms

    def _note_stages(self, shipment: Shipment) -> None:
        """Record the stage times of a settled batch, unless it is sent again."""
        if shipment.state is State.SETTLED and shipment.retry_from is None:
            now_ms = self._around.clock.wall_ms()
            self._around.tally.stages.ended(shipment.passed, now_ms)

    def hold_for_commit(self) -> None:
        """Exactly once: submit nothing more until everything submitted is committed."""
        something = self._offer is not None or self.ledger.settled is not None or self.ledger.sent
        self.commit_due = self._transactional and not self._restarting and bool(something)

    def offer(self) -> Offer | None:
        """Return the offer to commit: the last one if its result is unknown, or the new prefix."""
        if self._offer is None:
            settled = self.ledger.settled
            if settled is None or settled.end is None or not self._committable():
                return None
            encoded = settled.end.encode()
            self.ledger.take_settled()
            if self._unchanged(encoded, settled):
                self.ledger.committed(settled)
                self.commit_due = False
                return None
            commit = Commit(
                split=self.split,
                plan=self._plan,
                token=self.lease.token,
                owner=self._around.worker,
                previous=self._seq,
                seq=settled.seq,
                position=encoded,
                counters=add_counters(self.counters, settled.counters),
                losses=settled.losses,
                tokens=tokens_of(self._around.source, self.split),
            )
            self._offer = Offer(commit, settled)
        return self._offer

    def committed(self, offer: Offer) -> None:
        """Record that *offer* is durable; the source may release everything before it."""
        self._offer = None
        self.commit_due = False
        self._seq, self._stored = offer.commit.seq, _named(offer.commit.position)
        self.counters = offer.commit.counters
        self.position = offer.settled.end
        self.ledger.committed(offer.settled)
        if self._trail is not None:
            self._trail.committed(offer.commit.seq, self._around.clock.monotonic_ms())
        self.release_due = offer.settled.end
        codes = Counter(loss.code for loss in offer.settled.losses)
        if codes:  # Logged once for each commit.
            self._around.tally.dead_lettered += codes.total()
            self._around.log.warning(
                "records_dead_lettered", split=self.split, records=codes.total(), codes=dict(codes)
            )

    def release(self) -> None:
        """Release a position to the source (R1, R2). Raises as the reader does: call again."""
        if self.release_due is not None and self._reader is not None:
            self._reader.release(self.release_due)
            self.release_due = None

    def restart(self) -> None:
        """Discard uncommitted batches and, after the pause, restart from the stored state."""
        self._restarting = True
        self._doubt_bytes = max(self._doubt_bytes, self.ledger.uncommitted_bytes)
        if self._transactional:  # Settled batches can only be committed with the rest.
            self._offer = None
            self.commit_due = False

    def drained(self) -> bool:
        """Whether nothing is left to settle or to commit."""
        lost = self._transactional and (self._restarting or self.ledger.retrying)
        if self._offer is not None or (self.ledger.settled is not None and not lost):
            return False
        if self._owes_last(self._around.clock.monotonic_ms()):
            return False
        given_up = self._restarting or self.closing is CloseReason.FAILED
        return not self.ledger.sent if given_up else self.ledger.empty and not self.ledger.needs_end

    def close(self, reason: CloseReason) -> None:
        """Close the reader, if there is one."""
        reader, self._reader = self._reader, None
        self.read_last = None
        if reader is not None:
            reader.close(reason)

    def _committable(self) -> bool:
        """Return whether settled batches may be committed: exactly once, only all sent."""
        if not self._transactional:
            return True
        given_up = self._restarting or self.ledger.retrying
        return self.commit_due and not given_up and not self.ledger.sent

    def _open(self) -> Reader:
        around = self._around
        state = around.store.load(self.split, self.lease.token)
        crash.reached("loaded")
        if around.plan and state.plan != around.plan:
            raise LeaseLostError(
                f"is of plan {state.plan}, this worker runs plan {around.plan}",
                place=f"split {self.split}",
            )
        resume = None
        if state.position is not None:
            resume = around.source.decode_position(state.position)
        self._plan, self._seq, self.counters = state.plan, state.seq, state.counters
        self.position, self.modes = resume, state.modes
        self._stored = None if state.position is None else _named(state.position)
        self._offer = None
        self._restarting = self.commit_due = False
        self.ledger = Ledger(self.split, last_seq=state.seq)
        self._trail = None if around.trail is None else around.trail(self.split)
        with making(around.source, f"opened for split {self.split}"):
            reader = around.source.open(Split(self.split), resume)
        around.log.info("split_started", split=self.split, token=self.lease.token, seq=state.seq)
        return reader

    def _read_next(self, reader: Reader, demand: Demand) -> Batch | Progress:
        """Read a batch, or return why there is none."""
        started_ms = self._around.clock.monotonic_ms()
        try:
            batch = reader.read(demand)
        except Exception as error:
            blame(error, self._around.source)
            raise
        now_ms = self._around.clock.monotonic_ms()
        self._around.tally.reads.observe(now_ms - started_ms)
        if isinstance(batch, Batch):
            crash.reached("read")
            self.bytes_read += batch.size_bytes
            if self._trail is not None:
                self._trail.read(started_ms, now_ms)
            return batch
        if isinstance(batch, Idle) and batch.more:
            return Progress.WAITING
        self.done = isinstance(batch, Done)
        if self.ledger.empty:
            self.retry.succeeded()
        self._doubt_bytes = 0
        return Progress.QUIET

    def _read(self, reader: Reader, demand: Demand) -> Progress:
        if self.read_last is None:
            found = self._read_next(reader, demand)
            if isinstance(found, Progress):
                return found
            self.read_last = found  # Until it is in the ledger: the next steps may be repeated.
        batch = self.read_last
        if not batch.ready():
            return Progress.FETCHING
        self._keep(batch.schemas())
        encoded = self._around.encoder.encode(batch, token=self.lease.token)
        crash.reached("encoded")
        quarantined = encoded.quarantined
        if quarantined and not self._around.errors.tolerant:
            lost = quarantined[0]
            raise NotToleratedError(f"{lost.code}: {lost.message}", place=lost.place)
        shipment = self.ledger.add(batch, encoded, _passed(batch, encoded))
        if self._trail is not None:
            self._trail.added(shipment.seq, shipment.records, shipment.size_bytes, shipment.passed)
        self._note_repeats(shipment, more=batch.more)
        self._around.tally.records_read += len(encoded)
        self.read_last = None
        if encoded.facts is not None and len(encoded.facts.timestamps_us):
            self.written_us = encoded.facts.timestamps_us[-1]
        for each in quarantined:
            self._tell(each.code, each.stage, each.place)
        self._budget.spend(len(quarantined), self._around.clock.monotonic_ms())
        self._send()
        if batch.more:
            return Progress.MORE
        return Progress.MOVED if len(encoded) or encoded.quarantined else Progress.QUIET

    def _keep(self, schemas: Sequence[RecordSchema]) -> None:
        """Store schemas, before a record with them is sent, and queue them for publication."""
        if schemas:  # Few batches have any.
            self._around.schemas.update((schema.schema_id, schema) for schema in schemas)
            self._around.store.put_schemas(schemas)
        crash.reached("schemas_stored")
        if schemas:
            self._around.encoder.announce(schemas)

    def _note_repeats(self, shipment: Shipment, *, more: bool) -> None:
        """Count changes that may have been sent before and not committed: at most a window.

        Changes are new once everything that existed at the takeover was read.
        """
        if self._doubt_bytes > 0 and not self._transactional:
            shipment.may_repeat(self._doubt)
            self._doubt_bytes = self._doubt_bytes - shipment.size_bytes if more else 0

    def _tell(self, code: str, stage: str, place: str) -> None:
        if self._around.errors.logged:
            self._around.log.warning(
                "record_dead_lettered", split=self.split, code=code, stage=stage, place=place
            )

    def _send(self) -> bool:
        """Submit unsent batches; return whether none is left."""
        for shipment in self.ledger.unsent():
            now_ms = self._around.clock.monotonic_ms()
            if not self.lease.allows(now_ms):  # I2: not after the deadline.
                return False
            self._submit(shipment, now_ms)
        return not self.ledger.retrying

    def _submit(self, shipment: Shipment, now_ms: int) -> None:
        post, ledger = self._around.post, self.ledger
        seq, attempt = shipment.seq, shipment.attempt

        def settle(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
            post((self, ledger, seq, attempt, delivered, failures))

        self.ledger.mark_sent(shipment, now_ms)
        try:
            delivery = shipment.delivery(self._around.schemas)
            self._around.writers.of(self.split).submit(delivery, settle)
        except Exception as error:  # The writer will report no result for it.
            self.ledger.mark_refused(shipment)
            blame(error, self._around.writers.sink)
            raise
        crash.reached("submitted")

    def _check_settling(self, now_ms: int) -> None:
        oldest_ms = self.ledger.oldest_sent_ms()
        if oldest_ms is not None and now_ms - oldest_ms > self._around.settle_ms_max:
            raise SettleTimeoutError(
                f"the sink reported no result for {(now_ms - oldest_ms) / 1000:g} s",
                place=f"split {self.split}",
                hint="runtime.settle_seconds_max says how long to wait",
            )

    def _unchanged(self, encoded: EncodedPosition, settled: Settled) -> bool:
        return not settled.counters and not settled.losses and self._stored == _named(encoded)


def _passed(batch: Batch, encoded: EncodedRecords) -> Sequence[Passed]:
    """Return the stage times of a batch without quarantined items, each for a part of it."""
    count, times = len(encoded.values), batch.stage_times
    if not count or encoded.quarantined:
        return ()
    written_us = encoded.facts.timestamps_us if encoded.facts is not None else ()
    return [
        Passed(
            (count + number) // len(times),
            (
                written_us[each.record] / _US if len(written_us) == count else None,
                *each.times_ms,
            ),
        )
        for number, each in enumerate(times)
    ]


def _named(encoded: EncodedPosition) -> tuple[bytes, frozenset[str]]:
    """Return an identity of a position that is smaller than the position."""
    return encoded.head, frozenset(encoded.names)

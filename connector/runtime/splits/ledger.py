"""The ledger of one split: the batches in flight, and how far everything is settled.

Pure: no clock, no I/O, no threads. The pipeline's thread owns it. Only the contiguous settled
prefix may be committed (R3, I1). A batch is identified by its number, never by its records or
position (R4).
"""

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress
from typing import Final

import msgspec

from headrace.connector.serde.content import ChecksumError
from headrace.connector.serde.transcode.sums import measured
from headrace.connector.stores import Counters, Loss, TableCounts, add_counters
from headrace.plugins import (
    MODULUS,
    Batch,
    Delivery,
    Disposition,
    EncodedRecords,
    Failure,
    FatalError,
    Position,
    Record,
    RecordSchema,
)
from headrace.plugins.metrics import Passed
from headrace.plugins.records.codecs import CONTROL_TABLE

PRODUCE_STAGE: Final = "KAFKA_PRODUCE"  # Kafka Connect's word for delivering.
# Why changes may come twice.
WINDOW, ZOMBIE, RESEND = "window", "zombie", "resend"


class DeliveryFailedError(FatalError):
    """The sink reports that a record cannot be delivered and that continuing is useless."""

    code = "delivery_failed"


class State(Enum):
    """The state of a shipment."""

    UNSENT = "unsent"
    SENT = "sent"
    SETTLED = "settled"


@dataclass(slots=True)
class Shipment:
    """One numbered batch in flight to the sink; `attempt` identifies late results."""

    seq: int
    batch: Batch
    encoded: EncodedRecords
    counters: Counters
    losses: list[Loss]
    records: int
    size_bytes: int
    """The size of the batch or of its encoded values, the greater one: both are in memory."""
    attempt: int = 1
    state: State = State.UNSENT
    sent_ms: int = 0
    retry_from: int | None = None
    rejected: set[int] = field(default_factory=set)
    done: int = 0
    """How many of its records are not sent again: rejected, or delivered before a failure."""
    checksum: int = 0
    """The sum of the checksums of all changes, also of those that did not become records."""
    settled_sum: int = 0
    """The same sum, once the sink has reported on all records."""
    sum_so_far: int | None = None
    """The source's sum of the checksums of this batch and of all earlier ones in the ledger."""
    whole: int | None = None
    """The content of all records, once only some of them are sent again; see `_content`."""
    done_content: int = 0
    """The content of the records that are not sent again."""
    passed: Sequence[Passed] = ()
    """Samples of its changes: their write times, and the times of each stage of the source."""

    def delivery(self, schemas: Mapping[bytes, RecordSchema]) -> Delivery:
        """Return the delivery for the writer."""
        return Delivery(self.batch, self.encoded, schemas)

    def accounted(self) -> int:
        """Return `checksum` if this attempt and the earlier ones make all records; else 0."""
        if self.whole is None or self.whole == self.done_content + _content(self.encoded):
            return self.checksum
        return 0

    def may_repeat(self, cause: str) -> None:
        """Count its changes as possibly repeated; *cause* is a field of `TableCounts`."""
        counts = Counter(self.encoded.tables)
        again = {table: TableCounts(**{cause: count}) for table, count in counts.items()}
        self.counters = add_counters(self.counters, again)


class Settled(msgspec.Struct, frozen=True):
    """A range of settled batches: its end, the outcomes of its changes, the losses to keep.

    A range without an end cannot be committed by itself.
    """

    seq: int
    end: Position | None
    counters: Counters
    losses: Sequence[Loss]
    size_bytes: int

    @property
    def changes(self) -> int:
        """How many changes were delivered; dead letters and notices of gaps do not count."""
        return sum(c.delivered for table, c in self.counters.items() if table != CONTROL_TABLE)

    def then(self, later: "Settled") -> "Settled":
        """Return both as one range."""
        return Settled(
            later.seq,
            later.end,
            add_counters(self.counters, later.counters),
            (*self.losses, *later.losses),
            self.size_bytes + later.size_bytes,
        )


class Ledger:
    """See the module."""

    def __init__(self, split: str, *, last_seq: int) -> None:
        """Batches are numbered from *last_seq* + 1."""
        self._split = split
        self._last_seq = last_seq
        self._shipments: deque[Shipment] = deque()
        self._prefix: Settled | None = None
        self._beyond: Settled | None = None  # Settled after the prefix, without an end.
        self._sent = 0
        self._ends = 0  # The number of shipments with an end.
        self.miscount = ""
        """Why the last result was invalid."""
        self._retrying = False
        self._sum = 0  # The sum of the checksums of all settled batches.
        self.outstanding_bytes = 0
        self.outstanding_records = 0
        self.uncommitted_bytes = 0
        self.reached_ms: float | None = None
        """Changes that could be read before this time are settled, as far as known; ms since 1970.
        """
        self.needs_end = False
        """Whether the last batch has no end, so that it cannot be committed."""

    @property
    def sent(self) -> int:
        """The number of shipments the sink has not settled yet."""
        return self._sent

    @property
    def empty(self) -> bool:
        """Whether nothing is in flight."""
        return not self._shipments

    @property
    def retrying(self) -> bool:
        """Whether something must be sent again, once nothing is in flight."""
        return self._retrying

    @property
    def settled(self) -> Settled | None:
        """The result that `take_settled` would return."""
        return self._prefix

    @property
    def settled_bytes(self) -> int:
        """The size of the settled batches that are not yet durable."""
        return self.uncommitted_bytes - self.outstanding_bytes

    @property
    def retry_due(self) -> bool:
        """Whether something must be sent again and nothing is in flight."""
        return self._retrying and not self._sent

    @property
    def awaits_end(self) -> bool:
        """Whether a batch with an end is unsettled, or waits for an unsettled one."""
        return self._ends > 0

    def oldest_sent_ms(self) -> int | None:
        """Return when the oldest unsettled shipment was sent, or None."""
        if not self._sent:
            return None
        return min(s.sent_ms for s in self._shipments if s.state is State.SENT)

    def awaited(self, seq: int) -> Shipment | None:
        """Return the batch with this number if the writer has it and has not settled it."""
        shipment = self._find(seq)
        return shipment if shipment and shipment.state is State.SENT else None

    def add(self, batch: Batch, encoded: EncodedRecords, passed: Sequence[Passed] = ()) -> Shipment:
        """Append a batch under the next number. Without records it is settled at once.

        Only the sum of its checksums is kept.
        """
        if passed and not self._shipments:
            self.reached_ms = passed[0].times_ms[1]
        self._last_seq += 1
        counters, losses = tally(encoded, f"split {self._split}, batch {self._last_seq}")
        checksum, values_bytes = measured(encoded)
        size_bytes = max(batch.size_bytes, values_bytes)
        shipment = Shipment(
            self._last_seq,
            batch,
            msgspec.structs.replace(encoded, checksums=None),
            counters,
            losses,
            len(encoded.values),
            size_bytes,
            checksum=checksum,
            sum_so_far=batch.checksum_so_far,
            passed=passed,
        )
        self._shipments.append(shipment)
        self._ends += batch.has_end
        self.needs_end = not batch.has_end
        self.outstanding_bytes += size_bytes
        self.outstanding_records += shipment.records
        self.uncommitted_bytes += size_bytes
        if not shipment.records:
            shipment.state = State.SETTLED
            shipment.settled_sum = shipment.checksum
            self._fold()
        return shipment

    def unsent(self) -> Sequence[Shipment]:
        """Return the batches to submit, in order: none while a retry waits for the rest (I4)."""
        if self._retrying or len(self._shipments) == self._sent:
            return ()
        return [s for s in self._shipments if s.state is State.UNSENT]

    def mark_sent(self, shipment: Shipment, now_ms: int) -> None:
        """Record that *shipment* is about to be submitted."""
        shipment.state = State.SENT
        shipment.sent_ms = now_ms
        self._sent += 1

    def mark_refused(self, shipment: Shipment) -> None:
        """Record that the writer accepted nothing of *shipment*."""
        shipment.state = State.UNSENT
        shipment.attempt += 1
        self._sent -= 1

    def settle(
        self, seq: int, attempt: int, delivered: Collection[int], failures: Sequence[Failure]
    ) -> DeliveryFailedError | None:
        """Enter the sink's result; return why the split must stop, if it must.

        A late or second result changes nothing.
        """
        shipment = self._find(seq)
        if shipment is None or shipment.attempt != attempt or shipment.state is not State.SENT:
            return None
        shipment.state = State.SETTLED
        self._sent -= 1
        self.miscount = miscount_of(shipment.records - shipment.done, delivered, failures)
        if self.miscount:
            shipment.retry_from = 0  # R6: a wrong count means not delivered.
        elif failures:
            fatal = next((f for f in failures if f.disposition is Disposition.FATAL), None)
            if fatal:
                shipment.retry_from = 0
                self._retrying = True
                return DeliveryFailedError(
                    f"{fatal.code}: {fatal.message}",
                    place=f"split {self._split}, batch {seq}",
                    hint=fatal.hint,
                )
            self._sort_out(shipment, failures)
        if shipment.retry_from is not None:
            self._retrying = True
        else:
            shipment.settled_sum = shipment.accounted()
        self._fold()
        return None

    def resend(self) -> None:
        """Mark everything from the first failure on as unsent, without rejected records.

        Only when `retry_due`.
        """
        first = next(i for i, s in enumerate(self._shipments) if s.retry_from is not None)
        for place, shipment in enumerate(self._shipments):
            if place < first or shipment.state is State.UNSENT:
                continue
            # I4: everything after the first failure is sent again, even if it arrived before.
            start = (shipment.retry_from or 0) if place == first else 0
            arrived = start - sum(index < start for index in shipment.rejected)
            shipment.done += arrived + len(shipment.rejected)
            total = len(shipment.encoded)
            keep = [i >= start and i not in shipment.rejected for i in range(total)]
            if not all(keep):
                done = sorted({*range(start), *shipment.rejected})
                if shipment.whole is None:
                    shipment.whole = _content(shipment.encoded)
                shipment.done_content += _content(shipment.encoded.chosen(done))
                shipment.batch = Part(shipment.batch, keep)
                rest = shipment.encoded.chosen([i for i, kept in enumerate(keep) if kept])
                shipment.encoded = msgspec.structs.replace(
                    rest, quarantined=(), filtered={}, omitted=0
                )
            shipment.rejected.clear()
            shipment.retry_from = None
            shipment.may_repeat(RESEND)
            shipment.attempt += 1
            finished = shipment.done == shipment.records
            shipment.state = State.SETTLED if finished else State.UNSENT
            shipment.settled_sum = shipment.accounted() if finished else 0
        self._retrying = False
        self._fold()

    def take_settled(self) -> Settled | None:
        """Return the settled prefix since the last call, to commit it (I1). It has an end."""
        prefix, self._prefix = self._prefix, None
        return prefix

    def committed(self, settled: Settled) -> None:
        """Record that *settled* is durable."""
        self.uncommitted_bytes -= settled.size_bytes

    def _find(self, seq: int) -> Shipment | None:
        if not self._shipments:
            return None
        index = seq - self._shipments[0].seq  # Numbers in the ledger have no gaps.
        return self._shipments[index] if 0 <= index < len(self._shipments) else None

    def _sort_out(self, shipment: Shipment, failures: Sequence[Failure]) -> None:
        encoded = shipment.encoded
        for failure in failures:
            if failure.disposition is Disposition.REJECT:
                table = encoded.tables[failure.index]
                shipment.rejected.add(failure.index)
                shipment.counters = add_counters(
                    shipment.counters, {table: TableCounts(delivered=-1, dead_lettered=1)}
                )
                shipment.losses.append(
                    dead_letter(encoded, failure, f"split {self._split}, batch {shipment.seq}")
                )
        retries = [f.index for f in failures if f.disposition is Disposition.RETRY]
        if retries:
            shipment.retry_from = min(retries)

    def _fold(self) -> None:
        """Move settled batches at the front to the prefix. I1: contiguous only, up to an end."""
        while self._shipments:
            front = self._shipments[0]
            if front.state is not State.SETTLED or front.retry_from is not None:
                return
            self._check(front)
            self._shipments.popleft()
            if front.passed:
                self.reached_ms = front.passed[-1].times_ms[1]
            end = front.batch.end if front.batch.has_end else None
            self._ends -= front.batch.has_end
            losses = tuple(front.losses)
            run = Settled(front.seq, end, front.counters, losses, front.size_bytes)
            run = self._beyond.then(run) if self._beyond else run
            if run.end is None:
                self._beyond = run
            else:
                self._prefix = self._prefix.then(run) if self._prefix else run
                self._beyond = None
            self.outstanding_bytes -= front.size_bytes
            self.outstanding_records -= front.records

    def _check(self, shipment: Shipment) -> None:
        """Compare the settled records with those that the source returned. Raises ChecksumError."""
        self._sum = (self._sum + shipment.settled_sum) % MODULUS
        if shipment.sum_so_far not in (None, self._sum):
            raise ChecksumError(
                "what the sink settled, what was rejected and what was left out do not add up to "
                "what was read",
                place=f"split {self._split}, batch {shipment.seq}",
                hint="nothing from this batch on is committed; it is a fault of headrace or of a "
                "plugin: report it, with the job and the versions",
            )


class Part(Batch):
    """Some records of the batch *whole*, for a writer that takes objects."""

    def __init__(self, whole: Batch, keep: Sequence[bool]) -> None:
        """Take the records for which *keep* is true."""
        self.whole = whole
        self.split = whole.split
        self.has_end = whole.has_end
        if whole.has_end:
            self.end = whole.end
        self.size_bytes = whole.size_bytes
        self._keep = keep

    def records(self) -> Iterator[Record]:
        """See `Batch.records`."""
        return compress(self.whole.records(), self._keep)


def _content(encoded: EncodedRecords) -> int:
    """Return a sum over the content of records, independent of their order."""
    return sum(map(hash, zip(encoded.tables, encoded.keys, encoded.values, strict=True)))


def miscount_of(total: int, delivered: Collection[int], failures: Sequence[Failure]) -> str:
    """Return why a result for *total* records is invalid; "" if it is valid."""
    if not failures and delivered == range(total):  # Nearly always.
        return ""
    if isinstance(delivered, int):  # A likely mistake of a plugin.
        return f"the sink says how many were delivered ({delivered}), not which records"
    times = Counter(delivered)
    times.update(failure.index for failure in failures)
    wrong = {
        "missing": [index for index in range(total) if not times[index]],
        "doubled": [index for index in times if times[index] > 1],
        "unknown": [index for index in times if not 0 <= index < total],
    }
    said = [f"{len(found)} {how} (first: {min(found)})" for how, found in wrong.items() if found]
    return f"the sink's result for {total} records is invalid: {', '.join(said)}" if said else ""


def tally(encoded: EncodedRecords, place: str) -> tuple[Counters, list[Loss]]:
    """Count the changes per table (I3), as if all were delivered; return the quarantined as losses.

    *place* is for mutations that could not be made into records and have no place of their own.
    """
    tables = encoded.tables
    counts: dict[str, int] = {}
    if tables and tables.count(tables[0]) == len(tables):  # Four times faster than a Counter.
        counts = {tables[0]: len(tables)}
    elif tables:
        counts = Counter(tables)
    counters: Counters = {t: TableCounts(n, n) for t, n in counts.items()}
    if encoded.filtered:
        left_out = {t: TableCounts(cut=n, filtered=n) for t, n in encoded.filtered.items()}
        counters = add_counters(counters, left_out)
    if not encoded.quarantined:
        return counters, []
    losses = quarantined(encoded, place)
    for table, n in Counter(loss.table for loss in losses).items():
        counters = add_counters(counters, {table: TableCounts(cut=n, quarantined=n)})
    return counters, losses


def quarantined(encoded: EncodedRecords, place: str) -> list[Loss]:
    """Return mutations that could not be made into records; *place* is for those without one."""
    return [
        Loss(
            kind="quarantined",
            table=str(item.origin.get("table", "")),  # Its table is unknown if it was not cut.
            place=item.place or place,
            code=item.code,
            message=item.message,
            content=item.content,
            stage=item.stage,
            origin=item.origin,
        )
        for item in encoded.quarantined
    ]


def dead_letter(encoded: EncodedRecords, failure: Failure, place: str) -> Loss:
    """Return the record of *encoded* that a sink rejected permanently."""
    return Loss(
        kind="dead_letter",
        table=encoded.tables[failure.index],
        place=f"{place}, record {failure.index}",
        code=failure.code,
        message=failure.message,
        key=encoded.keys[failure.index],
        content=encoded.values[failure.index],
        headers=encoded.headers[failure.index],
        stage=PRODUCE_STAGE,
        origin={} if encoded.topics is None else {"topic": encoded.topics[failure.index]},
    )

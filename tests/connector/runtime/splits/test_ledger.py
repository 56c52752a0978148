"""The ledger: what may be committed, for all answers of the sink in any order."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.connector.runtime.splits.ledger import DeliveryFailedError, Ledger, Settled, State
from headrace.connector.serde.content import ChecksumError
from headrace.connector.stores import TableCounts, add_counters
from headrace.plugins import (
    MODULUS,
    Checksums,
    Disposition,
    EncodedRecords,
    Failure,
    NumberPosition,
    Quarantined,
    RecordBatch,
)
from headrace.plugins.testing.doubles import sample_records

BATCH_BYTES = 100


def batch(
    end: int, *, size_bytes: int = BATCH_BYTES, records: int = 0, has_end: bool = True
) -> RecordBatch:
    """Return a batch that ends at *end*."""
    made, position = sample_records(records), NumberPosition(end)
    return RecordBatch("a", position, size_bytes, made, has_end=has_end)


def rows(values: Sequence[bytes], tables: Sequence[str] = ()) -> EncodedRecords:
    """Return encoded records with *values*."""
    return EncodedRecords(
        keys=[None] * len(values),
        values=values,
        headers=[()] * len(values),
        tables=tables or ["ks.t"] * len(values),
        tombstones=[index for index, value in enumerate(values) if has_tombstone(value)],
        checksums=Checksums.of(map(checksum_of, values)),
    )


def checksum_of(value: bytes) -> int:
    """Return the checksum of a record: a large number."""
    return int.from_bytes(b"checksum" + value, "big") ** 5 % MODULUS


def has_tombstone(value: bytes) -> bool:
    """Say whether a message without a value follows a record."""
    return value.endswith((b"1", b"4", b"7"))


def add(ledger: Ledger, *values: bytes, end: int = 0) -> int:
    """Enter a batch of *values* as sent; return its number."""
    shipment = ledger.add(batch(end, records=len(values)), rows(values))
    ledger.mark_sent(shipment, 0)
    return shipment.seq


def failure(index: int, disposition: Disposition) -> Failure:
    """Return a failure."""
    return Failure(index, disposition, "code", "message")


@dataclass
class Sent:
    """A delivery under way, with what the sink will say of it."""

    seq: int
    attempt: int
    count: int
    failures: list[Failure]
    adds_up: bool


@dataclass
class Model:
    """What really happened to the records, which are numbered in the order they were read."""

    batch_ends: list[int] = field(default_factory=list)  # Records up to and with each batch.
    arrivals: list[int] = field(default_factory=list)  # Each arrival at the sink, in order.
    dead: set[int] = field(default_factory=set)


FATES = st.sampled_from(["deliver"] * 6 + ["retry", "reject"])


class LedgerMachine(RuleBasedStateMachine):
    """Sends, settles in any order, fails in any way, and commits, as the pipeline may."""

    def __init__(self) -> None:
        """Begin with nothing read."""
        super().__init__()
        self.ledger = Ledger("a", last_seq=0)
        self.model = Model()
        self.sent: list[Sent] = []
        self.committed = 0
        self.ended: list[int] = []
        self.counters: dict[str, TableCounts] = {}
        self.sum = 0

    @rule(count=st.integers(0, 4), has_end=st.booleans())
    def read(self, count: int, has_end: bool) -> None:  # noqa: FBT001 (drawn)
        """Enter a batch, which a commit may end with or not."""
        before = self.model.batch_ends[-1] if self.model.batch_ends else 0
        self.model.batch_ends.append(before + count)
        values = [b"%d" % n for n in range(before, before + count)]
        read = batch(len(self.model.batch_ends), records=count, has_end=has_end)
        self.sum += sum(map(checksum_of, values))
        read.checksum_so_far = self.sum % MODULUS
        self.ledger.add(read, rows(values))
        self.ended = [*self.ended, len(self.model.batch_ends)] if has_end else self.ended
        assert has_end is not self.ledger.needs_end

    @rule(fates=st.lists(FATES, min_size=5, max_size=5), miscount=st.integers(0, 5))
    def send(self, fates: list[str], miscount: int) -> None:
        """Submit all that may be submitted."""
        for shipment in self.ledger.unsent():
            self.ledger.mark_sent(shipment, 0)
            failures, adds_up = [], miscount > 0
            encoded = shipment.delivery({}).encoded
            followed = [value for value in encoded.values if has_tombstone(value)]
            assert followed == [encoded.values[index] for index in encoded.tombstones]
            for index, value in enumerate(encoded.values):
                fate = fates[index % len(fates)]
                if fate == "deliver":
                    self.model.arrivals.append(int(value))
                elif fate == "retry":
                    failures.append(failure(index, Disposition.RETRY))
                else:
                    failures.append(failure(index, Disposition.REJECT))
                    if adds_up:
                        self.model.dead.add(int(value))
            count = len(shipment.encoded)
            self.sent.append(Sent(shipment.seq, shipment.attempt, count, failures, adds_up))

    @precondition(lambda self: self.sent)
    @rule(pick=st.integers(0, 100), twice=st.booleans())
    def settle(self, pick: int, twice: bool) -> None:  # noqa: FBT001 (drawn)
        """Let the sink report one result, perhaps twice."""
        sent = self.sent.pop(pick % len(self.sent))
        failed = {failure.index for failure in sent.failures}
        delivered = [index for index in range(sent.count) if index not in failed]
        if not sent.adds_up:
            delivered = delivered[1:] if delivered and pick % 2 else [*delivered, 0]
        for _ in range(2 if twice else 1):
            assert None is self.ledger.settle(sent.seq, sent.attempt, delivered, sent.failures)

    @precondition(lambda self: self.ledger.retry_due)
    @rule()
    def resend(self) -> None:
        """Restart from the first failure."""
        self.ledger.resend()

    @rule()
    def commit(self) -> None:
        """Commit what is settled: all of it arrived or is kept, nothing is left out (I1)."""
        settled = self.ledger.take_settled()
        if settled is None:
            return
        assert NumberPosition(settled.seq) == settled.end
        assert settled.seq in self.ended
        self.committed = settled.seq
        until = self.model.batch_ends[settled.seq - 1]
        kept = {int(loss.content) for loss in settled.losses}
        assert kept <= self.model.dead
        assert set(range(until)) <= set(self.model.arrivals) | self.model.dead
        self.counters = add_counters(self.counters, settled.counters)
        counts = self.counters.get("ks.t", TableCounts())
        assert until == counts.cut == counts.delivered + counts.dead_lettered
        self.ledger.committed(settled)

    @invariant()
    def last_arrivals_are_in_order(self) -> None:
        """Compare what a consumer sees last of each record with the order read (I4)."""
        last = {number: place for place, number in enumerate(self.model.arrivals)}
        until = self.model.batch_ends[self.committed - 1] if self.committed else 0
        places = [last[n] for n in range(until) if n in last and n not in self.model.dead]
        assert sorted(places) == places

    @invariant()
    def bytes_are_bounded_by_what_is_open(self) -> None:
        """Outstanding is what is not in the settled prefix; uncommitted is what is not durable."""
        assert self.ledger.outstanding_bytes <= self.ledger.uncommitted_bytes
        open_batches = len(self.model.batch_ends) - self.committed
        assert open_batches * BATCH_BYTES == self.ledger.uncommitted_bytes

    def teardown(self) -> None:
        """In the end a sink that recovers gets everything."""
        for sent in self.sent:
            self.ledger.settle(sent.seq, sent.attempt, (), ())  # It forgot: R6.
        self.sent.clear()
        if self.ledger.retry_due:
            self.ledger.resend()
        for shipment in self.ledger.unsent():
            self.ledger.mark_sent(shipment, 0)
            values = shipment.delivery({}).encoded.values
            self.model.arrivals += [int(value) for value in values]
            self.ledger.settle(shipment.seq, shipment.attempt, range(len(values)), ())
        self.read(0, has_end=True)
        self.commit()
        assert len(self.model.batch_ends) == self.committed
        self.last_arrivals_are_in_order()
        assert self.ledger.empty
        assert 0 == self.ledger.outstanding_bytes == self.ledger.outstanding_records


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def taken(ledger: Ledger) -> Settled:
    """Return the settled prefix, which there is."""
    settled = ledger.take_settled()
    assert settled is not None
    return settled


def test_settled_behind_a_gap_is_not_committed() -> None:
    """K09: a batch settled before its predecessor waits for it (I1, R3)."""
    ledger = Ledger("a", last_seq=7)
    first, second = add(ledger, b"x", end=1), add(ledger, b"y", end=2)
    ledger.settle(second, 1, [0], ())

    assert (8, 9) == (first, second)
    assert None is ledger.take_settled()
    ledger.settle(first, 1, [0], ())
    assert (9, NumberPosition(2)) == (taken(ledger).seq, NumberPosition(2))


@pytest.mark.parametrize(
    ("delivered", "failures", "wrong"),
    [
        ([0], (), "1 missing (first: 1)"),
        ((), (), "2 missing (first: 0)"),
        ([0, 1, 1], (), "1 doubled (first: 1)"),
        ([1, 1], (), "1 missing (first: 0), 1 doubled (first: 1)"),
        ([0, 1, 2], (), "1 unknown (first: 2)"),
        (range(1, 3), (), "1 missing (first: 0), 1 unknown (first: 2)"),
        (range(2), (failure(0, Disposition.REJECT),), "1 doubled (first: 0)"),
        ([1], (failure(0, Disposition.REJECT),) * 2, "1 doubled (first: 0)"),
        ([0], (failure(2, Disposition.REJECT),), "1 missing (first: 1), 1 unknown (first: 2)"),
        ([0], (failure(-1, Disposition.REJECT),), "1 missing (first: 1), 1 unknown (first: -1)"),
    ],
)
def test_an_invalid_result_settles_nothing(
    delivered: Collection[int], failures: Sequence[Failure], wrong: str
) -> None:
    """What does not name each record once was not delivered: the batch is sent again (R6)."""
    ledger = Ledger("a", last_seq=0)
    seq = add(ledger, b"x", b"y")
    ledger.settle(seq, 1, delivered, failures)

    assert ledger.miscount.endswith(f"for 2 records is invalid: {wrong}")
    assert None is ledger.take_settled()
    ledger.resend()
    assert [[b"x", b"y"]] == [list(s.delivery({}).encoded.values) for s in ledger.unsent()]


@pytest.mark.parametrize("delivered", [range(2), [1, 0], {0, 1}, (0, 1)])
def test_a_result_in_any_form_and_order_is_valid(delivered: Collection[int]) -> None:
    """Each record is named once: the batch is settled."""
    ledger = Ledger("a", last_seq=0)
    seq = add(ledger, b"x", b"y")
    ledger.settle(seq, 1, delivered, ())

    assert "" == ledger.miscount
    assert seq == taken(ledger).seq


@pytest.mark.parametrize("rejected", [(), (0,), (2,), (0, 2)])
def test_a_resend_that_drops_a_record_settles_nothing(
    monkeypatch: pytest.MonkeyPatch, rejected: Sequence[int]
) -> None:
    """The sink delivers all that it got, and still the batch is not settled."""
    real = EncodedRecords.chosen

    def drop(encoded: EncodedRecords, indexes: Sequence[int]) -> EncodedRecords:
        return real(encoded, indexes[:-1])

    ledger = Ledger("a", last_seq=0)
    first, second = add(ledger, b"a", b"b", b"c", b"d"), add(ledger, b"e", b"f", end=2)
    failures = [failure(index, Disposition.REJECT) for index in rejected]
    failures.append(failure(1, Disposition.RETRY))
    failed = {each.index for each in failures}
    ledger.settle(first, 1, [i for i in range(4) if i not in failed], failures)
    ledger.settle(second, 1, range(2), ())
    monkeypatch.setattr(EncodedRecords, "chosen", drop)
    ledger.resend()
    (shipment, *_) = ledger.unsent()
    ledger.mark_sent(shipment, 0)
    ledger.settle(first, 2, range(len(shipment.encoded)), ())

    assert "1 missing" in ledger.miscount
    assert None is ledger.take_settled()


def never_sent(ledger: Ledger, batches: Sequence[RecordBatch]) -> None:
    """Take the second batch for settled, though the sink was never given it."""
    for place, read in enumerate(batches):
        shipment = ledger.add(read, rows([b"x%d" % place, b"y"]))
        if place == 1:
            shipment.state = State.SETTLED
        else:
            ledger.mark_sent(shipment, 0)
            ledger.settle(shipment.seq, 1, range(2), ())


def never_added(ledger: Ledger, batches: Sequence[RecordBatch]) -> None:
    """Lose the second batch before the ledger."""
    for place, read in enumerate(batches):
        if place != 1:
            shipment = ledger.add(read, rows([b"x%d" % place, b"y"]))
            ledger.mark_sent(shipment, 0)
            ledger.settle(shipment.seq, 1, range(2), ())


def added_twice(ledger: Ledger, batches: Sequence[RecordBatch]) -> None:
    """Enter the first batch again in place of the second."""
    for place, read in enumerate(batches):
        shipment = ledger.add(read, rows([b"x%d" % (place if place != 1 else 0), b"y"]))
        ledger.mark_sent(shipment, 0)
        ledger.settle(shipment.seq, 1, range(2), ())


def dropped_as_done(ledger: Ledger, batches: Sequence[RecordBatch]) -> None:
    """Lose a record of the second batch where its rest is sent again, and count it as done."""
    for place, read in enumerate(batches):
        shipment = ledger.add(read, rows([b"x%d" % place, b"y"]))
        ledger.mark_sent(shipment, 0)
        if place == 1:
            ledger.settle(shipment.seq, 1, [0], [failure(1, Disposition.RETRY)])
            ledger.resend()
            ledger.mark_sent(shipment, 0)
            shipment.encoded = shipment.encoded.chosen([])
            shipment.done = 2
            ledger.settle(shipment.seq, 2, range(0), ())
        else:
            ledger.settle(shipment.seq, 1, range(2), ())


@pytest.mark.parametrize("fault", [never_sent, never_added, added_twice, dropped_as_done])
def test_nothing_behind_what_is_missing_is_committed(
    fault: Callable[[Ledger, Sequence[RecordBatch]], None],
) -> None:
    """What the sink settled is less, or other, than the source handed out: the split stops."""
    batches = [batch(end, records=2) for end in (1, 2, 3)]
    so_far = 0
    for place, read in enumerate(batches):
        so_far += checksum_of(b"x%d" % place) + checksum_of(b"y")
        read.checksum_so_far = so_far % MODULUS
    ledger = Ledger("a", last_seq=0)
    with pytest.raises(ChecksumError, match=r"split a, batch 2: .*do not add up"):
        fault(ledger, batches)

    assert 1 == taken(ledger).seq
    assert None is ledger.settled


def test_the_ledger_keeps_one_checksum_for_a_batch() -> None:
    """Those of the records, 16 bytes for each, are not kept while a batch is on its way."""
    ledger = Ledger("a", last_seq=0)
    shipment = ledger.add(batch(1, records=3), rows([b"a", b"b", b"c"]))

    assert None is shipment.encoded.checksums
    assert sum(map(checksum_of, [b"a", b"b", b"c"])) % MODULUS == shipment.checksum % MODULUS


def test_a_late_result_of_an_earlier_attempt_changes_nothing() -> None:
    """What the sink reports of the first attempt does not settle the second one (R4)."""
    ledger = Ledger("a", last_seq=0)
    seq = add(ledger, b"x", b"y")
    ledger.settle(seq, 1, [0], [failure(1, Disposition.RETRY)])
    ledger.resend()
    (again,) = ledger.unsent()
    ledger.mark_sent(again, 0)
    ledger.settle(seq, 1, range(len(again.encoded)), ())

    assert (1, None) == (ledger.sent, ledger.settled)
    ledger.settle(seq, 2, range(len(again.encoded)), ())
    assert seq == taken(ledger).seq


def test_a_result_of_a_refused_attempt_changes_nothing() -> None:
    """A writer that refused a batch, and reports on it nevertheless, has not delivered it (R4)."""
    ledger = Ledger("a", last_seq=0)
    shipment = ledger.add(batch(1, records=1), rows([b"x"]))
    for _ in range(2):
        ledger.mark_sent(shipment, 0)
        ledger.mark_refused(shipment)
    ledger.mark_sent(shipment, 0)
    ledger.settle(shipment.seq, 1, [0], ())

    assert (1, None) == (ledger.sent, ledger.settled)


def test_retry_waits_for_the_rest_and_starts_at_the_first_failure() -> None:
    """While others are under way nothing is sent; then all from the first failure on, in order."""
    ledger = Ledger("a", last_seq=0)
    first, second = add(ledger, b"a", b"b", b"c"), add(ledger, b"d")
    ledger.add(batch(3, records=1), rows([b"e"]))
    result = [failure(0, Disposition.REJECT), failure(1, Disposition.RETRY)]
    ledger.settle(first, 1, [2], result)

    assert [] == list(ledger.unsent())
    assert not ledger.retry_due
    ledger.settle(second, 1, [0], ())
    assert ledger.retry_due
    ledger.resend()
    unsent = list(ledger.unsent())
    assert [[b"b", b"c"], [b"d"], [b"e"]] == [list(s.delivery({}).encoded.values) for s in unsent]
    assert [2, 1, 1] == [len(list(s.delivery({}).batch.records())) for s in unsent]


def test_rejected_record_is_a_dead_letter() -> None:
    """A record rejected permanently is counted and kept with its bytes, table and place (I8)."""
    ledger = Ledger("a", last_seq=0)
    shipment = ledger.add(batch(1, records=2), rows([b"x", b"y"], ["ks.t", "ks.u"]))
    ledger.mark_sent(shipment, 0)
    ledger.settle(1, 1, [0], [failure(1, Disposition.REJECT)])
    settled = taken(ledger)

    expected = {
        "ks.t": TableCounts(cut=1, delivered=1),
        "ks.u": TableCounts(cut=1, dead_lettered=1),
    }
    assert expected == settled.counters
    (loss,) = settled.losses
    assert ("dead_letter", "ks.u", b"y") == (loss.kind, loss.table, loss.content)
    assert "split a, batch 1, record 1" == loss.place


def test_quarantined_items_go_with_their_batch() -> None:
    """What could not be encoded is counted and kept, and needs no result (I8)."""
    ledger = Ledger("a", last_seq=0)
    item = Quarantined(place="segment 3, byte 9", code="bad", message="no", content=b"raw")
    ledger.add(batch(1), EncodedRecords([], [], [], [], [item]))
    settled = taken(ledger)

    assert {"": TableCounts(cut=1, quarantined=1)} == settled.counters
    assert [("quarantined", b"raw", "segment 3, byte 9")] == [
        (loss.kind, loss.content, loss.place) for loss in settled.losses
    ]


def test_what_a_record_set_aside_is_of_its_table() -> None:
    """A transform and a schema store know the table; what was never cut is of none."""
    ledger = Ledger("a", last_seq=0)
    cut = Quarantined("", "transform", "no", b"x", "TRANSFORMATION", {"table": "ks.u", "key": ""})
    raw = Quarantined("segment 3, byte 9", "bad", "no", b"raw", origin={"node": "n"})
    ledger.add(batch(1), EncodedRecords([], [], [], [], [cut, raw, cut]))
    settled = taken(ledger)

    assert {
        "ks.u": TableCounts(cut=2, quarantined=2),
        "": TableCounts(cut=1, quarantined=1),
    } == settled.counters
    assert ["ks.u", "", "ks.u"] == [loss.table for loss in settled.losses]


def test_fatal_failure_stops_the_split() -> None:
    """A fatal result gives the error that stops the split, and commits nothing of the batch."""
    ledger = Ledger("a", last_seq=0)
    first, second = add(ledger, b"a", end=1), add(ledger, b"b", end=2)
    ledger.settle(first, 1, [0], ())
    error = ledger.settle(second, 1, (), [failure(0, Disposition.FATAL)])

    assert isinstance(error, DeliveryFailedError)
    assert "code: message" in str(error)
    assert first == taken(ledger).seq
    assert not ledger.retry_due or [] == list(ledger.unsent())


def test_refused_shipment_stays_unsent() -> None:
    """A writer that took nothing is given the same again, and its late result is ignored."""
    ledger = Ledger("a", last_seq=0)
    seq = add(ledger, b"x")
    (shipment,) = ledger._shipments  # noqa: SLF001 (the only way to see a sent one)
    ledger.mark_refused(shipment)
    ledger.settle(seq, 1, [0], ())

    assert State.UNSENT is shipment.state
    assert [2] == [s.attempt for s in ledger.unsent()]


def test_what_was_filtered_is_counted() -> None:
    """A change that a transform left out was cut and is accounted for (I3)."""
    ledger = Ledger("a", last_seq=0)
    nothing = RecordBatch("a", NumberPosition(1), 1, made=())

    ledger.add(nothing, EncodedRecords([], [], [], [], filtered={"shop.orders": 2}))

    settled = ledger.take_settled()
    assert settled is not None
    assert {"shop.orders": TableCounts(cut=2, filtered=2)} == settled.counters


def test_what_a_batch_became_counts_when_it_is_more() -> None:
    """A verbose format fills the bound by its own size, a terse one by that of what was read."""
    ledger = Ledger("a", last_seq=0)
    nothing = RecordBatch("a", NumberPosition(1), 10, made=())

    ledger.add(nothing, EncodedRecords([None], [bytes(1_000)], [()], ["t"]))
    assert (1_000, 1_000) == (ledger.outstanding_bytes, ledger.uncommitted_bytes)
    ledger.add(nothing, EncodedRecords([None], [b""], [()], ["t"]))
    assert 1_010 == ledger.outstanding_bytes

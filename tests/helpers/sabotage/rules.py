"""Changes that break one rule each, so that a test can show that the model detects it.

Each changes real code through pytest's monkeypatch. `INTERPRETED` ones change modules that may be
compiled, where nothing can be changed.
"""

# ruff: noqa: SLF001 (what is broken is inside)

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pytest

from headrace.connector.runtime import pipeline
from headrace.connector.runtime.splits import leases, ledger, ownership, split_task
from headrace.connector.stores import LeaseRow, StoreUnavailableError, WorkerRow
from headrace.connector.stores.keyed import heads as keyed_heads
from headrace.plugins import EncodedPosition, Failure, Position, Quarantined
from headrace.sources.cassandra import batch, reader
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.manifest import Stored
from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.logs import directory, pins
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading import (
    comparison,
    cursor,
    damage,
    pump,
    record_expiry,
    topology_versions,
)
from headrace.sources.cassandra.reading.record_expiry import Ages
from headrace.sources.cassandra.retention import hold
from headrace.sources.cassandra.retention.disposal import SegmentRetention
from headrace.sources.cassandra.ring.topology import WHOLE
from headrace.sources.cassandra.state.cdc_state import CdcState, Marker
from helpers.model import process

Patch = pytest.MonkeyPatch
Sabotage = Callable[[Patch], None]


# ---- those in the specification ----


class _Live(CdcState):
    """A state that is what the reader has at the time of its encoding."""

    def encode(self) -> EncodedPosition:
        """Encode the current state."""
        return _LIVE[id(self)]().encode()


_LIVE: Final[dict[int, Callable[[], CdcState]]] = {}


def commits_the_live_state(patch: Patch) -> None:
    """Commit the reader's current state, not that at the batch's end."""
    real = reader.CassandraReader._state

    def live(self: reader.CassandraReader, markers: Mapping[str, Marker]) -> CdcState:
        made = real(self, markers)
        wrapped = _Live(**{name: getattr(made, name) for name in made.__dataclass_fields__})
        _LIVE[id(wrapped)] = lambda: real(self, self._pump.markers(self._number))
        _KEPT.append(wrapped)
        return wrapped

    patch.setattr(reader.CassandraReader, "_state", live)


_KEPT: Final[list[object]] = []  # So that no id is used twice.


def forgets_what_cannot_agree_again(patch: Patch) -> None:
    """Drop a record when the remaining replicas are too few for the level."""

    def cannot(self: Agreement, slot: int) -> int:
        base = slot * constants.RECORD_WORDS
        group = self.words[base + constants.META] >> 16 & 0xFFFF
        missing = self.groups_table.masks[group] & ~self.words[base + constants.SEEN]
        return int(missing.bit_count() < self.groups_table.needed[group])

    patch.setattr(Agreement, "_complete", cannot)
    forgets_what_is_complete(patch)


def forgets_what_is_complete(patch: Patch) -> None:
    """Drop a record as soon as all replicas were seen, without C."""
    patch.setattr(reader, "Ages", lambda expiry, record_expiry, _: Ages(expiry, record_expiry, 0))


def ages_by_the_wall(patch: Patch) -> None:
    """Let time pass whether or not the logs were read."""

    def grow(self: pump.Pump) -> None:
        now_ms = self._now_ms()
        for split in self._owned.values():
            split.agreement.split_time_ms += now_ms - (self._caught_up_ms or now_ms)
        self._caught_up_ms = now_ms

    real = pump.Pump.run_pass

    def read_later(self: pump.Pump, demand: object) -> None:
        grow(self)
        real(self, demand)  # type: ignore[arg-type]

    patch.setattr(pump.Pump, "_grow_time", lambda _self, _now_ms: None)
    patch.setattr(pump.Pump, "run_pass", read_later)


def leaves_chunks_out(patch: Patch) -> None:
    """Commit only the newest records."""
    real = reader.CassandraReader._state

    def newest(self: reader.CassandraReader, markers: Mapping[str, Marker]) -> CdcState:
        made = real(self, markers)
        return replace(made, chunks=made.chunks[-1:])

    patch.setattr(reader.CassandraReader, "_state", newest)


def counts_a_repeat_as_a_vote(patch: Patch) -> None:
    """Count what a node logs again as another node's copy."""
    real = Agreement.observe

    def observe(self: Agreement, host: int, d0: int, d1: int, *rest: int) -> int:
        slot = self._find(d0, d1)
        if slot >= 0:
            seen = self.words[slot * constants.RECORD_WORDS + constants.SEEN]
            unseen = [h for h in range(self.groups_table.hosts) if not seen >> h & 1]
            if seen >> host & 1 and unseen:
                host = unseen[0]
        return real(self, host, d0, d1, *rest)

    patch.setattr(Agreement, "observe", observe)


def commits_before_the_settle(patch: Patch) -> None:
    """Treat what was sent as settled, with its checksums."""
    real = ledger.Ledger.mark_sent

    def mark_sent(self: ledger.Ledger, shipment: ledger.Shipment, now_ms: int) -> None:
        real(self, shipment, now_ms)
        shipment.state = ledger.State.SETTLED
        shipment.settled_sum = shipment.accounted()
        self._sent -= 1
        self._fold()

    patch.setattr(ledger.Ledger, "mark_sent", mark_sent)


def fences_nobody(patch: Patch) -> None:
    """Accept a commit of any process."""
    patch.setattr(keyed_heads.Heads, "_mismatch", lambda _self, _commit, _head: None)


def keeps_no_bytes_of_what_waits(patch: Patch) -> None:
    """Release segments by the markers alone, also those with pending copies."""

    def may_go(
        _: SegmentRetention,
        info: directory.SegmentInfo,
        noted: Sequence[pins.Need],
        *,
        is_old: bool,
    ) -> bool:
        del is_old
        return all(need.marker >= Marker(info.segment_id, END_OFFSET) for need in noted)

    patch.setattr(SegmentRetention, "_may_go", may_go)


def judges_by_the_current_ring(patch: Patch) -> None:
    """Do not count a ring that another one has replaced."""
    patch.setattr(
        topology_versions.SplitVersions,
        "_groups",
        lambda self: self._replicas.groups(self._split, {}, self.log_slots),
    )


def releases_by_the_current_replicas(patch: Patch) -> None:
    """Release the log of a node that is no longer a replica, read or not."""
    real = hold.Hold.register

    def release(self: reader.CassandraReader, position: Position) -> None:
        members = self._parts.replicas.current.names()
        gone = {id(h) for node, h in self._parts.holds.items() if node not in members}

        def register(
            self: hold.Hold, split: str, marker: Marker, pending: pins.Pending, listed: Stored
        ) -> None:
            if id(self) in gone:
                marker, pending = Marker(marker.segment_id + _FAR, END_OFFSET), {}
            real(self, split, marker, pending, listed)

        with pytest.MonkeyPatch.context() as within:
            within.setattr(hold.Hold, "register", register)
            _RELEASE(self, position)

    patch.setattr(reader.CassandraReader, "release", release)


_FAR: Final = 1_000  # Segments.
_RELEASE: Final = reader.CassandraReader.release


# ---- more ----


def submits_after_the_deadline(patch: Patch) -> None:
    """Ignore the deadline of the lease."""
    patch.setattr(ownership.Lease, "allows", lambda _self, _now_ms: True)


def counts_the_lease_from_the_answer(patch: Patch) -> None:
    """Count the owner's deadline from the store's answer."""
    real = leases.LeaseHolder._renew

    def renew(self: leases.LeaseHolder) -> tuple[Sequence[str], Sequence[str]]:
        before = {split: lease.deadline_ms for split, lease in self._held.items()}
        came_to = real(self)
        for split, lease in self._held.items():
            if lease.deadline_ms != before[split]:
                lease.deadline_ms = self._clock.monotonic_ms() + self._lease_ms
        return came_to

    patch.setattr(leases.LeaseHolder, "_renew", renew)


def steals_at_once(patch: Patch) -> None:
    """Take a lease from an owner whose row was not watched for a whole period."""

    def still_ms(_: object, _key: object, _row: LeaseRow | WorkerRow, _now_ms: int) -> int:
        return 1 << 40

    patch.setattr(leases.LeaseHolder, "_still_ms", still_ms)


def sends_again_only_what_failed(patch: Patch) -> None:
    """Resend only what failed, so that later records arrive before it."""

    def resend(self: ledger.Ledger) -> None:
        failed = [s for s in self._shipments if s.retry_from is not None]
        for shipment in failed:
            shipment.retry_from = None
            shipment.attempt += 1
            shipment.state = ledger.State.UNSENT
        self._retrying = False
        self._fold()

    patch.setattr(ledger.Ledger, "resend", resend)


def commits_over_a_gap(patch: Patch) -> None:
    """Count what must be resent as settled, and commit what follows."""
    real = ledger.Ledger._fold

    def fold(self: ledger.Ledger) -> None:
        for shipment in self._shipments:
            if shipment.state is ledger.State.SETTLED and shipment.retry_from is not None:
                shipment.retry_from = None
                shipment.settled_sum = shipment.accounted()
        real(self)
        self._retrying = False

    patch.setattr(ledger.Ledger, "_fold", fold)


def believes_a_verdict_that_does_not_add_up(patch: Patch) -> None:
    """Count records without a result of the sink as delivered."""
    real = ledger.Ledger.settle

    def settle(
        self: ledger.Ledger,
        seq: int,
        attempt: int,
        delivered: Collection[int],
        failures: Sequence[Failure],
    ) -> ledger.DeliveryFailedError | None:
        shipment = self._find(seq)
        if shipment is not None:
            failed = {failure.index for failure in failures}
            delivered = [i for i in range(len(shipment.encoded)) if i not in failed]
        return real(self, seq, attempt, delivered, failures)

    patch.setattr(ledger.Ledger, "settle", settle)


def reads_beyond_what_is_durable(patch: Patch) -> None:
    """Read a live segment to its last marker, ignoring its index."""
    real = directory.LogDirectory.segments

    def segments(self: directory.LogDirectory) -> Sequence[directory.SegmentInfo]:
        return [replace(each, limit=directory.NO_LIMIT) for each in real(self)]

    patch.setattr(directory.LogDirectory, "segments", segments)


def forgets_what_is_incomplete(patch: Patch) -> None:
    """Drop a record when it is published or expired, without M."""
    patch.setattr(reader, "Ages", lambda expiry, _, complete: Ages(expiry, 0, complete))


def compares_nothing(patch: Patch) -> None:
    """Treat other bytes as a new content."""
    patch.setattr(comparison.Comparison, "decide", lambda _self, _slot: comparison.Decision.NEW)


def takes_no_answer_for_a_no(patch: Patch) -> None:
    """Drop a commit whose outcome is not known, and make the next one."""
    real = pipeline.Pipeline._store_failed

    def failed(self: pipeline.Pipeline, error: StoreUnavailableError) -> None:
        real(self, error)
        for run in self._runs.values():
            run._offer = None

    patch.setattr(pipeline.Pipeline, "_store_failed", failed)


def begins_the_books_anew(patch: Patch) -> None:
    """Do not restore the counters with the state."""
    real = reader.CassandraReader._restore

    def restore(self: reader.CassandraReader, resume: CdcState) -> None:
        real(self, resume)
        self._base = {}

    patch.setattr(reader.CassandraReader, "_restore", restore)


def releases_before_the_commit(patch: Patch) -> None:
    """Release what is settled, not what is durable."""
    real = split_task.SplitRun.offer

    def offer(self: split_task.SplitRun) -> split_task.Offer | None:
        made = real(self)
        if made is not None:
            self.release_due = made.settled.end
            self.release()
        return made

    patch.setattr(split_task.SplitRun, "offer", offer)


def looks_at_its_own_needs_alone(patch: Patch) -> None:
    """Release segments when one split has passed them."""
    real = pins.notes_in
    patch.setattr(pins, "notes_in", lambda folder: sorted(real(folder), key=_split)[:1])


def _split(note: pins.Note) -> str:
    return note.need.split


def sends_without_bound(patch: Patch) -> None:
    """Let more than a window be in flight."""
    limits = replace(process._LIMITS, commit_bytes_max=1 << 30)
    patch.setattr(process, "_LIMITS", limits)


def retires_no_ring(patch: Patch) -> None:
    """Let every ring count for ever."""
    real = topology_versions.SplitVersions.follow
    patch.setattr(
        topology_versions.SplitVersions,
        "follow",
        lambda self, split_time_ms, _ms, *rest: real(self, split_time_ms, 1 << 60, *rest),
    )


def forgets_which_rings_count(patch: Patch) -> None:
    """Store only the current ring: a new owner knows no other."""
    real = topology_versions.SplitVersions.stored
    patch.setattr(topology_versions.SplitVersions, "stored", lambda self: real(self)[:1])


def judges_nothing_again(patch: Patch) -> None:
    """Do not check pending records again when the ring changes, or after a load."""
    patch.setattr(record_expiry.Memory, "_publish", lambda _self, _slot, _agreed: None)


def passes_over_gaps(patch: Patch) -> None:
    """Continue where a segment vanished as if it had been empty."""
    patch.setattr(cursor, "gap_before", lambda *_args, **_more: None)


def tells_nobody_of_gaps(patch: Patch) -> None:
    """Count a gap in the books, and send no record of it."""
    patch.setattr(batch.MutationBatch, "notices", lambda _self: ())


def books_damage_in_every_split(patch: Patch) -> None:
    """Let each split count a damaged place that it reads."""
    patch.setattr(damage.Losses, "booking", lambda _self, _node: (1, WHOLE[0]))


def keeps_no_damaged_bytes(patch: Patch) -> None:
    """Skip what is damaged, and keep no bytes of it."""
    real = reader.CassandraReader._damaged

    def damaged(self: reader.CassandraReader) -> Sequence[Quarantined]:
        real(self)
        return ()

    patch.setattr(reader.CassandraReader, "_damaged", damaged)


# How the message starts of the check that must find it.
LISTED: Final[Mapping[Sabotage, str]] = {
    commits_the_live_state: "line 27",
    forgets_what_is_complete: "line 23",
    ages_by_the_wall: "line 20",
    leaves_chunks_out: "line 22",
    commits_before_the_settle: "line 28",
    fences_nobody: "I2",
    keeps_no_bytes_of_what_waits: "line 34",
}
LISTED_INTERPRETED: Final[Mapping[Sabotage, str]] = {
    forgets_what_cannot_agree_again: "line 23",
    counts_a_repeat_as_a_vote: "line 3:",
}
MORE: Final[Mapping[Sabotage, str]] = {
    submits_after_the_deadline: "I2",
    counts_the_lease_from_the_answer: "I2",
    steals_at_once: "I2",
    sends_again_only_what_failed: "I4",
    commits_over_a_gap: "line 28",
    believes_a_verdict_that_does_not_add_up: "line 28",
    reads_beyond_what_is_durable: "I6",
    forgets_what_is_incomplete: "line 23",
    compares_nothing: "line 36",
    takes_no_answer_for_a_no: "I3",
    begins_the_books_anew: "I3",
    releases_before_the_commit: "I5",
    looks_at_its_own_needs_alone: "I5",
    sends_without_bound: "I7",
}
# Those that are found where rings change, logs lose segments, or entries are damaged.
CHANGING: Final[Mapping[Sabotage, str]] = {
    judges_by_the_current_ring: "line 17",
    releases_by_the_current_replicas: "I5",
    retires_no_ring: "line 9",
    forgets_which_rings_count: "line 17",
    judges_nothing_again: "line 17",
    passes_over_gaps: "I10",
    tells_nobody_of_gaps: "I10",
    books_damage_in_every_split: "I3",
    keeps_no_damaged_bytes: "I8",
}

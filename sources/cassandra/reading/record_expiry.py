"""Removes records that are too old or too many from a split's memory.

Bytes that are still needed are read again. Rules cite docs/agreement.md by line. Blocking file I/O,
only for mutations that expire or overflow.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from headrace.plugins import Quarantined, RetriableError
from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.agreement.rules import Agreement
from headrace.sources.cassandra.commitlog.manifest import file_of
from headrace.sources.cassandra.encode.quarantine import set_aside
from headrace.sources.cassandra.logs.reread import Copies, Copy
from headrace.sources.cassandra.native import constants
from headrace.sources.cassandra.reading.comparison import NOT_LOOKED, Comparison, Decision
from headrace.sources.cassandra.ring.log_slots import LogSlots
from headrace.sources.cassandra.schema_versions.epochs import Epoch

SWEEP_MS: Final = 1_000  # Split time between two passes over all records.
FORGET_STEPS: Final = 60  # Number of times that a complete record is checked while it exists.
CANONICAL_MS: Final = 30_000  # Line 5: how long to wait for copies in the bytes of the write.
OVERFLOW_MAX: Final = 1_000  # Maximum number of pending records that overflow in one read.


class Ages(NamedTuple):
    """Split times in ms: until a pending record expires, and until others are removed."""

    expiry_ms: int
    memory_ms: int
    complete_ms: int


class Memory:
    """Keeps one split's records within their limits. For one thread."""

    def __init__(  # noqa: PLR0913 (what is bounded, by what, and where bytes are)
        self,
        agreement: Agreement,
        log_slots: LogSlots,
        copies: Copies,
        ages: Ages,
        records_max: int,
        *,
        publish_expired: bool,
        suppress_streamed: bool,
        epoch_of: Callable[[Copy], Epoch],
    ) -> None:
        """Keep the parts; *log_slots* number the hosts in records.

        *epoch_of* gives the epoch of the place where a copy was read.
        """
        self.bytes_lost = 0
        self.streamed = 0
        """Published although only streams brought them: some may be older than the memory."""
        self._agreement = agreement
        self._log_slots = log_slots
        self._copies = copies
        self._ages = ages
        self._records_max = records_max
        self._publish_expired = publish_expired
        self._suppress_streamed = suppress_streamed
        self._epoch_of = epoch_of
        self.due_ms = 0
        """The split time from which `keep` checks the pending records."""
        self._forget_ms = 0  # The place from which it checks the others.
        self._was_caught_up = False
        self.comparison = Comparison(agreement, self._find, epoch_of)

    def is_due(self) -> bool:
        """Return whether `keep` would do anything now without new records; otherwise ask later."""
        agreement, ages = self._agreement, self._ages
        if agreement.split_time_ms < self.due_ms:
            return False
        if self.due_ms == 0:
            return True
        if agreement.pending:
            pending = agreement.oldest_pending(agreement.pending)
            if (
                agreement.due(pending, ages.expiry_ms)
                or agreement.ready(pending)
                or agreement.unchecked(pending, CANONICAL_MS)
            ):
                return True
        if agreement.split_time_ms >= self._forget_ms:
            left_ms = agreement.forgets_in(ages.memory_ms, ages.complete_ms)
            if left_ms == 0:
                return True
            self._forget_ms = agreement.split_time_ms + max(self._step_ms(), left_ms)
        self._copies.close()
        wait_ms = SWEEP_MS  # An entry may make a pending record due at once, but not a new one.
        if not agreement.pending:
            forget_in_ms = self._forget_ms - agreement.split_time_ms
            wait_ms = max(SWEEP_MS, min(CANONICAL_MS, ages.expiry_ms, forget_in_ms))
        self.due_ms = agreement.split_time_ms + wait_ms
        return False

    def _step_ms(self) -> int:
        return max(SWEEP_MS, self._ages.complete_ms // FORGET_STEPS)

    def keep(
        self, agreed: AgreedMutations, *, caught_up: bool, any_absent: bool = False
    ) -> list[Quarantined]:
        """Compare pending records, and remove records that are too old or too many.

        Mutations that may now be published are added to *agreed*. *caught_up* says that the logs
        were read to their ends, *any_absent* that one of them is absent. Returns the pending
        mutations without room (line 25): they must be durable before the state that omits them is.
        """
        agreement = self._agreement
        if agreement.split_time_ms >= self.due_ms:
            self.due_ms = agreement.split_time_ms + SWEEP_MS
            self._copies.close()
            pending = agreement.oldest_pending(agreement.pending)
            for slot in agreement.ready(pending):
                self._publish(slot, agreed)
            self._compare(pending, CANONICAL_MS, agreed)
            for slot in agreement.due(pending, self._ages.expiry_ms):
                self._expire(slot, agreed, any_absent=any_absent)
            self._forget()
        if caught_up and not self._was_caught_up:  # Even if no time passes: all is read.
            self._compare(agreement.oldest_pending(agreement.pending), 0, agreed)
        self._was_caught_up = caught_up
        agreement.shorten(self._records_max)
        excess = min(agreement.live - self._records_max, OVERFLOW_MAX)
        if excess <= 0:
            return []
        left: dict[int, Quarantined] = {}
        for slot in agreement.oldest_pending(agreement.pending):
            with suppress(RetriableError):  # Then others are removed first.
                left[slot] = self._overflow(slot)
            if len(left) == excess:
                break
        agreement.overflow(list(left))
        return list(left.values())

    def check_again(self) -> None:
        """Make the next `keep` decide about all pending records, at any time (line 18)."""
        self.due_ms = 0

    def leave_out(self, is_wanted: Callable[[Copy], bool]) -> bool:
        """Book pending mutations of tables no longer delivered as filtered (line 22).

        Returns False if some bytes could not be read now: call it again.
        """
        whole = True
        for slot in self._agreement.oldest_pending(self._agreement.pending):
            try:
                found = self._find(slot)
            except RetriableError:
                whole = False
                continue
            if found is not None and not is_wanted(found):
                self._agreement.leave_out(slot)
        self._copies.close()
        return whole

    def _forget(self) -> None:
        """Forget old records (line 23), in steps, because all records are checked."""
        agreement, ages = self._agreement, self._ages
        if agreement.split_time_ms >= self._forget_ms:
            self._forget_ms = agreement.split_time_ms + self._step_ms()
            agreement.forget_old(ages.memory_ms, ages.complete_ms)

    def _compare(self, slots: list[int], wait_ms: int, agreed: AgreedMutations) -> None:
        """Compare records, and publish those that are new (line 19)."""
        for slot in self.comparison.compare(self._agreement.unchecked(slots, wait_ms)):
            self._publish(slot, agreed)

    def _publish(self, slot: int, agreed: AgreedMutations) -> None:
        """Publish a record (lines 17 and 18); while the bytes cannot be read, it is unchanged."""
        with suppress(RetriableError):
            found = self._find(slot)
            decision = self.comparison.decide(slot) if found else Decision.LATER
            if decision == Decision.KNOWN:
                self._agreement.know(slot)
            elif found and decision == Decision.NEW:
                self._let_out(slot, found, agreed)

    def _expire(self, slot: int, agreed: AgreedMutations, *, any_absent: bool) -> None:
        """Expire a record (line 20): compare again; then drop it, or publish the copies seen.

        What cannot be read now is retried by a later sweep, unless a log is absent.
        """
        decision = self.comparison.decide(slot)
        if decision == Decision.KNOWN:
            self._agreement.know(slot)
            return
        is_wanted = self._publish_expired or not self._is_short(slot)
        try:
            found = self._find(slot) if is_wanted else None
        except RetriableError:
            found, decision = None, Decision.LATER
        if decision == Decision.LATER and not any_absent:
            return
        if found is None:
            self.bytes_lost += is_wanted
            self._agreement.expire(slot)
        else:
            self._let_out(slot, found, agreed)

    def _is_short(self, slot: int) -> bool:
        return self._agreement.copies(slot) & constants.EXPIRED != 0

    def _let_out(self, slot: int, found: Copy, agreed: AgreedMutations) -> None:
        """Emit a mutation, unless only streams brought it and those are not delivered."""
        agreement = self._agreement
        if self._suppress_streamed and agreement.is_streamed(slot):
            agreement.leave_out(slot)
            return
        self._emit(slot, found, agreed)
        self.streamed += agreement.is_streamed(slot)
        if self._is_short(slot):
            agreement.publish_expired(slot, *_place(found))
        else:
            agreement.publish(slot, *_place(found))
        agreement.learn_newest(slot, NOT_LOOKED)

    def _emit(self, slot: int, found: Copy, agreed: AgreedMutations) -> None:
        agreed.append(
            found.raw,
            0,
            len(found.raw),
            found.host,
            found.segment,
            found.position,
            self._agreement.copies(slot),
            found.messaging,
            self._epoch_of(found).number,
            *self._agreement.identity(slot)[:2],
        )

    def _overflow(self, slot: int) -> Quarantined:
        found = self._find(slot)
        _, _, copies = self._agreement.identity(slot)
        if found is None:
            self.bytes_lost += 1
            host, segment, position, _ = self._agreement.locations(slot)[0]
            found = Copy(b"", host, segment, position, messaging=0)
        return set_aside(
            "overflow",
            "more mutations wait for copies than records_max allows; the oldest gave way",
            node=self._log_slots.names[found.host],
            segment=file_of(found.segment),
            position=found.position,
            messaging=found.messaging,
            copies=copies,
            raw=found.raw,
        )

    def _find(self, slot: int) -> Copy | None:
        """Read a copy's bytes again; return None if they are no longer in any log."""
        agreement = self._agreement
        names = [agreement.identity(each)[:2] for each in (slot, *agreement.joined(slot))]
        return self._copies.find(names, agreement.locations(slot), self._log_slots.names)


def _place(found: Copy) -> tuple[int, int, int, int]:
    return found.host, found.segment, found.position, len(found.raw)

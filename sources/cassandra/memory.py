"""What leaves a split's memory, by age or above its bound; bytes that are needed are read again.

Rules cite docs/agreement.md by line. Blocking file I/O, only for mutations that expire or overflow.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.plugins import Quarantined
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.agreement import Agreement
from headrace.sources.cassandra.directory import LogReader
from headrace.sources.cassandra.errors import SegmentError
from headrace.sources.cassandra.frame import digest
from headrace.sources.cassandra.intake import Outbox
from headrace.sources.cassandra.salvage import set_aside
from headrace.sources.cassandra.segment import parse_descriptor

SWEEP_MS: Final = 1_000  # Split time between two looks at all records.
OVERFLOW_MAX: Final = 1_000  # Pending records that leave in one read.
_CRC_BYTES: Final = 4
_HEADER_BYTES: Final = 64  # Of an uncompressed segment, the only kind with a place for entries.


class Ages(NamedTuple):
    """Split times in ms: until a pending record expires, and how long others are remembered."""

    expiry_ms: int
    memory_ms: int
    complete_ms: int


class Found(NamedTuple):
    """The raw bytes of a copy, and where it lies."""

    raw: bytes
    host: int
    segment: int
    position: int
    messaging: int


class Memory:
    """Keeps one split's records within their bounds. For one thread."""

    def __init__(  # noqa: PLR0913 (what is bounded, by what, and where bytes are)
        self,
        agreement: Agreement,
        logs: Sequence[tuple[str, LogReader]],
        key: bytes,
        ages: Ages,
        records_max: int,
        *,
        publish_expired: bool,
    ) -> None:
        """Keep the parts; *logs* are the nodes' by host number, *key* is the digest's."""
        self.bytes_lost = 0
        self._agreement = agreement
        self._logs = logs
        self._key = key
        self._ages = ages
        self._records_max = records_max
        self._publish_expired = publish_expired
        self._swept_ms: int | None = None

    def keep(self, outbox: Outbox) -> list[Quarantined]:
        """Let records go that are old or too many.

        What is ready after a load, and what expires if that is the policy, is added to *outbox*.
        Returns the pending mutations that
        found no room (line 25): they must be durable before the state that forgets them is.
        """
        agreement = self._agreement
        if self._swept_ms is None or agreement.tau >= self._swept_ms + SWEEP_MS:
            self._swept_ms = agreement.tau
            for slot in agreement.ready():
                if (found := self._find(slot)) is not None:
                    self._emit(slot, found, outbox)
                    agreement.publish(slot)
            for slot in agreement.due(self._ages.expiry_ms):
                self._expire(slot, outbox)
            agreement.forget_old(self._ages.memory_ms, self._ages.complete_ms)
        agreement.shorten(self._records_max)
        excess = min(agreement.live - self._records_max, OVERFLOW_MAX)
        slots = agreement.oldest_pending(excess) if excess > 0 else []
        return [self._overflow(slot) for slot in slots]

    def _expire(self, slot: int, outbox: Outbox) -> None:
        """Line 20: drop, or publish with as many copies as were seen."""
        found = self._find(slot) if self._publish_expired else None
        if found is None:
            self.bytes_lost += self._publish_expired
            self._agreement.expire(slot, codes.EXPIRED_DROPPED)
            return
        self._emit(slot, found, outbox)
        self._agreement.expire(slot, codes.EXPIRED_PUBLISHED)

    def _emit(self, slot: int, found: Found, outbox: Outbox) -> None:
        _, _, copies = self._agreement.identity(slot)
        outbox.append(
            found.raw,
            0,
            len(found.raw),
            found.host,
            found.segment,
            found.position,
            copies,
            found.messaging,
        )

    def _overflow(self, slot: int) -> Quarantined:
        found = self._find(slot)
        _, _, copies = self._agreement.identity(slot)
        if found is None:
            self.bytes_lost += 1
            host, segment, position, _ = self._agreement.locations(slot)[0]
            found = Found(b"", host, segment, position, messaging=0)
        self._agreement.overflow(slot)
        return set_aside(
            "overflow",
            "more mutations wait for copies than records_max allows; the oldest gave way",
            node=self._logs[found.host][0],
            segment=found.segment,
            position=found.position,
            messaging=found.messaging,
            copies=copies,
            raw=found.raw,
        )

    def _find(self, slot: int) -> Found | None:
        """Read a copy's bytes again; None when no log has them any more."""
        d0, d1, _ = self._agreement.identity(slot)
        wanted = d0.to_bytes(8, "little") + d1.to_bytes(8, "little")
        for host, segment, position, length in self._agreement.locations(slot):
            copy = entry_at(self._logs[host][1], segment, position, length)
            if copy is not None and digest(copy[0], self._key) == wanted:
                return Found(copy[0], host, segment, position, copy[1])
        return None


def entry_at(
    log: LogReader, segment_id: int, position: int, length: int
) -> tuple[bytes, int] | None:
    """Return the mutation of *length* bytes whose entry ends at *position*, and its messaging.

    None when the segment, or that much of it, is gone. The bytes are not checked.
    """
    listed = [segment for segment in log.segments() if segment.segment_id == segment_id]
    if not listed:
        return None
    try:
        opened = log.open(listed[0])
    except FileNotFoundError:
        return None
    try:
        header, raw = bytearray(_HEADER_BYTES), bytearray(length)
        size = opened.read_into(0, memoryview(header))
        messaging = parse_descriptor(bytes(header[:size]), place=listed[0].name).messaging
        came = opened.read_into(position - _CRC_BYTES - length, memoryview(raw))
    except SegmentError:
        return None
    finally:
        opened.close()
    return (bytes(raw), messaging) if came == length else None

"""The part of the ring that bulk work is about: which splits it meets, and which mutations."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.cassandra import codes, native
from headrace.sources.cassandra.intake import Outbox
from headrace.sources.cassandra.log import partition_key
from headrace.sources.cassandra.splits import number_of

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RingPart:
    """Ranges of tokens, each without its first and with its last; none means the whole ring.

    A range whose last token is not above its first goes over the ring's end.
    """

    splits: int
    tokens: Sequence[tuple[int, int]] = ()

    def has_split(self, number: int) -> bool:
        """Say whether a token of split *number* can be in it."""
        return not self.tokens or any(
            number_of(low, self.splits) <= number <= number_of(high, self.splits)
            for low, high in self._straight()
        )

    def keep(self, outbox: Outbox) -> Outbox:
        """Return the mutations of *outbox* that are in it; all of them are the same outbox."""
        if not self.tokens:
            return outbox
        kept = Outbox()
        meta = memoryview(outbox.meta)[: outbox.count * codes.MAIL_WIDTH].tolist()
        for base in range(0, len(meta), codes.MAIL_WIDTH):
            mail = meta[base : base + codes.MAIL_WIDTH]
            start, end = mail[codes.MAIL_START], mail[codes.MAIL_END]
            key = partition_key(bytes(outbox.data[start:end]), mail[codes.MAIL_MESSAGING])
            if self._has(native.token(memoryview(key), 0, len(key))):
                copies = mail[codes.MAIL_COPIES]
                kept.append(
                    outbox.data,
                    start,
                    end,
                    mail[codes.MAIL_HOST],
                    mail[codes.MAIL_SEGMENT],
                    mail[codes.MAIL_POSITION],
                    -copies if mail[codes.MAIL_FLAGS] & codes.LATE else copies,
                    mail[codes.MAIL_MESSAGING],
                    mail[codes.MAIL_EPOCH],
                )
        return kept

    def _has(self, token: int) -> bool:
        return any(low <= token <= high for low, high in self._straight())

    def _straight(self) -> Sequence[tuple[int, int]]:
        """Return the ranges with both ends in them, none over the ring's end."""
        found = []
        for after, until in self.tokens:
            if after < until:
                found.append((after + 1, until))
            else:
                found.append((_LOWEST, until))
                if after < _HIGHEST:
                    found.append((after + 1, _HIGHEST))
        return found

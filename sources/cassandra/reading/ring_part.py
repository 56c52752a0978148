"""The part of the ring that bulk work reads: which splits it meets, and which mutations."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.cassandra.agreement.intake import Outbox
from headrace.sources.cassandra.commitlog.heads import partition_key
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.ring.splits import number_of

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class RingPart:
    """Ranges of tokens, each without its first and with its last; none means the whole ring.

    A range whose last token is not above its first wraps around.
    """

    splits: int
    tokens: Sequence[tuple[int, int]] = ()

    def has_split(self, number: int) -> bool:
        """Return whether a token of split *number* can be in it."""
        return not self.tokens or any(
            number_of(low, self.splits) <= number <= number_of(high, self.splits)
            for low, high in self._straight()
        )

    def keep(self, outbox: Outbox) -> Outbox:
        """Return the mutations of *outbox* that are in it; *outbox* itself if all are."""
        if not self.tokens:
            return outbox
        kept = Outbox()
        meta = memoryview(outbox.meta)[: outbox.count * constants.MAIL_WIDTH].tolist()
        for base in range(0, len(meta), constants.MAIL_WIDTH):
            mail = meta[base : base + constants.MAIL_WIDTH]
            start, end = mail[constants.MAIL_START], mail[constants.MAIL_END]
            key = partition_key(bytes(outbox.data[start:end]), mail[constants.MAIL_MESSAGING])
            if self._has(ops.token(memoryview(key), 0, len(key))):
                copies = mail[constants.MAIL_COPIES]
                kept.append(
                    outbox.data,
                    start,
                    end,
                    mail[constants.MAIL_HOST],
                    mail[constants.MAIL_SEGMENT],
                    mail[constants.MAIL_POSITION],
                    -copies if mail[constants.MAIL_FLAGS] & constants.LATE else copies,
                    mail[constants.MAIL_MESSAGING],
                    mail[constants.MAIL_EPOCH],
                )
        return kept

    def _has(self, token: int) -> bool:
        return any(low <= token <= high for low, high in self._straight())

    def _straight(self) -> Sequence[tuple[int, int]]:
        """Return the ranges with both ends included, none of which wraps around."""
        found = []
        for after, until in self.tokens:
            if after < until:
                found.append((after + 1, until))
            else:
                found.append((_LOWEST, until))
                if after < _HIGHEST:
                    found.append((after + 1, _HIGHEST))
        return found

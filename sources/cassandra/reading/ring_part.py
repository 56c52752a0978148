"""The part of the ring that bulk work reads: its splits and its mutations."""

from collections.abc import Sequence

import msgspec

from headrace.sources.cassandra.agreement.intake import AgreedMutations
from headrace.sources.cassandra.commitlog.heads import partition_key
from headrace.sources.cassandra.native import constants, ops
from headrace.sources.cassandra.ring.splits import number_of

_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_HALF_BITS = (1 << 64) - 1  # Of a digest, which meta contains as signed numbers.


class RingPart(msgspec.Struct, frozen=True):
    """Ranges of tokens, excluding the first and including the last; none means the ring.

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

    def keep(self, agreed: AgreedMutations) -> AgreedMutations:
        """Return the mutations of *agreed* that are in it; *agreed* itself if all are."""
        if not self.tokens:
            return agreed
        kept = AgreedMutations()
        meta = memoryview(agreed.meta)[: agreed.count * constants.AGREED_WIDTH].tolist()
        for base in range(0, len(meta), constants.AGREED_WIDTH):
            fields = meta[base : base + constants.AGREED_WIDTH]
            start, end = fields[constants.AGREED_START], fields[constants.AGREED_END]
            key = partition_key(bytes(agreed.data[start:end]), fields[constants.AGREED_MESSAGING])
            if self._has(ops.token(memoryview(key), 0, len(key))):
                copies = fields[constants.AGREED_COPIES]
                kept.append(
                    agreed.data,
                    start,
                    end,
                    fields[constants.AGREED_HOST],
                    fields[constants.AGREED_SEGMENT],
                    fields[constants.AGREED_POSITION],
                    -copies if fields[constants.AGREED_FLAGS] & constants.LATE else copies,
                    fields[constants.AGREED_MESSAGING],
                    fields[constants.AGREED_EPOCH],
                    *(half & _HALF_BITS for half in fields[constants.AGREED_DIGEST :]),
                )
        return kept

    def _has(self, token: int) -> bool:
        return any(low <= token <= high for low, high in self._straight())

    def _straight(self) -> Sequence[tuple[int, int]]:
        """Return the ranges with both ends included; none of them wraps around."""
        found = []
        for after, until in self.tokens:
            if after < until:
                found.append((after + 1, until))
            else:
                found.append((_LOWEST, until))
                if after < _HIGHEST:
                    found.append((after + 1, _HIGHEST))
        return found

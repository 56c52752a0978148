"""Mutations by their digests in a file, put where only the digest was sent."""

from array import array
from collections.abc import Sequence

import pytest

from headrace.sources.cassandra.framed.rejoining import SentBytes
from headrace.sources.cassandra.native import constants

pytestmark = pytest.mark.hot


def words(numbers: Sequence[int]) -> memoryview:
    """Return digests as a column."""
    return memoryview(array("Q", numbers))


def test_what_was_sent_is_found() -> None:
    """Each mutation is found by its whole digest and its length, also where digests are similar."""
    kept = [(n % 4, n % 16 << 60 | n // 4, 5 + n % 3) for n in range(40)]
    sent = SentBytes(len(kept))
    kinds = bytes([constants.SENT_BYTES, *[constants.SENT_BOTH] * len(kept)])
    sizes = [9, *(size for *_, size in kept)]
    digests = [half for d0, d1, _ in kept for half in (d0, d1)]
    sent.add(100, memoryview(kinds), memoryview(array("i", sizes)), words(digests))
    begin = [100 + sum(sizes[: number + 1]) for number in range(len(kept))]

    assert len(kept) == sent.count
    assert begin == [sent.find(*each) for each in kept]
    assert [-1] * len(kept) == [sent.find(d0, d1, size + 1) for d0, d1, size in kept]
    assert -1 == sent.find(5, 5, 5)


def test_a_block_is_put_together() -> None:
    """Entries have the order and the sizes of the log; what no log sent is named."""
    file = b"..nine.bytes"
    sent = SentBytes(1)
    sent.add(
        7, memoryview(bytes([constants.SENT_BOTH])), memoryview(array("i", [5])), words([1, 2])
    )
    kinds = bytes(
        [
            constants.SENT_DIGEST,
            constants.SENT_BYTES,
            constants.SENT_DIGEST,
            constants.SENT_BOTH,
            constants.SENT_DIGEST,
        ]
    )
    made = memoryview(bytearray(16))
    missing = sent.rejoin(
        memoryview(file),
        memoryview(kinds),
        memoryview(array("i", [5, 2, 3, 1, 5])),
        words([1, 2, 3, 4, 5, 6, 1, 2]),
        memoryview(b"xyz"),
        made,
    )

    assert [(2, 7, 2)] == missing
    assert b"bytesxy" + bytes(3) + b"zbytes"[:6] == bytes(made)

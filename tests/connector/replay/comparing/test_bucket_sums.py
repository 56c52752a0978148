"""Sums over the changes of one side."""

from headrace.connector.replay.comparing.bucket_sums import Members, Summing
from headrace.connector.replay.comparing.reconciling import joined

BUCKET = ("ks.t", 1, 0)
HASHES = (1 << 63, (1 << 63) + 5, 7)


def test_sums_of_parts_are_the_sum_of_the_whole() -> None:
    """Sums wrap at 64 bits, in any order and in any parts; duplicates count once."""
    whole, one, other = Summing(), Summing(), Summing()
    for hashed in (*HASHES, HASHES[0]):
        whole.add(BUCKET, hashed)
    for part, hashes in ((one, HASHES[:1]), (other, HASHES[:0:-1])):
        for hashed in hashes:
            part.add(BUCKET, hashed)

    assert {BUCKET: Members(3, 12)} == whole.sums() == joined([other.sums(), one.sums()])

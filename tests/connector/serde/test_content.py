"""Encoded records are compared with the checksum of their batch."""

import msgspec
import pytest

from headrace.connector.serde.content import ChecksumError, check
from headrace.plugins import MODULUS, Checksums, EncodedRecords, NumberPosition, Quarantined
from headrace.plugins.records.batches import RecordBatch

SUMS = [MODULUS - 5, 3, 1 << 70, 9]


def batch(checksum: int | None) -> RecordBatch:
    """Return a batch that should have this checksum."""
    made = RecordBatch("7", NumberPosition(0), 0, [])
    made.checksum = checksum
    return made


def encoded(*sums: int, omitted: int = 0, quarantined: int = 0) -> EncodedRecords:
    """Return records with these checksums, and what was left out of them."""
    count = len(sums)
    lost = [Quarantined("", "bad_value", "", b"", checksum=quarantined)] if quarantined else []
    columns = [b"k"] * count, [b"v"] * count, [()] * count, ["ks.t"] * count
    return EncodedRecords(*columns, lost, checksums=Checksums.of(sums), omitted=omitted)


def is_accepted(whole: RecordBatch, found: EncodedRecords) -> bool:
    """Say whether *found* passes for what the batch should have."""
    try:
        check(whole, found)
    except ChecksumError:
        return False
    return True


def test_all_that_is_there_is_accepted() -> None:
    """Records, what was left out and what was quarantined add up, in any order."""
    whole = batch(sum(SUMS) % MODULUS)

    assert is_accepted(whole, encoded(*SUMS))
    assert is_accepted(whole, encoded(*reversed(SUMS)))
    assert is_accepted(whole, encoded(*SUMS[:2], omitted=SUMS[2], quarantined=SUMS[3]))
    assert is_accepted(batch(0), EncodedRecords([], [], [], []))
    unchecked = Quarantined("", "bad_value", "", b"")  # Of no change: it has no share.
    assert is_accepted(whole, msgspec.structs.replace(encoded(*SUMS), quarantined=[unchecked]))


@pytest.mark.parametrize(
    "found",
    [
        encoded(*SUMS[1:]),
        encoded(*SUMS, SUMS[0]),
        encoded(*SUMS[:3], SUMS[0]),
        encoded(*SUMS[:3], SUMS[3] + 1),
        EncodedRecords([], [], [], []),
        msgspec.structs.replace(encoded(*SUMS), values=[b"v"] * 4, checksums=None),
        msgspec.structs.replace(encoded(*SUMS[:3]), checksums=Checksums.of(SUMS)),
        msgspec.structs.replace(
            encoded(*SUMS), quarantined=[Quarantined("", "", "", b"", checksum=1)]
        ),
    ],
    ids=[
        "missing",
        "doubled",
        "exchanged",
        "other",
        "none",
        "unknown",
        "unreported",
        "quarantined",
    ],
)
def test_what_differs_is_an_error(found: EncodedRecords) -> None:
    """A change that is missing, doubled or another is named, with the split."""
    with pytest.raises(ChecksumError, match="split 7: changes were lost, or added"):
        check(batch(sum(SUMS) % MODULUS), found)


def test_a_source_without_checksums_is_not_judged() -> None:
    """Its batches have none, with any records."""
    assert is_accepted(batch(None), encoded(1, 2))
    assert not is_accepted(batch(4), encoded(1, 2))

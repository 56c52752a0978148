"""Checks by checksum that the encoded records of a batch are complete."""

from headrace.connector.serde.transcode.sums import sum_of
from headrace.plugins import MODULUS, Batch, EncodedRecords, FatalError


class ChecksumError(FatalError):
    """Changes of a batch are missing or were added: none of it is committed."""

    code = "changes_missing"
    exit_status = 4


def check(batch: Batch, encoded: EncodedRecords) -> None:
    """Compare *encoded*, the encoded *batch*, with the checksum of the batch, if it has one.

    Raises:
        ChecksumError: they do not match.

    """
    if batch.checksum is None:
        return
    records, checksums = len(encoded.values), encoded.checksums
    if checksums is not None and records and len(checksums.low) != records:
        raise _missing(batch, f"{records} records have {len(checksums.low)} checksums")
    if sum_of(encoded) % MODULUS != batch.checksum:
        raise _missing(
            batch,
            f"{records} records, {sum(encoded.filtered.values())} filtered and "
            f"{len(encoded.quarantined)} quarantined do not add up to the checksum of the batch",
        )


def _missing(batch: Batch, what: str) -> ChecksumError:
    return ChecksumError(
        f"changes were lost, or added, between the source and the sink: {what}",
        place=f"split {batch.split}",
        hint="nothing of the batch was delivered; it is a fault of headrace or of a plugin: report "
        "it, with the job and the versions",
    )

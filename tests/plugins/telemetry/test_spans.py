"""The times of batches between their reading and their commit."""

from headrace.plugins.telemetry.spans import BatchTrace, Trail


def test_a_batch_that_is_sent_again_has_the_first_start_and_the_last_result() -> None:
    """Sent is of the first attempt, settled of the last; a batch is reported at its commit."""
    reported: list[BatchTrace] = []
    trail = Trail("s", reported.append)
    trail.read(10, 11)
    trail.added(7, 3, 90, ())
    trail.settled(7, 1, 12, 13)
    trail.settled(7, 2, 14, 15)
    trail.read(20, 21)
    trail.added(8, 0, 5, ())
    trail.added(9, 1, 5, ())
    before = list(reported)
    trail.committed(8, 30)

    assert [] == before
    assert [BatchTrace("s", 7, 3, 90, 10, 11, (), 12, 15, 30, 2)] == reported

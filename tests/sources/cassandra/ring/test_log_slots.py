"""The numbers of logs in the records of one split."""

import pytest

from headrace.sources.cassandra.errors import SplitTooWideError
from headrace.sources.cassandra.ring.log_slots import LOG_SLOTS_MAX, LogSlots

NODES = [f"n{number}" for number in range(2 * LOG_SLOTS_MAX)]


def test_a_slot_stays_until_nothing_refers_to_it() -> None:
    """A node that comes takes a free one; of who left, a record may still tell."""
    log_slots = LogSlots("1-of-8", NODES, ("n5", "gone", "n6"))
    assert ["n5", "", "n6"] == list(log_slots.names)

    log_slots.need(["n6", "n7", "n8"])
    assert ["n5", "n7", "n6", "n8"] == list(log_slots.names)
    assert ["n5"] == log_slots.idle

    assert not log_slots.free(referred=0b0001)
    assert ["n5"] == log_slots.free(referred=0b1110)
    log_slots.need(["n6", "n7", "n8", "n9"])
    assert ["n9", "n7", "n6", "n8"] == list(log_slots.names)


def test_there_are_no_more_slots_than_bits() -> None:
    """A split with 64 nodes that needs another one gets an error."""
    log_slots = LogSlots("1-of-8", NODES)
    log_slots.need(NODES[:LOG_SLOTS_MAX])
    with pytest.raises(SplitTooWideError, match="63 nodes hold its tokens, 2 did recently"):
        log_slots.need(NODES[2 : LOG_SLOTS_MAX + 1])


def test_a_place_in_all_logs_says_no_slots() -> None:
    """It has no records; the numbers of its holders are kept."""
    assert () == LogSlots("1-of-8", NODES, NODES).names

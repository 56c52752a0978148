"""The numbers of logs in the records of one split."""

import pytest

from headrace.sources.cassandra.errors import SplitTooWideError
from headrace.sources.cassandra.ring.log_slots import SEATS_MAX, Seats

NODES = [f"n{number}" for number in range(2 * SEATS_MAX)]


def test_a_seat_stays_until_nothing_refers_to_it() -> None:
    """A node that comes takes a free one; of who left, a record may still tell."""
    seats = Seats("1-of-8", NODES, ("n5", "gone", "n6"))
    assert ["n5", "", "n6"] == list(seats.names)

    seats.need(["n6", "n7", "n8"])
    assert ["n5", "n7", "n6", "n8"] == list(seats.names)
    assert ["n5"] == seats.idle

    assert not seats.free(referred=0b0001)
    assert ["n5"] == seats.free(referred=0b1110)
    seats.need(["n6", "n7", "n8", "n9"])
    assert ["n9", "n7", "n6", "n8"] == list(seats.names)


def test_there_are_no_more_seats_than_bits() -> None:
    """A split with 64 nodes that needs another one gets an error."""
    seats = Seats("1-of-8", NODES)
    seats.need(NODES[:SEATS_MAX])
    with pytest.raises(SplitTooWideError, match="63 nodes hold its tokens, 2 did recently"):
        seats.need(NODES[2 : SEATS_MAX + 1])


def test_a_place_in_all_logs_says_no_seats() -> None:
    """It has no records; the numbers of its holders are kept."""
    assert () == Seats("1-of-8", NODES, NODES).names

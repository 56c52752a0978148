"""Encoded records, of which some are chosen."""

from headrace.plugins import EncodedRecords

ENCODED = EncodedRecords(
    keys=[b"a", None, b"c", b"d"],
    values=[b"1", b"2", b"3", b"4"],
    headers=[(), (("h", b"2"),), (), ()],
    tables=["s", "t", "u", "v"],
    tombstones=[0, 2, 3],
    topics=["w", "x", "y", "z"],
    filtered={"s": 5},
)


def test_chosen_records_keep_all_that_is_theirs() -> None:
    """The columns have the chosen records alone, and tombstones follow the same records."""
    assert ENCODED.chosen([1, 3]) == EncodedRecords(
        keys=[None, b"d"],
        values=[b"2", b"4"],
        headers=[(("h", b"2"),), ()],
        tables=["t", "v"],
        tombstones=[1],
        topics=["x", "z"],
        filtered={"s": 5},
    )
    assert 0 == len(ENCODED.chosen([]))

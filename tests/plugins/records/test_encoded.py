"""Encoded records: some are chosen, and two of them are compared."""

import msgspec
import pytest

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


@pytest.mark.parametrize(
    "other", [{"values": [b"1"] * 4}, {"topics": None}, {"filtered": {}}, {"tombstones": [0]}]
)
def test_what_becomes_messages_is_compared(other: dict[str, object]) -> None:
    """How records were made, and their checksums, may differ; their bytes and places may not."""
    assert ENCODED == msgspec.structs.replace(ENCODED, omitted=1)
    assert ENCODED != msgspec.structs.replace(ENCODED, **other)
    with pytest.raises(TypeError, match="unhashable"):
        hash(ENCODED)

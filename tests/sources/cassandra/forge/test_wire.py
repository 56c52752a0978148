"""Variable integers, headers, markers and entries are as the format's own examples."""

import pytest

from headrace.sources.cassandra.forge.wire import entry, header, marker
from headrace.sources.cassandra.mutation.vints import signed_vint, vint

SEGMENT_ID = 1_700_000_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8080"),
        (300, "812c"),
        (16383, "bfff"),
        (2097152, "e0200000"),
        (257120000000000, "fce9d96a43c000"),
        ((1 << 56) - 1, "feffffffffffffff"),
        (1 << 56, "ff0100000000000000"),
        (-1, "ff" * 9),
    ],
)
def test_unsigned(value: int, expected: str) -> None:
    """The shortest form; a negative number is its 64 bits."""
    assert expected == vint(value).hex()


@pytest.mark.parametrize(
    ("value", "expected"), [(0, "00"), (-1, "01"), (63, "7e"), (64, "8080"), (86400, "c2a300")]
)
def test_signed(value: int, expected: str) -> None:
    """Small numbers of either sign are short."""
    assert expected == signed_vint(value).hex()


@pytest.mark.parametrize(("version", "crc"), [(7, "52ecfd5a"), (8, "06643ec7"), (9, "bf9fe52f")])
def test_header(version: int, crc: str) -> None:
    """The checksum takes the id's lower half first and a wider length."""
    expected = f"0000000{version}0000018bcfe5680000027b7d{crc}"
    assert expected == header(version, SEGMENT_ID, {}).hex()


def test_marker_and_entry() -> None:
    """A marker's checksum is of its own place; an entry's second one covers its size too."""
    assert "00000065da074c34" == marker(20, 101, SEGMENT_ID).hex()
    framed = entry(bytes(61)).hex()
    assert framed.startswith("0000003d792c930d")
    assert 2 * (61 + 12) == len(framed)

"""Values of Avro become those that Arrow takes, or do not fit."""

from decimal import Decimal
from fractions import Fraction

import pytest

from headrace.connector.history.frames.values import UnfitError, arrow_value, pairs

VARINT = {"type": "bytes", "cqlType": "varint"}
DECIMAL = {
    "type": "record",
    "name": "Decimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "unscaled", "type": "bytes"}],
}
LARGEST = 10**38 - 1
TIMESTAMP = {"type": "long", "cqlType": "timestamp"}


def packed(number: int) -> bytes:
    """Return the bytes of a varint."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    ("number", "scale"),
    [(0, 0), (-1, 18), (15, 1), (15, -3), (7, -19), (LARGEST, 18), (-LARGEST, 18), (10**60, 60)],
)
def test_numbers_that_fit(number: int, scale: int) -> None:
    """A decimal has 18 digits behind the point, and 20 before it."""
    made = arrow_value(["null", DECIMAL], {"scale": scale, "unscaled": packed(number)})
    assert Fraction(number) / Fraction(10) ** scale == Fraction(made)
    assert -18 == made.as_tuple().exponent


@pytest.mark.parametrize(
    ("number", "scale"),
    [(1, 19), (10**38, 18), (-(10**38), 18), (1, -20), (1, 1 << 30), (1, -(1 << 30)), (11, 19)],
)
def test_numbers_that_do_not_fit(number: int, scale: int) -> None:
    """They are too large, or would lose digits; none takes long."""
    with pytest.raises(UnfitError):
        arrow_value(DECIMAL, {"scale": scale, "unscaled": packed(number)})


def test_varints_have_38_digits() -> None:
    """One digit more does not fit."""
    assert Decimal(-LARGEST) == arrow_value(VARINT, packed(-LARGEST))
    with pytest.raises(UnfitError):
        arrow_value(VARINT, packed(LARGEST + 1))


def test_times_in_microseconds() -> None:
    """In 64 bits."""
    last_ms = ((1 << 63) - 1) // 1_000
    assert [-last_ms * 1_000, None, last_ms * 1_000] == [
        arrow_value(["null", TIMESTAMP], ms) for ms in (-last_ms, None, last_ms)
    ]
    for ms in (-last_ms - 1, last_ms + 1):
        with pytest.raises(UnfitError):
            arrow_value(TIMESTAMP, ms)


def test_maps_have_no_key_that_is_null() -> None:
    """Arrow has none; a value may be null."""
    assert [("a", None)] == pairs("string", ["null", TIMESTAMP], [("a", None)])
    with pytest.raises(UnfitError):
        pairs(["null", "string"], TIMESTAMP, [(None, 1)])

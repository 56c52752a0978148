"""Types of Debezium are lossless: numbers of any size become strings."""

import pytest

from headrace.connector.serde.conversion import DebeziumTypes, decimal_text, whole_text
from headrace.connector.serde.transcode import octets

HUGE = 10**6_000  # Of more digits than Python turns into a string by itself.


@pytest.mark.parametrize(
    "number",
    [0, -1, 2**63, -(2**63), HUGE + 7, -HUGE],
    ids=["0", "-1", "2^63", "-2^63", "10^6000+7", "-10^6000"],
)
def test_a_varint_of_any_size_becomes_its_digits(number: int) -> None:
    """Cassandra limits it to a mutation's size only."""
    size = number.bit_length() // 8 + 1
    _, piece = DebeziumTypes({}).of({"type": "bytes", "cqlType": "varint"})
    assert piece.call is not None

    made = piece.call(octets.sized(number.to_bytes(size, "big", signed=True)))

    digits = made[octets.long_at(made, 0)[1] :].decode()
    head, tail = divmod(abs(number), 10**3_000)
    expected = f"{head}{tail:03000}".lstrip("0") or "0"
    assert f"-{expected}" == digits if number < 0 else expected == digits
    assert digits == whole_text(number)


def test_a_decimal_of_many_digits_becomes_all_of_them() -> None:
    """With a scale, without one, and with one that is written as an exponent."""
    digits = "1" + "0" * 6_000

    assert f"{digits[:-2]}.00" == decimal_text(HUGE, 2)
    assert f"-{digits}" == decimal_text(-HUGE, 0)
    assert f"{digits}E3" == decimal_text(HUGE, -3)
    assert f"{digits}E-2000" == decimal_text(HUGE, 2_000)

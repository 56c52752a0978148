"""Values are written as JSON from bytes as msgspec writes what `json_values` makes of them."""

import struct

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.sources.cassandra.encode.json_bytes import JsonBytes, JsonType
from headrace.sources.cassandra.mutation.json_values import json_key, to_json
from headrace.sources.cassandra.mutation.values import BadValueError
from headrace.sources.cassandra.schema.types import parse_type

pytestmark = pytest.mark.hot

BEFORE = b"before"
MS_PER_DAY = 86_400_000
NS_PER_DAY = MS_PER_DAY * 1_000_000
SIZES = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8}
# One day around the first and the last that Python has, leap days, and those around them.
DAYS = (-719_163, -719_162, -1, 0, 59, 60, 11_015, 11_016, 47_540, 2_932_896, 2_932_897)


def written(kind: str, raw: bytes, *, as_name: bool = False) -> bytes | None:
    """Return what is written of a value that stands amid others; None if it does not fit."""
    out = JsonBytes()
    out.attach(BEFORE + raw + b"behind")
    write = out.member if as_name else out.value
    try:
        write(JsonType(parse_type(kind)), len(BEFORE), len(raw))
    except BadValueError:
        return None
    return out.bytes_from(0)


def by_object(kind: str, raw: bytes, *, as_name: bool = False) -> bytes | None:
    """Return the same by an object."""
    try:
        made = to_json(parse_type(kind), raw)
    except BadValueError:
        return None
    return msgspec.json.encode(json_key(made) if as_name else made)


def assert_same(kind: str, raw: bytes) -> None:
    """Compare both ways, as a value and as a name."""
    assert by_object(kind, raw) == written(kind, raw)
    if raw:
        assert by_object(kind, raw, as_name=True) == written(kind, raw, as_name=True)


@given(st.sampled_from(sorted(SIZES)), st.data())
def test_integers(kind: str, data: st.DataObject) -> None:
    """Of every size and sign."""
    bits = 8 * SIZES[kind] - 1
    number = data.draw(st.integers(-(1 << bits), (1 << bits) - 1))
    assert_same(kind, number.to_bytes(SIZES[kind], "big", signed=True))


@pytest.mark.parametrize("kind", sorted(SIZES))
def test_the_largest_and_the_least_integer(kind: str) -> None:
    """Of every size."""
    for first in (0x7F, 0x80):
        for rest in (0x00, 0xFF):
            assert_same(kind, bytes([first] + [rest] * (SIZES[kind] - 1)))


@pytest.mark.parametrize(
    "kind",
    [
        "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float",
        "frozen<list<int>>", "frozen<map<text, int>>", "inet", "int", "smallint", "text", "time",
        "timestamp", "timeuuid", "tinyint", "tuple<int, text>", "uuid", "varint",
        "vector<float, 2>",
    ],
)  # fmt: skip
def test_any_bytes(kind: str) -> None:
    """They fit a type both ways, with the same result, or neither."""

    @given(st.binary(max_size=24))
    @example(b"")
    def check(raw: bytes) -> None:
        assert_same(kind, raw)

    check()


@given(st.text())
@example('\0\x1f\x20\x7f\x80"\\/\b\t\n\f\r')
@example("é€𝄞")
def test_text(text: str) -> None:
    """With quotes, backslashes, control characters, and what is not ASCII."""
    assert_same("text", text.encode())
    assert_same("ascii", text.encode("ascii", "ignore"))
    assert_same("text", b"before" + text.encode() + b"\xff")


@given(st.integers(-(1 << 31), (1 << 31) - 1))
def test_dates(days: int) -> None:
    """Those of the years 1 to 9999, and the others as numbers."""
    assert_same("date", struct.pack(">I", days + (1 << 31)))


@given(st.integers(DAYS[0] * MS_PER_DAY, DAYS[-1] * MS_PER_DAY))
def test_timestamps(moment: int) -> None:
    """Milliseconds of all years that Python has."""
    assert_same("timestamp", struct.pack(">q", moment))


@pytest.mark.parametrize("day", DAYS)
def test_the_ends_of_days(day: int) -> None:
    """The first and the last millisecond, also of leap days and of the first and last year."""
    assert_same("date", struct.pack(">I", day + (1 << 31)))
    for moment in (day * MS_PER_DAY, (day + 1) * MS_PER_DAY - 1):
        assert_same("timestamp", struct.pack(">q", moment))


@given(st.integers(-1, NS_PER_DAY))
@example(-1)
@example(NS_PER_DAY - 1)
@example(NS_PER_DAY)
def test_times(since: int) -> None:
    """Nanoseconds of a day, and the others as numbers."""
    assert_same("time", struct.pack(">q", since))


@given(st.integers(-4, 60), st.integers(-(1 << 66), 1 << 66))
@example(0, 0)
@example(7, 1)
@example(6, 1)
@example(5, -1)
@example(2, 0)
@example(19, -(1 << 63))
@example(18, (1 << 63) - 1)
def test_decimals(scale: int, unscaled: int) -> None:
    """Without a fraction, below 1, with and without an exponent, of more than 64 bits."""
    size = unscaled.bit_length() // 8 + 1
    assert_same("decimal", struct.pack(">i", scale) + unscaled.to_bytes(size, "big", signed=True))


@given(st.floats())
@example(1e16)
@example(1e-7)
@example(-0.0)
@example(float("inf"))
@example(float("-inf"))
@example(float("nan"))
def test_doubles(number: float) -> None:
    """With the fewest digits; what JSON cannot express is text."""
    assert_same("double", struct.pack(">d", number))


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1)))
def test_write_times(times: list[int]) -> None:
    """A time that comes again is written again."""
    out = JsonBytes()
    for at_us in [0, *times, *times[-1:], *times[-1:]]:
        begin = out.size
        out.time(at_us)
        assert str(at_us).encode() == out.bytes_from(begin)

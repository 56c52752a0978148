"""A body is JSON that can be read in one way only, or it is refused by name."""

import pytest

from headrace.connector.language.rendering import StatementWarning
from headrace.connector.rest.exchange import (
    DEPTH_MAX,
    WARNING_CHARS_MAX,
    RefusedError,
    parse_json,
    warning_headers,
)
from helpers.cost import is_linear


def test_plain() -> None:
    """What JSON says is what is read; decimals stay as they were written."""
    assert {"a": [1, "1.50", True, None, "é"]} == parse_json(
        '{"a": [1, 1.50, true, null, "é"]}'.encode()
    )


def test_depth_at_the_bound() -> None:
    """The deepest body that is allowed is read."""
    assert parse_json(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{bad", "line: 1, column: 2"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 1, "a": 2}', "gives 'a' twice"),
        (b'[{"a": {"b": 1, "b": 2}}]', "gives 'b' twice"),
        (b"[NaN]", "holds NaN"),
        (b"[-Infinity]", "holds -Infinity"),
        (b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1), "nested more than"),
        (b"[" * 200_000, "nested more than"),
        (b'{"a":' * 100_000, "nested more than"),
        (b"9" * 5_000, "too many digits"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (rb'["\ud800"]', "lone surrogate"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_refused(body: bytes, message: str) -> None:
    """What is not JSON, or too much of it, is the client's mistake, and is named."""
    with pytest.raises(RefusedError, match=message) as caught:
        parse_json(body)

    assert 400 == caught.value.status


def test_keys_given_twice_are_found_in_linear_time() -> None:
    """A body of many keys, the last of them given twice, is refused in linear time."""

    def refuse(keys: int) -> None:
        pairs = ",".join(f'"{number}":0' for number in range(keys))
        with pytest.raises(RefusedError, match="twice"):
            parse_json(f'{{{pairs},"{keys - 1}":0}}'.encode())

    assert is_linear(refuse, 2_500, times=64)


def test_warning_header() -> None:
    """Warnings are one header of quoted strings: in ASCII, without line ends, and bounded."""
    assert {} == warning_headers(())
    odd = StatementWarning("b", 'say "é\\"\r\nSet-Cookie: x')
    found = warning_headers((StatementWarning("a", "one", "ALTER … it"), odd))
    assert {
        "Warning": '299 headrace "[a] one; hint: ALTER ... it", '
        '299 headrace "[b] say \\"?\\\\\\" Set-Cookie: x"'
    } == found
    (long,) = warning_headers((StatementWarning("a", "x" * 10_000),)).values()
    assert WARNING_CHARS_MAX + len('299 headrace ""') == len(long)

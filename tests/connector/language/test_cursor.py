"""The cursor refuses what is not a token of a statement, once it gets there."""

import pytest

from headrace.connector.language.cursor import TEXT_BYTES_MAX, Cursor
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import parse_statement


def read(text: str) -> list[str]:
    """Return the values of all tokens."""
    cursor, values = Cursor(text), []
    while not cursor.at_end:
        values.append(cursor.advance().value)
    return values


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("PAUSE cdc.shop.orders", "write DATA_SOURCE cdc ON TABLE shop.orders"),
        ("PAUSE DATA_SOURCE cdc.shop.orders", "write cdc ON TABLE shop.orders"),
        ("SHOW LAG FOR DATA_SOURCE cdc.shop.orders", "write cdc ON TABLE shop.orders"),
        ("PREVIEW DATA_SOURCE cdc.shop.orders LIMIT 2", "write cdc ON TABLE shop.orders"),
        ("PAUSE DATA_SOURCE cdc.orders", ""),
    ],
)
def test_a_source_as_messages_name_it(text: str, hint: str) -> None:
    """Its name is that of SHOW STATUS; the hint is how a statement names it, word for word."""
    with pytest.raises(StatementSyntaxError) as caught:
        parse_statement(text)

    assert hint == caught.value.hint


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("a 'b", "the string is never closed", 2, "end it with '"),
        ("'a''b", "the string is never closed", 0, "end it with '"),
        ('a "b', "the name is never closed", 2, 'end it with "'),
        ("a /* b * /", "the comment is never closed", 2, "end it with */"),
        ("WITH kafka:", "unexpected character ':'", 10, "write a URI in quotes"),
        ("a / b", "unexpected character '/'", 2, ""),
        ("1 500kg", "this is not a number", 2, "single quotes"),
        ("1.2.3", "this is not a number", 0, "single quotes"),
        ("k\u0430", "U+0430 (CYRILLIC SMALL LETTER A)", 1, ""),
        ("a\u00a0b", "U+00A0 (NO-BREAK SPACE)", 1, ""),
        ("'a\x1b[0m'", "U+001B (no printable character)", 2, ""),
        ("'\x00'", "U+0000 (no printable character)", 1, ""),
        ("-- \u202e", "U+202E (RIGHT-TO-LEFT OVERRIDE)", 3, ""),
        ("'\ud800'", "U+D800 (no printable character)", 1, ""),
    ],
)
def test_no_token(text: str, message: str, column: int, hint: str) -> None:
    """What is not a token is named, with its place and what to write instead."""
    with pytest.raises(StatementSyntaxError) as caught:
        read(text)

    assert message in caught.value.message
    assert (1, column) == (caught.value.where.line, caught.value.where.column)
    assert hint in caught.value.hint


@pytest.mark.parametrize("filler", ["x", "'x", "é"])
def test_length(filler: str) -> None:
    """A text of the greatest length is read; one byte more is not."""
    fits = "-- " + filler
    fits += "x" * (TEXT_BYTES_MAX - len(fits.encode()))

    assert [] == read(fits)
    with pytest.raises(StatementSyntaxError, match=f"{TEXT_BYTES_MAX + 1} bytes"):
        read(fits + "x")

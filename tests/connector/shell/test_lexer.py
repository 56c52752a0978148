"""Text becomes tokens by CQL's rules, except that a URI is no comment."""

import itertools

import pytest

from headrace.connector.shell.errors import StatementSyntaxError
from headrace.connector.shell.lexer import TEXT_BYTES_MAX, Token, TokenKind, tokens


def lexed(text: str) -> list[tuple[str, str]]:
    """Return kind and value of every token before the end."""
    before_end = itertools.takewhile(lambda token: token.kind is not TokenKind.END, tokens(text))
    return [(token.kind.name, token.value) for token in before_end]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Drop a_1", [("WORD", "Drop"), ("WORD", "a_1")]),
        ('"a ""b"""', [("NAME", 'a "b"')]),
        ("'it''s'''", [("STRING", "it's'")]),
        ("'a\nb'", [("STRING", "a\nb")]),
        ("1 -2 3.5 4. 5e-3", [("NUMBER", n) for n in ("1", "-2", "3.5", "4.", "5e-3")]),
        ("a.b=c;", [("WORD", "a"), ("SYMBOL", "."), ("WORD", "b"), ("SYMBOL", "="),
                    ("WORD", "c"), ("SYMBOL", ";")]),
        ("kafka://h1:1,h2:2?a=b&c=d;x", [("URI", "kafka://h1:1,h2:2?a=b&c=d"), ("SYMBOL", ";"),
                                         ("WORD", "x")]),
        ("kafka://h--x/*y -- z", [("URI", "kafka://h--x/*y")]),
        ("a // kafka://h\nb", [("WORD", "a"), ("WORD", "b")]),
        ("a//b:c\nd", [("WORD", "a"), ("WORD", "d")]),
        ("a -- 'b\nc", [("WORD", "a"), ("WORD", "c")]),
        ("a /* 'b\n; */ c", [("WORD", "a"), ("WORD", "c")]),
        ("a /* /* */ c", [("WORD", "a"), ("WORD", "c")]),
        ("'-- no // comment /* here'", [("STRING", "-- no // comment /* here")]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    """Each form of token is recognised, and comments leave nothing."""
    assert expected == lexed(text)


def test_end() -> None:
    """The end comes again and again, where the last token ended."""
    found = list(itertools.islice(tokens("a  -- b"), 3))

    assert [Token(TokenKind.WORD, "a", 0, 1), *[Token(TokenKind.END, "", 1, 1)] * 2] == found


@pytest.mark.parametrize(
    ("text", "message", "column", "hint"),
    [
        ("a 'b", "the string is never closed", 2, "end it with '"),
        ("'a''b", "the string is never closed", 0, "end it with '"),
        ('a "b', "the name is never closed", 2, 'end it with "'),
        ("a /* b * /", "the comment is never closed", 2, "end it with */"),
        ("a, b", "unexpected character ','", 1, "joined by AND"),
        ("WITH kafka:", "unexpected character ':'", 10, "write a URI in quotes"),
        ("a / b", "unexpected character '/'", 2, ""),
        ("1 500ms", "this is not a number", 2, "single quotes"),
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
    """What is no token is named, with its place and what to write instead."""
    with pytest.raises(StatementSyntaxError) as caught:
        lexed(text)

    assert message in caught.value.message
    assert (1, column) == (caught.value.where.line, caught.value.where.column)
    assert hint in caught.value.hint


@pytest.mark.parametrize("filler", ["x", "'x", "é"])
def test_length(filler: str) -> None:
    """A text of the greatest length is read; one byte more is not."""
    fits = "-- " + filler
    fits += "x" * (TEXT_BYTES_MAX - len(fits.encode()))

    assert [] == lexed(fits)
    with pytest.raises(StatementSyntaxError, match=f"{TEXT_BYTES_MAX + 1} bytes"):
        lexed(fits + "x")

"""Text to tokens, by CQL's rules and one of our own: a bare URI is a token.

`//` begins a comment in CQL, which would cut `kafka://host` short, so a URI is tried first. The
lexer is pulled token by token: an error is raised only when the parser gets that far.
"""

import re
import unicodedata
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.connector.shell.errors import StatementSyntaxError

TEXT_BYTES_MAX: Final = 1024 * 1024

# Invisible, or able to reorder what a terminal shows: C0 and C1 controls except tab and line ends,
# lone surrogates, byte order marks, and the marks that switch the writing direction.
UNSAFE_CHARACTER: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff]"
)
NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

_TOKEN: Final = re.compile(
    rf"""
    (?P<space>  [ \t\r\n]++ )
  | (?P<uri>    [A-Za-z][A-Za-z0-9+.\-]*+://[^\s;'"]*+ )
  | (?P<comment> --[^\n]*+ | //[^\n]*+ | /\*(?s:.*?)\*/ )
  | (?P<word>   {WORD.pattern} )
  | (?P<number> {NUMBER.pattern} )
  | (?P<string> '[^']*+(?:''[^']*+)*+' )
  | (?P<name>   "[^"]*+(?:""[^"]*+)*+" )
  | (?P<symbol> [;.=] )
    """,
    re.VERBOSE,
)
_NUMBER_TAIL: Final = re.compile(r"[\w.]+")
_NEVER_CLOSED: Final = {
    "'": ("the string is never closed", "end it with '; a quote inside is written ''"),
    '"': ("the name is never closed", 'end it with "; a quote inside is written ""'),
    "/": ("the comment is never closed", "end it with */"),
}
_HINTS: Final = {
    ":": "write a URI in quotes: 'kafka://host:9092?topic=name'",
    ",": "options are joined by AND",
}


class TokenKind(StrEnum):
    """What a token is; the values are words for messages."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"
    URI = "URI"
    SYMBOL = "symbol"
    END = "end of text"


class Token(NamedTuple):
    """One token; *value* has its quotes removed, *start* and *end* bound it in the text."""

    kind: TokenKind
    value: str
    start: int
    end: int


_KINDS: Final = {kind.name.lower(): kind for kind in TokenKind}


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of *text*, then END for ever.

    Raises:
        StatementSyntaxError: the text is too long, or holds something that is no token.

    """
    _check_text(text)
    at, last_end = 0, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise _no_token(text, at)
        at = found.end()
        group = found.lastgroup
        if group in ("space", "comment"):
            continue
        if group == "number" and (tail := _NUMBER_TAIL.match(text, at)):
            raise StatementSyntaxError(  # It is not repeated: it may be a secret.
                "this is not a number",
                text=text,
                span=(found.start(), tail.end()),
                hint="write a text in single quotes",
            )
        last_end = at
        yield _token(_KINDS[str(group)], found)
    while True:
        yield Token(TokenKind.END, "", last_end, last_end)


def _token(kind: TokenKind, found: re.Match[str]) -> Token:
    value = found[0]
    if kind in (TokenKind.STRING, TokenKind.NAME):
        quote = value[0]
        value = value[1:-1].replace(quote * 2, quote)
    return Token(kind, value, found.start(), found.end())


def _check_text(text: str) -> None:
    if unsafe := UNSAFE_CHARACTER.search(text):
        raise _unexpected_character(text, unsafe.start())
    size_bytes = len(text.encode())
    if size_bytes > TEXT_BYTES_MAX:
        raise StatementSyntaxError(
            f"the text has {size_bytes} bytes, at most {TEXT_BYTES_MAX} are read",
            text=text,
            span=(0, 0),
            hint="split it into several",
        )


def _no_token(text: str, at: int) -> StatementSyntaxError:
    character = text[at]
    if character in _NEVER_CLOSED and (character != "/" or text.startswith("/*", at)):
        message, hint = _NEVER_CLOSED[character]
        return StatementSyntaxError(message, text=text, span=(at, at + 1), hint=hint)
    return _unexpected_character(text, at)


def _unexpected_character(text: str, at: int) -> StatementSyntaxError:
    character = text[at]
    shown = f"{character!r}"
    if not character.isascii() or not character.isprintable():
        named = unicodedata.name(character, "no printable character")
        shown = f"U+{ord(character):04X} ({named})"
    return StatementSyntaxError(
        f"unexpected character {shown}",
        text=text,
        span=(at, at + 1),
        hint=_HINTS.get(character, ""),
    )

"""CQL text as a row of tokens with places, and the cursor that parsers walk over them.

Types and DDL share it; it knows no statement. It is the schema's own lexer: statements typed by
people are another room's business.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn

from headrace.plugins.errors import HeadraceError


class SchemaTextError(HeadraceError):
    """Schema text that is not the CQL we read; nothing of the schema is used."""

    code = "schema_text"
    exit_status = 2


class TokenKind(StrEnum):
    """What a token is; `text` of a NAME is lower case unless it was quoted."""

    NAME = "name"
    QUOTED_NAME = "quoted name"
    STRING = "string"
    UUID = "uuid"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end of text"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` is its meaning (quotes taken off), `offset` its first character."""

    kind: TokenKind
    text: str
    offset: int

    def __str__(self) -> str:
        """Return the token as an error message names it."""
        return "the end" if self.kind is TokenKind.END else repr(self.text)


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|//[^\n]*|/\*.*?\*/)
    |(?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}(?!\w))
    |(?P<string>'(?:[^']|'')*'|\$\$.*?\$\$)
    |(?P<quoted>"(?:[^"]|"")*")
    |(?P<number>-?\d[\w.]*(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<symbol>[<>(){}\[\],;:.=*+\-!%/@?&|\\])""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str, place: str) -> list[Token]:
    """Cut *text* into tokens; the last one is END.

    Raises:
        SchemaTextError: a character begins no token, or a quote is not closed.

    """
    tokens = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            where = _place(text, offset, place)
            raise SchemaTextError(f"found {text[offset]!r}, which begins no token", place=where)
        if match.lastgroup != "space":
            tokens.append(_token(match))
        offset = match.end()
    tokens.append(Token(TokenKind.END, "", len(text)))
    return tokens


def _token(match: re.Match[str]) -> Token:
    raw = match.group()
    offset = match.start()
    match match.lastgroup:
        case "string" if raw.startswith("$$"):
            return Token(TokenKind.STRING, raw[2:-2], offset)
        case "string":
            return Token(TokenKind.STRING, raw[1:-1].replace("''", "'"), offset)
        case "quoted":
            return Token(TokenKind.QUOTED_NAME, raw[1:-1].replace('""', '"'), offset)
        case "name":
            return Token(TokenKind.NAME, raw.lower(), offset)
        case kind:
            return Token(TokenKind(kind or ""), raw, offset)


def _place(text: str, offset: int, place: str) -> str:
    starts = [0, *(match.end() for match in re.finditer(r"\n", text))]
    line = bisect_right(starts, offset)
    spot = f"line {line}, column {offset - starts[line - 1] + 1}"
    return f"{place}: {spot}" if place else spot


class Cursor:
    """A place in a row of tokens. Words are matched unquoted and in lower case."""

    def __init__(self, text: str, place: str = "") -> None:
        """Stand before the first token of *text*; *place* (a file's name) goes into errors."""
        self._text = text
        self._place = place
        self._tokens = tokenize(text, place)
        self._index = 0

    @property
    def token(self) -> Token:
        """The token that is read next."""
        return self._tokens[self._index]

    @property
    def at_end(self) -> bool:
        """Whether all tokens were read."""
        return self.token.kind is TokenKind.END

    def advance(self) -> Token:
        """Return the token here and step over it; END is never left."""
        token = self.token
        if token.kind is not TokenKind.END:
            self._index += 1
        return token

    def at(self, *texts: str) -> bool:
        """Say whether the next tokens are these words or symbols."""
        ahead = self._tokens[self._index : self._index + len(texts)]
        plain = (TokenKind.NAME, TokenKind.SYMBOL)
        return tuple(t.text for t in ahead if t.kind in plain) == texts

    def accept(self, *texts: str) -> bool:
        """Step over these words or symbols if all of them stand here."""
        if not self.at(*texts):
            return False
        self._index += len(texts)
        return True

    def expect(self, *texts: str) -> None:
        """Step over these words or symbols, or raise SchemaTextError."""
        for text in texts:
            if not self.accept(text):
                self.fail(f"expected {text.upper()!r}")

    def name(self, what: str) -> str:
        """Step over an identifier, quoted or not, and return it as Cassandra stores it."""
        if self.token.kind not in (TokenKind.NAME, TokenKind.QUOTED_NAME):
            self.fail(f"expected {what}")
        return self.advance().text

    def fail(self, message: str, *, at: Token | None = None, hint: str = "") -> NoReturn:
        """Raise SchemaTextError with the place and the text of *at*, or of the token here."""
        token = at or self.token
        place = _place(self._text, token.offset, self._place)
        raise SchemaTextError(f"{message}, found {token}", place=place, hint=hint)

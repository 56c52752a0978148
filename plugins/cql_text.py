"""CQL text as tokens: for the statement language, for the shell, and for DDL.

It knows no statement. One rule is not CQL's: a bare URI is a token, because `//` starts a comment
in CQL and would truncate `kafka://host`.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import islice
from typing import Final, NoReturn

import msgspec

# CQL's reserved words: as names they need double quotes.
RESERVED_WORDS: Final = frozenset({
    "add", "allow", "alter", "and", "apply", "asc", "authorize", "batch", "begin", "by",
    "columnfamily", "create", "default", "delete", "desc", "describe", "drop", "entries",
    "execute", "from", "full", "grant", "if", "in", "index", "infinity", "insert", "into", "is",
    "keyspace", "limit", "materialized", "mbean", "mbeans", "modify", "nan", "norecursive",
    "not", "null", "of", "on", "or", "order", "primary", "rename", "replace", "revoke",
    "schema", "select", "set", "table", "to", "token", "truncate", "unlogged", "unset",
    "update", "use", "using", "view", "where", "with",
})  # fmt: skip
NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
# The message for an OPEN token, and the hint, by its first character.
NEVER_CLOSED: Final = {
    "'": ("the string is never closed", "end it with '; a quote inside is written ''"),
    '"': ("the name is never closed", 'end it with "; a quote inside is written ""'),
    "/": ("the comment is never closed", "end it with */"),
    "$": ("the string is never closed", "end it with $$"),
}

_BARE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TOKEN: Final = re.compile(
    rf"""
    (?P<space>   [ \t\r\n]++ )
  | (?P<uri>     [A-Za-z][A-Za-z0-9+.\-]*+://[^\s;'"]*+ )
  | (?P<comment> --[^\n]*+ | //[^\n]*+ | /\*.*?\*/ )
  | (?P<uuid>    [0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}(?!\w) )
  | (?P<word>    [A-Za-z][A-Za-z0-9_]*+ )
  | (?P<number>  {NUMBER.pattern}[\w.]*+ )
  | (?P<string>  '[^']*+(?:''[^']*+)*+' | \$\$.*?\$\$ )
  | (?P<name>    "[^"]*+(?:""[^"]*+)*+" )
  | (?P<open>    (?:['"]|/\*|\$\$).*+ )
  | (?P<symbol>  . )
    """,
    re.VERBOSE | re.DOTALL,
)


class TokenKind(StrEnum):
    """The kind of a token; the values are words for messages."""

    WORD = "word"
    NAME = "quoted name"
    STRING = "string"
    NUMBER = "number"  # Or a token that starts as one: a duration, a blob.
    UUID = "UUID"
    URI = "URI"
    SYMBOL = "symbol"  # One character, even one that CQL does not use.
    OPEN = "text that is never closed"
    SPACE = "space"
    COMMENT = "comment"
    END = "end of text"


class Token(msgspec.Struct, frozen=True):
    """One token; *value* is without quotes, *start* and *end* are its bounds in the text.

    *folded* is the value as Cassandra interprets it: in lower case if unquoted. *keyword* is the
    word in lower case, or the symbol; empty for other tokens.
    """

    kind: TokenKind
    value: str
    start: int
    end: int
    folded: str
    keyword: str


_KINDS: Final = {kind.name.lower(): kind for kind in TokenKind}
_BETWEEN: Final = ("space", "comment")


def pieces(text: str, at: int = 0) -> Iterator[Token]:
    """Yield all of *text* from *at* on as tokens, with spaces and comments, without END."""
    return map(_token, _TOKEN.finditer(text, at))


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of *text*; the last one is END, at the end of the one before it."""
    end = 0
    for found in _TOKEN.finditer(text):
        if found.lastgroup not in _BETWEEN:  # Half of a text: no tokens are made of these.
            yield _token(found)
            end = found.end()
    yield Token(TokenKind.END, "", end, end, "", "")


def _token(found: re.Match[str]) -> Token:
    form, value = found.lastgroup, found[0]
    start, end = found.span()
    if form == "word":
        folded = value.lower()
        return Token(TokenKind.WORD, value, start, end, folded, folded)
    if form == "symbol":
        return Token(TokenKind.SYMBOL, value, start, end, value, value)
    if form in ("string", "name"):
        quote = value[0]
        value = value[2:-2] if quote == "$" else value[1:-1].replace(quote * 2, quote)
    return Token(_KINDS[form or ""], value, start, end, value, "")


class Cursor:
    """A place in the tokens of a text. Keywords are matched in any case, and only unquoted.

    Tokens are made as they are read: a text with an early mistake costs little.
    """

    def __init__(self, text: str) -> None:
        """Start before the first token."""
        self.text = text
        self._coming = tokens(text)
        self._ahead: list[Token] = []  # Tokens after the next one that were already made.
        self.token = next(self._coming)
        """The token that is read next."""

    @property
    def at_end(self) -> bool:
        """Whether all tokens were read."""
        return self.token.kind is TokenKind.END

    def advance(self) -> Token:
        """Skip the current token and return it. END stays; an unclosed token fails."""
        token = self.token
        if token.kind is TokenKind.OPEN:
            self.fail("")
        if token.kind is not TokenKind.END:
            self.token = self._ahead.pop(0) if self._ahead else next(self._coming)
        return token

    def at(self, *keywords: str) -> bool:
        """Return whether the next tokens are these words or symbols."""
        if self.token.keyword != keywords[0].lower():
            return False
        behind = keywords[1:]
        if not behind:
            return True
        if len(self._ahead) < len(behind):
            self._ahead.extend(islice(self._coming, len(behind) - len(self._ahead)))
        ahead = self._ahead[: len(behind)]
        return [token.keyword for token in ahead] == [keyword.lower() for keyword in behind]

    def accept(self, *keywords: str) -> bool:
        """Skip these words or symbols if all of them are next."""
        if not self.at(*keywords):
            return False
        for _ in keywords:
            self.advance()
        return True

    def expect(self, *keywords: str) -> None:
        """Skip these words or symbols, which must be next."""
        for keyword in keywords:
            if not self.accept(keyword):
                self.fail(f"expected {keyword.upper()!r}")

    def name(self, what: str) -> str:
        """Skip *what*, an identifier, quoted or not. Return it as Cassandra stores it."""
        if self.token.kind not in (TokenKind.WORD, TokenKind.NAME):
            self.fail(f"expected {what}")
        return self.advance().folded

    def names(self, what: str) -> list[str]:
        """Skip identifiers separated by commas, and return them."""
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        return names

    def qualified(self, what: str) -> tuple[str, str]:
        """Skip *what*, with or without a keyspace. Return both; the keyspace may be empty."""
        name = self.name(what)
        return (name, self.name(what)) if self.accept(".") else ("", name)

    def at_statement(self) -> bool:
        """Skip semicolons. Return whether a statement follows."""
        while self.accept(";"):
            pass
        return not self.at_end

    def end_statement(self) -> None:
        """Skip the semicolon after a statement; the last one may have none."""
        if not self.at_end:
            self.expect(";")

    def assignment(self, what: str) -> tuple[str, str | dict[str, str]]:
        """Skip the name of *what*, `=` and a constant or a map of constants. Return both."""
        name = self.name(what)
        self.expect("=")
        if not self.accept("{"):
            return name, self._constant()
        entries = {}
        while not self.accept("}"):
            key = self._constant()
            self.expect(":")
            entries[key] = self._constant()
            if self.token.keyword != "}":
                self.expect(",")
        return name, entries

    def _constant(self) -> str:
        if self.token.kind in (TokenKind.SYMBOL, TokenKind.END):
            self.fail("expected a value")
        return self.advance().folded

    def fail(self, message: str) -> NoReturn:
        """Raise the parser's error: *message* says what was expected."""
        raise ValueError(f"{message}, found {self.token.value!r}")


def quote_name(name: str) -> str:
    """Return *name* in CQL: in double quotes only if necessary."""
    if _BARE_NAME.fullmatch(name) and name not in RESERVED_WORDS:
        return name
    return quoted_name(name)


def quoted_name(name: str) -> str:
    """Return *name* in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def quoted_string(text: str) -> str:
    """Return *text* as a CQL string."""
    return "'" + text.replace("'", "''") + "'"

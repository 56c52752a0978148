"""The parser's place in a text: the next token, and all that was expected there.

The expectations since the last step are the expected set of an error, the basis of "did you mean",
and the offers of a completer.
"""

import re
import unicodedata
from typing import Final

from headrace.connector.language.errors import StatementSyntaxError
from headrace.plugins import cql_text
from headrace.plugins.cql_text import NEVER_CLOSED, NUMBER, RESERVED_WORDS, Token, TokenKind
from headrace.plugins.errors import meant

NAME_CHARS_MAX: Final = 255
TEXT_BYTES_MAX: Final = 1024 * 1024

# Invisible, or able to reorder what a terminal shows: C0 and C1 controls except tab and line ends,
# lone surrogates, byte order marks, and the marks that switch the writing direction.
UNSAFE_CHARACTER: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ud800-\udfff]"
)

DURATION: Final = re.compile(r"(?:[0-9]{1,9}(?:ms|s|m|h|d))+")

_SYMBOLS: Final = ";.=,()*<>|-"
_HINTS: Final = {
    ":": "write a URI in quotes: 'kafka://host:9092?topic=name'",
    ",": "options are joined by AND",
}
_CQL_VERBS: Final = frozenset({
    "APPLY", "BEGIN", "DELETE", "GRANT", "INSERT", "LIST", "REVOKE", "SELECT", "TRUNCATE",
    "UPDATE", "USE",
})  # fmt: skip
_CQL_OBJECTS: Final = frozenset({
    "AGGREGATE", "CLUSTER", "FUNCTION", "INDEX", "KEYSPACE", "KEYSPACES", "MATERIALIZED", "ROLE",
    "SCHEMA", "TABLE", "TABLES", "TRIGGER", "TYPE", "TYPES", "USER",
})  # fmt: skip
_DOTTED: Final = re.compile(r"(\w+)\.(\w+)\.(\w+)")  # A source as tables and messages name it.
_CQL_HINT: Final = "give it to cqlsh, or to headrace shell HOST"


class Cursor(cql_text.Cursor):
    """See the module. `spans` bounds the parts of the statement by the key errors name them by.

    A token that is not part of the language raises StatementSyntaxError once it is the next one.
    """

    def __init__(self, text: str) -> None:
        """Stand before the first token. Raises StatementSyntaxError also if *text* is too long."""
        _check_text(text)
        super().__init__(text)
        self.spans: dict[str, tuple[int, int]] = {}
        self._expected: list[str] = []
        self.behind = 0
        """The end of the last token that was stepped over."""
        self._check_token()

    @property
    def expected(self) -> tuple[str, ...]:
        """The expected tokens, in order: keywords, symbols, and descriptions of other tokens."""
        return tuple(dict.fromkeys(self._expected))

    def forget(self) -> None:
        """Start a new expected set."""
        self._expected.clear()

    def advance(self) -> Token:
        """Step over the token and return it."""
        token = super().advance()
        self.behind = token.end
        self._check_token()
        self._expected.clear()
        return token

    def accept(self, *keywords: str) -> bool:
        """Step over these words or symbols if all of them are next."""
        self._expected.append(keywords[0])
        return super().accept(*keywords)

    def accept_kind(self, what: str, *kinds: TokenKind) -> Token | None:
        """Step over a token of one of *kinds* and return it, if it is next."""
        self._expected.append(what)
        return self.advance() if self.token.kind in kinds else None

    def expect(self, *keywords: str) -> None:
        """Step over these words or symbols, which must be next."""
        for keyword in keywords:
            if not self.accept(keyword):
                raise self.unexpected()

    def string(self, what: str, *, hint: str) -> str:
        """Step over a string and return its content."""
        token = self.accept_kind(what, TokenKind.STRING)
        if token is None:
            raise self.unexpected(hint=hint)
        return token.value

    def name(self, key: str) -> str:
        """Step over the name of a *key*: of a sink, a source, a table."""
        token = self.word_or_name(f"{key} name", reserved=RESERVED_WORDS)
        self.spans[key] = (token.start, token.end)
        return token.folded

    def word_or_name(self, what: str, *, reserved: frozenset[str]) -> Token:
        """Step over a word that is not in *reserved*, or a quoted name, and return it."""
        token = self.token
        self._expected.append(what)
        if token.kind is TokenKind.WORD:
            if token.folded in reserved:
                raise self.unexpected(
                    hint=f'{token.value} is reserved; as a name it is written "{token.value}"'
                )
        elif token.kind is not TokenKind.NAME:
            hint = "a name stands in no quotes, or in double quotes"
            raise self.unexpected(hint=hint if token.kind is TokenKind.STRING else "")
        self.check_name(token.value, (token.start, token.end))
        return self.advance()

    def check_name(self, name: str, span: tuple[int, int]) -> None:
        """Raise if *name*, located at *span*, is empty or too long."""
        if not name:
            raise self.error("a name cannot be empty", span)
        if len(name) > NAME_CHARS_MAX:
            raise self.error(f"a name has at most {NAME_CHARS_MAX} characters", span)

    def unexpected(self, *, hint: str = "") -> StatementSyntaxError:
        """Return the error for a next token that was not expected."""
        token, expected = self.token, self.expected
        # A value may be a secret: never repeat it, not even where its quotes were forgotten.
        shown = token.kind in (TokenKind.WORD, TokenKind.SYMBOL) and "string" not in expected
        found = f"'{token.value[:40]}'" if shown else f"a {token.kind}"
        if self.at_end:
            found = "the end of the text"
        return self.error(
            f"found {found}, expected {_either(expected)}",
            (token.start, token.end),
            expected=expected,
            hint=self._dotted(expected)
            or _meant(token, expected)
            or hint
            or _HINTS.get(token.value, ""),
        )

    def _dotted(self, expected: tuple[str, ...]) -> str:
        """Return a hint if a source is named in dots here, as in `cdc.shop.orders`; else ""."""
        if "DATA_SOURCE" in expected:
            start, before = self.token.start, "DATA_SOURCE "
        elif "ON" in expected and "source" in self.spans:
            start, before = self.spans["source"][0], ""
        else:
            return ""
        found = _DOTTED.match(self.text, start)
        return f"write {before}{found[1]} ON TABLE {found[2]}.{found[3]}" if found else ""

    def error(
        self,
        message: str,
        span: tuple[int, int],
        *,
        expected: tuple[str, ...] = (),
        hint: str = "",
    ) -> StatementSyntaxError:
        """Return an error about the part of the text that *span* bounds."""
        return StatementSyntaxError(
            message, text=self.text, span=span, expected=expected, hint=hint
        )

    def _check_token(self) -> None:
        token, start = self.token, self.token.start
        is_number = NUMBER.fullmatch(token.value) or DURATION.fullmatch(token.value)
        if token.kind is TokenKind.NUMBER and not is_number:
            hint = "write a text in single quotes"  # It is not repeated: it may be a secret.
            raise self.error("this is not a number", (start, token.end), hint=hint)
        unknown = token.kind is TokenKind.SYMBOL and token.value not in _SYMBOLS
        if unknown or self.text.startswith("$", start):
            raise _unexpected_character(self.text, start)
        if token.kind is TokenKind.OPEN:
            message, hint = NEVER_CLOSED[token.value[0]]
            raise self.error(message, (start, start + 1), hint=hint)


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


def _either(expected: tuple[str, ...]) -> str:
    *first, last = expected
    return f"{', '.join(first)} or {last}" if first else last


def _meant(token: Token, expected: tuple[str, ...]) -> str:
    """Return the hint that a misspelt keyword or another program's statement deserves."""
    if token.kind is not TokenKind.WORD:
        return ""
    keywords = [word for word in expected if word.isupper()]
    if hint := meant(token.value[:40].upper(), keywords):
        return hint
    if "CREATE" in keywords and token.value.upper() in _CQL_VERBS:
        return f"{token.value.upper()} is CQL: {_CQL_HINT}"
    if "DATA_SOURCE" in keywords and token.value.upper() in _CQL_OBJECTS:
        return f"{token.value.upper()} is CQL's: {_CQL_HINT}"
    return ""

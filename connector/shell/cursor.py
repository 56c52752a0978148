"""Where the parser stands in a text: the next token, and everything that was looked for there.

What was looked for since the last step is the expected set of an error, the source of "did you
mean", and what a completer offers.
"""

import difflib
from typing import Final

from headrace.connector.shell.errors import StatementSyntaxError
from headrace.connector.shell.formatting import RESERVED_WORDS
from headrace.connector.shell.lexer import Token, TokenKind, tokens

NAME_CHARS_MAX: Final = 255

_CQL_VERBS: Final = frozenset({
    "APPLY", "BEGIN", "DELETE", "GRANT", "INSERT", "LIST", "REVOKE", "SELECT", "TRUNCATE",
    "UPDATE", "USE",
})  # fmt: skip
_CQL_OBJECTS: Final = frozenset({
    "AGGREGATE", "CLUSTER", "FUNCTION", "INDEX", "KEYSPACE", "KEYSPACES", "MATERIALIZED", "ROLE",
    "SCHEMA", "TABLE", "TABLES", "TRIGGER", "TYPE", "TYPES", "USER",
})  # fmt: skip
_CQL_HINT: Final = "give it to cqlsh, or to headrace shell HOST"


class Cursor:
    """See the module. `spans` bounds the parts of the statement by the key errors name them by."""

    def __init__(self, text: str) -> None:
        """Stand before the first token. Raises StatementSyntaxError if there is none to be had."""
        self.text = text
        self.spans: dict[str, tuple[int, int]] = {}
        self._tokens = tokens(text)
        self._expected: list[str] = []
        self._step()

    @property
    def at_end(self) -> bool:
        """Whether all of the text was read."""
        return self.token.kind is TokenKind.END

    @property
    def expected(self) -> tuple[str, ...]:
        """What was looked for here, in order: keywords, symbols, and other things in words."""
        return tuple(dict.fromkeys(self._expected))

    def forget(self) -> None:
        """Begin a new expected set."""
        self._expected.clear()

    def advance(self) -> Token:
        """Step over the token and return it."""
        token = self.token
        self._step()
        self._expected.clear()
        return token

    def _step(self) -> None:
        self.token: Token = next(self._tokens)
        is_word = self.token.kind is TokenKind.WORD
        self._keyword = self.token.value.upper() if is_word else ""

    def accept(self, keyword: str) -> bool:
        """Step over *keyword*, in any case, if it stands here."""
        self._expected.append(keyword)
        if self._keyword == keyword:
            self.advance()
            return True
        return False

    def accept_symbol(self, symbol: str) -> bool:
        """Step over *symbol* if it stands here."""
        self._expected.append(symbol)
        if self.token.value == symbol and self.token.kind is TokenKind.SYMBOL:
            self.advance()
            return True
        return False

    def accept_kind(self, what: str, *kinds: TokenKind) -> Token | None:
        """Step over a token of one of *kinds* and return it, if one stands here."""
        self._expected.append(what)
        return self.advance() if self.token.kind in kinds else None

    def expect(self, *keywords: str) -> None:
        """Step over *keywords*, which must stand here."""
        for keyword in keywords:
            if not self.accept(keyword):
                raise self.unexpected()

    def expect_symbol(self, symbol: str) -> None:
        """Step over *symbol*, which must stand here."""
        if not self.accept_symbol(symbol):
            raise self.unexpected()

    def string(self, what: str, *, hint: str) -> str:
        """Step over a string and return what it holds."""
        token = self.accept_kind(what, TokenKind.STRING)
        if token is None:
            raise self.unexpected(hint=hint)
        return token.value

    def name(self, key: str) -> str:
        """Step over the name of a *key*: of a sink, a source, a table."""
        token = self.word_or_name(f"{key} name", reserved=RESERVED_WORDS)
        self.spans[key] = (token.start, token.end)
        return name_value(token)

    def word_or_name(self, what: str, *, reserved: frozenset[str]) -> Token:
        """Step over a word that is none of *reserved*, or a quoted name, and return it."""
        token = self.token
        self._expected.append(what)
        if token.kind is TokenKind.WORD:
            if token.value.lower() in reserved:
                raise self.unexpected(
                    hint=f'{token.value} is reserved; as a name it is written "{token.value}"'
                )
        elif token.kind is not TokenKind.NAME:
            hint = "a name stands in no quotes, or in double quotes"
            raise self.unexpected(hint=hint if token.kind is TokenKind.STRING else "")
        self.check_name(token.value, (token.start, token.end))
        return self.advance()

    def check_name(self, name: str, span: tuple[int, int]) -> None:
        """Raise if *name*, which stands at *span*, is empty or too long."""
        if not name:
            raise self.error("a name cannot be empty", span)
        if len(name) > NAME_CHARS_MAX:
            raise self.error(f"a name has at most {NAME_CHARS_MAX} characters", span)

    def unexpected(self, *, hint: str = "") -> StatementSyntaxError:
        """Return the error that the token here is none of those looked for."""
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
            hint=_meant(token, expected) or hint,
        )

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


def name_value(token: Token) -> str:
    """Return the name that a word or a quoted name stands for."""
    return token.value.lower() if token.kind is TokenKind.WORD else token.value


def _either(expected: tuple[str, ...]) -> str:
    *first, last = expected
    return f"{', '.join(first)} or {last}" if first else last


def _meant(token: Token, expected: tuple[str, ...]) -> str:
    """Return the hint that a misspelt keyword or another program's statement deserves."""
    if token.kind is not TokenKind.WORD:
        return ""
    keywords = [word for word in expected if word.isupper()]
    near = difflib.get_close_matches(token.value[:40].upper(), keywords, n=1)
    if near:
        return f"did you mean {near[0]}?"
    if "CREATE" in keywords and token.value.upper() in _CQL_VERBS:
        return f"{token.value.upper()} is CQL: {_CQL_HINT}"
    if "DATA_SOURCE" in keywords and token.value.upper() in _CQL_OBJECTS:
        return f"{token.value.upper()} is CQL's: {_CQL_HINT}"
    return ""

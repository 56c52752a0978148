"""The cursor that the parsers of DDL and of types walk over the tokens of a schema's text."""

from typing import NoReturn

from headrace.plugins import cql_text
from headrace.plugins.cql_text import NEVER_CLOSED, Token, TokenKind
from headrace.plugins.errors import HeadraceError


class SchemaTextError(HeadraceError):
    """Schema text that is not the CQL we read; nothing of the schema is used."""

    code = "schema_text"
    exit_status = 2


class Cursor(cql_text.Cursor):
    """Names the place and the token in its errors."""

    def __init__(self, text: str, place: str = "") -> None:
        """Start before the first token of *text*; errors name *place*, a file's name."""
        super().__init__(text)
        self._place = place

    def fail(self, message: str, *, at: Token | None = None, hint: str = "") -> NoReturn:
        """Raise SchemaTextError with the place and the text of *at*, or of the token here.

        If the current token is never closed, this is the error, because it may be the cause.
        """
        token = at or self.token
        if self.token.kind is TokenKind.OPEN:
            token = self.token
            message, hint = NEVER_CLOSED[token.value[0]]
            raise SchemaTextError(message, place=self._place_of(token), hint=hint)
        found = "the end" if token.kind is TokenKind.END else repr(token.folded)
        raise SchemaTextError(f"{message}, found {found}", place=self._place_of(token), hint=hint)

    def _place_of(self, token: Token) -> str:
        line = self.text.count("\n", 0, token.start) + 1
        column = token.start - self.text.rfind("\n", 0, token.start)
        spot = f"line {line}, column {column}"
        return f"{self._place}: {spot}" if self._place else spot

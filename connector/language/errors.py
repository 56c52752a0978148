"""The errors of a statement's text, and of a command to the shell."""

from collections.abc import Sequence
from typing import ClassVar

from headrace.connector.language.places import Place, place_of
from headrace.plugins import HeadraceError


class StatementSyntaxError(HeadraceError):
    """A text that is not a statement; has the place, the expected tokens, and what was meant.

    `expected` holds keywords, and descriptions of other tokens: the offers of a completer.
    """

    code: ClassVar[str] = "syntax"
    exit_status: ClassVar[int] = 2

    def __init__(
        self,
        message: str,
        *,
        text: str,
        span: tuple[int, int],
        expected: Sequence[str] = (),
        hint: str = "",
    ) -> None:
        """*span* bounds the offending part of *text*."""
        self.where: Place = place_of(text, *span)
        self.expected = tuple(expected)
        super().__init__(message, place=str(self.where), hint=hint)

    def __str__(self) -> str:
        """Return the message as Cassandra's shell shows it, the line, a caret and the hint."""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"SyntaxException: {self.place} {self.message}\n{self.where.excerpt}{hint}"


class ShellError(HeadraceError):
    """The shell itself cannot do what was asked."""

    code: ClassVar[str] = "shell"
    exit_status: ClassVar[int] = 2

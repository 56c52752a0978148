"""Splits input into units, by the part of the shell that executes each.

A unit is one of our statements, a command to the shell itself, or CQL. A statement ends at a
semicolon, a command also at the end of its line. Nothing else is examined, so that CQL passes
unchanged.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec

from headrace.connector.language.parser import outlook
from headrace.connector.language.statements import Subject
from headrace.plugins.cql_text import RESERVED_WORDS, Token, TokenKind, pieces

_NEXT_WORD: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)?")

COMMANDS: Final = (
    "?", "CAPTURE", "CLEAR", "CLS", "CONSISTENCY", "EXIT", "EXPAND", "FORMAT", "HELP", "HISTORY",
    "LOGIN", "PAGING", "QUIT", "SET", "SOURCE", "TIMING", "TRACING", "WATCH",
)  # fmt: skip
SHORTCUT: Final = "\\"  # The prefix of commands like psql's; see `commands.SHORTCUTS`.
_OUR_VERBS: Final = frozenset({
    "ACCEPT", "BACKFILL", "PAUSE", "POLL", "PREVIEW", "RECONCILE", "REDRIVE", "REPLAY", "RESTART",
    "RESUME", "SHOW", "SNAPSHOT", "STOP", "TAIL", "VALIDATE",
})  # fmt: skip
_SHARED_VERBS: Final = frozenset({"CREATE", "ALTER", "DROP", "DESCRIBE", "DESC"})
_HISTORY_TIMES: Final = ("CDC_TIME", "PHOENIX_ROW_TIME")  # As far as words are examined.
_SHOWN_BY_SHELL: Final = frozenset({"VERSION", "HOST"})
_ENDED_BY_LINE: Final = frozenset({"DESCRIBE", "DESC", "SHOW"})  # As in cqlsh.
_WORDS_LOOKED_AT: Final = 2
_WORD_CHARS_MAX: Final = 16  # Longer words mean nothing here.
_LINES_LOOKED_AT: Final = 64  # After that only a semicolon ends a statement.

_STYLES: Final = {
    TokenKind.STRING: "string",
    TokenKind.NAME: "string",
    TokenKind.URI: "string",
    TokenKind.NUMBER: "number",
    TokenKind.COMMENT: "comment",
    TokenKind.OPEN: "open",
}
_KEYWORDS: Final = frozenset({
    *COMMANDS, *_OUR_VERBS, *_SHARED_VERBS, *Subject, *(word.upper() for word in RESERVED_WORDS),
    "AS", "CDC", "CONFIG", "DATA_SINK", "DATA_SINKS", "DATA_SOURCE", "DATA_SOURCES", "DRY",
    "EXISTS", "FALSE", "FOR", "INCLUDE", "POSITION", "PURGE", "RUN", "SPLIT", "TRUE", "VALUES",
})  # fmt: skip


class Kind(StrEnum):
    """The part of the shell that executes a unit."""

    OURS = "ours"
    COMMAND = "command"
    CQL = "CQL"


class Unit(msgspec.Struct, frozen=True):
    """A piece of input; `text` has no semicolon, `whole` says that it is complete.

    `start` is its offset in the input, for places in errors.
    """

    kind: Kind
    text: str
    start: int
    whole: bool


def units(text: str) -> Iterator[Unit]:
    """Yield the units of *text*; the last one may be incomplete."""
    at = 0
    while (unit := _next_unit(text, at)) is not None:
        yield unit[0]
        at = unit[1]


def is_whole(text: str) -> bool:
    """Return whether *text* can be executed without another line."""
    return all(unit.whole for unit in units(text))


def highlighted(text: str) -> Iterator[tuple[str, str]]:
    """Yield all pieces of *text*, each with the name of its colour or an empty name."""
    for token in pieces(text):
        style = _STYLES.get(token.kind, "")
        if token.kind is TokenKind.WORD and token.value.upper() in _KEYWORDS:
            style = "keyword"
        yield style, text[token.start : token.end]


def _next_unit(text: str, at: int) -> tuple[Unit, int] | None:
    """Return the unit that starts at or after *at*, and its end."""
    seen = _Seen()
    for token in pieces(text, at):
        kind, is_end = token.kind, token.keyword == ";"
        if seen.start >= 0 and (is_end or (kind is TokenKind.SPACE and "\n" in token.value)):
            seen.lines += 1
            if seen.ended_by_semicolon() if is_end else seen.ended_by_line(text, token):
                return seen.unit(text, token.start, whole=True), token.end
        if kind is TokenKind.OPEN:
            seen.quote_open = True
        if kind not in (TokenKind.SPACE, TokenKind.COMMENT) and (not is_end or seen.start >= 0):
            seen.add(text, token)
    if seen.start < 0:
        return None
    whole = not seen.quote_open and seen.ended_by_line(text)
    return seen.unit(text, len(text), whole=whole), len(text)


class _Seen(msgspec.Struct):
    """The scanned part of a unit: its start, its first two words and its last two."""

    start: int = -1
    first: tuple[str, ...] = ()
    last: tuple[str, str] = ("", "")
    lines: int = 0
    quote_open: bool = False
    of_history: bool = False

    def add(self, text: str, token: Token) -> None:
        self.start = token.start if self.start < 0 else self.start
        word = text[token.start : token.end][:_WORD_CHARS_MAX].upper()
        if len(self.first) < _WORDS_LOOKED_AT:
            self.first += (word,)
        self.last = (self.last[1], word)
        self.of_history |= word in _HISTORY_TIMES

    def unit(self, text: str, end: int, *, whole: bool) -> Unit:
        return Unit(self.kind, text[self.start : end].rstrip(), self.start, whole)

    @property
    def kind(self) -> Kind:
        first, second = (*self.first, "", "")[:_WORDS_LOOKED_AT]
        if first in (*COMMANDS, SHORTCUT) or (first == "SHOW" and second in _SHOWN_BY_SHELL):
            return Kind.COMMAND
        is_ours = second == "CDC" or second.startswith("DATA_")
        is_ours |= (first, second) == ("DROP", "RUN")
        if first in _OUR_VERBS or (first in _SHARED_VERBS and is_ours):
            return Kind.OURS
        if first == "SELECT" and self.of_history:  # Every SELECT of a history has a time.
            return Kind.OURS
        return Kind.CQL

    def ended_by_semicolon(self) -> bool:
        """Return whether a semicolon ends the unit: one inside a batch does not."""
        return self.first[0] != "BEGIN" or self.last == ("APPLY", "BATCH")

    def ended_by_line(self, text: str, line_end: Token | None = None) -> bool:
        """Return whether a line end, or the end of *text*, ends the unit like a semicolon."""
        kind = self.kind
        if kind is Kind.COMMAND or self.first[0] not in _ENDED_BY_LINE:
            return kind is Kind.COMMAND
        if kind is Kind.CQL or self.lines > _LINES_LOOKED_AT:
            return kind is Kind.CQL
        expected = outlook(text[self.start : line_end.start if line_end else None]).expected
        following = _NEXT_WORD.match(text, line_end.end if line_end else len(text))
        next_word = following[1].upper() if following and following[1] else ""
        return not expected or (";" in expected and next_word not in expected)

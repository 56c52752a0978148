"""Places in a statement's text, shown as a line, a column and a caret.

Not in the parser, because errors found after parsing point into the same text. An excerpt is safe
to print: no control characters, bounded in width, the values of options covered.
"""

import re
import unicodedata
from typing import Final

import msgspec

EXCERPT_CHARS_MAX: Final = 96
_CHARS_BEFORE: Final = 48  # Kept left of the caret if a line is too long.

_VALUE: Final = (
    r"\s{0,20}(?<![<>])=\s{0,20}"  # Options are not compared; times of a SELECT are.
    r"(?:'(?P<text>(?:[^']|'')*)|\"(?P<name>[^\"]*)"
    r"|(?P<bare>(?:[^'&;\n]|'')+?(?=\s{1,20}and\s|'(?!')|[&;\n]|$)))"
)
_USER: Final = r"|://(?P<user>[^/?#\s'@]{0,200})@"
# Options that are never secrets: those of the language, and the usual ones of plugins.
PLAIN: Final = (
    "cluster",
    "connector.class",
    "job",
    "keyspace",
    "name",
    "path",
    "plugin",
    "sink",
    "snapshot",
    "start",
    "table",
    "topic",
)
_PLAIN: Final = "".join(rf"(?<![\s?&]{name})(?<![\s?&]{name}\s)" for name in map(re.escape, PLAIN))
# Values of any other option, since only the plugin knows which are secret, and users in URIs.
_ANY: Final = re.compile(rf"(?i)(?<!position)(?<!position\s){_PLAIN}{_VALUE}{_USER}")
# Values of options whose names say that they are secret, and users and passwords in URIs.
_SECRET: Final = re.compile(
    r"(?i)(?:password|passwd|passphrase|secret|token|credentials?|user\.info|\.pem|jaas\.config)"
    rf"[\"\w]{{0,40}}{_VALUE}{_USER}"
)
_REFERENCE: Final = re.compile(r"\$\{[a-z][a-z0-9_-]*:[^{}\s]+\}\Z|\Z")


class Place(msgspec.Struct, frozen=True):
    """A line counted from 1 and a column counted from 0, as Cassandra counts them."""

    line: int
    column: int
    excerpt: str

    def __str__(self) -> str:
        """Return `line 1:7`."""
        return f"line {self.line}:{self.column}"


def place_of(text: str, start: int, end: int) -> Place:
    """Return the place of `text[start:end]`; the excerpt is its first line with carets below."""
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line_end = line_end if line_end >= 0 else len(text)
    column = start - line_start
    if line_end - line_start > EXCERPT_CHARS_MAX:
        shown_start = max(line_start, start - _CHARS_BEFORE)
    else:
        shown_start = line_start
    shown_end = min(line_end, shown_start + EXCERPT_CHARS_MAX)
    shown = _printable(text, shown_start, shown_end)
    if shown_start > line_start:
        shown = f"…{shown[1:]}"
    if shown_end < line_end:
        shown = f"{shown[:-1]}…"
    caret = start - shown_start
    indent = sum(display_width(c) for c in shown[:caret])
    carets = "^" * max(1, sum(display_width(c) for c in shown[caret : caret + end - start]))
    return Place(
        line=text.count("\n", 0, start) + 1,
        column=column,
        excerpt=f"  {shown}\n  {' ' * indent}{carets}",
    )


def has_secret(text: str) -> bool:
    """Return whether *text* has a secret, by the name of its option, that is not a reference.

    A URI's user and password count too.
    """
    return any(
        not _REFERENCE.match(found[found.lastgroup or 0]) for found in _SECRET.finditer(text)
    )


def display_width(character: str) -> int:
    """Return the width of a printable character in terminal columns."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _printable(text: str, start: int, end: int) -> str:
    covered = _ANY.sub(_cover, text[:end])[start:]
    return "".join(c if c.isprintable() else " " for c in covered)


def _cover(found: re.Match[str]) -> str:
    start, end = found.span(found.lastgroup or 0)
    if _REFERENCE.match(found[found.lastgroup or 0]):
        return found[0]
    whole, offset = found[0], found.start()
    return f"{whole[: start - offset]}{'*' * (end - start)}{whole[end - offset :]}"

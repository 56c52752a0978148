"""Splits a sink URI into its parts. The sink interprets host and path.

This strict parser is the only one, so that no URI can be read in two ways.
"""

import re
import urllib.parse
from collections.abc import Collection
from typing import Final

import msgspec

from headrace.connector.control.errors import BadUriError
from headrace.connector.language.cursor import UNSAFE_CHARACTER

URI_CHARS_MAX: Final = 8192

_URI: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<host>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?"
)
_BAD_CHARACTER: Final = re.compile(r"[\s\\]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class SinkUri(msgspec.Struct, frozen=True):
    """The parts of a URI: scheme in lower case, path and query with their escapes resolved."""

    scheme: str
    host: str
    path: str
    query: tuple[tuple[str, str], ...]


def parse_sink_uri(text: str) -> SinkUri:
    """Read `scheme://host/path?key=value&key=value`.

    Raises:
        BadUriError: *text* has another form, or contains forbidden parts.

    """
    if len(text) > URI_CHARS_MAX:
        raise BadUriError("uri", f"the URI has more than {URI_CHARS_MAX} characters")
    if found := (UNSAFE_CHARACTER.search(text) or _BAD_CHARACTER.search(text)):
        raise BadUriError(
            "uri",
            f"the URI holds U+{ord(found[0]):04X} at character {found.start()}",
            "write it as a percent escape",
        )
    if "#" in text:
        raise BadUriError("uri", "the URI has a fragment", "a # is written %23")
    match = _URI.fullmatch(text)
    if match is None:
        hint = "as in 'kafka://host:9092?topic=name'"
        raise BadUriError("uri", "the text is not a URI of the form scheme://host", hint)
    if "@" in match["host"]:
        raise BadUriError(
            "uri",
            "the URI holds a user",
            "give user and password as options, the password as a reference: '${env:NAME}'",
        )
    if "%" in match["host"]:
        raise BadUriError("uri", "the URI's host has a percent escape", "write it plainly")
    if not match["host"].isascii():
        raise BadUriError("uri", "the URI's host is not ASCII", "write it as DNS has it: xn--…")
    path = _unescaped(match["path"])
    if ".." in path.split("/"):
        raise BadUriError("uri", "the URI's path goes up by ..", "write the path that is meant")
    return SinkUri(
        scheme=match["scheme"].lower(),
        host=match["host"],
        path=path,
        query=_query(match["query"] or ""),
    )


def without_options(uri: str, keys: Collection[str]) -> str:
    """Return *uri* without the options *keys* in its query; `parse_sink_uri` has accepted it."""
    before, mark, query = uri.partition("?")
    parts = query.split("&") if query else []
    kept = [part for part in parts if _unescaped(part.partition("=")[0]) not in keys]
    return f"{before}{mark if kept else ''}{'&'.join(kept)}" if kept != parts else uri


def _query(text: str) -> tuple[tuple[str, str], ...]:
    pairs: dict[str, str] = {}
    for part in text.split("&") if text else ():
        raw_key, equals, raw_value = part.partition("=")
        key = _unescaped(raw_key)
        if not key or not equals:
            shown = f"{key!r} has no value" if key else "an option has no name"
            raise BadUriError("uri", f"after the ?, {shown}", "as in ?key=value&key=value")
        if key in pairs:
            raise BadUriError("uri", f"the URI gives {key} twice")
        pairs[key] = _unescaped(raw_value)
    return tuple(pairs.items())


def _unescaped(text: str) -> str:
    if wrong := _BAD_ESCAPE.search(text):
        shown = text[wrong.start() : wrong.start() + 3]
        raise BadUriError("uri", f"{shown!r} is not a percent escape", "a % is written %25")
    try:
        plain = urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise BadUriError("uri", "the URI's percent escapes are not UTF-8") from None
    if found := UNSAFE_CHARACTER.search(plain):
        raise BadUriError("uri", f"the URI holds U+{ord(found[0]):04X} as a percent escape")
    return plain

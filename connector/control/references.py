"""References to secrets: `${env:NAME}`, `${file:PATH:KEY}`, `${dir:PATH:KEY}`.

What is stored and shown is the reference. It is resolved here, when a job starts, in the process
that uses it; what comes out must be neither stored, shown nor logged.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from headrace.plugins import MissingRequirementError

FILE_BYTES_MAX: Final = 1024 * 1024

_REFERENCE: Final = re.compile(r"\$\{(env|file|dir):([^{}\s]+)\}")


class SecretUnavailableError(MissingRequirementError):
    """A reference leads to nothing on this machine. No message holds any part of a secret."""

    code: ClassVar[str] = "secret_unavailable"


def is_reference(value: str) -> bool:
    """Say whether the whole of *value* is one reference."""
    return _REFERENCE.fullmatch(value) is not None


def resolved(options: Mapping[str, Any], *, section: str) -> dict[str, Any]:
    """Return *options* with the values that are references replaced by what they refer to.

    *section* is what the options belong to, for messages.

    Raises:
        SecretUnavailableError: a variable is not set, or a file or a key in it is missing.

    """
    return {
        key: _resolved(f"{section}.{key}", value) if isinstance(value, str) else value
        for key, value in options.items()
    }


def _resolved(place: str, value: str) -> str:
    match = _REFERENCE.fullmatch(value)
    if match is None:
        return value
    try:
        return _PROVIDERS[match[1]](match[2])
    except _UnresolvedError as error:
        raise SecretUnavailableError(
            f"{value} cannot be resolved: {error}",
            place=place,
            hint="it is resolved on the machine and as the user that runs the job",
        ) from None


class _UnresolvedError(Exception):
    """Why a reference leads to nothing."""


def _environment(name: str) -> str:
    if name not in os.environ:
        raise _UnresolvedError("the variable is not set")
    return os.environ[name]


def _file(place: str) -> str:
    """Return the value of a key in a file of properties or JSON; without a key, all of it."""
    path, _, key = place.partition(":")
    text = _text(Path(path))
    if not key:
        return text.rstrip("\r\n")
    if path.endswith(".json"):
        pairs = _json(text)
    else:
        lines = (line.strip() for line in text.splitlines())
        split = (line.partition("=") for line in lines if not line.startswith(("#", "!")))
        pairs = {name.strip(): value.strip() for name, _, value in split}
    if not isinstance(pairs.get(key), str):
        raise _UnresolvedError("the file has no such key")
    return str(pairs[key])


def _directory(place: str) -> str:
    path, _, key = place.partition(":")
    if not key or "/" in key or key in (".", ".."):
        raise _UnresolvedError("expected ${dir:PATH:KEY}, where KEY is a file's name")
    return _text(Path(path) / key).rstrip("\r\n")


def _json(text: str) -> Mapping[str, object]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _UnresolvedError("the file is not a JSON object")
    return document


def _text(path: Path) -> str:
    if not path.is_absolute():
        raise _UnresolvedError("the path is not absolute")
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise _UnresolvedError(f"the file cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise _UnresolvedError(f"the file has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise _UnresolvedError("the file is not UTF-8") from None


_PROVIDERS: Final[Mapping[str, Callable[[str], str]]] = {
    "dir": _directory,
    "env": _environment,
    "file": _file,
}

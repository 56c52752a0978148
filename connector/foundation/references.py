"""The providers of secrets that come with headrace: `env`, `file` and `dir`.

Each takes the part of a reference after the colon and returns the secret. It raises
SecretUnavailableError if it finds none.
"""

import json
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from headrace.plugins import SecretUnavailableError, is_reference, resolve

FILE_BYTES_MAX: Final = 1024 * 1024
ROOTS_VARIABLE: Final = "HEADRACE_SECRETS_ROOTS"
ROOTS: Final = "/run/secrets:/var/run/secrets:/etc/headrace"
NAMES_VARIABLE: Final = "HEADRACE_SECRETS_ENV"
NAMES: Final = "HEADRACE_SECRET_*"
_PATH: Final = re.compile(r"\$\{(?:file|dir):([^:{}]+)")
_NAME: Final = re.compile(r"\$\{env:([^{}]+)\}")


def resolved(options: Mapping[str, Any], *, section: str, confined: bool = False) -> dict[str, Any]:
    """Return *options* with references replaced by the values that they refer to.

    *section* names the owner of the options in messages. *confined* applies to options from
    statements or requests; see `check_references`.

    Raises:
        SecretUnavailableError: a variable is not set, or a file or a key in it is missing, or
            it may not be referred to.

    """
    if confined:
        check_references(options, section=section)
    return {
        key: resolve(value, place=f"{section}.{key}")
        if isinstance(value, str) and value.startswith("${") and is_reference(value)
        else value
        for key, value in options.items()
    }


def check_references(options: Mapping[str, Any], *, section: str) -> None:
    """Check that *options* from statements or requests refer only to files and variables for them.

    Files must lie below one of the roots, and variables must have one of the names: else callers
    could send any file and any variable of this machine to a place of their choice.

    Raises:
        SecretUnavailableError: an option refers to something else.

    """
    for key, value in options.items():
        _check_roots(value, f"{section}.{key}")
        _check_name(value, f"{section}.{key}")


def _check_name(value: object, place: str) -> None:
    match = _NAME.fullmatch(value) if isinstance(value, str) else None
    names = [name for name in os.environ.get(NAMES_VARIABLE, NAMES).split(":") if name]
    if match is not None and not any(fnmatchcase(match[1], name) for name in names):
        raise SecretUnavailableError(
            f"statements may not refer to {value}",
            place=place,
            hint=f"name the variable {' or '.join(names)}, or add its name to {NAMES_VARIABLE}",
        )


def _check_roots(value: object, place: str) -> None:
    match = _PATH.match(value) if isinstance(value, str) else None
    if match is None:
        return
    path = Path(os.path.realpath(match[1]))
    roots = os.environ.get(ROOTS_VARIABLE, ROOTS).split(":")
    if not any(root and path.is_relative_to(os.path.realpath(root)) for root in roots):
        raise SecretUnavailableError(
            f"{value} lies outside the folders for secrets",
            place=place,
            hint=f"put it below {' or '.join(filter(None, roots))}, or set {ROOTS_VARIABLE}",
        )


def environment(name: str) -> str:
    """Return the value of an environment variable."""
    if name not in os.environ:
        raise SecretUnavailableError("the variable is not set")
    return os.environ[name]


def file(place: str) -> str:
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
        raise SecretUnavailableError("the file does not have this key")
    return str(pairs[key])


def directory(place: str) -> str:
    """Return the content of a file of a directory, without the newline at its end."""
    path, _, key = place.partition(":")
    if not key or "/" in key or key in (".", ".."):
        raise SecretUnavailableError("expected ${dir:PATH:KEY}, where KEY is a file's name")
    return _text(Path(path) / key).rstrip("\r\n")


def _json(text: str) -> Mapping[str, object]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SecretUnavailableError("the file is not a JSON object")
    return document


def _text(path: Path) -> str:
    if not path.is_absolute():
        raise SecretUnavailableError("the path is not absolute")
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretUnavailableError(f"the file cannot be read: {error.strerror}") from None
    if len(content) > FILE_BYTES_MAX:
        raise SecretUnavailableError(f"the file has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise SecretUnavailableError("the file is not UTF-8") from None

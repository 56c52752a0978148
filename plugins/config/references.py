"""References to secrets: `${env:NAME}`, `${file:PATH:KEY}`, and what else a provider answers to.

What is stored and shown is the reference. It is resolved where the secret is used, when it is
used; what comes out must be neither stored, shown nor logged. Providers are found by the word
before the colon in the entry-point group `headrace.secrets`.
"""

import re
from collections.abc import Callable
from typing import ClassVar, Final

from headrace.plugins.discovery import load, names
from headrace.plugins.errors import ConfigError, MissingRequirementError, Problem

# What the group holds: takes what stands behind the colon, returns the secret, or raises
# SecretUnavailableError with the reason.
SecretProvider = Callable[[str], str]

_GROUP: Final = "secrets"
_REFERENCE: Final = re.compile(r"\$\{([a-z][a-z0-9_-]*):([^{}\s]+)\}")


class SecretUnavailableError(MissingRequirementError):
    """A reference leads to nothing on this machine. No message holds any part of a secret."""

    code: ClassVar[str] = "secret_unavailable"


def is_reference(value: str) -> bool:
    """Say whether the whole of *value* is one reference to an installed provider."""
    match = _REFERENCE.fullmatch(value)
    return match is not None and match[1] in names(_GROUP)


def resolve(reference: str, *, place: str) -> str:
    """Return what *reference* refers to; *place* is the option it is given for. May read a file.

    Raises:
        SecretUnavailableError: it leads to nothing.
        ConfigError: it is a secret itself, or anything else that is not a reference.

    """
    match = _REFERENCE.fullmatch(reference)
    if match is None or not is_reference(reference):
        raise ConfigError([literal_problem(place)])
    provider: SecretProvider = load(_GROUP, match[1])
    try:
        return provider(match[2])
    except SecretUnavailableError as error:
        raise SecretUnavailableError(
            f"{reference} cannot be resolved: {error.message}",
            place=place,
            hint="it is resolved on the machine and as the user that needs it",
        ) from None


def literal_problem(key: str) -> Problem:
    """Return the mistake of writing a secret down for the option *key*, and what to write."""
    word = key.lstrip("-")
    variable = "HEADRACE_SECRET_" + re.sub(r"\W", "_", word).upper()  # As statements may name it.
    hint = f"refer to it: '${{env:{variable}}}' or '${{file:/path:{word}}}'"
    return Problem(key, "is a secret and cannot be written down here", hint)

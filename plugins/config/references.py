"""References to secrets: `${env:NAME}`, `${file:PATH:KEY}`, and those of other providers.

Only the reference is stored and shown. It is resolved where the secret is used, at that time; the
secret must not be stored, shown or logged. Providers are found by the word before the colon in the
entry-point group `headrace.secrets`.
"""

import re
from collections.abc import Callable
from typing import ClassVar, Final

from headrace.plugins.discovery import load, names
from headrace.plugins.errors import ConfigError, MissingRequirementError, Problem

# An entry of the group: takes the text after the colon, returns the secret, or raises
# SecretUnavailableError with the reason.
SecretProvider = Callable[[str], str]

_GROUP: Final = "secrets"
_REFERENCE: Final = re.compile(r"\$\{([a-z][a-z0-9_-]*):([^{}\s]+)\}")


class SecretUnavailableError(MissingRequirementError):
    """A reference cannot be resolved on this machine. No message contains any part of a secret."""

    code: ClassVar[str] = "secret_unavailable"


def is_reference(value: str) -> bool:
    """Return whether all of *value* is one reference to an installed provider."""
    match = _REFERENCE.fullmatch(value)
    return match is not None and match[1] in names(_GROUP)


def resolve(reference: str, *, place: str) -> str:
    """Return the secret of *reference*; *place* is the option with the reference. May read a file.

    Raises:
        SecretUnavailableError: it cannot be resolved.
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
    """Return the problem of a literal secret in the option *key*, with a correct form."""
    word = key.lstrip("-")
    variable = "HEADRACE_SECRET_" + re.sub(r"\W", "_", word).upper()  # Usable in statements.
    hint = f"refer to it: '${{env:{variable}}}' or '${{file:/path:{word}}}'"
    return Problem(key, "is a secret and cannot be written down here", hint)

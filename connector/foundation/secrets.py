"""Finds options that must be references because they are secret."""

import re
from collections.abc import Mapping
from typing import Final

from headrace.plugins import Option, Problem, declared_options, is_reference, literal_problem

# Options that pass by a pattern are not declared one by one: their names show which are secret.
_SECRET_NAME: Final = re.compile(
    r"(?i)(?:^|.*[._-])(?:password|passwd|passphrase|secret|token|credentials?"
    r"|user\.info|key\.pem|jaas\.config)"
)


def secret_problems(config_class: type, options: Mapping[str, object]) -> list[Problem]:
    """Return a problem for each secret in *options* that is not a reference."""
    declared = {key: found for key, (_, found) in declared_options(config_class).items()}
    return [
        literal_problem(key)
        for key, value in options.items()
        if is_secret(key, declared) and value is not None and not is_reference(str(value))
    ]


def is_secret(key: str, declared: Mapping[str, Option]) -> bool:
    """Return whether the value of an option is a secret; *declared* are those of its section."""
    if key in declared:
        return declared[key].secret
    allowed = [found.keys_allowed for found in declared.values() if found.secret]
    by_pattern = any(re.fullmatch(pattern, key) for pattern in allowed if pattern)
    return by_pattern or _SECRET_NAME.fullmatch(key) is not None

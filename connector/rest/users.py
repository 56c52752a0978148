"""The file of users: passwords' hashes, certificates' names, and the roles of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import argon2

from headrace.connector.control.access.permission import ROLES, Role
from headrace.plugins import ConfigError, Problem, option, parse_config
from headrace.plugins.config.yaml_text import parse_yaml

FILE_BYTES_MAX: Final = 1024 * 1024
NAME_CHARS_MAX: Final = 255
C = TypeVar("C")

_HINT: Final = "make one: headrace hash-password"


@dataclass(frozen=True, slots=True)
class User:
    """A user of the file; `password` is an argon2 hash."""

    password: str = field(repr=False)
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    users: Mapping[str, Any] = option(
        "Users by name: `password` and `role`.", default={}, secret=True
    )
    certificates: Mapping[str, Any] = option(
        "Roles by a certificate's common name.", default={}, secret=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _User:
    password: str = option("The argon2 hash of the password.", secret=True)
    role: str = option("The role of the user.", choices=tuple(ROLES))

    def __post_init__(self) -> None:
        """Raise unless it is a hash: else no user could log in."""
        try:
            argon2.extract_parameters(self.password)
        except argon2.exceptions.InvalidHashError:
            raise ConfigError([Problem("password", "is not an argon2 hash", _HINT)]) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Certificate:
    role: str = option("The role of the owner.", choices=tuple(ROLES))


def read_users(path: Path) -> tuple[Mapping[str, User] | None, Mapping[str, Role] | None]:
    """Return the users and the certificates of a file; None where a section is missing.

    Raises:
        ConfigError: the file cannot be read, or an entry is wrong.

    """
    try:
        with path.open("rb") as opened:
            content = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        problem = Problem("rest.users", f"cannot be read: {error.strerror}")
        raise ConfigError([problem], place=str(path)) from None
    if len(content) > FILE_BYTES_MAX:
        problem = Problem("rest.users", f"has more than {FILE_BYTES_MAX} bytes")
        raise ConfigError([problem], place=str(path))
    document = parse_yaml(content, place=str(path))
    if not isinstance(document, Mapping):
        problem = Problem("rest.users", "expected the sections users and certificates")
        raise ConfigError([problem], place=str(path))
    given = parse_config(_File, document, place=str(path))
    problems: list[Problem] = []
    users = {
        name: User(user.password, ROLES[user.role])
        for name, entry in given.users.items()
        if (user := _entry(_User, f"users.{name}", name, entry, problems))
    }
    certificates = {
        name: ROLES[found.role]
        for name, role in given.certificates.items()
        if (found := _entry(_Certificate, f"certificates.{name}", name, {"role": role}, problems))
    }
    if not (problems or users or certificates):
        problems.append(Problem("rest.users", "names no user", "give users or certificates"))
    if problems:
        raise ConfigError(problems, place=str(path))
    return users if "users" in document else None, certificates or None


def _entry(
    config_class: type[C], key: str, name: str, entry: object, problems: list[Problem]
) -> C | None:
    """Return an entry of the file, or add its mistakes to *problems*."""
    shown = key[:NAME_CHARS_MAX] if key.isprintable() else ascii(key)[:NAME_CHARS_MAX]
    if not name or len(name) > NAME_CHARS_MAX or ":" in name or not name.isprintable():
        hint = f"1 to {NAME_CHARS_MAX} characters that can be printed, none of them a colon"
        problems.append(Problem(shown, "is not a name", hint))
    if not isinstance(entry, Mapping):
        problems.append(Problem(shown, "expected a mapping", "password: …, role: viewer"))
        return None
    try:
        return parse_config(config_class, entry)
    except ConfigError as error:
        problems += [Problem(f"{shown}.{p.key}", p.message, p.hint) for p in error.problems]
        return None

"""`headrace hash-password`: prints the hash of a password, for the file of users."""

import getpass
import sys
from collections.abc import Sequence
from typing import Final

from headrace.connector.rest.auth import hash_password
from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser

PASSWORD_CHARS_MAX: Final = 1_024


def main(arguments: Sequence[str]) -> int:
    """Read a password, from the terminal or the first line of standard input; print its hash."""
    CommandParser(
        prog="headrace hash-password",
        description="Print the argon2 hash of a password from a prompt or standard input.",
    ).parse_args(arguments)
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password or len(password) > PASSWORD_CHARS_MAX:
        problem = Problem("", f"expected a password of 1 to {PASSWORD_CHARS_MAX} characters")
        raise ConfigError([problem])
    sys.stdout.write(hash_password(password) + "\n")
    return 0

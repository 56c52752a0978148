"""The parser of a command's arguments: its errors are named, and suggest corrections."""

import argparse
import re
import sys
from collections.abc import Iterator
from typing import Final, NoReturn

from headrace.plugins.errors import meant

CODE: Final = "arguments"
_STATUS: Final = 2
_UNKNOWN: Final = "unrecognized arguments: "
_REQUIRED: Final = "the following arguments are required: "
_FLAG: Final = re.compile(rf"{_UNKNOWN}.*?(--?[A-Za-z][^\s=]*)")
_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class CommandParser(argparse.ArgumentParser):
    """Reports a mistake as one line and a hint, like all other errors."""

    #: The hint for arguments that the command does not have, unless one is similar.
    unknown_hint: str = ""

    def error(self, message: str) -> NoReturn:
        """Print the error and end the process with status 2."""
        of_unknown = self.unknown_hint if message.startswith(_UNKNOWN) else ""
        hints = [
            _meant(self, message) or _missing(self, message) or of_unknown,
            f"`{self.prog} --help` lists all arguments",
        ]
        sys.stderr.write(f"error [{CODE}]: {self.prog}: {message}\n")
        sys.stderr.write(f"hint: {' '.join(filter(None, hints))}\n")
        sys.exit(_STATUS)


def _meant(parser: argparse.ArgumentParser, message: str) -> str:
    """Return a suggested correction, or nothing."""
    if unknown := _FLAG.search(message):
        word, known = unknown[1], [*_flags(parser)]
    elif choice := _CHOICE.search(message):
        word, known = choice[1], [each.strip("' ") for each in choice[2].split(",")]
    else:
        return ""
    return meant(word, known)


def _missing(parser: argparse.ArgumentParser, message: str) -> str:
    """Return the choices of the first missing argument, if it has any."""
    if not message.startswith(_REQUIRED):
        return ""
    first = message.removeprefix(_REQUIRED).split(", ")[0]
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way)
        if action.choices and first in (action.metavar, action.dest):
            return f"{first} is one of {', '.join(map(str, action.choices))}."
    return ""


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags of *parser* and its subcommands."""
    for action in parser._actions:  # noqa: SLF001 (argparse has no other way)
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 (nor here)
            for each in action.choices.values():
                yield from _flags(each)

"""`headrace audit`: shows who did what, and whether the file was changed."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.connector.control.access.audit import broken_lines
from headrace.connector.foundation.job_file import FILE_SUFFIXES
from headrace.connector.stores.job import kept_in
from headrace.plugins import ConfigError, Problem
from headrace.plugins.config.arguments import CommandParser

BROKEN_STATUS: Final = 4


def main(arguments: Sequence[str]) -> int:
    """Print the lines; return 4 if one was changed, inserted or removed."""
    parser = CommandParser(
        prog="headrace audit",
        description="Print the audit log of a state file; exit 4 if it is not intact.",
    )
    parser.add_argument(
        "--state",
        required=True,
        type=Path,
        metavar="FILE",
        help="the state, or a file that names it",
    )
    place: Path = parser.parse_args(arguments).state
    path = Path(f"{kept_in(place)[0] if place.suffix in FILE_SUFFIXES else place}.audit")
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                sys.stdout.write(line)
        broken = list(broken_lines(path))
    except OSError as error:
        problem = Problem("--state", f"its audit cannot be read: {error.strerror}")
        raise ConfigError([problem], place=str(path)) from error
    for number in broken:
        sys.stderr.write(f"error [audit_broken]: line {number} does not follow the one before\n")
    return BROKEN_STATUS if broken else 0

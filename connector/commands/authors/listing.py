"""`headrace plugins`: shows installed plugins, their packages, and whether they can be loaded."""

import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter
from textwrap import indent
from typing import Final

from headrace.plugins import HeadraceError
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.discovery import entries, load
from headrace.plugins.errors import error_text

_GROUPS: Final = {
    "sources": "source",
    "sinks": "sink",
    "codecs": "codec",
    "transforms": "transform",
    "predicates": "predicate",
    "schema_stores": "schema store",
    "claim_stores": "claim store",
    "stores": "store",
    "secrets": "secrets",
    "commands": "command",
}
_BROKEN_STATUS: Final = 1


def main(arguments: Sequence[str]) -> int:
    """Print a line for each plugin; return 1 if one of them cannot be loaded."""
    parser = CommandParser(
        prog="headrace plugins",
        description="Print all plugins that are installed: kind, name, package, module and class, "
        "and why one cannot be loaded. The exit status is then 1.",
    )
    parser.parse_args(arguments)
    status = 0
    for line, problem in _lines():
        sys.stdout.write(f"{line}\n")
        if problem:
            status = _BROKEN_STATUS
            sys.stdout.write(indent(problem, "  "))
    return status


def _lines() -> Iterator[tuple[str, str]]:
    """Yield the line of each plugin, and its error, or empty."""
    for group, kind in _GROUPS.items():
        for entry in sorted(entries(group), key=attrgetter("name", "value")):
            problem = ""
            try:
                load(group, entry.name)
            except HeadraceError as error:
                problem = error_text(error)
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "-"
            yield f"{kind:<13} {entry.name:<20} {package:<24} {entry.value}", problem

"""`headrace forge`: writes commit log segments from a script."""

import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.plugins import HeadraceError
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.errors import error_text
from headrace.sources.cassandra.errors import ScriptError
from headrace.sources.cassandra.forge.script import SCRIPT_BYTES_MAX, Forge, read_steps
from headrace.sources.cassandra.schema.ddl import parse_schema


def main(arguments: Sequence[str]) -> int:
    """Write commit log segments from a script.

    Example: headrace forge script.yaml --schema schema.cql --out cdc_raw

    An error goes to standard error, and its status is returned.
    """
    parser = CommandParser(
        prog="headrace forge",
        description="Write commit log segments and their index files from a script.",
    )
    parser.add_argument("script", metavar="SCRIPT", help="YAML or JSON lines; - for standard input")
    parser.add_argument(
        "--schema", type=Path, required=True, metavar="FILE", help="CREATE … WITH ID"
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="created if missing"
    )
    given = parser.parse_args(arguments)
    try:
        schema = parse_schema(_text(str(given.schema)), place=str(given.schema))
        steps = read_steps(_text(given.script), given.script)
        for path in Forge(schema, given.out).run(steps):
            sys.stdout.write(f"{path}\n")
    except HeadraceError as error:
        sys.stderr.write(error_text(error))
        return error.exit_status
    return 0


def _text(name: str) -> str:
    try:
        if name == "-":
            return sys.stdin.read(SCRIPT_BYTES_MAX)
        with Path(name).open(encoding="utf-8") as file:
            return file.read(SCRIPT_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        raise ScriptError(f"cannot be read: {error}", place=name) from error

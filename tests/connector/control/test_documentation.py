"""The page on statements is right."""

import re
from pathlib import Path

import headrace
from headrace.connector.control import errors
from headrace.connector.control.connector_config import compile_sink
from headrace.connector.control.entries import RouteOptions
from headrace.connector.language.parser import parse_script
from headrace.connector.language.statements import CreateSink
from headrace.plugins import declared_options

PAGE = Path(headrace.__file__).parents[2].joinpath("docs", "statements.md").read_text("utf-8")


def test_examples() -> None:
    """Every example parses, and every sink in them compiles."""
    blocks = re.findall(r"```sql\n(.*?)```|-e \"(.*?)\"", PAGE, re.DOTALL)
    statements = [p.statement for block in blocks for p in parse_script("".join(block))]

    assert 6 < len(statements)
    for statement in statements:
        if isinstance(statement, CreateSink):
            compile_sink(statement)


def test_errors() -> None:
    """Every error of a statement is in the table, under the name that users see."""
    kinds = errors.StatementError.__subclasses__()
    assert kinds
    for kind in kinds:
        title = "" if kind is errors.JobUndefinedError else f"`{kind.title}`"
        assert re.search(rf"^\| {title} ?\|.*`{kind.code}`.*\| 2 \|$", PAGE, re.MULTILINE)


def test_options() -> None:
    """Every option of a source is in the table."""
    keys = list(declared_options(RouteOptions))

    assert keys
    assert [] == [key for key in keys if f"\n| `{key}` | " not in PAGE]

"""Statements over HTTP: what a shell with `--rest` sends."""

import dataclasses
from typing import Final

from aiohttp import web

from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import parse_statement
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import RefusedError, answer, lines_of
from headrace.connector.rest.operations import BODY, Operation
from headrace.connector.rest.schema import an, array, text
from headrace.plugins import ConfigError

STATEMENT_CHARS_MAX: Final = 256 * 1024

_CELL: Final = {"type": "string"}
_WARNING: Final = an(
    "What to know, though the statement was executed.",
    ("code", "message", "hint"),
    code=text("What it is about."),
    message=text("What was found."),
    hint=text("What can be done about it."),
)
_TABLE: Final = an(
    "The answer: a table of strings, without columns if it is empty.",
    ("columns", "rows", "warnings", "footer"),
    footer=array("What is known of the whole answer: a name and a value.", array("Both.", _CELL)),
    warnings=array("Warnings.", _WARNING),
    columns=array("Names.", _CELL),
    rows=array("Rows.", array("Cells.", _CELL)),
)


class StatementDoor:
    """The handler of `/api/v1/statements`."""

    def __init__(self, doorway: Doorway) -> None:
        """Make the table of operations."""
        self._doorway = doorway
        whole = text("One, with or without its semicolon.", maxLength=STATEMENT_CHARS_MAX)
        self.operations = [
            Operation(
                "POST",
                "/api/v1/statements",
                self.execute,
                body=an("A statement.", ("statement",), statement=whole),
                answer=_TABLE,
            )
        ]

    async def execute(self, request: web.Request) -> web.Response:
        """Execute a statement.

        An error says which part of the statement is wrong, by its key.
        """
        try:
            statement = parse_statement(request[BODY]["statement"])
        except StatementSyntaxError as error:
            raise RefusedError(400, f"{error.place} {error.message}") from None
        try:
            found = await self._doorway.execute(statement)
        except ConfigError as error:
            problems = [
                {"key": p.key, "message": p.message, "hint": p.hint} for p in error.problems
            ]
            more = {"code": error.code, "problems": problems}
            raise RefusedError(400, "\n".join(lines_of(error)), more=more) from None
        return answer(
            {
                "columns": list(found.columns),
                "rows": [list(row) for row in found.rows],
                "footer": [list(each) for each in found.footer],
                "warnings": [dataclasses.asdict(warning) for warning in found.warnings],
            }
        )

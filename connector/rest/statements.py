"""Statements over HTTP, for a shell with `--rest`, and a SELECT as a stream of lines."""

import json
from collections.abc import Iterator
from typing import Final

import msgspec
from aiohttp import web

from headrace.connector.history.config import SCOPES
from headrace.connector.history.query import READS_MAX
from headrace.connector.language.errors import StatementSyntaxError
from headrace.connector.language.parser import CDC_TIME, LEVELS, PARTITION_ID, parse_statement
from headrace.connector.language.rendering import StatementWarning
from headrace.connector.language.statements import Comparison, Condition, SelectCdc
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import RefusedError, answer, lines_of, parse_json
from headrace.connector.rest.operations import BODY, Operation
from headrace.connector.rest.schema import an, array, shown, text
from headrace.plugins import ConfigError

STATEMENT_CHARS_MAX: Final = 256 * 1024
PAGE_CHANGES: Final = 500  # In memory at once, of a stream.

_CELL: Final = {"type": "string"}
_WARNING: Final = shown(StatementWarning, "What to know, though the statement was executed.")
_TABLE: Final = an(
    "The answer: a table of strings, without columns if it is empty.",
    ("columns", "rows", "warnings", "footer"),
    footer=array("What is known of the whole answer: a name and a value.", array("Both.", _CELL)),
    warnings=array("Warnings.", _WARNING),
    columns=array("Names.", _CELL),
    rows=array("Rows.", array("Cells.", _CELL)),
)


_LIST: Final = {"type": "string", "pattern": "^[a-z_0-9]+(,[a-z_0-9]+)*$"}
_QUERY: Final = {
    "from": text("The first time of arrival: ISO 8601, or ms since 1970."),
    "to": text("The time behind the last one; by default now."),
    "include": _LIST | {"description": "Images: change, pre, post, latest, all."},
    "partitions": _LIST | {"description": "Numbers of buckets."},
    "op": _LIST | {"description": "Operations, or types of events: insert, delete, ttl_delete, …"},
    "key": text("Columns of the primary key and their values, as a JSON object."),
    "order": {"type": "string", "enum": ["asc", "desc"]},
    "limit": {"type": "string", "pattern": "^[1-9][0-9]{0,8}$"},
    "after": text("The `next_token` of another answer."),
    "latest": {"type": "string", "enum": ["source"]},
    "level": {"type": "string", "enum": list(LEVELS)},
}
LINES: Final = "application/jsonl"


class StatementDoor:
    """The handlers of `/api/v1/statements` and `/api/v1/cdc`."""

    def __init__(self, doorway: Doorway) -> None:
        """Build the table of operations."""
        self._doorway = doorway
        whole = text("One, with or without its semicolon.", maxLength=STATEMENT_CHARS_MAX)
        self.operations = [
            Operation(
                "POST",
                "/api/v1/statements",
                self.execute,
                body=an("A statement.", ("statement",), statement=whole),
                answer=_TABLE,
            ),
            Operation(
                "GET",
                "/api/v1/cdc/{name}/changes",
                self.changes,
                answer={"type": "string"},
                query=_QUERY,
                media=LINES,
            ),
        ]

    async def execute(self, request: web.Request) -> web.Response:
        """Execute a statement.

        An error names the wrong part of the statement by its key.
        """
        try:
            statement = parse_statement(request[BODY]["statement"])
        except StatementSyntaxError as error:
            raise RefusedError(400, f"{error.place} {error.message}") from None
        try:
            found = await self._doorway.execute(statement)
        except ConfigError as error:
            more = {"code": error.code, "problems": msgspec.to_builtins(error.problems)}
            raise RefusedError(400, "\n".join(lines_of(error)), more=more) from None
        return answer(
            {
                "columns": list(found.columns),
                "rows": [list(row) for row in found.rows],
                "footer": [list(each) for each in found.footer],
                "warnings": msgspec.to_builtins(found.warnings),
            }
        )

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """Stream the changes of a history, one JSON object a line; the last line says how it ended.

        It has `safe_until`, `next_token` if a limit ended it, and `error` if it was aborted.
        """
        select = _select_of(request)
        wanted = int(request.query.get("limit", 0)) or None
        made: web.StreamResponse | None = None
        while True:
            most = READS_MAX if select.source_level else PAGE_CHANGES
            limit = most if wanted is None else min(wanted, most)
            select = msgspec.structs.replace(select, limit=limit)
            try:
                found = await self._doorway.execute(select)
            except ConfigError as error:
                if made is None:
                    raise
                end: dict[str, str] = {"error": error.message}
                break
            if made is None:
                made = web.StreamResponse(headers={"Content-Type": LINES})
                await made.prepare(request)
            await made.write("".join(f"{line}\n" for (line,) in found.rows).encode())
            end = dict(found.footer)
            wanted = None if wanted is None else wanted - len(found.rows)
            if "next_token" not in end or wanted == 0:
                break
            select = msgspec.structs.replace(select, after=end["next_token"])
        await made.write(json.dumps({"end": end}).encode() + b"\n")
        await made.write_eof()
        return made


def _select_of(request: web.Request) -> SelectCdc:
    """Return the SELECT in the parameters of a request. Raises RefusedError."""
    given = request.query
    misspelt = [name for name in given if name not in _QUERY]
    if misspelt:
        what = f"{misspelt[0][:48]}: is not a parameter (there are {', '.join(_QUERY)})"
        raise RefusedError(400, what)
    images = tuple(filter(None, given.get("include", "").split(",")))
    unknown = [name for name in images if name not in (*SCOPES, "all")]
    if unknown:
        raise RefusedError(400, f"include: image {unknown[0]} is unknown")
    return SelectCdc(
        name=request.match_info["name"],
        as_json=True,
        scopes=(SCOPES if "all" in images else images) or None,
        where=tuple(_conditions(request)),
        descending=given.get("order") == "desc",
        after=given.get("after", ""),
        source_level=given.get("level", LEVELS[0]) if given.get("latest") else "",
    )


def _conditions(request: web.Request) -> Iterator[Condition]:
    given = request.query
    for name, comparison in (("from", Comparison.AT_LEAST), ("to", Comparison.BEFORE)):
        if time := given.get(name):
            at = int(time) if time.isascii() and time.isdigit() else time
            yield Condition(CDC_TIME, comparison, (at,))
    if numbers := given.get("partitions"):
        if not all(each.isdigit() for each in numbers.split(",")):
            raise RefusedError(400, "partitions: expected numbers of buckets")
        yield Condition(PARTITION_ID, Comparison.IN, tuple(map(int, numbers.split(","))))
    if operations := given.get("op"):
        yield Condition("op", Comparison.IN, tuple(operations.split(",")))
    key = parse_json(given.get("key", "{}").encode())
    if not isinstance(key, dict):
        raise RefusedError(400, "key: expected a JSON object")
    for column, value in key.items():
        if not isinstance(value, str | int):
            raise RefusedError(400, f"key: {column[:48]!r} has no text, number or boolean")
        yield Condition(column, Comparison.EQUAL, (value,))

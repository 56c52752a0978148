"""The table of operations of our own paths: their descriptions and their handlers."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace import __version__
from headrace.connector.control.errors import (
    AlreadyExistsError,
    InUseError,
    NotFoundError,
    NotStoppedError,
)
from headrace.connector.rest.bodies import read_json
from headrace.connector.rest.exchange import RefusedError, lines_of
from headrace.connector.rest.schema import Schema, an, array, check, shown
from headrace.plugins import ConfigError, Problem

# The checked body of a request that has one.
BODY: Final = web.RequestKey("body", dict[str, Any])


VERSION: Final = "3.1.0"
_PROBLEM: Final = shown(Problem, "What is wrong with one part of a statement.")
ERROR: Final = an(
    "An error; of a statement, also what is wrong with its parts.",
    ("error_code", "message"),
    error_code={"type": "integer"},
    message={"type": "string"},
    code={"type": "string"},
    problems=array("By part.", _PROBLEM),
)
_REFUSALS: Final = {
    "400": "the request is wrong",
    "401": "no user is logged in",
    "403": "the caller may not do that",
    "404": "it does not exist",
    "409": "there is one already, or it is not in the state that this needs",
    "413": "the body is too long",
    "415": "the body is not JSON",
    "503": "the state file does not answer, or there are too many requests",
}
_PARAMETER: Final = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")


class Operation(msgspec.Struct, frozen=True):
    """One verb on one path: its parameters, its responses, and its handler.

    Its summary, unless it is given, is the first line of the handler's docstring.
    """

    method: str
    path: str
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    body: Schema | None = None
    answer: Schema | None = None
    status: int = 200
    query: Mapping[str, Schema] = msgspec.field(default_factory=dict)
    summary: str = ""
    media: str = "application/json"


def document(operations: Sequence[Operation]) -> dict[str, Any]:  # Any: JSON.
    """Return the OpenAPI document of *operations*."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": VERSION,
        "info": {"title": "headrace", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR}},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(operation.path)
    ]
    parameters += [
        {"name": name, "in": "query", "schema": dict(schema)}
        for name, schema in operation.query.items()
    ]
    sentence = operation.summary or (inspect.getdoc(operation.handler) or "").partition("\n")[0]
    answer: dict[str, Any] = {"description": sentence}
    if operation.answer is not None:
        answer["content"] = {operation.media: {"schema": operation.answer}}
    responses = {str(operation.status): answer}
    for status, doc in _REFUSALS.items():
        schema = {"$ref": "#/components/schemas/Error"}
        responses[status] = {
            "description": doc,
            "content": {"application/json": {"schema": schema}},
        }
    made: dict[str, Any] = {"summary": sentence, "responses": responses}
    if parameters:
        made["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def served(operations: Sequence[Operation]) -> Sequence[tuple[str, str, Any]]:
    """Return method, path and handler of each operation."""
    return [(made.method, made.path, partial(_serve, made)) for made in operations]


async def _serve(operation: Operation, request: web.Request) -> web.StreamResponse:
    if operation.body is not None:
        given = await read_json(request)
        check(given, operation.body)
        request[BODY] = given
    for name, schema in operation.query.items():
        if name in request.query:
            check(request.query[name], schema, name)
    try:
        return await operation.handler(request)
    except NotFoundError as error:
        raise RefusedError(404, "\n".join(lines_of(error))) from None
    except (AlreadyExistsError, InUseError, NotStoppedError) as error:
        raise RefusedError(409, "\n".join(lines_of(error))) from None
    except ConfigError as error:
        raise RefusedError(400, "\n".join(lines_of(error))) from None

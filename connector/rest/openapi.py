"""The description of our own paths, made of the table of operations that serves them. Pure."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from headrace import __version__
from headrace.connector.rest.schema import Schema, an, array

VERSION: Final = "3.1.0"
_PROBLEM: Final = an(
    "What is wrong with one part of a statement.",
    ("key", "message", "hint"),
    key={"type": "string"},
    message={"type": "string"},
    hint={"type": "string"},
)
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
    "401": "nobody is logged in",
    "403": "the caller may not do that",
    "404": "there is no such thing",
    "409": "there is one already, or it is not in the state that this needs",
    "413": "the body is too long",
    "415": "the body is not JSON",
    "503": "the state file does not answer, or there are too many requests",
}
_PARAMETER: Final = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One verb on one path: what it takes, what it answers, and who serves it."""

    method: str
    path: str
    summary: str
    handler: Callable[[web.Request], Awaitable[web.Response]]
    body: Schema | None = None
    answer: Schema | None = None
    status: int = 200
    also: Mapping[int, str] = field(default_factory=dict)
    query: Mapping[str, Schema] = field(default_factory=dict)


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
    answer: dict[str, Any] = {"description": operation.summary}
    if operation.answer is not None:
        answer["content"] = {"application/json": {"schema": operation.answer}}
    responses = {str(operation.status): answer}
    responses |= {str(status): {"description": doc} for status, doc in operation.also.items()}
    for status, doc in _REFUSALS.items():
        schema = {"$ref": "#/components/schemas/Error"}
        responses[status] = {
            "description": doc,
            "content": {"application/json": {"schema": schema}},
        }
    made: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if parameters:
        made["parameters"] = parameters
    if operation.body is not None:
        content = {"application/json": {"schema": operation.body}}
        made["requestBody"] = {"required": True, "content": content}
    return made

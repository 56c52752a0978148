"""Serving a table of operations: the body is checked, errors become statuses."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from aiohttp import web

from headrace.connector.control.errors import (
    AlreadyExistsError,
    InUseError,
    NotFoundError,
    NotStoppedError,
)
from headrace.connector.rest.bodies import read_json
from headrace.connector.rest.exchange import RefusedError, lines_of
from headrace.connector.rest.openapi import Operation
from headrace.connector.rest.schema import Schema, check
from headrace.plugins import ConfigError

# The checked body of a request that has one.
BODY: Final = web.RequestKey("body", dict[str, Any])


def served(operations: Sequence[Operation]) -> Sequence[tuple[str, str, Any]]:
    """Return method, path and handler of each operation."""
    return [(made.method, made.path, partial(_serve, made)) for made in operations]


async def _serve(operation: Operation, request: web.Request) -> web.Response:
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


def get(path: str, summary: str, schema: Schema, handler: Any) -> Operation:  # noqa: ANN401 (a handler)
    """Return an operation of this method."""
    return Operation(method="GET", path=path, summary=summary, handler=handler, answer=schema)


def make(path: str, summary: str, body: Schema, schema: Schema, handler: Any) -> Operation:  # noqa: ANN401 (a handler)
    """Return an operation of this method."""
    return Operation(
        method="POST",
        path=path,
        summary=summary,
        handler=handler,
        body=body,
        answer=schema,
        status=201,
    )


def patch(  # noqa: PLR0913 (the parts of an operation)
    path: str,
    summary: str,
    body: Schema,
    schema: Schema,
    handler: Any,  # noqa: ANN401 (a handler)
    *,
    query: Mapping[str, Schema] | None = None,
) -> Operation:
    """Return an operation of this method."""
    return Operation(
        method="PATCH",
        path=path,
        summary=summary,
        handler=handler,
        body=body,
        answer=schema,
        query=query or {},
    )


def delete(path: str, summary: str, handler: Any) -> Operation:  # noqa: ANN401 (a handler)
    """Return an operation of this method."""
    return Operation(method="DELETE", path=path, summary=summary, handler=handler, status=204)

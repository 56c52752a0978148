"""The registry over HTTP, and `headrace registry`.

Every request is answered on the loop's thread, which owns the store: registering is rare.
"""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web

from headrace.connector.registry.errors import Code, RegistryError
from headrace.connector.registry.store import (
    NUMBER_DIGITS_MAX,
    TEXT_BYTES_MAX,
    Reference,
    Registered,
    RegistryStore,
)
from headrace.plugins import ConfigError, Problem, serving
from headrace.plugins.config.arguments import CommandParser
from headrace.plugins.serving import Hosts, listen, runner_of

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
PORT: Final = 8081
_PORT_MAX: Final = 65_535
_BODY_BYTES_MAX: Final = 2 * TEXT_BYTES_MAX
_NUMBER_MAX: Final = (1 << 31) - 1  # Messages have four bytes for an id.
_TYPE: Final = "AVRO"
_STORE: Final = web.AppKey("store", RegistryStore)
_HOSTS: Final = web.AppKey("hosts", Hosts)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Json = Any  # Any: any JSON value.


def application(store: RegistryStore, hosts: Iterable[str] = ()) -> web.Application:
    """Return the registry's routes over *store*; *hosts* are the names that clients use."""
    app = web.Application(
        middlewares=[_errors_as_json, _known_host], client_max_size=_BODY_BYTES_MAX
    )
    app[_STORE] = store
    app[_HOSTS] = Hosts(hosts)
    subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
    app.add_routes(
        [
            web.get("/", _root),
            web.get("/contexts", _contexts),
            web.get("/schemas/types", _types),
            web.get("/schemas/ids/{id:[0-9]+}", _schema),
            web.get("/schemas/ids/{id:[0-9]+}/schema", _schema_text),
            web.get("/schemas/ids/{id:[0-9]+}/subjects", _schema_subjects),
            web.get("/schemas/ids/{id:[0-9]+}/versions", _schema_versions),
            web.get("/schemas/guids/{guid}", _schema_of_guid),
            web.get("/subjects", _subjects),
            web.post(subject, _lookup),
            web.delete(subject, _delete_subject),
            web.get(f"{subject}/versions", _versions),
            web.post(f"{subject}/versions", _register),
            web.get(version, _version),
            web.delete(version, _delete_version),
            web.get(f"{version}/schema", _version_text),
            web.get(f"{version}/referencedby", _referenced_by),
            web.post("/compatibility/subjects/{subject}/versions", _compatible),
            web.post("/compatibility/subjects/{subject}/versions/{version}", _compatible),
            *_settings("config", _get_level, _set_level, _unset_level),
            *_settings("mode", _get_mode, _set_mode, _unset_mode),
        ]
    )
    return app


def _settings(name: str, get: Handler, put: Handler, delete: Handler) -> Sequence[web.RouteDef]:
    return [
        maker(path, handler)
        for path in (f"/{name}", f"/{name}/{{subject}}")
        for maker, handler in ((web.get, get), (web.put, put), (web.delete, delete))
    ]


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RegistryError as error:
        return _error(error.status, error.code, str(error))
    except web.HTTPException as error:
        if error.status < web.HTTPBadRequest.status_code:
            raise
        return _error(error.status, error.status, f"HTTP {error.status} {error.reason}")


@web.middleware
async def _known_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    if refused := request.app[_HOSTS].refusal(request):
        status, reason = refused
        return _error(status, status, reason)
    return await handler(request)


def _error(status: int, code: int, message: str) -> web.Response:
    return _json({"error_code": code, "message": message}, status)


def _json(body: Json, status: int = 200) -> web.Response:
    return web.Response(
        text=json.dumps(body, separators=(",", ":")), status=status, content_type=MEDIA_TYPE
    )


async def _root(request: web.Request) -> web.Response:
    del request
    return _json({})


async def _contexts(request: web.Request) -> web.Response:
    del request
    return _json(["."])


async def _types(request: web.Request) -> web.Response:
    del request
    return _json([_TYPE])


# Schemas.


async def _schema(request: web.Request) -> web.Response:
    found = _by_id(request)
    return _json({"schema": found.text, "guid": found.guid} | _references(found))


async def _schema_text(request: web.Request) -> web.Response:
    return _json(json.loads(_by_id(request).text))


async def _schema_subjects(request: web.Request) -> web.Response:
    uses = request.app[_STORE].uses(_id(request))
    return _json(sorted({subject for subject, _ in uses}))


async def _schema_versions(request: web.Request) -> web.Response:
    uses = request.app[_STORE].uses(_id(request))
    return _json([{"subject": subject, "version": version} for subject, version in uses])


async def _schema_of_guid(request: web.Request) -> web.Response:
    found = request.app[_STORE].schema_of_guid(request.match_info["guid"])
    return _json({"schema": found.text, "guid": found.guid} | _references(found))


def _by_id(request: web.Request) -> Registered:
    return request.app[_STORE].schema(_id(request))


def _id(request: web.Request) -> int:
    digits = request.match_info["id"]
    if len(digits) > NUMBER_DIGITS_MAX:
        raise RegistryError(Code.SCHEMA_UNKNOWN, f"Schema {digits} not found")
    return int(digits)


# Subjects.


async def _subjects(request: web.Request) -> web.Response:
    prefix = request.query.get("subjectPrefix", "")
    return _json(request.app[_STORE].subjects(prefix, deleted=_flag(request, "deleted")))


async def _versions(request: web.Request) -> web.Response:
    deleted = _flag(request, "deleted")
    return _json(request.app[_STORE].versions(_subject(request), deleted=deleted))


async def _register(request: web.Request) -> web.Response:
    text, references = await _given(request)
    body = await _body(request)
    made = request.app[_STORE].register(
        _subject(request),
        text,
        references,
        schema_id=_number_in(body, "id", 0),
        version=_number_in(body, "version", 1),
    )
    return _json(
        {"id": made.schema_id, "version": made.version, "guid": made.guid, "schemaType": _TYPE}
        | {"schema": made.text}
        | _references(made)
    )


async def _lookup(request: web.Request) -> web.Response:
    text, references = await _given(request)
    deleted = _flag(request, "deleted")
    store = request.app[_STORE]
    return _json(_described(store.lookup(_subject(request), text, references, deleted=deleted)))


async def _version(request: web.Request) -> web.Response:
    return _json(_described(_chosen(request)))


async def _version_text(request: web.Request) -> web.Response:
    return _json(json.loads(_chosen(request).text))


async def _referenced_by(request: web.Request) -> web.Response:
    number = request.match_info["version"]
    return _json(request.app[_STORE].referenced_by(_subject(request), number))


async def _delete_subject(request: web.Request) -> web.Response:
    permanent = _flag(request, "permanent")
    return _json(request.app[_STORE].delete_subject(_subject(request), permanent=permanent))


async def _delete_version(request: web.Request) -> web.Response:
    number, permanent = request.match_info["version"], _flag(request, "permanent")
    store = request.app[_STORE]
    return _json(store.delete_version(_subject(request), number, permanent=permanent))


async def _compatible(request: web.Request) -> web.Response:
    text, references = await _given(request)
    number = request.match_info.get("version")
    problems = request.app[_STORE].compatible(_subject(request), number, text, references)
    answer: dict[str, Json] = {"is_compatible": not problems}
    if _flag(request, "verbose"):
        answer["messages"] = list(problems)
    return _json(answer)


# Levels and modes.


async def _get_level(request: web.Request) -> web.Response:
    own = not _flag(request, "defaultToGlobal")
    return _json({"compatibilityLevel": request.app[_STORE].level(_subject(request), own=own)})


async def _set_level(request: web.Request) -> web.Response:
    level = await _text_in(request, "compatibility")
    request.app[_STORE].set_level(level, _subject(request))
    return _json({"compatibility": level})


async def _unset_level(request: web.Request) -> web.Response:
    return _json({"compatibilityLevel": request.app[_STORE].unset_level(_subject(request))})


async def _get_mode(request: web.Request) -> web.Response:
    own = not _flag(request, "defaultToGlobal")
    return _json({"mode": request.app[_STORE].mode(_subject(request), own=own)})


async def _set_mode(request: web.Request) -> web.Response:
    mode = await _text_in(request, "mode")
    request.app[_STORE].set_mode(mode, _subject(request), force=_flag(request, "force"))
    return _json({"mode": mode})


async def _unset_mode(request: web.Request) -> web.Response:
    return _json({"mode": request.app[_STORE].unset_mode(_subject(request))})


# Requests.


def _subject(request: web.Request) -> str:
    return request.match_info.get("subject", "")


def _chosen(request: web.Request) -> Registered:
    number, deleted = request.match_info["version"], _flag(request, "deleted")
    return request.app[_STORE].version(_subject(request), number, deleted=deleted)


def _flag(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


async def _body(request: web.Request) -> Mapping[str, Json]:
    try:
        async with asyncio.timeout(serving.ARRIVAL_SECONDS_MAX):
            content = await request.read()
        body = json.loads(content)
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    except web.RequestPayloadError as error:  # Such as a body that is not compressed as declared.
        raise RegistryError(Code.BAD_REQUEST, "The body cannot be read") from error
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise RegistryError(Code.BAD_REQUEST, "The body is not a JSON object")
    return body


async def _text_in(request: web.Request, name: str) -> str:
    text = (await _body(request)).get(name)
    if not isinstance(text, str):
        raise RegistryError(Code.BAD_REQUEST, f"{name} is not a text")
    return text


def _number_in(body: Mapping[str, Json], name: str, least: int) -> int | None:
    """Return a number that is at least *least*; None if it is missing or lower."""
    number = body.get(name)
    if number is None:
        return None
    if type(number) is not int or number > _NUMBER_MAX:  # In Python a boolean is a number, too.
        raise RegistryError(Code.BAD_REQUEST, f"{name} is not a number of 31 bits")
    return number if number >= least else None


async def _given(request: web.Request) -> tuple[str, Sequence[Reference]]:
    """Return the schema's text and references that the body gives."""
    body = await _body(request)
    if body.get("schemaType", _TYPE) not in (_TYPE, None):
        raise RegistryError(
            Code.SCHEMA_INVALID, f"Invalid schema type {body['schemaType']}: only {_TYPE}"
        )
    text = body.get("schema")
    if not isinstance(text, str):
        raise RegistryError(Code.SCHEMA_INVALID, "Empty schema")
    try:
        return text, [_reference(each) for each in body.get("references") or ()]
    except (KeyError, TypeError) as error:
        raise RegistryError(
            Code.BAD_REQUEST, "references have name, subject and version"
        ) from error


def _reference(given: Mapping[str, Json]) -> Reference:
    name, subject, version = given["name"], given["subject"], given["version"]
    for part in (name, subject):
        if not isinstance(part, str) or not part.isprintable() or not part:
            raise RegistryError(
                Code.SCHEMA_INVALID, f"Invalid reference: expected a text, found {part!r}"
            )
    if type(version) is not int or version < 1:  # In Python a boolean is a number, too.
        raise RegistryError(
            Code.VERSION_INVALID,
            f"Invalid reference to {subject}: expected a version from 1, found {version!r}",
        )
    return Reference(name, subject, version)


def _described(found: Registered) -> dict[str, Json]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.schema_id,
        "guid": found.guid,
        "schemaType": _TYPE,
        "schema": found.text,
    } | _references(found)


def _references(found: Registered) -> dict[str, Json]:
    listed = [msgspec.structs.asdict(each) for each in found.references]
    return {"references": listed} if listed else {}


async def serve_on(listening: socket.socket, state: Path, wait: Callable[[], object]) -> None:
    """Serve the registry in the file *state* on a socket, until *wait* returns.

    *wait* may block: it is called on another thread.
    """
    with contextlib.closing(RegistryStore(state)) as store:
        runner = runner_of(application(store), stop_seconds=0, decompress=True)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            await asyncio.get_running_loop().run_in_executor(None, wait)
        finally:
            await runner.cleanup()


# The command.


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; return 0."""
    parser = CommandParser(
        prog="headrace registry",
        description="A schema registry for Avro, for Confluent's clients. It prints its address.",
    )
    parser.add_argument(
        "--state", type=Path, default=Path("registry.db"), help="the SQLite file of the registry"
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; loopback by default"
    )
    parser.add_argument(
        "--hosts",
        default="",
        metavar="NAME,…",
        help="host names that clients use, besides localhost; addresses are always accepted",
    )
    parser.add_argument("--port", type=int, default=PORT, help="0 chooses a free one")
    given = parser.parse_args(arguments)
    if not 0 <= given.port <= _PORT_MAX:
        problem = Problem("--port", f"expected 0 to {_PORT_MAX}, found {given.port}")
        raise ConfigError([problem])
    with contextlib.closing(RegistryStore(given.state)) as store:
        hosts = [name.strip() for name in given.hosts.split(",") if name.strip()]
        asyncio.run(_serve(application(store, (given.host, *hosts)), given.host, given.port))
    return 0


async def _serve(app: web.Application, host: str, port: int) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(ValueError):  # Not the main thread: its caller stops it.
            loop.add_signal_handler(number, stopped.set)
    runner = runner_of(app, decompress=True)
    try:
        bound = await listen(runner, host, port)
        address = f"http://{bound[0]}:{bound[1]}"
        structlog.get_logger().info("registry_started", address=address)
        sys.stdout.write(address + "\n")
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await runner.cleanup()

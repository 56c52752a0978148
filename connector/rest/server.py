"""The HTTP server of a worker process: its routes, middleware and sockets."""

import asyncio
import ssl
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import structlog
from aiohttp import hdrs, web

from headrace import __version__
from headrace.connector.control.access.permission import CALLER, Caller, Role
from headrace.connector.control.console.workers import KeptWorkers
from headrace.connector.rest.api import ApiDoor
from headrace.connector.rest.auth import Authenticator
from headrace.connector.rest.bodies import BODIES, BODY_BYTES_MAX, Bodies
from headrace.connector.rest.connect.connectors import ConnectDoor
from headrace.connector.rest.connect.metrics import connect_measures
from headrace.connector.rest.connect.plugins import PluginDoor
from headrace.connector.rest.console.door import ConsoleDoor, Runs
from headrace.connector.rest.console.samples import Samples
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import (
    Handler,
    RefusedError,
    acceptable,
    answer,
    errors_as_json,
)
from headrace.connector.rest.probes import PUBLIC, ProbeDoor
from headrace.connector.rest.services import ServiceDoor
from headrace.plugins.metrics import encoded, families
from headrace.plugins.serving import LOOPBACK, Hosts, listen, runner_of

if TYPE_CHECKING:
    from headrace.connector.rest.console.streams import Streams
    from headrace.plugins.metrics import Families

REQUESTS_MAX: Final = 256
IDLE_SECONDS_MAX: Final = 30.0


class MetricsDoor:
    """The handler of `/metrics`. Belongs to the event loop's thread."""

    def __init__(
        self,
        metrics: "Callable[[], Families]",
        asking: asyncio.Lock,
        doorway: Doorway,
        *,
        connect_names: bool,
    ) -> None:
        """*metrics* is called on another thread, while *asking* is held; it may block for seconds.

        With *connect_names* metrics of the state are added, under Kafka Connect's names.
        """
        self._metrics = metrics
        self._doorway = doorway
        self._connect_names = connect_names
        self._asking = asking

    def routes(self) -> Sequence[tuple[str, str, Handler]]:
        """Return method, path and handler."""
        return [("GET", "/metrics", self.metrics)]

    async def metrics(self, request: web.Request) -> web.Response:
        """GET /metrics."""
        accept = request.headers.get(hdrs.ACCEPT, "")
        names = self._connect_names
        more = families(await self._doorway.call(connect_measures)) if names else ()
        loop = asyncio.get_running_loop()
        async with self._asking:
            body, media_type = await loop.run_in_executor(
                None, lambda: encoded([*self._metrics(), *more], accept)
            )
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: media_type})


class Address(msgspec.Struct, frozen=True):
    """The address of a server."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK or self.host.startswith("127.")


Route = tuple[str, str, Any]  # Any: a handler, which may be a partial.


class _Door(Protocol):
    def routes(self) -> Sequence[Route]:
        """Return method, path and handler of each route."""


class RestServer:
    """Serves the paths of one state file until closed. Belongs to the event loop's thread."""

    def __init__(  # noqa: PLR0913 (each is about something else)
        self,
        state: Path,
        *,
        log: structlog.stdlib.BoundLogger,
        hosts: Sequence[str] = (),
        authenticator: Authenticator | None = None,
        metrics: "Callable[[], Families]" = tuple,
        connect_names: bool = False,
        file: Path | None = None,
        runs: Runs = tuple,
    ) -> None:
        """*hosts* are additional names of the server.

        Without *authenticator* everyone may do everything. *metrics* returns the metrics
        of the jobs, *runs* the runs of bulk work; both may block for seconds. *file* is the
        worker's.
        """
        self._metrics = metrics
        self._asking = asyncio.Lock()
        self._runs = runs
        self._connect_names = connect_names
        self._authenticator = authenticator or Authenticator()
        self._doorway = Doorway(state, guard=self._authenticator.logins, file=file)
        workers = KeptWorkers()
        self.samples = Samples(metrics, self._asking, lambda: self._doorway.look(workers.look))
        self._log = log
        self._hosts = Hosts(hosts)
        self._runners: list[web.AppRunner] = []
        self._streams: list[Streams] = []
        self._worker_id = ""
        self._under_way = 0
        self._bodies = Bodies()

    def application(self, *, services_only: bool = False) -> web.Application:
        """Return the application with all paths, or with the Sidecar's alone."""
        cluster_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(self._doorway.state)))
        plugins = PluginDoor(self._doorway, cluster_id)
        console = ConsoleDoor(self._doorway, self.samples, self._runs, plugins.root, self._admit)
        self._streams.append(console.streams)
        doors: Sequence[_Door] = (
            ApiDoor(self._doorway),
            ConnectDoor(self._doorway, lambda: self._worker_id),
            plugins,
            ProbeDoor(self._doorway),
            MetricsDoor(
                self._metrics, self._asking, self._doorway, connect_names=self._connect_names
            ),
            console,
        )
        if services_only:
            doors = (ServiceDoor(self._doorway),)
        app = web.Application(
            middlewares=[
                errors_as_json,
                self._known_host,
                self._known_caller,
                self._bounded,
                acceptable,
            ],
            client_max_size=BODY_BYTES_MAX,
        )
        app[BODIES] = self._bodies
        for door in doors:
            add_routes(app, door.routes())
        return app

    async def start(
        self,
        address: Address,
        tls: ssl.SSLContext | None = None,
        *,
        services_only: bool = False,
    ) -> Address:
        """Listen, and return the address; port 0 takes any free port.

        Raises:
            CannotListenError: it cannot listen there.

        """
        application = self.application(services_only=services_only)
        runner = runner_of(application, idle_seconds=IDLE_SECONDS_MAX)
        self._runners.append(runner)
        host, port = await listen(runner, address.host, address.port, tls)
        self._worker_id = self._worker_id or f"{host}:{port}"
        if not services_only:
            self.samples.start()
        self._log.info("rest_started", host=host, port=port)
        return Address(host, port)

    async def close(self) -> None:
        """Finish running requests, and end."""
        await self.samples.close()
        for streams in self._streams:
            streams.close()
        for runner in self._runners:
            await runner.cleanup()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._doorway.close)
        if self._authenticator.logins:
            await loop.run_in_executor(None, self._authenticator.logins.close)

    @property
    def _bounded(self) -> Any:  # noqa: ANN401 (a middleware of aiohttp)
        @web.middleware
        async def bounded(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Bound the number of running requests, but for the liveness probe."""
            if _is_probe(request):
                return await handler(request)
            if self._under_way >= REQUESTS_MAX:
                raise RefusedError(503, "too many requests at once", headers={"Retry-After": "1"})
            self._under_way += 1
            try:
                return await handler(request)
            finally:
                self._under_way -= 1

        return bounded

    @property
    def _known_caller(self) -> Any:  # noqa: ANN401 (a middleware of aiohttp)
        @web.middleware
        async def known_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Identify the caller before the response reveals what exists."""
            CALLER.set(await self._admit(request))  # Only for this request's task.
            return await handler(request)

        return known_caller

    async def _admit(self, request: web.Request) -> Caller:
        """Return the sender of *request*. Raises RefusedError: 401, or 403 without permissions."""
        caller = await self._authenticator.caller(request)
        if caller.role < Role.VIEWER and not _is_probe(request):
            raise RefusedError(403, f"Unauthorized: User {caller.name} has no role here")
        return caller

    @property
    def _known_host(self) -> Any:  # noqa: ANN401 (a middleware of aiohttp)
        @web.middleware
        async def known_host(request: web.Request, handler: Handler) -> web.StreamResponse:
            """Refuse names that are not ours: another site's page may have made them point here."""
            if refused := self._hosts.refusal(request):
                raise RefusedError(*refused)
            return await handler(request)

        return known_host


def _is_probe(request: web.Request) -> bool:
    return request.path.rstrip("/") in PUBLIC


def add_routes(app: web.Application, routes: Sequence[Route]) -> None:
    """Add *routes*, each with and without a slash at its end, with HEAD and OPTIONS."""
    allowed: dict[str, list[str]] = {}
    for method, path, handler in routes:
        allowed.setdefault(path, []).append(method)
        for form in dict.fromkeys((path, path.rstrip("/") + "/")):
            app.router.add_route(method, form, handler)
            if method == hdrs.METH_GET:
                app.router.add_route(hdrs.METH_HEAD, form, handler)
    for path, methods in allowed.items():
        head = [hdrs.METH_HEAD] if hdrs.METH_GET in methods else []
        headers: dict[str, str] = {hdrs.ALLOW: ",".join((*head, *methods, hdrs.METH_OPTIONS))}
        for form in dict.fromkeys((path, path.rstrip("/") + "/")):
            app.router.add_route(hdrs.METH_OPTIONS, form, _options(headers))


def _options(headers: Mapping[str, str]) -> Handler:
    async def options(request: web.Request) -> web.StreamResponse:
        del request
        return answer({"headrace": __version__}, headers=headers)

    return options

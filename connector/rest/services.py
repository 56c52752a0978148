"""The Sidecar's paths: the configurations of the services `cdc`, `kafka` and `schema_store`."""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from headrace.connector.control.services import SERVICES
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import RefusedError, answer
from headrace.connector.rest.operations import BODY, Operation, served
from headrace.connector.rest.schema import an, mapping, text

_CONFIG: Final = mapping("Options; all values are strings.", text())
_SERVICE: Final = an("A service's configuration.", ("config",), config=_CONFIG)


class ServiceDoor:
    """The handlers of `/api/v1/services`, the only paths on the Sidecar's port."""

    def __init__(self, doorway: Doorway) -> None:
        """Build the table of operations."""
        self._doorway = doorway
        self.operations = self._services()

    def routes(self) -> Sequence[tuple[str, str, Any]]:
        """Return method, path and handler of each route."""
        return served(self.operations)

    def _services(self) -> Sequence[Operation]:
        one = "/api/v1/services/{service}/config"
        every = an("All.", ("services",), services=mapping("By name.", _CONFIG))
        return [
            Operation("GET", "/api/v1/services", self.list_services, answer=every),
            Operation("GET", one, self.show_service, answer=_SERVICE),
            Operation("PUT", one, self.put_service, _SERVICE, _SERVICE),
            Operation("DELETE", one, self.delete_service, answer=an("Done.")),
        ]

    async def list_services(self, request: web.Request) -> web.Response:
        """Show all services."""
        del request
        return answer({"services": await self._doorway.call(lambda c: dict(c.services()))})

    async def show_service(self, request: web.Request) -> web.Response:
        """Show a service's configuration.

        It is empty for a service without one.
        """
        name = request.match_info["service"]
        if name not in SERVICES:
            known = ", ".join(SERVICES)
            raise RefusedError(404, f"service {name[:48]!r} does not exist (there are: {known})")
        found = await self._doorway.call(lambda c: c.services())
        return answer({"config": dict(found.get(name, {}))})

    async def put_service(self, request: web.Request) -> web.Response:
        """Set the configuration of a service; its running job takes it."""
        name, config = request.match_info["service"], request[BODY]["config"]
        await self._doorway.call(lambda c: c.put_service(name, config))
        return answer({"config": config})

    async def delete_service(self, request: web.Request) -> web.Response:
        """Stop publishing; positions stay."""
        name = request.match_info["service"]
        await self._doorway.call(lambda c: c.delete_service(name))
        return answer({})

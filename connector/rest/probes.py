"""The probes of a worker for orchestrators: liveness, readiness, and what is missing."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from headrace.connector.control.commands import Commands
from headrace.connector.control.health.missing import missing
from headrace.connector.rest.doorway import Doorway
from headrace.connector.rest.exchange import answer
from headrace.plugins import HeadraceError, Problem

HEALTH: Final = "/health"
LIVE: Final = "/livez"
READY: Final = "/readyz"
BOTH: Final = "/healthz"
PUBLIC: Final = frozenset({HEALTH, LIVE, READY, BOTH})
STATE_SECONDS_MAX: Final = 5.0


class ProbeDoor:
    """The handlers of `/livez`, `/readyz`, `/healthz`, and of Kafka Connect's `/health`.

    They need no login. Everyone who can reach the worker can read the responses, so they name only
    missing things, and nothing that exists.
    """

    def __init__(self, doorway: Doorway) -> None:
        """Read the definitions through *doorway*."""
        self._doorway = doorway

    def routes(self) -> Sequence[tuple[str, str, Any]]:
        """Return method, path and handler of each route."""
        return [
            ("GET", LIVE, self.live),
            ("GET", READY, self.ready),
            ("GET", BOTH, self.ready),
            ("GET", HEALTH, self.health),
        ]

    async def live(self, request: web.Request) -> web.Response:
        """GET /livez: any response means alive."""
        del request
        return answer({"status": "alive"})

    async def ready(self, request: web.Request) -> web.Response:
        """GET /readyz: whether jobs are defined, and the state is available."""
        del request
        if not (missing := await self._missing()):
            return answer({"status": "ready", "reasons": []})
        reasons = [{"about": p.key, "message": p.message, "hint": p.hint} for p in missing]
        return answer({"status": "not ready", "reasons": reasons}, 503)

    async def health(self, request: web.Request) -> web.Response:
        """GET /health: whether the state can be read. Without sources a worker is healthy."""
        del request
        for each in await self._missing():
            if each.key == "state":
                return answer({"status": "unhealthy", "message": each.message}, 503)
        message = "Worker has completed startup and is ready to handle requests."
        return answer({"status": "healthy", "message": message})

    async def _missing(self) -> Sequence[Problem]:
        asking = self._doorway.call(_defined)
        try:
            sinks, sources = await asyncio.wait_for(asking, STATE_SECONDS_MAX)
        except TimeoutError:
            return [Problem("state", f"did not answer within {STATE_SECONDS_MAX:g} s")]
        except HeadraceError as error:
            return [Problem("state", f"{error.code}: it cannot be read", error.hint)]
        return missing(sinks, sources)


def _defined(commands: Commands) -> tuple[int, int]:
    return len(commands.sinks()), len(commands.statuses())

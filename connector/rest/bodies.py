"""The bodies of requests: read once the sender is known, bounded by role, in number and in time.

Slow bodies have slots of their own, and one client cannot take all of these.
"""

from collections import Counter
from typing import Any, Final

from aiohttp import hdrs, web

from headrace.connector.control.access.permission import CALLER, Caller, Role
from headrace.connector.rest.exchange import RefusedError, parse_json
from headrace.connector.rest.logins import DOOR
from headrace.plugins import serving

BODY_BYTES_MAX: Final = 1024 * 1024
SMALL_BYTES_MAX: Final = 64 * 1024  # For callers without permission to change anything.
ARRIVING_MAX: Final = 128  # Bodies at once.
ARRIVING_OF_ONE_MAX: Final = 32


class Bodies:
    """Counts the bodies that are arriving. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        """Start with no bodies."""
        self._arriving: Counter[tuple[str, str]] = Counter()

    async def read(self, request: web.Request) -> bytes:
        """Return the body of *request*, which is from `CALLER`. Raises RefusedError."""
        caller = CALLER.get()
        whose = caller.name, caller.address
        if self._arriving[whose] >= ARRIVING_OF_ONE_MAX or self._arriving.total() >= ARRIVING_MAX:
            message = "too many bodies are arriving at once"
            raise RefusedError(503, message, headers={"Retry-After": "1"})
        self._arriving[whose] += 1
        try:
            return await serving.arrived(request, bytes_max(caller))
        except TimeoutError:
            raise RefusedError(408, "the body did not arrive in time") from None
        except (
            ConnectionError,
            web.RequestPayloadError,
        ):  # The client may be gone; not an error.
            raise RefusedError(400, "the body cannot be read") from None
        finally:
            self._arriving[whose] -= 1
            if not self._arriving[whose]:
                del self._arriving[whose]


BODIES: Final = web.AppKey("bodies", Bodies)


def bytes_max(caller: Caller) -> int:
    """Return the most bytes of a body of *caller*; only Cassandra knows its users' permissions."""
    is_small = caller.role < Role.ADMIN and caller.door != DOOR
    return SMALL_BYTES_MAX if is_small else BODY_BYTES_MAX


async def read_json(request: web.Request) -> Any:  # noqa: ANN401 (what JSON can hold)
    """Return the body as JSON; floats stay strings.

    Raises:
        RefusedError: another media type, too long, not JSON, a duplicate key, or nested too deeply.

    """
    if request.content_type != "application/json":
        raise RefusedError(415, "HTTP 415 Unsupported Media Type")
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        raise RefusedError(415, "HTTP 415 Unsupported Media Type: a body must not be compressed")
    return parse_json(await request.app[BODIES].read(request))

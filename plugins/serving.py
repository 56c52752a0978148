"""The common part of all HTTP servers of headrace: allowed hosts, limits, and timeouts."""

import asyncio
import ipaddress
import re
import resource
import ssl
from collections.abc import Iterable
from typing import Final

from aiohttp import hdrs, web, web_response

from headrace.plugins.errors import MissingRequirementError

ARRIVAL_SECONDS_MAX: Final = 20.0  # For a body to arrive.
IDLE_SECONDS_MAX: Final = 60.0  # For the head of the first request, and between two requests.
LINGER_SECONDS: Final = 2.0  # How long an unwanted body is read, so that the response arrives.
STOP_SECONDS_MAX: Final = 60.0
OPEN_FILES_MAX: Final = 65_536
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "[::1]")
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(?P<port>\d{1,5}))?")
_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?P<host>[^/?#]+)|null", re.IGNORECASE)
_PORT_MAX: Final = 65_535

# aiohttp would send its own version and Python's, and has no option for that. A middleware does not
# see responses to requests that are not HTTP.
web_response.SERVER_SOFTWARE = "headrace"  # type: ignore[attr-defined]  # Not in its __all__.


class CannotListenError(MissingRequirementError):
    """A server cannot listen at its address."""

    code = "cannot_listen"


def runner_of(
    app: web.Application,
    *,
    idle_seconds: float = IDLE_SECONDS_MAX,
    stop_seconds: float = STOP_SECONDS_MAX,
    decompress: bool = False,
) -> web.AppRunner:
    """Return a runner of *app*, with limits and without an access log.

    When it ends, running requests have *stop_seconds*.
    """
    _allow_open_files()
    return web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        keepalive_timeout=idle_seconds,
        shutdown_timeout=stop_seconds,
        auto_decompress=decompress,
        lingering_time=LINGER_SECONDS,
    )


async def listen(
    runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[str, int]:
    """Start listening with *runner*, and return the address; port 0 is any free port.

    Raises:
        CannotListenError: it cannot listen there.

    """
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
    except OSError as error:
        raise CannotListenError(
            f"cannot listen: {error.strerror}",
            place=f"{host}:{port}",
            hint="another process has the port, or the address is not this machine's",
        ) from error
    found: tuple[str, int] = runner.addresses[0][:2]
    return found


def _allow_open_files() -> None:
    """Raise this process's limit of open files, so that idle connections do not exhaust it.

    The usual limit is 1,024 for the sake of programs that call select(); headrace does not.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if most == resource.RLIM_INFINITY else min(most, OPEN_FILES_MAX)
    if limit != resource.RLIM_INFINITY and limit < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class Hosts:
    """The accepted values of the Host header of a server.

    A web page can let its own name resolve to this machine and then send requests as if from here.
    It cannot do so with an address, so addresses are always accepted. `*.example.com` matches all
    names with one more label, as in certificates.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Accept *names* and those of the loopback; `*` accepts all."""
        self._names = {name.strip("[]").lower() for name in (*LOOPBACK, *names)}

    def refusal(self, request: web.BaseRequest) -> tuple[int, str] | None:
        """Return the status and the reason for rejecting *request*; None to accept it."""
        host = request.headers.get(hdrs.HOST, "")
        name = _name_in(host)
        if name is None:
            return 400, "the Host header is not host:port"
        if not self._accepts(name):
            return 421, "this server is not called that (its option `hosts` takes more names)"
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is None or origin.lower() == f"{request.scheme}://{host}".lower():
            return None
        match = _ORIGIN.fullmatch(origin)
        if match is None or (match["host"] and _name_in(match["host"]) is None):
            return 400, "the Origin header is not scheme://host:port"
        return 403, "a page of another site may not ask this server"

    def _accepts(self, name: str) -> bool:
        wildcard = f"*.{name.partition('.')[2]}"
        return bool({"*", name, wildcard} & self._names) or _is_address(name)


async def arrived(request: web.Request, bytes_max: int) -> bytes:
    """Return the body of *request*.

    Raises:
        TimeoutError: it did not arrive in time.
        web.HTTPRequestEntityTooLarge: it has more than *bytes_max* bytes.

    """
    if (request.content_length or 0) > bytes_max:
        raise web.HTTPRequestEntityTooLarge(bytes_max, request.content_length or 0)
    async with asyncio.timeout(ARRIVAL_SECONDS_MAX):
        return await request.clone(client_max_size=bytes_max).read()


def _name_in(host: str) -> str | None:
    """Return the name in `name:port`, in lower case and without brackets; None if malformed."""
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 0) > _PORT_MAX:
        return None
    return match["name"].strip("[]").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

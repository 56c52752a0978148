"""`/metrics`: the metrics of this process, or of its children, for Prometheus.

A thread of its own serves them, only at addresses of this machine, because it has neither TLS nor
users. A worker serves them with the rest of its HTTP, which has both.
"""

import http.client
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import make_wsgi_app, start_http_server
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from headrace import __version__
from headrace.plugins import ConfigError, MissingRequirementError, Problem
from headrace.plugins.metrics import Measure, families, gauge

PATH: Final = "/metrics"
ASK_SECONDS_MAX: Final = 2.0
_INFO: Final = gauge("headrace_info", "The release that runs.", [({"version": __version__}, 1)])


class MetricsAddressError(MissingRequirementError):
    """Metrics cannot be served at the configured address."""

    code = "metrics_cannot_listen"


class Metrics:
    """Serves what *measures* returns, each sample labelled with the job's name."""

    def __init__(
        self, address: tuple[str, int], measures: Callable[[], Iterable[Measure]], job: str
    ) -> None:
        """Listen at *address*; port 0 takes any free port.

        Raises:
            MetricsAddressError: the address is taken, or not one of this machine.

        """
        self._measures = measures
        self._job = job
        host, port = address
        try:
            self._server, self._thread = start_http_server(port, host, registry=self)
        except OSError as error:
            raise MetricsAddressError(
                f"cannot listen: {error.strerror}", place=f"{host}:{port}"
            ) from error
        self._server.set_app(_without_versions(make_wsgi_app(self)))
        self.port: int = self._server.server_port

    def collect(self) -> Iterable[Metric]:
        """Return the metrics in the client's form; called for each request, on its thread."""
        return families([_INFO, *self._measures()], job=self._job)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _without_versions(app: WSGIApplication) -> WSGIApplication:
    """Remove the versions of wsgiref and Python from the responses of *app*."""

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        def begin(status: str, headers: list[tuple[str, str]]) -> object:
            return start(status, [*headers, ("Server", "headrace")])

        return app(environ, begin)  # type: ignore[arg-type]  # It never starts an answer twice.

    return answer


def metrics_address(given: str, *, key: str) -> tuple[str, int]:
    """Return host and port of `host:port`.

    Raises:
        ConfigError: it is malformed, or other machines could reach it.

    """
    host, _, port = given.rpartition(":")
    if not port.isdigit() or not 0 <= int(port) < 1 << 16:
        raise ConfigError([Problem(key, f"expected host:port, found {given[:64]!r}")])
    if host not in {"localhost", "::1", "[::1]"} and not host.startswith("127."):
        hint = "use 127.0.0.1, or `headrace worker`, whose /metrics has TLS and users"
        raise ConfigError([Problem(key, f"{host} can be reached by others", hint)])
    return host.strip("[]"), int(port)


def merged(ports: Mapping[int, str]) -> Sequence[Metric]:
    """Return the merged metrics of processes of this machine.

    A process that does not answer is skipped. The samples of each have the label `pump` of its
    port. Blocks for `ASK_SECONDS_MAX` for each at most.
    """
    found: dict[str, Metric] = {}
    for port, pump in ports.items():
        for family in text_string_to_metric_families(_asked(port)):
            for sample in family.samples:
                sample.labels["pump"] = pump
            known = found.setdefault(family.name, family)
            if known is not family:
                known.samples += family.samples
    return list(found.values())


def _asked(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_SECONDS_MAX)
    try:
        connection.request("GET", PATH)
        return connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()

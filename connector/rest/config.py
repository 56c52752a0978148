"""Options of the HTTP server: the section `rest` of a worker's file."""

import re
from dataclasses import dataclass
from typing import Final

from headrace.connector.rest.server import Address
from headrace.plugins import ConfigError, Problem, option

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]*):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """The addresses of the server, and its authentication."""

    listen: tuple[str, ...] = option(
        "`host:port`, one or more: Kafka Connect's paths and our own.", default=("127.0.0.1:8083",)
    )
    listen_services: tuple[str, ...] = option(
        "`host:port` of the service configurations, as the Sidecar has them.",
        default=("127.0.0.1:65505",),
    )
    hosts: tuple[str, ...] = option(
        "Host names that clients use, besides those of the loopback.", default=()
    )

    metrics_connect_names: bool = option(
        "Whether `/metrics` also has connectors and tasks under the names of Kafka Connect.",
        name="metrics.connect.names",
        default=False,
    )
    tls_certificate: str | None = option("The server's certificates, in PEM.", default=None)
    tls_key: str | None = option("The key of the first of them, in PEM.", default=None)
    tls_client_ca: str | None = option(
        "Certificates that clients' must be signed by, in PEM.", default=None
    )
    users: str | None = option(
        "A file of users with passwords, and of clients' certificates, with roles.", default=None
    )
    cassandra: str | None = option(
        "`host:port` of a Cassandra node: its users may log in, with the rights of its roles.",
        default=None,
    )
    cassandra_ca: str | None = option(
        "Certificates that the node's must be signed by, in PEM; turns TLS on.", default=None
    )
    jwt_keys: str | None = option(
        "The JWKS with the keys that sign bearer tokens: a file or an https URL.", default=None
    )
    jwt_issuer: str | None = option("The required issuer of a token.", default=None)
    jwt_audience: str | None = option("The required audience of a token.", default=None)
    jwt_role_claim: str = option("The claim that holds the role, or a list.", default="role")

    def __post_init__(self) -> None:
        """Check the addresses, and that options that need each other are complete."""
        problems = self._safety_problems()
        for key in ("listen", "listen_services"):
            for text in getattr(self, key):
                match = _ADDRESS.fullmatch(text)
                if match is None or int(match["port"]) > _PORT_MAX:
                    problems.append(Problem(key, f"{text!r} is not host:port", "127.0.0.1:8083"))
        if problems:
            raise ConfigError(problems)

    def _safety_problems(self) -> list[Problem]:
        problems = []
        if (self.tls_certificate is None) is not (self.tls_key is None):
            problems.append(Problem("tls_key", "belongs to tls_certificate: give both"))
        if self.tls_client_ca and not self.tls_certificate:
            problems.append(Problem("tls_client_ca", "needs tls_certificate"))
        if self.jwt_keys and not (self.jwt_issuer and self.jwt_audience):
            problems.append(Problem("jwt_keys", "needs jwt_issuer and jwt_audience"))
        if self.cassandra is not None and not addresses((self.cassandra,)):
            problems.append(Problem("cassandra", "is not host:port", "127.0.0.1:9042"))
        if self.cassandra_ca and not self.cassandra:
            problems.append(Problem("cassandra_ca", "needs cassandra"))
        safe = self.tls_certificate and (self.users or self.jwt_keys or self.cassandra)
        for key in ("listen", "listen_services"):
            far = [a for a in addresses(getattr(self, key)) if not a.is_loopback]
            if far and not safe:
                hint = "give tls_certificate, tls_key, and users, cassandra or jwt_keys"
                shown = f"{far[0].host} can be reached by others: TLS and authentication are needed"
                problems.append(Problem(key, shown, hint))
        return problems


def addresses(listen: tuple[str, ...]) -> list[Address]:
    """Return the addresses that an option gives."""
    found = [match for text in listen if (match := _ADDRESS.fullmatch(text))]
    return [Address(match["host"].strip("[]") or "0.0.0.0", int(match["port"])) for match in found]  # noqa: S104 (as asked)

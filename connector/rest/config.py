"""Options of the HTTP server: the section `rest` of a worker's file."""

import re
from dataclasses import dataclass
from typing import Final

from headrace.connector.rest.server import LOOPBACK, Address
from headrace.plugins import ConfigError, Problem, option

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]*):(?P<port>\d{1,5})")
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """Where it listens, and who may come in."""

    listen: tuple[str, ...] = option(
        "`host:port`, one or more: Kafka Connect's paths and our own.", default=("127.0.0.1:8083",)
    )
    listen_services: tuple[str, ...] = option(
        "`host:port` of the service configurations, as the Sidecar has them.",
        default=("127.0.0.1:65505",),
    )
    hosts: tuple[str, ...] = option(
        "Names by which clients call the server, besides those of the loopback.", default=()
    )

    def __post_init__(self) -> None:
        """Check the addresses."""
        problems = []
        for key in ("listen", "listen_services"):
            for text in getattr(self, key):
                match = _ADDRESS.fullmatch(text)
                if match is None or int(match["port"]) > _PORT_MAX:
                    problems.append(Problem(key, f"{text!r} is not host:port", "127.0.0.1:8083"))
        if problems:
            raise ConfigError(problems)


def addresses(listen: tuple[str, ...]) -> list[Address]:
    """Return the addresses that an option gives."""
    found = [match for text in listen if (match := _ADDRESS.fullmatch(text))]
    return [Address(match["host"].strip("[]") or "0.0.0.0", int(match["port"])) for match in found]  # noqa: S104 (as asked)


def is_loopback(address: Address) -> bool:
    """Say whether only this machine can reach *address*."""
    return address.host in LOOPBACK or address.host.startswith("127.")

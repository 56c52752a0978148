"""Free ports for servers of tests."""

import contextlib
import secrets
import socket
from collections.abc import Sequence
from typing import Final

HOST: Final = "127.0.0.1"
# The system uses those from 32,768 on for outgoing connections: with one of these, a server that is
# down for a while finds its port in use when it restarts.
_PORTS: Final = range(10_000, 32_768)


def free_ports(count: int, hosts: Sequence[str] = (HOST,)) -> list[int]:
    """Return ports on which no process listens now, at any of these loopback addresses."""
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = secrets.choice(_PORTS)
            with contextlib.suppress(OSError):
                for host in hosts:
                    stack.enter_context(socket.socket()).bind((host, port))
                found.append(port)
    return found


def free_port() -> int:
    """Return a free port."""
    return free_ports(1)[0]

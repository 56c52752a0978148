"""Free ports for servers of tests."""

import contextlib
import secrets
import socket
from collections.abc import Sequence
from typing import Final

HOST: Final = "127.0.0.1"
# The system gives those from 32,768 on to connections that go out: with one of these, a server
# that is down for a while finds its port taken when it comes back.
_PORTS: Final = range(10_000, 32_768)


def free_ports(count: int, hosts: Sequence[str] = (HOST,)) -> list[int]:
    """Return ports that nobody listens on just now, at none of these loopback addresses."""
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
    """Return one."""
    return free_ports(1)[0]

"""Logins of Cassandra's users over HTTP: Cassandra checks passwords, and its roles decide.

One connection for each user is kept for a while, made with the password of the request: so queries
have only this user's permissions.
"""

import contextlib
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from headrace.connector.control.access.authority import CassandraAuthority, Rows
from headrace.connector.control.access.permission import (
    CACHE_SECONDS,
    Caller,
    CassandraGuard,
    Guard,
    Role,
    RoleGuard,
    UnauthorizedError,
)
from headrace.connector.language.statements import TableName

DOOR: Final = "rest as Cassandra's user"
USERS_MAX: Final = 64  # Connections kept at once; a new one replaces the oldest.


class Connection(Rows, Protocol):
    """A user's connection."""

    def close(self) -> None:
        """Close it."""


class _Login(msgspec.Struct):
    mark: bytes
    until: float
    connection: Connection
    guard: Guard


class CassandraLogins:
    """See the module. Safe on several threads; every call may block for a connection's time-outs.

    *connect* makes a connection for a name and a password, and may raise any error.
    """

    def __init__(
        self,
        connect: Callable[[str, str], Connection],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Connect to nothing yet."""
        self._connect = connect
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._logins: dict[str, _Login] = {}

    def knows(self, name: str, password: str) -> bool:
        """Return whether Cassandra accepts this user. The result is cached for a minute."""
        mark = hmac.digest(self._secret, f"{name}\0{password}".encode(), hashlib.sha256)
        with self._lock:
            known = self._logins.get(name)
            if known and known.until > self._clock() and hmac.compare_digest(known.mark, mark):
                return True
        try:
            connection = self._connect(name, password)
        except Exception:  # noqa: BLE001 (for any reason, access is denied)
            return False
        guard = CassandraGuard(CassandraAuthority(connection))
        self._keep(name, _Login(mark, self._clock() + CACHE_SECONDS, connection, guard))
        return True

    def check(self, caller: Caller, needed: Role, table: TableName | None) -> None:
        """See `Guard`: Cassandra decides for users that it logged in, the role for others."""
        if caller.door != DOOR:
            RoleGuard().check(caller, needed, table)
            return
        with self._lock:
            known = self._logins.get(caller.name)
        if known is None:
            raise UnauthorizedError(f"User {caller.name} is not logged in any more")
        known.guard.check(caller, needed, table)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            kept, self._logins = list(self._logins.values()), {}
        for login in kept:
            login.connection.close()

    def _keep(self, name: str, login: _Login) -> None:
        with self._lock, _closing() as old:
            if before := self._logins.pop(name, None):
                old.append(before.connection)
            while len(self._logins) >= USERS_MAX:
                oldest = next(iter(self._logins))
                old.append(self._logins.pop(oldest).connection)
            self._logins[name] = login


@contextlib.contextmanager
def _closing() -> Iterator[list[Connection]]:
    old: list[Connection] = []
    yield old
    for connection in old:
        connection.close()

"""Authentication of requests: basic with argon2 or Cassandra, a JWT, a client certificate.

Without any of these everyone is an admin, so the server then listens only on loopback addresses.
Passwords are compared off the event loop, also for unknown names.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

import argon2
from aiohttp import web

from headrace.connector.control.access.permission import ROLES, Caller, Role
from headrace.connector.rest.exchange import RefusedError
from headrace.connector.rest.logins import DOOR, CassandraLogins
from headrace.connector.rest.probes import PUBLIC
from headrace.connector.rest.users import User

if TYPE_CHECKING:  # It imports cryptography, which few workers need.
    from headrace.connector.rest.bearers import Bearers

T = TypeVar("T")

HEADER_CHARS_MAX: Final = 8_192
CHECKS_AT_ONCE: Final = 4
REMEMBERED_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 1_000
CHECKS_WAITING_MAX: Final = 64  # Including running checks.


class Authenticator:
    """See the module. Belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        users: Mapping[str, User] | None = None,
        certificates: Mapping[str, Role] | None = None,
        bearers: "Bearers | None" = None,
        logins: CassandraLogins | None = None,
    ) -> None:
        """Accept the given kinds of credentials; without any, everyone."""
        self._users = users
        self.logins = logins
        self._certificates = certificates
        self._bearers = bearers
        self._hasher = argon2.PasswordHasher()
        self._secret = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._waiting = 0

    @property
    def open_to_all(self) -> bool:
        """Whether no login is needed."""
        ways = (self._users, self._certificates, self._bearers, self.logins)
        return all(way is None for way in ways)

    async def caller(self, request: web.Request) -> Caller:
        """Return who sent *request*.

        Raises:
            RefusedError: 401, an unknown user.

        """
        address = request.remote or ""
        if self.open_to_all:
            return Caller(name="anonymous", role=Role.ADMIN, door="rest", address=address)
        if request.path.rstrip("/") in PUBLIC:
            return Caller(name="anonymous", role=Role.NONE, door="rest", address=address)
        name, role, door = await self._known(request)
        return Caller(name=name, role=role, door=door, address=address)

    async def _known(self, request: web.Request) -> tuple[str, Role, str]:
        if found := self._by_certificate(request):
            return (*found, "rest")
        scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
        if len(credentials) <= HEADER_CHARS_MAX:
            if scheme.lower() == "basic" and (self._users is not None or self.logins):
                return await self._by_password(credentials.strip())
            if scheme.lower() == "bearer" and self._bearers is not None:
                return (*await self._by_token(credentials.strip()), "rest")
        raise self._unknown("log in")

    def _by_certificate(self, request: web.Request) -> tuple[str, Role] | None:
        transport = request.transport
        found = transport.get_extra_info("peercert") if transport and self._certificates else None
        for part in (found or {}).get("subject", ()):
            for key, value in part:
                if key == "commonName" and self._certificates and value in self._certificates:
                    return value, self._certificates[value]
        return None

    async def _by_password(self, credentials: str) -> tuple[str, Role, str]:
        try:
            plain = base64.b64decode(credentials, validate=True).decode()
        except ValueError:  # No base64, or no UTF-8 in it.
            raise self._unknown("the credentials cannot be read") from None
        name, colon, password = plain.partition(":")
        user = (self._users or {}).get(name)
        if user is None and self.logins and colon and name:
            return await self._by_cassandra(self.logins, name, password)
        mark = hmac.digest(self._secret, f"{name}\0{password}".encode(), hashlib.sha256)
        if user and self._remembered.get(mark, 0.0) > time.monotonic():
            return name, user.role, "rest"
        stored = user.password if user else _unusable_password
        good = await self._checked(lambda: self._matches(stored, password))
        if not (good and user and colon):
            raise self._unknown("name or password are wrong")
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[mark] = time.monotonic() + REMEMBERED_SECONDS
        return name, user.role, "rest"

    async def _by_cassandra(
        self, logins: CassandraLogins, name: str, password: str
    ) -> tuple[str, Role, str]:
        if not await self._checked(lambda: logins.knows(name, password)):
            raise self._unknown("name or password are wrong")
        return name, Role.VIEWER, DOOR  # Cassandra decides further permissions.

    async def _checked(self, check: Callable[[], T]) -> T:
        """Return the result of *check*, which blocks; running and waiting checks are bounded."""
        if self._waiting >= CHECKS_WAITING_MAX:
            message = "too many wait to be logged in"
            raise RefusedError(503, message, headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            async with self._checks:
                return await asyncio.get_running_loop().run_in_executor(None, check)
        finally:
            self._waiting -= 1

    def _matches(self, stored: str | Callable[[], str], password: str) -> bool:
        try:
            return self._hasher.verify(stored if isinstance(stored, str) else stored(), password)
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False

    async def _by_token(self, token: str) -> tuple[str, Role]:
        assert self._bearers is not None  # noqa: S101 (asked by the caller)
        bearers = self._bearers
        try:
            name, roles = await self._checked(lambda: bearers.named(token))
        except ValueError as error:
            raise self._unknown(str(error)) from None
        known = (ROLES[role] for role in roles if role in ROLES)
        return name, max(known, default=Role.NONE)

    def _unknown(self, reason: str) -> RefusedError:
        basic = self._users is not None or self.logins
        scheme = "Bearer" if not basic else 'Basic realm="headrace", charset="UTF-8"'
        return RefusedError(401, reason, headers={"WWW-Authenticate": scheme})


@functools.cache
def _unusable_password() -> str:
    """Return the hash for comparing passwords of unknown names, so that these take as long."""
    return hash_password(secrets.token_hex())


def hash_password(password: str) -> str:
    """Return the argon2 hash of a password, for a file of users."""
    return argon2.PasswordHasher().hash(password)

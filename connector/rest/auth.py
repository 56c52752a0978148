"""Authentication of requests: basic with argon2 or Cassandra, a JWT, a client certificate.

Without any of these everyone is an admin, which is why the server then listens on the loopback
only. Passwords are compared off the event loop, also for unknown names.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import argon2
import jwt
import msgspec
from aiohttp import web

from headrace.connector.control.access.permission import ROLES, Caller, Role
from headrace.connector.rest.exchange import RefusedError
from headrace.connector.rest.logins import DOOR, CassandraLogins
from headrace.connector.rest.probes import PUBLIC
from headrace.connector.rest.users import User

T = TypeVar("T")

HEADER_CHARS_MAX: Final = 8_192
CHECKS_AT_ONCE: Final = 4
REMEMBERED_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 1_000
KEYS_SECONDS: Final = 300
KEYS_ANSWER_SECONDS_MAX: Final = 5  # Others wait to be logged in meanwhile.
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "EdDSA")
_CLAIMS: Final = ("exp", "iss", "aud", "sub")
CHECKS_WAITING_MAX: Final = 64  # With those that are being made.


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Which bearers are believed: keys from a file or an https URL, and what must be claimed."""

    keys: str
    issuer: str
    audience: str
    role_claim: str


class Authenticator:
    """See the module. Belongs to the event loop's thread."""

    def __init__(
        self,
        *,
        users: Mapping[str, User] | None = None,
        certificates: Mapping[str, Role] | None = None,
        tokens: Tokens | None = None,
        logins: CassandraLogins | None = None,
    ) -> None:
        """Believe what is given; nothing is everybody's."""
        self._users = users
        self.logins = logins
        self._certificates = certificates
        self._tokens = tokens
        self._keys = _Keys(tokens.keys) if tokens else None
        self._hasher = argon2.PasswordHasher()
        self._secret = secrets.token_bytes(32)
        self._remembered: dict[bytes, float] = {}
        self._checks = asyncio.Semaphore(CHECKS_AT_ONCE)
        self._waiting = 0

    @property
    def open_to_all(self) -> bool:
        """Whether no login is needed."""
        ways = (self._users, self._certificates, self._tokens, self.logins)
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
            if scheme.lower() == "bearer" and self._tokens is not None:
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
        return name, Role.VIEWER, DOOR  # What more it may do, Cassandra says.

    async def _checked(self, check: Callable[[], T]) -> T:
        """Return what *check* returns, which blocks; few are made at once, and not many wait."""
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
        assert self._tokens is not None  # noqa: S101 (asked by the caller)
        assert self._keys is not None  # noqa: S101 (they come together)
        wanted, keys = self._tokens, self._keys
        try:
            key = await self._checked(lambda: keys.of(token))
            claims = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=wanted.audience,
                issuer=wanted.issuer,
                options={"require": list(_CLAIMS)},
            )
        except (jwt.PyJWTError, OSError, ValueError, TypeError):  # Such as a key of another kind.
            raise self._unknown("the token is not good") from None
        roles = _names_in(claims.get(wanted.role_claim))
        if roles is None:
            raise self._unknown("the token's roles are neither a string nor a list of strings")
        known = (ROLES[name] for name in roles if name in ROLES)
        return str(claims["sub"]), max(known, default=Role.NONE)

    def _unknown(self, reason: str) -> RefusedError:
        basic = self._users is not None or self.logins
        scheme = "Bearer" if not basic else 'Basic realm="headrace", charset="UTF-8"'
        return RefusedError(401, reason, headers={"WWW-Authenticate": scheme})


class _Keys:
    """The public keys of a JWKS, from a file or an https URL; both are read again now and then."""

    def __init__(self, place: str) -> None:
        """Read nothing yet."""
        self._file = None if place.startswith("https://") else Path(place)
        self._client = None
        if self._file is None:  # A key that is not known has it asked again twice a minute at most.
            seconds = KEYS_ANSWER_SECONDS_MAX
            self._client = jwt.PyJWKClient(place, lifespan=KEYS_SECONDS, timeout=seconds)

    def of(self, token: str) -> Any:  # noqa: ANN401 (a key of cryptography)
        """Return the key that *token* names. Blocks; raises jwt.PyJWTError, OSError, ValueError."""
        if self._client is not None:
            return self._client.get_signing_key_from_jwt(token).key
        assert self._file is not None  # noqa: S101 (one of both)
        known = jwt.PyJWKSet.from_json(self._file.read_text(encoding="utf-8"))
        name = jwt.get_unverified_header(token).get("kid")
        found = [key.key for key in known.keys if key.key_id == name]
        if name is None or not found:
            raise jwt.InvalidTokenError("no key has the name that the token gives")
        return found[0]


def _names_in(claimed: object) -> Sequence[str] | None:
    """Return the names in what is claimed, or None if it is neither a string nor a list of them."""
    if claimed is None or isinstance(claimed, str):
        return (claimed or "").split()
    if isinstance(claimed, list) and all(isinstance(name, str) for name in claimed):
        return claimed
    return None


@functools.cache
def _unusable_password() -> str:
    """Return the hash that passwords of unknown names are compared with, to take as long."""
    return hash_password(secrets.token_hex())


def hash_password(password: str) -> str:
    """Return the argon2 hash that a users file holds."""
    return argon2.PasswordHasher().hash(password)

"""Callers, the roles that verbs need, and the guards that decide. When unsure, a guard denies."""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import IntEnum
from typing import ClassVar, Final, Protocol

import msgspec

from headrace.connector.language.statements import TableName
from headrace.plugins import HeadraceError

CACHE_SECONDS: Final = 60.0
CACHED_MAX: Final = 10_000


class Role(IntEnum):
    """The role of a caller; each may also do what the roles before it may."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    """May also pause, resume, stop and restart, request modes, and send dead letters again."""
    ADMIN = 3
    """May also create, change and drop, move positions, and accept gaps."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The user or process that makes a request, and the interface that it uses (`door`).

    `role` is the role that this interface knows for the caller.
    """

    name: str = "local"
    role: Role = Role.ADMIN
    door: str = "local"
    address: str = ""
    roles: tuple[str, ...] = ()


LOCAL: Final = Caller()
CALLER: Final[ContextVar[Caller]] = ContextVar("caller", default=LOCAL)
"""The caller of the current request."""


class UnauthorizedError(HeadraceError):
    """The caller may not do that. The messages are worded as Cassandra's."""

    code: ClassVar[str] = "unauthorized"
    exit_status: ClassVar[int] = 2
    title: ClassVar[str] = "Unauthorized"


class Guard(Protocol):
    """Decides whether a caller may do something."""

    def check(self, caller: Caller, needed: Role, table: TableName | None) -> None:
        """Return if *caller* is permitted; *table* is the one that a new source would read.

        Raises:
            UnauthorizedError: *caller* may not, or its permissions cannot be read.

        """


class RoleGuard:
    """Compares `Caller.role` with the needed role. Who can open the state file is an admin."""

    def check(self, caller: Caller, needed: Role, table: TableName | None) -> None:
        """See `Guard`."""
        del table
        if caller.role < needed:
            raise UnauthorizedError(
                f"User {caller.name} has role {caller.role.name.lower()}, and this needs "
                f"{needed.name.lower()}"
            )


class Authority(Protocol):
    """Cassandra's data about a role. Calls may block, and raise if Cassandra does not respond."""

    cluster: str

    def is_superuser(self, role: str) -> bool:
        """Whether *role* is a superuser, by itself or by a granted role."""

    def has_cdc(self, role: str) -> bool:
        """Whether *role* has the permission CDC on the cluster."""

    def may_select(self, role: str, table: TableName) -> bool:
        """Whether *role* may read *table*."""


class CassandraGuard:
    """Allows superusers of Cassandra, and roles with the permission CDC.

    To create a source, a role also needs SELECT on its table: otherwise it could read a table
    through the source that it may not read directly. Answers are cached for up to `CACHE_SECONDS`.
    If Cassandra cannot be queried, the guard denies.
    """

    def __init__(
        self, authority: Authority, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Get permissions from *authority*."""
        self._authority = authority
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}

    def check(self, caller: Caller, needed: Role, table: TableName | None) -> None:
        """See `Guard`."""
        if needed <= Role.VIEWER:
            return
        authority, name = self._authority, caller.name
        if self._ask("superuser", name, lambda: authority.is_superuser(name)):
            return
        if not self._ask("cdc", name, lambda: authority.has_cdc(name)):
            raise UnauthorizedError(
                f"User {name} has no CDC permission on <{authority.cluster}> or any of its parents",
                hint="a superuser may, and a role with the permission CDC on the cluster",
            )
        if table is None:
            return
        shown = f"{table.keyspace}.{table.name}"
        if not self._ask(f"select {shown}", name, lambda: authority.may_select(name, table)):
            raise UnauthorizedError(
                f"User {name} has no SELECT permission on <table {shown}> or any of its parents",
                hint="a source is a way to read the table",
            )

    def _ask(self, what: str, name: str, question: Callable[[], bool]) -> bool:
        now = self._clock()
        until, known = self._known.get((what, name), (0.0, False))
        if now < until:
            return known
        try:
            found = question()
        except Exception as error:
            raise UnauthorizedError(
                f"User {name}: the permissions could not be read ({type(error).__name__})",
                hint="denied, because Cassandra did not answer",
            ) from error
        if len(self._known) >= CACHED_MAX:
            self._known.clear()
        self._known[what, name] = (now + CACHE_SECONDS, found)
        return found


ROLES: Final[Mapping[str, Role]] = {role.name.lower(): role for role in Role if role}

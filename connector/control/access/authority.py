"""Asks Cassandra about the role that the shell is logged in as.

The queries run over the caller's own connection, so they return only data that the caller may read.
Cassandra has no permission CDC; the Sidecar has, and keeps it in a table of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from headrace.connector.language.formatting import format_table
from headrace.connector.language.statements import TableName
from headrace.plugins.cql_text import quoted_name

PERMISSION: Final = "CDC"
_GRANTED: Final = (
    "SELECT resource, permissions FROM sidecar_internal.role_permissions_v1 WHERE role = %s"
)
_CLUSTER: Final = "cluster"


class Rows(Protocol):
    """The methods of a connection that this module uses."""

    @property
    def cluster(self) -> str:
        """The cluster's name."""

    def rows(self, text: str, *values: str) -> Sequence[Mapping[str, object]]:
        """Execute *text* and return all rows. Raises what the connection raises."""


class CassandraAuthority:
    """See the module, and `Authority`."""

    def __init__(self, connection: Rows) -> None:
        """Send queries over *connection*."""
        self._connection = connection
        self.cluster = connection.cluster

    def is_superuser(self, role: str) -> bool:
        """See `Authority`; a granted superuser counts."""
        return any(bool(row.get("super")) for row in self._roles(role))

    def has_cdc(self, role: str) -> bool:
        """See `Authority`; permissions of granted roles count."""
        return any(
            granted["resource"] == _CLUSTER and PERMISSION in _names(granted["permissions"])
            for row in self._roles(role)
            for granted in self._connection.rows(_GRANTED, str(row["role"]))
        )

    def may_select(self, role: str, table: TableName) -> bool:
        """See `Authority`; a permission on the keyspace, or on all of them, counts."""
        text = f"LIST SELECT PERMISSION ON TABLE {format_table(table)} OF {quoted_name(role)}"
        return bool(self._connection.rows(text))

    def _roles(self, role: str) -> Sequence[Mapping[str, object]]:
        return self._connection.rows(f"LIST ROLES OF {quoted_name(role)}")


def _names(permissions: object) -> frozenset[str]:
    return frozenset(map(str, permissions if isinstance(permissions, Iterable) else ()))

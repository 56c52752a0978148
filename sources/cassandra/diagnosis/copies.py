"""Checks for unread replicas of tables, and for columns of unknown types."""

from collections.abc import Iterator

from headrace.plugins import CheckResult, Finding
from headrace.sources.cassandra.resources import Parts
from headrace.sources.cassandra.schema.types import CqlType

_PASSED, _WARNED = CheckResult.PASSED, CheckResult.WARNED


def copy_findings(parts: Parts) -> Iterator[Finding]:
    """Yield the keyspaces with replicas whose logs are not read, and names that differ.

    Raises the errors of the source's plan.
    """
    unread = dict(parts.unread_copies())
    for keyspace, (coverage, hint) in unread.items():
        named = f": {', '.join(coverage.unread)}" if coverage.unread else ""
        said = (
            f"{keyspace}: the logs of {coverage.copies - coverage.read} of {coverage.copies} copies"
        )
        yield Finding("replicas", _WARNED, f"{said} are not read{named}", hint)
    whole = [name for name in parts.replicas.keyspaces if name not in unread]
    if whole:
        said = f"{', '.join(whole)}: the logs of all copies are read"
        yield Finding("replicas", _PASSED, said)
    ring, read = parts.replicas.current.names(), frozenset(parts.config.nodes)
    if read - ring:
        said = f"not in the ring: {', '.join(sorted(read - ring))}"
        hint = "name nodes by address or host id, or give each its `host`"
        yield Finding("ring", _WARNED, said, hint)


def type_findings(parts: Parts) -> Iterator[Finding]:
    """Yield the columns whose type is a class known only to Cassandra."""
    opaque = [
        f"{table.qualified}.{column.name} {column.type.name}"
        for table in parts.tables
        for column in table.columns
        if _is_opaque(column.type)
    ]
    if opaque:
        hint = "their values are published as bytes; consumers need the class to read them"
        yield Finding("types", _WARNED, f"unknown types: {', '.join(opaque)}", hint)
    else:
        yield Finding("types", _PASSED, "all types of all columns are known")


def _is_opaque(found: CqlType) -> bool:
    inner = (*found.arguments, *(each for _, each in found.fields))
    return found.is_custom or any(map(_is_opaque, inner))

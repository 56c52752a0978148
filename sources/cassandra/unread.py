"""Logs that cannot be read now, and the effect on published changes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.plugins import HeadraceError, Problem
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.ring.topology import check_readable

if TYPE_CHECKING:
    from headrace.sources.cassandra.resources import Parts


def unread_of(parts: "Parts") -> Mapping[str, Problem]:
    """Return why logs cannot be read, by node, and the effect. For any thread."""
    reading = parts.reading
    away = {} if reading is None else dict(reading.pump.unreachable)
    if reading is None or not away:
        return {}
    absent = reading.pump.absent()
    hint = _follows(parts, [node for node in parts.config.nodes if node not in away])
    return {
        node: Problem(
            node,
            f"{error.code}: the log of {node} cannot be read ({_why(error)})",
            f"{hint}; {_expiry(parts, is_absent=node in absent)}",
        )
        for node, error in away.items()
    }


def _why(error: HeadraceError) -> str:
    return f"{error.place}: {error.message}" if error.place else error.message


def _follows(parts: "Parts", read: list[str]) -> str:
    """Return which keyspaces' changes are published without the other logs."""
    replicas = parts.replicas
    going_on, waiting = [], []
    for keyspace in replicas.keyspaces:
        try:
            check_readable(replicas.current, keyspace, read)
        except TopologyError:
            waiting.append(keyspace)
        else:
            going_on.append(keyspace)
    level = replicas.current.level
    said = []
    if going_on:
        said.append(f"{level} can be met without it in {', '.join(sorted(going_on))}")
    if waiting:
        said.append(f"changes wait for it in {', '.join(sorted(waiting))} ({level})")
    return "; ".join(said)


def _expiry(parts: "Parts", *, is_absent: bool) -> str:
    config = parts.config
    if is_absent:
        return (
            "it is taken for absent: what waits for its copies expires after expiry_seconds "
            f"({config.expiry_seconds})"
        )
    after_ms = config.unavailable_policy.after_ms
    return f"nothing expires before absent_after_seconds ({after_ms // 1000}) are over"

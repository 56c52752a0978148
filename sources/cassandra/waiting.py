"""What of a stored state waits for copies: which mutations, where their copies lie, whose lack."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from headrace.plugins import Waiting
from headrace.sources.cassandra import codes
from headrace.sources.cassandra.manifest import file_of
from headrace.sources.cassandra.stored_rows import (
    Row,
    is_pending,
    keyspace_of,
    latest_rows,
    places_in,
)
from headrace.sources.cassandra.topology import Topology

if TYPE_CHECKING:
    from headrace.sources.cassandra.state import CdcState

_HALF: Final = 1 << 63
_WHOLE: Final = 1 << 64
_MS: Final = 1_000


def waiting_in(state: "CdcState") -> Sequence[Waiting]:
    """Return what waits in *state*, what has waited longest first."""
    in_force = [Topology.decode(v.chunk.rows) for v in state.topologies if v.superseded is None]
    rows = [row for row in latest_rows(state.chunks).values() if is_pending(row)]
    rows.sort(key=lambda row: (row[codes.SINCE], row[codes.NUMBER]))
    return [_waiting(row, state, in_force[0] if in_force else None) for row in rows]


def _waiting(row: Row, state: "CdcState", topology: Topology | None) -> Waiting:
    token = row[codes.TOKEN]
    token -= _WHOLE if token >= _HALF else 0
    keyspace = state.keyspaces[keyspace_of(row)]
    seen = {name for host, name in enumerate(state.hosts) if row[codes.SEEN] >> host & 1}
    terms = topology.at(keyspace, token) if topology is not None else ()
    replicas: frozenset[str] = frozenset().union(*(names for names, _ in terms))
    places = {state.hosts[host]: (number, at) for host, number, at, _ in places_in(row)}
    return Waiting(
        subject=f"keyspace {keyspace}, token {token}",
        copies={
            node: f"{file_of(number)}:{position}" for node, (number, position) in places.items()
        },
        missing=sorted(replicas - seen),
        needed=" and ".join(f"{needed} of {', '.join(sorted(names))}" for names, needed in terms),
        seconds=max(0, state.tau - row[codes.SINCE]) // _MS,
    )

"""Queries each node for its version, settings and clock.

Each node is queried directly, over the native protocol, in bounded time.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from headrace.plugins import HeadraceError
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import connected

SECONDS_MAX: Final = 3.0  # To connect to a node; a check has ten.
NODES_MAX: Final = 256  # Only this many nodes of a larger ring are queried.
_THREADS: Final = 32
_LOCAL: Final = (
    "SELECT release_version, partitioner, data_center, host_id "
    "FROM system.local WHERE key = 'local'"
)
_NOW: Final = "SELECT toUnixTimestamp(now()) AS ms FROM system.local"
_SETTINGS: Final = "SELECT name, value FROM system_views.settings"
_PEERS: Final = "SELECT * FROM system.peers"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The report of a node. `ahead_seconds` is how far its clock is ahead of ours, at least.

    `peers` are the addresses of the other nodes.
    """

    release: str
    partitioner: str
    datacenter: str
    host_id: str
    settings: Mapping[str, str]
    ahead_seconds: float = 0.0
    peers: Sequence[str] = field(default=(), repr=False)


Answers = Mapping[str, NodeFacts | HeadraceError]
"""The answer of each node by its address, or the reason why there is none."""


def ask_nodes(contact: Contact) -> Answers:
    """Query the contact points, then the nodes that they name; takes up to two connect times."""
    with ThreadPoolExecutor(_THREADS, "nodes") as pool:
        first = dict(
            zip(contact.points, pool.map(partial(_ask, contact), contact.points), strict=True)
        )
        port = contact.points[0].rpartition(":")[2]
        hosts = {point.rpartition(":")[0] or point for point in contact.points}
        named = [a.peers for a in first.values() if isinstance(a, NodeFacts)]
        ids = {a.host_id for a in first.values() if isinstance(a, NodeFacts)}
        others = [
            peer for peer in dict.fromkeys(p for peers in named for p in peers) if peer not in hosts
        ]
        points = [f"{peer}:{port}" for peer in others[:NODES_MAX]]
        more = dict(zip(points, pool.map(partial(_ask, contact), points), strict=True))
    # A contact point given by name is also a peer, by its address.
    new = {p: a for p, a in more.items() if not (isinstance(a, NodeFacts) and a.host_id in ids)}
    return {**first, **new}


def _ask(contact: Contact, point: str) -> NodeFacts | HeadraceError:
    try:
        with connected(replace(contact, points=(point,)), seconds=SECONDS_MAX) as session:
            local = session.execute(_LOCAL).one()
            before = time.time()
            now = session.execute(_NOW).one().ms / 1_000
            after = time.time()
            settings = {row.name: row.value or "" for row in session.execute(_SETTINGS)}
            peers = [_address(row._asdict()) for row in session.execute(_PEERS)]
    except HeadraceError as error:
        return error
    return NodeFacts(
        release=local.release_version,
        partitioner=local.partitioner,
        datacenter=local.data_center,
        host_id=str(local.host_id),
        settings=settings,
        ahead_seconds=max(0.0, now - after) + min(0.0, now - before),
        peers=peers,
    )


def _address(row: Mapping[str, object]) -> str:
    return str(row.get("rpc_address") or row.get("peer"))

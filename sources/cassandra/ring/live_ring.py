"""The ring of a live cluster: its members, their tokens and racks.

The driver keeps the ring up to date, from the cluster's events and a regular query, on its own
threads; this module only reads it. A joining node is not a member until it owns its tokens.
"""

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from cassandra import DriverException
from cassandra.cluster import Cluster, NoHostAvailable
from cassandra.metadata import Metadata, Murmur3Token
from cassandra.pool import Host

from headrace.plugins import Context
from headrace.sources.cassandra.errors import TopologyError
from headrace.sources.cassandra.ring.topology import Node
from headrace.sources.cassandra.schema.contact import Contact
from headrace.sources.cassandra.schema.live import connected_cluster

LOOK_MS: Final = 1_000  # Between two looks at the driver's metadata.
ASK_MS: Final = 60_000  # Between two queries to the cluster, in case an event is lost.


class LiveRing:
    """The ring of one cluster. Connects at the first call, and stays connected."""

    def __init__(self, contact: Contact, names: Mapping[str, str], context: Context) -> None:
        """*names* are our names of nodes, by their address or host id in the ring."""
        self._contact = contact
        self._names = names
        self._log = context.log
        self._cluster: Cluster | None = None
        self._nodes: Sequence[Node] = ()
        self._looked_ms = self._asked_ms = 0

    def changed(self, now_ms: int) -> Sequence[Node] | None:
        """Return the nodes if they changed since the last call. Only the first call blocks.

        Raises:
            ClusterUnreachableError: no node answers the first call.
            TopologyError: the tokens are of another partitioner, or unknown.

        """
        if self._cluster is None:
            self._cluster = connected_cluster(self._contact)
            self._asked_ms = now_ms
        elif now_ms < self._looked_ms + LOOK_MS:
            return None
        self._looked_ms = now_ms
        if now_ms >= self._asked_ms + ASK_MS:
            self._asked_ms = now_ms
            threading.Thread(target=_ask, args=(self._cluster,), name="ring", daemon=True).start()
        nodes = nodes_of(self._cluster.metadata, self._names)
        if not nodes and not self._nodes:
            raise TopologyError(
                "the contact points do not tell the ring",
                place="contact_points",
                hint="the role needs to read system.local and system.peers",
            )
        if nodes == self._nodes or not nodes:
            return None
        self._tell(nodes)
        self._nodes = nodes
        return nodes

    def close(self) -> None:
        """Close the connection. Safe to call twice."""
        if self._cluster is not None:
            self._cluster.shutdown()

    def _tell(self, nodes: Sequence[Node]) -> None:
        before, now = ({node.name for node in each} for each in (self._nodes, nodes))
        if self._nodes:
            self._log.info(
                "ring_changed",
                nodes=len(nodes),
                came=sorted(now - before),
                went=sorted(before - now),
            )
        for name in set(self._names.values()) - now:
            self._log.warning(
                "node_not_in_ring",
                node=name,
                hint="name nodes by address or host id, or give each its `host`",
            )


def nodes_of(metadata: Metadata, names: Mapping[str, str]) -> Sequence[Node]:
    """Return the members by name; the name of an unnamed one is its host id.

    Raises:
        TopologyError: the tokens are not of Murmur3Partitioner.

    """
    token_map = metadata.token_map
    if token_map is None:
        return ()
    tokens: dict[Host, list[int]] = defaultdict(list)
    for token, host in token_map.token_to_host_owner.items():
        if not isinstance(token, Murmur3Token):
            raise TopologyError(
                f"the cluster's tokens are {type(token).__name__}s",
                place="contact_points",
                hint="Murmur3Partitioner is what headrace reads",
            )
        tokens[host].append(token.value)
    nodes = [
        Node(_name(host, names), tuple(sorted(owned)), host.datacenter, host.rack)
        for host, owned in tokens.items()
    ]
    return sorted(nodes, key=lambda node: node.name)


def _name(host: Host, names: Mapping[str, str]) -> str:
    known = (
        host.host_id,
        host.broadcast_address,
        host.listen_address,
        host.broadcast_rpc_address,
        host.address,
    )
    found = (names[str(each)] for each in known if each is not None and str(each) in names)
    return next(found, str(host.host_id))


def _ask(cluster: Cluster) -> None:
    try:
        cluster.refresh_nodes(force_token_rebuild=True)
    except (NoHostAvailable, DriverException):  # The known nodes stay: the driver reconnects.
        return

"""Real Cassandra nodes of one cluster, each on a loopback address of its own."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from helpers.servers.ports import free_ports
from real.servers.cassandra import CENTRE, CURRENT, Cassandra, Place, Release
from real.servers.maven import ServerError

_SECONDS_MAX: Final = 600
_POLL_SECONDS: Final = 0.2
_TOKENS: Final = 1 << 64
_NODES_MAX: Final = 6  # Over the life of a ring: each has an address of its own.
# A write that a node missed is a hint, and a batch comes again, seconds later.
_SETTINGS: Final = {
    "write_request_timeout": "5s",
    "hints_flush_period": "1s",
    "dynamic_snitch": False,
    "phi_convict_threshold": 5,
}
# A keyspace of three replicas that every cluster has.
_AT_ALL: Final = "SELECT * FROM system_distributed.view_build_status"
# What a node knows of another by gossip: its generation and its status.
_GOSSIP: Final = "SELECT address, generation, status_with_port FROM system_views.gossip_info"


class Ring:
    """Nodes with equal parts of the ring; further ones can be added. Leaving the context kills all.

    Nodes and data go with it, so there is no need to end it politely.
    """

    def __init__(self, folder: Path, releases: Sequence[Release] = (CURRENT,) * 3) -> None:
        """Make the nodes' folders in *folder*, one for each of *releases*."""
        self._folder = folder
        hosts = [_host(number) for number in range(_NODES_MAX)]
        self.port, self._storage_port = free_ports(2, hosts)
        self._seeds = tuple(hosts[: len(releases)])
        self._made_so_far = 0
        self.nodes = [
            self._made(release, number * _TOKENS // len(releases))
            for number, release in enumerate(releases)
        ]

    @property
    def contact_points(self) -> list[str]:
        """The first nodes, as `host:port`."""
        return [f"{host}:{self.port}" for host in self._seeds]

    def start(self) -> None:
        """Start all at once, and wait until each knows that the others are up."""
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.wait()
        for node in self.nodes:
            self.settle(node)

    def settle(self, node: Cassandra) -> None:
        """Wait until *node* sees that enough nodes are up for three replicas of everything."""
        statement = SimpleStatement(_AT_ALL, consistency_level=ConsistencyLevel.ALL)
        deadline = time.monotonic() + _SECONDS_MAX
        with self.connected([node]) as cluster:
            session = None
            while True:
                try:
                    session = session or cluster.connect()
                    session.execute(statement)
                except (NoHostAvailable, DriverException) as error:
                    if time.monotonic() > deadline:
                        raise ServerError(f"{node.host} does not see the others") from error
                    time.sleep(_POLL_SECONDS)
                else:
                    return

    def add(self, token: int, *, release: Release = CURRENT, centre: str = CENTRE) -> Cassandra:
        """Start a further node, which takes the range before *token*; return it as a member."""
        node = self._made(release, token, bootstraps=True, centre=centre)
        self.nodes.append(node)
        self.join(node)
        return node

    def spare(self, node: Cassandra) -> Cassandra:
        """Make a node that is to take the place of *node*, and do not start it."""
        return self._made(node.release, 0, bootstraps=True, replaces=node.host, centre=node.centre)

    def replace(self, node: Cassandra, spare: Cassandra) -> None:
        """Start a spare one in the place of *node*, which does not run any more."""
        self.nodes[self.nodes.index(node)] = spare
        self.join(spare)

    def join(self, node: Cassandra) -> None:
        """Start a node, and wait until all others know it as a member.

        Before that they forget it as soon as it is gone, and it could not come back to its place.
        One that takes its own place hides until it is ready, and no one tells it about the others
        but those of whom it is a seed.
        """
        if node.takes_its_own_place:
            self.nodes[0].tell_always(node.host)
        node.start()
        wanted = self._reported(node, node)
        deadline = time.monotonic() + _SECONDS_MAX
        for other in self.nodes:
            while self._reported(other, node) != wanted:
                if time.monotonic() > deadline:
                    raise ServerError(f"{other.host} does not know {node.host}")
                time.sleep(_POLL_SECONDS)

    def remove(self, node: Cassandra) -> None:
        """Have *node* give its range to the others and leave; its files stay."""
        node.nodetool("decommission")
        node.kill()
        self.nodes.remove(node)

    def connected(self, nodes: Sequence[Cassandra] = ()) -> Cluster:
        """Return a driver's cluster that asks only *nodes*, by default the first ones."""
        return connected([node.host for node in nodes] or self._seeds, self.port)

    def move(self, node: Cassandra, token: int) -> None:
        """Give *node* the range before *token* instead of its own one."""
        node.nodetool("move", "--", str(token - _TOKENS // 2))

    def _reported(self, node: Cassandra, of: Cassandra) -> tuple[int, str] | None:
        with self.connected([node]) as cluster:
            for address, generation, status in cluster.connect().execute(_GOSSIP):
                if str(address) == of.host:
                    return generation, status.partition(",")[0]
        return None

    def _made(
        self,
        release: Release,
        token: int,
        *,
        bootstraps: bool = False,
        replaces: str = "",
        centre: str = CENTRE,
    ) -> Cassandra:
        number, self._made_so_far = self._made_so_far, self._made_so_far + 1
        place = Place(
            _host(number),
            self.port,
            self._storage_port,
            token=token - _TOKENS // 2,
            seeds=self._seeds,
            bootstraps=bootstraps,
            replaces=replaces,
            centre=centre,
        )
        quick = replace(release, settings={**_SETTINGS, **release.settings})
        return Cassandra(self._folder / f"node{number + 1}", release=quick, place=place)

    def __enter__(self) -> Self:
        """Start it."""
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()

    def kill(self) -> None:
        """End all nodes at once; those that do not run stay as they are."""
        for node in self.nodes:
            node.kill()


def connected(hosts: Sequence[str], port: int) -> Cluster:
    """Return a driver's cluster that asks only *hosts*, at QUORUM."""
    profile = ExecutionProfile(
        WhiteListRoundRobinPolicy(hosts),
        request_timeout=30,
        consistency_level=ConsistencyLevel.QUORUM,
    )
    return Cluster(
        list(hosts),
        port=port,
        protocol_version=4,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        max_schema_agreement_wait=_SECONDS_MAX,
    )


def _host(number: int) -> str:
    return f"127.0.0.{number + 1}"

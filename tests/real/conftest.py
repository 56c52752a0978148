"""Real servers, one of each for the session."""

from collections.abc import Iterator

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from guarded import guarded_node
from servers.cassandra import Cassandra, cassandra
from servers.kafka import Kafka


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run one Cassandra node."""
    with cassandra(tmp_path_factory.mktemp("cassandra") / "node1") as running:
        yield running


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run one node that knows users."""
    with guarded_node(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run one Kafka broker."""
    with Kafka(tmp_path_factory.mktemp("kafka") / "broker1") as running:
        yield running.bootstrap_servers


@pytest.fixture
def session(node: Cassandra) -> Iterator[Session]:
    """Return a driver's session on the node."""
    profile = ExecutionProfile(WhiteListRoundRobinPolicy([node.host]), request_timeout=30)
    cluster = Cluster(
        [node.host],
        port=node.port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
    )
    with cluster:
        yield cluster.connect()

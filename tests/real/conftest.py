"""Real servers, one of each for a process of the tests.

There are four processes: three that share the files of tests of a single node, one for those that
need a ring, and some that need a node of their own. So what waits in one leaves its core to the
others, and they end together.
"""

import os
from collections.abc import Iterator, Mapping

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from pyspark.sql import SparkSession

from headrace.connector.replay.session import session as spark_session
from helpers.servers.kafka_clients import way
from real.servers.cassandra import Cassandra
from real.servers.kafka import Kafka
from real.servers.ring import Ring
from real.servers.spark import quick_start
from real.shell.guarded import guarded_node

__all__ = ["way"]

_APART = {
    "ring",
    "guarded",
    "test_ring_upgrade",
    "test_live_hold",
    "test_debezium",
    "test_history",
    "test_seeded_history",
}


@pytest.hookimpl(tryfirst=True)  # Before markers select.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs in the process of the ring; in one for all, it comes last."""
    for item in items:
        if not _APART.isdisjoint({item.path.stem, *getattr(item, "fixturenames", ())}):
            item.add_marker(pytest.mark.ring)
    items.sort(key=lambda item: "ring" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run one Cassandra node."""
    with Cassandra(tmp_path_factory.mktemp("cassandra") / "node1") as running:
        yield running


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run one node that knows users."""
    with guarded_node(tmp_path_factory.mktemp("guarded")) as running:
        yield running


@pytest.fixture(scope="session")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ring]:
    """Run three nodes as one cluster. A test that stops a node starts it again."""
    with Ring(tmp_path_factory.mktemp("ring")) as running:
        yield running


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run one Kafka broker. A test that pauses it resumes it."""
    with Kafka(tmp_path_factory.mktemp("kafka") / "broker1") as running:
        yield running


@pytest.fixture(scope="session")
def quick_spark() -> Iterator[Mapping[str, str]]:
    """Have Spark start quickly, here and in the processes of tests: with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quick_start().items():
            patch.setenv(name, value)
        yield quick_start()


@pytest.fixture(scope="session")
def spark(quick_spark: Mapping[str, str]) -> Iterator[SparkSession]:
    """Run one Spark in this process, of the version that the environment may name.

    A task that dies is tried again.
    """
    assert quick_spark.items() <= os.environ.items()
    with spark_session("local[2,2]") as running:
        assert os.environ.get("HEADRACE_SPARK", running.version) == running.version
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(broker: Kafka) -> str:
    """Return where the broker listens."""
    return broker.bootstrap_servers


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

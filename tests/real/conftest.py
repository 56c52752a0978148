"""Real servers, one of each for the session."""

from collections.abc import Iterator

import pytest
from servers.cassandra import Cassandra, cassandra
from servers.kafka import kafka


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """Run one Cassandra node."""
    with cassandra(tmp_path_factory.mktemp("cassandra") / "node1") as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run one Kafka broker."""
    with kafka(tmp_path_factory.mktemp("kafka") / "broker1") as running:
        yield running

"""What `make ring` starts around a ring works together."""

import urllib.request
from pathlib import Path

import pytest

from real.ring.topology import TABLE, TOPIC, around
from real.ring_jobs import published, wait_for
from real.servers.kafka import Kafka
from real.servers.ring import Ring

pytestmark = pytest.mark.real


def test_a_row_comes_to_the_topic(ring: Ring, broker: Kafka, tmp_path: Path) -> None:
    """Through agents and a worker; both workers answer."""
    with around(ring, broker, tmp_path) as found, ring.connected() as cluster:
        session = cluster.connect()
        session.execute(f"INSERT INTO {TABLE} (id, line) VALUES (1, 1)")  # noqa: S608 (ours)
        wait_for(lambda: published(broker.bootstrap_servers, TOPIC) > 0, "nothing came")

        assert 3 == len(found.agents)
        for worker in found.workers:
            with urllib.request.urlopen(f"{worker}/connectors") as answer:  # noqa: S310 (ours)
                assert TOPIC in answer.read().decode()

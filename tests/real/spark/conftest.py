"""What several files of tests on Spark begin with."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.connector.commands.cli import main
from headrace.sinks.kafka.embedded import EmbeddedBroker
from real.spark.spark_cluster import cluster
from real.spark.spark_jobs import ring_job


@pytest.fixture(scope="session", autouse=True)
def _quick(request: pytest.FixtureRequest) -> None:
    """Have each Spark here start quickly."""
    request.getfixturevalue("quick_spark")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a cluster of two workers, and return the address of its master."""
    with ExitStack() as stack:
        yield cluster(stack, tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def topic_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a job whose sink has all changes of the ring, in Kafka."""
    broker = EmbeddedBroker()
    sink = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers, "topic": "ring"}
    job = ring_job(tmp_path_factory.mktemp("topic"), "topic", sink)
    assert 0 == main(["run", str(job), "--until-idle"])
    yield job
    del broker  # Kept until here: its end takes the topic away.

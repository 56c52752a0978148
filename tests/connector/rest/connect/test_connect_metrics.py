"""The names of Kafka Connect in `/metrics`."""

from pathlib import Path

import pytest

from headrace.connector.rest.server import RestServer
from headrace.plugins.testing.doubles import context
from helpers.servers.rest_server import Client, serving, supervised, until_read
from helpers.servers.scraped import Samples, one, samples

CONFIG = {"connector.class": "BrookBrookSource", "keyspace": "s", "table": "t", "sink": "k"}
TASKS = "kafka_connect_connect_worker_metrics_connector_{}_task_count"


@pytest.mark.parametrize("named", [True, False])
def test_connectors_and_tasks(state: Path, *, named: bool) -> None:
    """A running source has its tasks RUNNING, a paused one PAUSED, as its status says.

    Without `metrics.connect.names` there is none of it.
    """
    server = RestServer(state, log=context().log, connect_names=named)
    with serving(server) as address, supervised(state.parent / "worker.yaml", state):
        client = Client(address.port)

        def scraped() -> Samples:
            return samples(client("GET", "/metrics").body.decode())

        assert 201 == client("POST", "/connectors", {"name": "cdc", "config": CONFIG}).status
        until_read(client, "cdc", 14)
        found = scraped()
        if not named:
            assert not any(name.startswith("kafka_connect") for name in found)
            return
        status = client("GET", "/connectors/cdc/status").json
        counts = {
            kind: one(found, TASKS.format(kind), connector="cdc")
            for kind in ("total", "running", "failed")
        }
        (labels,) = (
            labels
            for labels, _ in found["kafka_connect_connector_metrics"]
            if labels["connector"] == "cdc"
        )

    assert {"total": 1, "running": 1, "failed": 0} == counts
    assert [task["state"] for task in status["tasks"]] == ["RUNNING"]
    assert ("running", "source") == (labels["status"], labels["connector_type"])
    assert 2 == one(found, "kafka_connect_connect_worker_metrics_connector_count")

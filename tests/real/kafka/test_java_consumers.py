"""What Java programs make of our messages: Kafka's own console consumer, as it comes."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.jobs.children import lines_job
from helpers.jobs.committed import committed
from real.servers.kafka import Kafka

pytestmark = pytest.mark.real

FILES, LINES = 2, 50


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Run a broker whose tools can be run, too."""
    with Kafka(tmp_path_factory.mktemp("java") / "broker") as running:
        yield running


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_console_consumer(kafka: Kafka, tmp_path: Path, *, exactly_once: bool) -> None:
    """It prints keys, headers and values as they were sent; transactions included."""
    topic = f"console-{uuid4().hex}"
    job = lines_job(tmp_path, files=FILES, lines=LINES)
    document = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": kafka.bootstrap_servers,
            "topic": topic,
            "format": "json",
            "headers": ["table", "token"],
            "exactly.once": exactly_once,
        },
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    assert 0 == job.finish(), job.log()
    count = len(committed(kafka.bootstrap_servers, topic))

    printed = kafka.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
        *("--isolation-level", "read_committed", "--property", "print.headers=true"),
    )

    found = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    assert FILES * LINES == count == len(found)
    assert {(name, n) for name in range(FILES) for n in range(LINES)} == {
        (said["file"], said["n"]) for said in (json.loads(value) for _, value in found)
    }
    assert all(headers.startswith("table:") and ",token:1" in headers for headers, _ in found)

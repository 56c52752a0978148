"""What Java programs make of our messages: Kafka's own console consumer, as it comes."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from helpers.jobs.children import lines_job
from helpers.jobs.committed import committed
from real.servers.kafka import Kafka

pytestmark = pytest.mark.real

FILES, LINES = 2, 50


@pytest.mark.parametrize("exactly_once", [False, True])
def test_the_console_consumer(broker: Kafka, tmp_path: Path, *, exactly_once: bool) -> None:
    """It prints keys, headers and values as they were sent; transactions included."""
    topic = f"console-{uuid4().hex}"
    job = lines_job(tmp_path, files=FILES, lines=LINES)
    document = {
        "job": topic,
        "state": "state.db",
        "source": {"plugin": "files", "path": "in*.jsonl"},
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": broker.bootstrap_servers,
            "topic": topic,
            "format": "json",
            "headers": ["table", "token"],
            "exactly.once": exactly_once,
        },
    }
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    assert 0 == job.finish(), job.log()
    count = len(committed(broker.bootstrap_servers, topic))

    printed = broker.tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "60000"),
        *("--isolation-level", "read_committed", "--property", "print.headers=true"),
    )

    found = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    assert FILES * LINES == count == len(found)
    assert {(name, n) for name in range(FILES) for n in range(LINES)} == {
        (said["file"], said["n"]) for said in (json.loads(value) for _, value in found)
    }
    assert all(headers.startswith("table:") and ",token:1" in headers for headers, _ in found)

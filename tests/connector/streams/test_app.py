"""The Faust app as a user starts it, beside the embedded broker."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.connector.streams.changes import ChangeReader
from headrace.connector.streams.latest import LatestRows
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.children import SECONDS_MAX, until
from helpers.servers.pages import page_of
from helpers.servers.ports import free_ports
from helpers.settings.filled import filled
from helpers.streams.published import published, read


@pytest.mark.timeout(SECONDS_MAX)
def test_it_needs_no_broker_that_creates_topics_on_request(tmp_path: Path) -> None:
    """With --no-create-topics its table is what the same messages fold into without Faust."""
    broker = EmbeddedBroker()
    servers = broker.bootstrap_servers
    job = published(tmp_path, servers, "all")
    reader = ChangeReader.of_job(job)
    folded = LatestRows({})
    changes = list(read(reader, servers, "all"))
    for change in changes:
        folded.take(change.document, change.schema)
    reader.close()
    table = max({change.table for change in changes}, key=lambda name: len([*folded.rows(name)]))
    expected = {msgspec.json.encode(row) for row in filled(folded.rows(table))}
    (port,) = free_ports(1)
    module = [sys.executable, "-m", "headrace.connector.streams.app"]
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*module, str(job), "--no-create-topics", "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as app:
        try:
            until(
                lambda: (
                    app.poll() is not None
                    or expected
                    == {msgspec.json.encode(row) for row in page_of(port, f"/rows/{table}/") or []}
                ),
                "it never had all rows",
            )
            assert app.poll() is None
        finally:
            app.terminate()

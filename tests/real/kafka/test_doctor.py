"""`headrace doctor` with a real node and a real broker."""

import json
from pathlib import Path
from uuid import uuid4

import pytest
from cassandra.cluster import Session
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs forget it.

from headrace.connector.commands.health.doctor import main
from headrace.connector.control.plugins.probe import answer_to
from headrace.connector.control.plugins.probing import unpacked
from real.ring_jobs import directories
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

KEYSPACE = (
    "CREATE KEYSPACE IF NOT EXISTS checked WITH replication = "
    "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}"
)
TABLE = "CREATE TABLE IF NOT EXISTS checked.t (k int PRIMARY KEY, v text) WITH cdc = true"


@pytest.fixture
def table(node: Cassandra, session: Session) -> str:
    """Return a table with CDC."""
    session.execute(KEYSPACE.replace("datacenter1", node.centre))
    session.execute(TABLE)
    return "checked.t"


@pytest.fixture
def sink(bootstrap_servers: str) -> dict[str, str]:
    """Return a sink whose topic takes smaller messages than it sends."""
    topic = f"checked-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    wanted = NewTopic(topic, 2, 1, config={"max.message.bytes": "1000"})
    admin.create_topics([wanted])[topic].result(30)
    return {"plugin": "kafka", "bootstrap.servers": bootstrap_servers, "topic": topic}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_servers_say(
    node: Cassandra,
    table: str,
    sink: dict[str, str],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The node's settings and clock, the topic's rights and sizes are found, and what is wrong.

    The topic takes smaller messages than the sink sends: that alone is a failure.
    """
    source = {
        "plugin": "cassandra",
        "nodes": directories([node]),
        "contact_points": [f"{node.host}:{node.port}"],
        "tables": [table],
        "topology": "live",
        "streamed": "publish",
    }
    topic = sink["topic"]
    job = {"job": "checked", "state": "state.db", "source": source, "sink": sink}
    (folder / "job.yaml").write_text(json.dumps(job))
    assert 1 == main(["--json", str(folder / "job.yaml")], ask=lambda q: unpacked(answer_to(q)))
    (found,) = json.loads(capsys.readouterr().out)["jobs"]

    checks = {each["check"]: (each["result"], each["message"]) for each in found["checks"]}
    failed = {each["check"] for each in found["checks"] if each["result"] == "failed"}
    assert {"size"} == failed - {"space"}  # How long the disk lasts: other tests write there, too.
    assert f"{topic} takes 1000 bytes" in checks["size"][1]
    assert ("passed", f"{topic} has 2 partitions") == checks["topic"]
    assert "passed" == checks["cdc_enabled"][0]
    assert "passed" == checks["partitioner"][0]
    assert ("passed", f"1 with Cassandra {node.release.version}") == checks["versions"]
    assert ("passed", f"{node.centre} with 1 nodes") == checks["data centres"]
    assert "differs by less than 1 s" in checks["clock"][1]
    assert ("passed", "checked: the logs of all copies are read") == checks["replicas"]
    assert "passed" == checks["file system"][0]
    assert node.host in checks["space"][1]

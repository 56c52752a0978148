"""Debezium and a job with the envelope `debezium` read one log: their consumers see the same."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Cluster
from confluent_kafka import KafkaException

from helpers.jobs.children import until
from helpers.jobs.deliveries import consume
from real.servers.cassandra import Cassandra
from real.servers.debezium import Debezium
from real.stream import Worker

pytestmark = pytest.mark.real

Json = dict[str, Any]
TABLE = "beside.orders"
SCRIPT = """
CREATE KEYSPACE beside WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1};
CREATE TABLE beside.orders (
    k int, c text, a text, n bigint, d double, b boolean, u uuid, x blob, t timestamp, day date,
    f float, l list<int>, s set<text>, m map<text, int>, fl frozen<list<int>>, st text static,
    PRIMARY KEY (k, c)) WITH cdc = true;
"""
CHANGES = """
INSERT INTO beside.orders (k, c, a, n, d, b) VALUES (1, 'p', 'x', 9007199254740993, 1.5, true);
INSERT INTO beside.orders (k, c, u, x, t, day, f) VALUES (1, 'q',
    123e4567-e89b-12d3-a456-426614174000, 0xcafe, '2026-01-02T03:04:05Z', '2026-01-02', 0.5);
INSERT INTO beside.orders (k, c, fl) VALUES (1, 'r', [1, 2]);
INSERT INTO beside.orders (k, c, l, s, m) VALUES (1, 's', [1, 2], {'a', 'b'}, {'a': 1});
UPDATE beside.orders SET a = 'y', n = null WHERE k = 1 AND c = 'p';
UPDATE beside.orders USING TTL 86400 SET a = 'z' WHERE k = 1 AND c = 'p';
UPDATE beside.orders SET st = 'static' WHERE k = 1;
DELETE a FROM beside.orders WHERE k = 1 AND c = 'p';
DELETE FROM beside.orders WHERE k = 1 AND c = 'q';
DELETE FROM beside.orders WHERE k = 1 AND c > 'a' AND c <= 'q';
DELETE FROM beside.orders WHERE k = 2;
"""
COUNT = CHANGES.count(";")
# Of `source`: what each names otherwise, which docs/kafka.md lists.
DIFFERENT = ("version", "name", "sequence", "cluster", "file")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Cassandra]:
    """Run a node of the test's own: types in tables of other tests stop Debezium's driver."""
    with Cassandra(tmp_path / "node") as running:
        with Cluster([running.host], port=running.port, protocol_version=5) as cluster:
            session = cluster.connect()
            for statement in filter(str.strip, (SCRIPT + CHANGES).split(";\n")):
                session.execute(statement)
        yield running


def test_messages(node: Cassandra, bootstrap_servers: str, tmp_path: Path) -> None:
    """Both have the same changes in the same shape, but for what the page about Kafka lists."""
    with Worker(_job(node, bootstrap_servers, tmp_path), tmp_path):
        until(lambda: _count(bootstrap_servers, "ours") >= COUNT, "ours never came")
    log = tmp_path / "log"
    shutil.copytree(node.cdc_raw, log)
    for index in log.glob("*.idx"):  # Debezium reads final segments only.
        index.write_text(f"{index.read_text().split()[0]}\nCOMPLETED")
    with Debezium(
        tmp_path / "debezium",
        node,
        log,
        prefix="theirs",
        bootstrap_servers=bootstrap_servers,
        producer={},
    ) as debezium:
        # It leaves out a change of static columns alone.
        debezium.process.wait_until(lambda: _count(bootstrap_servers, "theirs") >= COUNT - 1)

    ours, theirs = _read(bootstrap_servers, "ours"), _read(bootstrap_servers, "theirs")
    (static,) = (place for place, each in ours.items() if each["after"].get("st"))
    del ours[static]
    assert [theirs[place] for place in sorted(theirs)] == [ours[place] for place in sorted(ours)]


def _job(node: Cassandra, servers: str, folder: Path) -> Json:
    return {
        "job": "beside",
        "state": str(folder / "state.db"),
        "source": {
            "plugin": "cassandra",
            "contact_points": f"{node.host}:{node.port}",
            "streamed": "publish",
            "consistency": "ONE",
            "tables": [TABLE],
            "nodes": {"node1": str(node.cdc_raw)},
        },
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": servers,
            "topic": "ours.{keyspace}.{table}",
            "topic.creation.enable": True,
            "envelope": "debezium",
            "format": "json",
        },
    }


def _count(servers: str, prefix: str) -> int:
    try:
        return len(_read(servers, prefix))
    except KafkaException:  # The topic does not exist yet.
        return 0


def _read(servers: str, prefix: str) -> dict[int, Json]:
    """Return key and value of each message without what differs, by its place in the segment."""
    found = {}
    for each in consume(servers, f"{prefix}.{TABLE}"):
        value = json.loads(each.value() or b"")
        source, after = value["source"], value["after"]
        del value["ts_ms"]  # The time of processing, of which ours is the time of the write.
        for name in DIFFERENT:
            del source[name]
        for bound in filter(None, (after["_range_start"], after["_range_end"])):
            for part in bound["values"]:
                del part["type"]
        if value["op"] == "d":  # Theirs gives each column that is deleted with the row.
            value["after"] = {n: c for n, c in after.items() if c and c.get("value") is not None}
        found[source["pos"]] = {"key": json.loads(each.key() or b""), **value}
    return found

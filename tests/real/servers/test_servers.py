"""The real servers start, answer and end: what every other test here stands on."""

from pathlib import Path

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement
from confluent_kafka import Producer

from real.servers.cassandra import Cassandra
from real.servers.maven import ServerError, program
from real.servers.ring import Ring

pytestmark = pytest.mark.real


def test_cassandra_captures_changes(node: Cassandra, session: Session) -> None:
    """The node answers CQL and links its segments into `cdc_raw`."""
    (version,) = session.execute("SELECT release_version FROM system.local").one()

    assert version == "5.0.9"
    assert list(node.cdc_raw.glob("CommitLog-7-*.log"))


def test_three_nodes_are_one_ring(ring: Ring) -> None:
    """Each knows the others, owns a third of the tokens, and takes what needs all of them."""
    with ring.connected() as cluster:
        session = cluster.connect()
        session.execute(
            "CREATE KEYSPACE three WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 3}"
        )
        session.execute("CREATE TABLE three.t (k int PRIMARY KEY)")
        write = SimpleStatement(
            "INSERT INTO three.t (k) VALUES (1)", consistency_level=ConsistencyLevel.ALL
        )
        session.execute(write)
        tokens = cluster.metadata.token_map.ring

    assert 3 == len(tokens)
    assert 3 == ring.nodes[0].nodetool("status").count("UN  127.0.0.")


def test_kafka_takes_messages(bootstrap_servers: str) -> None:
    """The broker acknowledges a message."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"})
    errors: list[object] = []
    producer.produce("hello", b"x", on_delivery=lambda error, _: errors.append(error))

    assert producer.flush(30) == 0
    assert [None] == errors


def test_a_missing_program_fails_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without Java the tests fail and say what to install; they are never skipped."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(ServerError, match=r"hint: .*Java 17"):
        program("java")

"""Jobs over a ring: what their files say, the nodes' agents, and what came out of their topics."""

import contextlib
import json
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.streams.latest import LatestRows
from headrace.plugins import RecordSchema
from helpers.jobs.children import POLL_SECONDS, until
from helpers.jobs.committed import committed
from helpers.servers.ports import HOST, free_ports
from real.load import Load
from real.servers.cassandra import Cassandra
from real.servers.process import ServerProcess
from real.stream import HEADRACE, fact_of

SECONDS_MAX: Final = 600


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until servers and workers have come to *condition*."""
    until(condition, what, seconds=SECONDS_MAX)


def directories(nodes: Sequence[Cassandra]) -> dict[str, object]:
    """Return *nodes* for a job that reads their directories."""
    return {
        node.host: {"path": str(node.cdc_raw), "commitlog": str(node.commitlog)} for node in nodes
    }


def store_on(node: Cassandra, keyspace: str) -> dict[str, object]:
    """Return the options of a store in a keyspace of one node."""
    return {
        "plugin": "cassandra",
        "contact_points": [f"{node.host}:{node.port}"],
        "keyspace": keyspace,
        "replication_factor": 1,
    }


@contextlib.contextmanager
def agents(
    nodes: Sequence[Cassandra], folder: Path, *options: str
) -> Iterator[Mapping[str, Mapping[str, str]]]:
    """Run the agent of each of *nodes*; give *nodes* for a job that reads through them."""
    ports = free_ports(len(nodes))
    with contextlib.ExitStack() as stack:
        started: list[tuple[ServerProcess, int]] = []
        for node, port in zip(nodes, ports, strict=True):
            place = folder / f"agent-{node.host}"
            place.mkdir()
            command = [
                *(*HEADRACE, "agent", "--listen", f"{HOST}:{port}", *options),
                *("--cdc-raw", str(node.cdc_raw), "--commitlog", str(node.commitlog)),
            ]
            started.append((stack.enter_context(ServerProcess(command, place)), port))
        for process, port in started:
            process.wait_until(partial(_listens, port))
        yield {
            node.host: {"url": f"http://{HOST}:{port}"}
            for node, port in zip(nodes, ports, strict=True)
        }


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), 2):
        return True
    return False


def job(
    contact_points: Sequence[str], keyspace: str, nodes: Mapping[str, object], **options: object
) -> dict[str, object]:
    """Return the file of a job of the tables of a `Load`, without a sink."""
    source = {
        "plugin": "cassandra",
        "contact_points": list(contact_points),
        "topology": "live",
        "nodes": dict(nodes),
        "tables": [f"{keyspace}.orders", f"{keyspace}.items"],
        "streamed": "publish",
        "consistency": "QUORUM",
    }
    return {"job": keyspace, "state": "state.db", "source": source | options}


def into(bootstrap_servers: str, topic: str) -> dict[str, object]:
    """Return a sink of that topic, which is made."""
    creation = {"topic.creation.enable": True, "topic.creation.default.partitions": 4}
    kafka = {"plugin": "kafka", "bootstrap.servers": bootstrap_servers, "topic": topic}
    return {**kafka, **creation, "topic.creation.default.replication.factor": 1}


def published(bootstrap_servers: str, topic: str) -> int:
    """Return how many messages the topic has, 0 while it does not exist.

    A broker that was paused is without a leader for a while: what it does not say is asked again.
    """
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "count", "log_level": 0}
    )
    deadline = time.monotonic() + SECONDS_MAX
    with contextlib.closing(consumer):
        while True:
            try:
                found = consumer.list_topics(topic, timeout=30).topics[topic].partitions
                places = [TopicPartition(topic, number) for number in found]
                return sum(consumer.get_watermark_offsets(place, 30)[1] for place in places)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)


class Copy(NamedTuple):
    """A message with a change: of which mutation, and under which lease it was read."""

    mutation: bytes
    number: int
    lease: int


@dataclass
class Received:
    """What a topic says."""

    facts: Counter[bytes] = field(default_factory=Counter)
    """How often each change came, in the form of `stream.fact`."""
    copies: dict[bytes, list[Copy]] = field(default_factory=lambda: defaultdict(list))
    """Each time that it came."""
    rows: list[str] = field(default_factory=list)
    """The rows that a consumer has who folded everything, as sorted JSON."""
    notices: list[dict[str, object]] = field(default_factory=list)
    """Its control records."""


class Schemas(Protocol):
    """Where the schemas of messages are found."""

    def get(self, schema_id: bytes) -> RecordSchema:
        """Return the schema with that id."""


def received(bootstrap_servers: str, topic: str, schemas: Schemas) -> Received:
    """Read the whole topic as a consumer would."""
    found = Received()
    latest = LatestRows({})
    known: dict[bytes, tuple[RecordSchema, Callable[[bytes], object]]] = {}
    tables = set()
    for message in committed(bootstrap_servers, topic):
        headers = dict(cast("list[tuple[str, bytes]]", message.headers()))
        content = message.value() or b""
        if "headrace.control" in headers:
            found.notices.append(json.loads(content))
            continue
        schema_id = headers["schemaId"]
        if schema_id not in known:  # To ask a store takes much longer than to read a message.
            schema = schemas.get(schema_id)
            known[schema_id] = schema, reader_of(schema.value)
        schema, read = known[schema_id]
        value = read(content)
        assert isinstance(value, dict)
        latest.take(value, schema)
        tables.add(f"{value['sourceKeyspace']}.{value['sourceTable']}")
        said = fact_of(value)
        found.facts[said] += 1
        found.copies[said].append(Copy(value["mutation"], value["index"], int(headers["token"])))
    found.rows = sorted(
        json.dumps([table, row], sort_keys=True) for table in tables for row in latest.rows(table)
    )
    return found


def unlisted(load: Load, found: Received) -> list[object]:
    """Return what came more often than the closed list of duplicates explains (line 36).

    Another lease may read again what was not committed, an unanswered statement was executed
    again, and a stream may bring a partition in one mutation: with a change that is new, because
    too few nodes had logged it before, the others come again, too.
    """
    news = {copies[0].mutation for copies in found.copies.values()}
    said_by: dict[bytes, list[tuple[int, bytes, int]]] = defaultdict(list)
    for said, copies in found.copies.items():
        for number, copy in enumerate(copies):
            said_by[copy.mutation].append((copy.number, said, number))
    return [
        (said, copies, [sorted(said_by[copy.mutation]) for copy in copies])
        for said, copies in found.copies.items()
        if max(Counter(copies).values()) > 1
        or len({copy.mutation for copy in copies[1:]} - news) > load.repeated[said]
    ]


def selected(load: Load) -> list[str]:
    """Return the rows that the ring has, as `Received.rows` has them."""
    return sorted(
        json.dumps([table, json.loads(row)], sort_keys=True) for table, row in load.selected()
    )

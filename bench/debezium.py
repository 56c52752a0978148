"""The CPU of a change from Cassandra's log into Kafka, beside Debezium's: `make bench-debezium`.

Debezium's connector reads the log of one node and publishes what it reads, without comparing
copies: at replication factor 3 there are three connectors, and three messages for each change.
headrace reads three copies, from directories or through agents, and publishes one message. Both
write into the same real broker, with lz4 and `acks=all`: headrace Avro, Debezium JSON without
schemas, because its converter to Avro fails on these tables. Debezium's CPU is counted after a
third of the rows, when Java has compiled what is used most; the start of headrace is subtracted.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from cassandra.cluster import Cluster
from confluent_kafka import Consumer, TopicPartition

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from bench.machine import machine_facts
from bench.measure import Jobs
from bench.network import through_agents
from bench.recordings import Recording, prepare
from bench.reporting import RESULTS, keep
from bench.tail import cpu_seconds
from headrace.sources.cassandra.schema.ddl import parse_schema

ROWS: Final = 1_000_000
GOAL: Final = 10.0  # So many times our CPU three connectors take.
COPIES: Final = 3
_TIMES_MIN: Final = 2  # A log that was recorded, and not forged, has a replication of its own.
_WARM: Final = 1 / 3
_COLUMNS: Final = {"wide": 13, "narrow": 4}
_WAYS: Final = ("directories", "agents")


def debezium_us(folder: Path, recording: Recording, servers: str) -> float:
    """Return the CPU of a row that Debezium reads and publishes, of all threads."""
    # Their classes are found where the tests that need Java are.
    from real.servers.cassandra import Cassandra  # noqa: PLC0415 (with Java only)
    from real.servers.debezium import Debezium  # noqa: PLC0415

    schema = recording.schema.read_text()
    prefix = f"debezium-{uuid4().hex}"
    with Cassandra(folder / "node") as node:
        with Cluster([node.host], port=node.port) as cluster:
            session = cluster.connect()
            for statement in filter(str.strip, schema.split(";\n")):
                session.execute(statement)
        (table,) = parse_schema(schema).tables.values()
        topic = f"{prefix}.{table.keyspace}.{table.name}"
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "log_level": 0})
        rows = recording.mutations
        with Debezium(
            folder / "debezium",
            node,
            recording.log,
            prefix=prefix,
            bootstrap_servers=servers,
            producer={"compression.type": "lz4"},
        ) as debezium:
            process = debezium.process
            process.wait_until(lambda: _messages(consumer, topic) >= rows * _WARM)
            first, before = _messages(consumer, topic), cpu_seconds(process.pid)
            process.wait_until(lambda: _messages(consumer, topic) >= rows)
            last, after = _messages(consumer, topic), cpu_seconds(process.pid)
        consumer.close()
    if last != rows:
        raise ProbeFailedError(f"Debezium published {last} messages of {rows} rows")
    return (after - before) / (last - first) * 1e6


def _messages(consumer: Consumer, topic: str) -> int:
    partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    places = [TopicPartition(topic, number) for number in partitions]
    return int(sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places))


def headrace_us(jobs: Jobs, recording: Recording, servers: str) -> Mapping[str, float]:
    """Return the CPU of a change of three copies, each way: all processes, less their start.

    Also that of the agents alone, which the second way includes.
    """
    run, start = (
        _cpu_ns(jobs, recording, nodes, servers)
        for nodes in (recording.nodes, recording.empty_nodes)
    )
    return {way: (run[way] - start[way]) / recording.mutations / 1_000 for way in run}


def _cpu_ns(
    jobs: Jobs, recording: Recording, nodes: Mapping[str, Path], servers: str
) -> Mapping[str, int]:
    wanted = recording.mutations if nodes is recording.nodes else 0

    def job() -> str:
        sink = {
            "plugin": "kafka",
            "bootstrap.servers": servers,
            "topic": f"headrace-{uuid4().hex}",
            "topic.creation.enable": True,
            "compression.type": "lz4",
        }
        return jobs.write(recording, nodes, sink)

    def run(path: str) -> int:
        found = jobs.probe("run", job=path)
        if found["changes"] != wanted:
            raise ProbeFailedError(f"{found['changes']} changes of {wanted}")
        return int(found["cpu_ns"])

    with through_agents(Path(job())) as far:
        before = sum(far.cpu_ns())
        worker = run(str(far.path))
        agents = sum(far.cpu_ns()) - before
    return {"directories": run(job()), "agents": worker + agents, "agents alone": agents}


def main() -> int:
    """Return 1 if three connectors take less than ten times the CPU."""
    parser = broker_parser("bench.debezium", __doc__, runs=1)
    parser.add_argument("--rows", type=int, default=ROWS, help="how many at the least")
    parser.add_argument("--tables", nargs="+", default=list(_COLUMNS), choices=list(_COLUMNS))
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    from real.servers.debezium import JAR  # noqa: PLC0415 (with Java only)
    from real.servers.maven import ServerError, artefact  # noqa: PLC0415

    try:
        artefact(JAR)
    except ServerError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return 0
    found = _measured(given)
    raw = {"machine": machine_facts(), "debezium": JAR, "found": found}
    keep(given.results, "debezium", raw)
    ratios = [COPIES * f["debezium"] / f[way] for f in found.values() for way in _WAYS]
    return int(min(ratios) < GOAL and not given.no_alarm)


def _measured(given: argparse.Namespace) -> Mapping[str, Mapping[str, float]]:
    """Measure each table, print what was found, and return it: rows, and the least µs of runs."""
    found: dict[str, Mapping[str, float]] = {}
    with brokers(given) as (servers, folder):
        (folder / "jobs").mkdir()
        jobs = Jobs(folder / "jobs")
        for name in given.tables:
            recording = _recording(name, folder / name, given.rows)
            runs = []
            for run in range(given.runs):
                theirs = debezium_us(folder / f"debezium-{name}-{run}", recording, servers)
                runs.append({"debezium": theirs, **headrace_us(jobs, recording, servers)})
            least = {key: min(run[key] for run in runs) for key in runs[0]}
            found[name] = {"rows": recording.mutations, **least}
            _print(name, found[name])
    return found


def _print(name: str, found: Mapping[str, float]) -> None:
    theirs = found["debezium"]
    sys.stdout.write(
        f"{found['rows']} rows of {_COLUMNS[name]} columns: CPU\n"
        f"  Debezium, a row read and published             {theirs:7.2f} µs\n"
        f"  Debezium, a change: three connectors, a row each    "
        f"{COPIES * theirs:7.2f} µs, {COPIES} messages\n"
    )
    for way in _WAYS:
        sys.stdout.write(
            f"  headrace, a change: three copies, {way:11}  {found[way]:7.2f} µs, 1 message; "
            f"Debezium takes {COPIES * theirs / found[way]:.1f} times that (goal: {GOAL:g})\n"
        )
    sys.stdout.write(
        f"    of which the agents                          {found['agents alone']:7.2f} µs\n"
    )
    sys.stdout.flush()


def _recording(name: str, folder: Path, rows: int) -> Recording:
    """Return three logs of so many rows at the least, of mutations with keys of their own."""
    once = prepare(
        name, folder / "once", replicas=1, consistency="ONE", mutations_max=None
    ).mutations
    return prepare(
        name,
        folder / "logs",
        replicas=COPIES,
        consistency="QUORUM",
        mutations_max=None,
        times=max(_TIMES_MIN, -(-rows // once)),
    )


if __name__ == "__main__":
    sys.exit(main())

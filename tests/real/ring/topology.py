"""What docker/compose.yaml has, without containers: a ring, its agents, Kafka and two workers.

`make ring` runs it in the foreground: a page says what listens where, Ctrl-C ends everything.
"""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from headrace.plugins import MissingRequirementError
from helpers.servers.ports import HOST, free_ports
from real.ring_jobs import agents
from real.servers.kafka import Kafka
from real.servers.maven import ServerError
from real.servers.process import ServerProcess
from real.servers.ring import Ring
from real.stream import HEADRACE

WORKERS: Final = 2
TABLE: Final = "shop.orders"
TOPIC: Final = "orders"
_SCHEMA: Final = (
    (
        "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 3}"
    ),
    (
        f"CREATE TABLE IF NOT EXISTS {TABLE} (id int, line int, article text, amount int, "
        "PRIMARY KEY (id, line)) WITH cdc = true"
    ),
)
_PAGE: Final = """
Cassandra  {nodes}, port {port}
agents     {agents}
Kafka      {kafka}
workers    {workers}
files      {folder} (removed at the end)

{table} goes to the topic {topic}. Write, look, and read what came:

    {headrace} shell --state {state} {host} {port}
    > INSERT INTO {table} (id, line, article, amount) VALUES (1, 1, 'tea', 3);
    > SHOW LAG;
    {headrace} splits {worker} --job {topic}_sink
    {python} -m headrace.connector.streams.app --bootstrap-servers {kafka} \\
        --topic {topic} --state {state}; then http://127.0.0.1:6066/rows/{table}/

Ctrl-C ends everything.
"""


@dataclass(frozen=True, slots=True)
class Topology:
    """What listens around a ring."""

    state: Path
    agents: tuple[str, ...]
    workers: tuple[str, ...]


@contextmanager
def around(ring: Ring, broker: Kafka, folder: Path) -> Iterator[Topology]:
    """Run an agent for each node and two workers, and send a table to a topic."""
    with ring.connected() as cluster:
        session = cluster.connect()
        for statement in _SCHEMA:
            session.execute(statement)
    with ExitStack() as stack:
        through = stack.enter_context(agents(ring.nodes, folder))
        state = folder / "state.db"
        _execute(
            state,
            f"CREATE DATA_SINK {TOPIC}_sink WITH 'kafka://{broker.bootstrap_servers}?topic={TOPIC}'"
            " AND topic.creation.enable = true;"
            f"CREATE DATA_SOURCE cdc ON TABLE {TABLE} WITH {TOPIC}_sink;",
        )
        ports = free_ports(WORKERS)
        for number, port in enumerate(ports):
            place = folder / f"worker{number + 1}"
            place.mkdir()
            document = {
                "state": str(state),
                "source": _source(ring, through),
                "rest": {"listen": f"{HOST}:{port}", "listen_services": ""},
            }
            (place / "worker.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
            stack.enter_context(ServerProcess([*HEADRACE, "worker", "worker.yaml"], place))
        yield Topology(
            state,
            tuple(node["url"] for node in through.values()),
            tuple(f"http://{HOST}:{port}" for port in ports),
        )


def _source(ring: Ring, nodes: Mapping[str, object]) -> dict[str, object]:
    return {
        "plugin": "cassandra",
        "contact_points": ring.contact_points,
        "topology": "live",
        "streamed": "publish",
        "nodes": dict(nodes),
    }


def _execute(state: Path, statements: str) -> None:
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, "exec", "--state", str(state), "-e", statements],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"the statements are refused:\n{done.stderr}")


def main() -> int:
    """Run until SIGINT or SIGTERM. Returns the exit status."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-ring-") as name:
            _run(Path(name), over)
    except ServerError as error:
        if not over.is_set():  # Ctrl-C ends the servers themselves, too.
            sys.stderr.write(f"{error}\n")
            return MissingRequirementError.exit_status
    return 0


def _run(folder: Path, over: threading.Event) -> None:
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        sys.stdout.write("Starting three nodes and a broker: half a minute.\n")
        sys.stdout.flush()
        ring, kafka = Ring(folder / "ring"), Kafka(folder / "kafka")
        for started in [pool.submit(stack.enter_context, each) for each in (ring, kafka)]:
            started.result()
        found = stack.enter_context(around(ring, kafka, folder))
        sys.stdout.write(
            _PAGE.format(
                nodes=" ".join(node.host for node in ring.nodes),
                host=ring.nodes[0].host,
                port=ring.port,
                agents=" ".join(found.agents),
                kafka=kafka.bootstrap_servers,
                workers=" ".join(found.workers),
                folder=folder,
                state=found.state,
                worker=folder / "worker1" / "worker.yaml",
                table=TABLE,
                topic=TOPIC,
                headrace=Path(sys.executable).with_name("headrace"),
                python=sys.executable,
            )
        )
        sys.stdout.flush()
        over.wait()
        sys.stdout.write("Ending.\n")


if __name__ == "__main__":
    sys.exit(main())

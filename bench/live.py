"""What a worker costs and how late it is while a real node is written to: `make bench-live`.

A Cassandra node syncs its commit log each 100 ms, or with `--sync batch` for each write. A worker
reads its directory in 8 splits and writes into a real Kafka: first in mode log, then another one in
mode realtime. Rows of 13 columns come at a steady pace. A watcher sees when an index file says that
a row is durable, and a consumer when it is published; each message says where in the log its row
is. All are on the same processors.
"""

import json
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

import msgspec
import yaml
from cassandra.cluster import Cluster
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # Its stubs forget it.

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from bench.figures import MD5_NS, Figure, md5_ns
from bench.live_ends import Messages
from bench.machine import busy_ticks, machine_facts
from bench.measure import ROOT, probe
from bench.recordings import Recording, prepare
from bench.reporting import RESULTS, as_json, keep, status_of, table
from bench.starting import ready_line
from bench.tail import SPLITS, cpu_seconds, delivered, state_of, until, worker_of
from headrace.connector.serde.codecs.records import reader_of
from headrace.connector.serde.schemas.lookup import JobSchemas
from headrace.connector.stores.sqlite.store import SqliteStore

RATES: Final = (1_000, 5_000)
SECONDS: Final = 60.0
PERIODIC: Final = "periodic"
SYNCS: Final[Mapping[str, Mapping[str, object]]] = {
    PERIODIC: {"commitlog_sync": PERIODIC, "commitlog_sync_period": "100ms"},
    "batch": {"commitlog_sync": "batch", "commitlog_sync_period": "0ms"},
}
SETTINGS: Final = {
    "commitlog_segment_size": "32MiB",
    "commitlog_total_space": "1024MiB",
    "cdc_total_space": "2048MiB",
    "memtable_heap_space": "512MiB",
}
_OPTIONS: Final = ("-XX:TieredStopAtLevel=4", "-Xms2G", "-Xmx2G")  # All of Java's compilers.
MODES: Final = ("log", "realtime")
_PARTITIONS: Final = 4
_WARM_RATE: Final = 5_000  # What a node uses most is compiled then.
_WARM_SECONDS: Final = 20.0
_GOALS_US: Final = {1_000: 15, 5_000: 8}
_ALARMS_US: Final = {1_000: 120, 5_000: 40}
_IDLE_GOAL, _IDLE_ALARM = 1, 4
_LATE_GOAL_MS, _LATE_ALARM_MS = 60, 500
# Of the median from the write on, in mode realtime, where each write is synced. At more than this
# rate a node on two cores is itself late with that.
_WRITE_GOAL_MS, _WRITE_ALARM_MS = 10, 200
_WRITE_RATE: Final = 1_000
_PERCENT: Final = 100
_INSERT: Final = (
    "INSERT INTO bulk.wide (id, seq, customer, email, status, amount, quantity, price, active, "
    "created, tags, address, payload) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ROW: Final = (
    UUID(int=0),
    3,
    "customer 249523",
    "customer.249523@example.com",
    "returned",
    Decimal("79532.98"),
    80,
    580.8520843500559,
    False,
    datetime(2023, 11, 14, tzinfo=UTC),
    {"tag30", "tag16"},
    "564 Oak Street, Town 196",
    bytes(range(48)),
)


class Written(NamedTuple):
    """Rows that were written at one rate, and what the worker took meanwhile."""

    rate: int
    rows: int
    began_us: int
    ended_us: int
    cpu_seconds: float
    busy: float
    """The share of all processors that anything took."""
    waited: float
    """The share of the time that threads of the worker waited for a processor."""


class Row(NamedTuple):
    """When a row was written, became durable, was appended by the broker, and was received: ms.

    The broker's time has whole milliseconds.
    """

    written: float
    durable: float
    appended: float
    received: float


class Way(NamedTuple):
    """How the node syncs its commit log, and how much slower this machine is."""

    sync: str
    slower: float


class Node:
    """A real node, and the statement that is executed on it."""

    def __init__(self, stack: ExitStack, folder: Path, recording: Recording, sync: str) -> None:
        """Start it, with the schema of *recording*."""
        # Found where the tests that need Java are.
        from real.ring_jobs import directories  # noqa: PLC0415 (with Java only)
        from real.servers.cassandra import CURRENT, Cassandra, Release  # noqa: PLC0415

        release = Release(CURRENT.version, CURRENT.java, {**SETTINGS, **SYNCS[sync]}, _OPTIONS)
        node = stack.enter_context(Cassandra(folder, release=release))
        self.cdc_raw, self.port = node.cdc_raw, node.port
        self.contact_point = f"{node.host}:{node.port}"
        self.nodes = directories([node])
        with Cluster([node.host], port=node.port) as cluster:
            session = cluster.connect()
            for statement in filter(str.strip, recording.schema.read_text().split(";\n")):
                session.execute(statement)
            prepared = session.prepare(_INSERT)
            self.statement = prepared.query_id.hex()
            self.values = [value.hex() for value in prepared.bind(_ROW).values]

    def write(self, rate: int, seconds: float) -> Mapping[str, int]:
        """Write rows; return how many, and from when to when."""
        given = {"port": self.port, "rate": rate, "seconds": seconds}
        with _end("write", statement=self.statement, values=self.values, **given) as child:
            assert child.stdout is not None  # noqa: S101 (it is a pipe)
            found: Mapping[str, int] = json.loads(child.stdout.readline() or "{}")
        if not found:
            raise ProbeFailedError(f"not all of {rate} rows a second were written")
        return found


@contextmanager
def _end(name: str, **arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run one of `bench.live_ends`; in the end let it finish."""
    with subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", "bench.live_ends", name, json.dumps(arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        ready_line(child, "stdout", "ready")
        try:
            yield child
        finally:
            child.send_signal(signal.SIGTERM)
            child.wait(60)


def measured(
    folder: Path, servers: str, node: Node, mode: str, *, seconds: float
) -> tuple[float, Sequence[Written], Sequence[Row]]:
    """Return the share of a core that an idle worker takes, what it took for rows, and these."""
    folder.mkdir()
    topic = NewTopic(mode, _PARTITIONS, 1, config={"message.timestamp.type": "LogAppendTime"})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([topic])[mode].result(60)
    job = _job(folder, servers, node, mode)
    index, received = folder / "durable.txt", folder / "received.msgpack"
    written = []
    with (
        worker_of(job) as worker,
        closing(SqliteStore.open(state_of(job), mode)) as store,
        _end("watch", folder=str(node.cdc_raw), out=str(index)),
        _end("consume", servers=servers, topic=mode, out=str(received)),
    ):
        until(lambda: all(state.position for state in store.states()))
        count = node.write(_WARM_RATE, min(seconds, _WARM_SECONDS))["rows"]
        until(lambda: delivered(store) >= count)
        before = cpu_seconds(worker.pid)
        time.sleep(seconds)
        idle = (cpu_seconds(worker.pid) - before) / seconds
        for rate in RATES:
            before, machine = cpu_seconds(worker.pid), busy_ticks()
            began, waited = time.monotonic(), _waited_seconds(worker.pid)
            rows = node.write(rate, seconds)
            busy, total = (now - then for now, then in zip(busy_ticks(), machine, strict=True))
            count += rows["rows"]
            until(lambda total=count: delivered(store) >= total)  # type: ignore[misc]
            cpu = cpu_seconds(worker.pid) - before
            waited = (_waited_seconds(worker.pid) - waited) / (time.monotonic() - began)
            written.append(Written(rate, **rows, cpu_seconds=cpu, busy=busy / total, waited=waited))
    return idle, written, _rows(index, received, state_of(job))


def _waited_seconds(pid: int) -> float:
    """Return how long the threads of a process have been ready to run, and did not."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[1]) for each in threads) / 1e9


def _job(folder: Path, servers: str, node: Node, mode: str) -> Path:
    document = {
        "job": mode,
        "state": "state.db",
        "start": "latest",
        "source": {
            "mode": mode,
            "plugin": "cassandra",
            "contact_points": [node.contact_point],
            "topology": "live",
            "streamed": "publish",
            "nodes": node.nodes,
            "tables": ["bulk.wide"],
            "consistency": "QUORUM",
            "splits": SPLITS,
        },
        "sink": {"plugin": "kafka", "bootstrap.servers": servers, "topic": mode},
    }
    path = folder / "live.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _rows(index: Path, received: Path, state: Path) -> Sequence[Row]:
    """Join messages with when their places in the log became durable."""
    times, offsets = defaultdict[int, list[float]](list), defaultdict[int, list[int]](list)
    for line in index.read_text().splitlines():
        at, segment, offset = map(int, line.split())
        times[segment].append(at / 1e6)
        offsets[segment].append(offset)
    got = msgspec.msgpack.decode(received.read_bytes(), type=Messages)
    with closing(JobSchemas(state)) as schemas:
        read = reader_of(schemas.get(got.schema_id).value)
    rows = []
    for message in got.messages:
        change = read(message.value)
        segment, position = change["segment"], change["position"]
        place = bisect_left(offsets[segment], position)
        if place == len(offsets[segment]):
            raise ProbeFailedError(f"{segment}:{position} was not seen to become durable")
        rows.append(
            Row(
                change["timestampMicros"] / 1e3,
                times[segment][place],
                message.appended_ms,
                message.received_ns / 1e6,
            )
        )
    return rows


def figures_of(
    mode: str, idle: float, written: Sequence[Written], rows: Sequence[Row], way: Way
) -> Sequence[Figure]:
    """Return what was found of each rate, and of the idle worker."""
    share = _PERCENT * idle
    title = f"{mode}: an idle worker, a live node"
    made = [
        Figure(title, "% of a core", [share], {}, goal=_IDLE_GOAL, alarm=_IDLE_ALARM).where(
            way.slower
        )
    ]
    for each in written:
        own = [row for row in rows if each.began_us <= row.written * 1e3 <= each.ended_us]
        if len(own) != each.rows:
            raise ProbeFailedError(f"{len(own)} of {each.rows} rows were received")
        title = f"{mode}: {each.rate:,} rows a second: "
        cost = each.cpu_seconds / each.rows * 1e6
        goal, alarm = _GOALS_US[each.rate], _ALARMS_US[each.rate]
        busy = {
            "processors busy, %": _PERCENT * each.busy,
            "worker waited for one, %": _PERCENT * each.waited,
        }
        made.append(
            Figure(f"{title}a change", "µs", [cost], busy, goal=goal, alarm=alarm).where(way.slower)
        )
        goal, alarm = _LATE_GOAL_MS, _LATE_ALARM_MS
        late = [row.received - row.durable for row in own]
        published = f"{title}durable → published, p99"
        made += [
            _late(f"{title}written → durable, p99", [r.durable - r.written for r in own]),
            _late(f"{title}durable → in the broker, p99", [r.appended - r.durable for r in own]),
            _late(published, late, goal=goal, alarm=alarm),
            _late(f"{title}written → published, p99", [r.received - r.written for r in own]),
        ]
        if (mode, each.rate) == ("realtime", _WRITE_RATE) and way.sync != PERIODIC:
            median = statistics.median(row.received - row.written for row in own)
            title, goal, alarm = f"{title}written → published, p50", _WRITE_GOAL_MS, _WRITE_ALARM_MS
            made.append(Figure(title, "ms", [median], {}, goal=goal, alarm=alarm))
    return made


def _late(
    title: str, late: Sequence[float], *, goal: float | None = None, alarm: float | None = None
) -> Figure:
    places = sorted(late)
    p50, p99 = places[len(places) // 2], places[len(places) * 99 // 100]
    return Figure(title, "ms", [p99], {"p50": p50, "max": places[-1]}, goal=goal, alarm=alarm)


def main() -> int:
    """Return 1 if a figure is beyond its alarm."""
    parser = broker_parser("bench.live", __doc__, runs=1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long at each rate")
    parser.add_argument("--sync", choices=SYNCS, default=PERIODIC, help="the node's commitlog_sync")
    parser.add_argument("--goals", action="store_true", help="fail for goals that are missed, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    with brokers(given) as (servers, folder), ExitStack() as stack:
        recording = prepare(
            "wide", folder / "wide", replicas=1, consistency="ONE", mutations_max=None
        )
        md5 = md5_ns(probe("bare", log=str(recording.log)))
        node = Node(stack, folder / "node", recording, given.sync)
        found = {
            mode: measured(folder / mode, servers, node, mode, seconds=given.seconds)
            for mode in MODES
        }
    figures = [
        Figure("this machine: MD5 of 323 bytes", "ns", [md5], {"where goals were set": MD5_NS})
    ]
    for mode, (idle, written, rows) in found.items():
        way = Way(given.sync, max(1.0, md5 / MD5_NS))
        figures += figures_of(mode, idle, written, rows, way)
    sys.stdout.write(table(figures) + "\n")
    raw = {
        "machine": machine_facts(),
        "sync": given.sync,
        "idle": {mode: idle for mode, (idle, _, _) in found.items()},
        "written": {
            mode: [each._asdict() for each in written] for mode, (_, written, _) in found.items()
        },
        "figures": [as_json(figure) for figure in figures],
    }
    keep(given.results, "live", raw)
    return 0 if given.no_alarm else status_of(figures, goals=given.goals)


if __name__ == "__main__":
    sys.exit(main())

"""A worker for minutes at half of what it can: memory, files, threads and state stay flat.

Forged logs of three nodes grow; an agent serves each, and deletes what no job needs. A worker reads
them through the agents, and writes into a real Kafka. How much it can is measured first. What
grows after a third of the time is an alarm.
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import linear_regression, mean
from typing import Final, NamedTuple

import yaml
from confluent_kafka import Consumer, TopicPartition

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from bench.machine import machine_facts
from bench.network import agent
from bench.recordings import Recording, mutations_of, prepare, segments, shuffled, with_key
from bench.reporting import RESULTS, keep
from bench.starting import HEADRACE
from headrace.sources.cassandra.commitlog.segment import parse_name
from headrace.sources.cassandra.forge.segments import write_log

MINUTES: Final = 30.0
LOOK_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 5.0
_FIRST_ID: Final = 1_790_000_000_000
_WINDOW_SECONDS: Final = 30  # So long digests are kept, in memory and in the state.
_SECONDS_MAX: Final = 600
_LOAD: Final = 0.5
_WARM: Final = 1 / 3
# What may be found between the ends of the line through what was seen: of the mean, and besides.
# What a state holds doubles in each round of 32 commits and then falls again, each split's by
# itself; the file and its log stay as large as they once had to be.
_GROWTH_MAX: Final[Mapping[str, tuple[float, float]]] = {
    "RSS, MB": (0.05, 4.0),
    "files": (0.0, 2.0),
    "threads": (0.0, 2.0),
    "state, MB": (0.15, 2.0),
    "file, MB": (0.25, 2.0),
    "log, MB": (0.25, 4.0),
}


class Ring:
    """Three nodes whose logs grow. Each mutation is another one."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        """Make empty folders."""
        self.mutations = mutations_of(recording.schema)
        self.nodes = {node: folder / node for node in recording.nodes}
        self.written = 0
        self._next_id = dict.fromkeys(self.nodes, _FIRST_ID)
        for path in self.nodes.values():
            write_log(path, [], first_id=_FIRST_ID - 1)

    def write(self, count: int) -> None:
        """Let each node log the next *count* mutations, in an order of its own."""
        made = [self._mutation(number) for number in range(self.written, self.written + count)]
        for seed, (node, path) in enumerate(self.nodes.items()):
            write_log(path, shuffled(made, seed=seed), first_id=self._next_id[node])
            _, newest = max(parse_name(found.name) or (0, 0) for found in segments(path))
            self._next_id[node] = newest + 1
        self.written += count

    def _mutation(self, number: int) -> bytes:
        round_number, place = divmod(number, len(self.mutations))
        return with_key(self.mutations[place], round_number)


class Look(NamedTuple):
    """What was seen of a process at a time."""

    seconds: float
    process: str
    seen: Mapping[str, float]


def look(seconds: float, process: str, pid: int, state: Path | None) -> Look:
    """Look at a process, and at the state file that it writes."""
    folder = Path("/proc") / str(pid)
    status = dict(
        line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
    )
    seen = {
        "RSS, MB": int(status["VmRSS"].split()[0]) / 1000,
        "files": float(len(list((folder / "fd").iterdir()))),
        "threads": float(status["Threads"]),
    }
    if state is not None:
        seen |= _state_seen(state)
    return Look(seconds, process, seen)


def _state_seen(state: Path) -> Mapping[str, float]:
    """Return what a state file holds, and the sizes of the file and of its write-ahead log."""
    log = state.with_name(f"{state.name}-wal")
    with closing(sqlite3.connect(f"{state.as_uri()}?mode=ro", uri=True)) as connection:
        pages, free, page_bytes = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
    return {
        "state, MB": (pages - free) * page_bytes / 1e6,
        "file, MB": pages * page_bytes / 1e6,
        "log, MB": log.stat().st_size / 1e6,
    }


def growths(looks: Sequence[Look]) -> Iterator[tuple[str, str, float, float, float, bool]]:
    """Yield for each measure its mean, its slope in a minute, its growth, and if it is too much."""
    warm = max(each.seconds for each in looks) * _WARM
    for process in dict.fromkeys(each.process for each in looks):
        found = [each for each in looks if each.process == process and each.seconds >= warm]
        times = [each.seconds for each in found]
        for name in found[0].seen:
            values = [each.seen[name] for each in found]
            slope, _ = linear_regression(times, values)
            growth = slope * (times[-1] - times[0])
            share, besides = _GROWTH_MAX[name]
            most = share * mean(values) + besides
            yield process, name, mean(values), slope * 60, growth, growth > most


def main() -> int:
    """Return 1 if something grew, or changes are missing."""
    given = _parser().parse_args()
    with brokers(given) as (servers, folder), _shared_memory() as logs, ExitStack() as stack:
        recording = prepare(
            "wide", folder / "wide", replicas=3, consistency="QUORUM", mutations_max=given.lines
        )
        ring = Ring(recording, logs)
        served = {
            node: stack.enter_context(agent(str(path), "--disposal", "delete"))
            for node, path in ring.nodes.items()
        }
        job = _job(folder, recording, {node: url for node, (url, _) in served.items()}, servers)
        capacity = _capacity(ring, job)
        rate = capacity * _LOAD
        sys.stdout.write(f"at the most {capacity:.0f} changes/s; now {rate:.0f}\n")
        pids = {node: pid for node, (_, pid) in served.items()}
        looks, delivered = _soak(ring, job, pids, servers, rate=rate, seconds=given.minutes * 60)
    grew = _report(looks) and not given.no_alarm
    sys.stdout.write(f"{ring.written} mutations, {delivered} messages\n")
    raw = {
        "machine": machine_facts(),
        "rate": rate,
        "written": ring.written,
        "delivered": delivered,
        "looks": [each._asdict() for each in looks],
    }
    keep(given.results, "soak", raw)
    return int(grew or delivered < ring.written)


def _report(looks: Sequence[Look]) -> bool:
    """Print what was seen; say whether something grew."""
    found = list(growths(looks))
    for process, name, average, slope, growth, is_much in found:
        line = f"{process:8} {name:10} mean {average:8.2f}, {slope:+.3f} a minute, {growth:+.2f}"
        sys.stdout.write(f"{line}{'  ALARM' if is_much else ''}\n")
    return any(is_much for *_, is_much in found)


def _parser() -> argparse.ArgumentParser:
    parser = broker_parser("bench.soak", __doc__, runs=1)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long it runs")
    parser.add_argument("--lines", type=int, default=None, help="mutations of the recording used")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    return parser


@contextmanager
def _shared_memory() -> Iterator[Path]:
    """Give a folder for logs, in memory where that is possible."""
    place = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    with tempfile.TemporaryDirectory(
        prefix="headrace-soak-", dir=place if place.is_dir() else None
    ) as name:
        yield Path(name)


def _job(folder: Path, recording: Recording, urls: Mapping[str, str], servers: str) -> Path:
    document = {
        "job": "soak",
        "state": str(folder / "state.db"),
        "source": {
            "plugin": "cassandra",
            "schema": str(recording.schema),
            "consistency": "QUORUM",
            "dedup_window_seconds": 2 * _WINDOW_SECONDS,
            "complete_seconds": _WINDOW_SECONDS,
            "nodes": {node: {"url": url} for node, url in urls.items()},
        },
        "sink": {
            "plugin": "kafka",
            "bootstrap.servers": servers,
            "topic": f"soak-{time.time_ns()}",
            "topic.creation.enable": True,
            "compression.type": "lz4",
        },
    }
    path = folder / "soak.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def _capacity(ring: Ring, job: Path) -> float:
    """Return how many changes a second a worker takes that always has something to read."""
    _run(job, "--until-idle")  # It makes the topic, and reads what there is.
    ring.write(len(ring.mutations))
    summary = job.with_name("summary.json")
    _run(job, "--until-idle", "--summary-json", str(summary))
    run = json.loads(summary.read_text())["run"]
    if run["changes"] != ring.written:
        raise ProbeFailedError(f"{run['changes']} changes of {ring.written} mutations")
    return float(run["changes"] / run["wall_seconds"])


def _run(job: Path, *options: str) -> None:
    child = subprocess.run(  # noqa: S603 (headrace itself)
        [sys.executable, "-c", HEADRACE, "--log-level", "error", "run", str(job), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
    )
    if child.returncode:
        raise ProbeFailedError(f"headrace run: status {child.returncode}\n{child.stderr}")


def _soak(  # noqa: PLR0913 (what there is)
    ring: Ring,
    job: Path,
    pids: Mapping[str, int],
    servers: str,
    *,
    rate: float,
    seconds: float,
) -> tuple[Sequence[Look], int]:
    """Return what was seen, and how many messages are in the topic in the end."""
    given = yaml.safe_load(job.read_text())
    state, topic = Path(given["state"]), given["sink"]["topic"]
    looks: list[Look] = []
    command = [sys.executable, "-c", HEADRACE, "--log-level", "error", "run", str(job)]
    with subprocess.Popen(command) as worker:  # noqa: S603 (headrace itself)
        try:
            began, first, looked = time.monotonic(), ring.written, 0.0
            while (now := time.monotonic() - began) < seconds:
                if worker.poll() is not None:
                    raise ProbeFailedError(f"the worker ended with {worker.returncode}")
                due = int((now + WRITE_SECONDS) * rate) - (ring.written - first)
                ring.write(due)
                if now >= looked:
                    looked = now + LOOK_SECONDS
                    looks.append(look(now, "worker", worker.pid, state))
                    looks += [look(now, node, pid, None) for node, pid in pids.items()]
                time.sleep(max(0.0, began + now + WRITE_SECONDS - time.monotonic()))
            delivered = _delivered(servers, topic, ring.written)
        finally:
            worker.terminate()
    return looks, delivered


def _delivered(servers: str, topic: str, expected: int) -> int:
    """Return how many messages *topic* has, when it has those or after a while."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "soak"})
    try:
        partitions = consumer.list_topics(topic, timeout=_SECONDS_MAX).topics[topic].partitions
        deadline = time.monotonic() + _SECONDS_MAX
        while True:
            places = [TopicPartition(topic, number) for number in partitions]
            found = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
            if found >= expected or time.monotonic() > deadline:
                return found
            time.sleep(1)
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())

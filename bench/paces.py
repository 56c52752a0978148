"""Both modes beside each other: what a worker costs, and how late it is: `python -m bench.paces`.

Another process writes three live segments as nodes do. The worker has a sink that takes everything
at once and notes when. What is late is the last change of a section, at QUORUM: from when the
second log said that it is durable until it was acknowledged. Nothing of a broker is in it. With
`--agents` the logs are read through an agent for each node.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from bench.errors import ProbeFailedError
from bench.figures import Figure
from bench.machine import busy_ticks
from bench.network import FarJob, through_agents
from bench.recordings import prepare
from bench.reporting import table
from bench.tail import (
    LOGS,
    SPLITS,
    Writes,
    cpu_seconds,
    delivered,
    job_of,
    state_of,
    until,
    writer_of,
)
from headrace.connector.commands.cli import main as headrace
from headrace.connector.control.jobs import read_job
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Delivery, Failure, Settle, Writer
from headrace.sources.cassandra.logs import folder_watch

_ROOT: Final = Path(__file__).parents[1]
MODES: Final = ("log", "realtime")
RATES: Final = (1_000, 20_000)
SYNC_SECONDS: Final = 0.01  # `commitlog_sync: group`, as often as this.
_WARM_SECONDS: Final = 1.0
_PERCENT: Final = 100


def work(job: str, out: str, *, inotify: bool) -> int:
    """Run *job*, and write into *out* how many changes were acknowledged when, in ns."""
    if not inotify:
        folder_watch.Inotify.watch = lambda *_: None  # type: ignore[method-assign]
    noted: list[tuple[int, int]] = []
    sink: Any = read_job(Path(job)).sink
    really = sink.open

    def opened(made: object) -> Writer:
        writer: Writer = really(made)
        submit = writer.submit

        def noting(delivery: Delivery, settle: Settle) -> None:
            def settled(delivered: Collection[int], failures: Sequence[Failure] = ()) -> None:
                noted.append((time.monotonic_ns(), len(delivered)))
                settle(delivered, failures)

            submit(delivery, settled)

        writer.submit = noting  # type: ignore[method-assign]
        return writer

    sink.open = opened
    status = headrace(["--log-level", "error", "run", job])
    counts = accumulate(count for _, count in noted)
    Path(out).write_text(json.dumps([(at, n) for (at, _), n in zip(noted, counts, strict=True)]))
    return status


@dataclass(frozen=True)
class Way:
    """How a worker gets to the logs: through agents or from directories; with events or without.

    And where the changes go.
    """

    agents: bool = False
    inotify: bool = True
    sink: Mapping[str, object] = field(default_factory=lambda: {"plugin": "null"})


def measured(  # noqa: PLR0913, PLR0917 (what is measured, and where)
    folder: Path, schema: str, mode: str, rate: int, seconds: float, way: Way
) -> Mapping[str, float]:
    """Return CPU shares and delays of a worker in *mode* at *rate* changes a second."""
    folders = [folder / f"node{number}" for number in range(LOGS)]
    out = folder / "noted.json"
    each, syncs = round(rate * SYNC_SECONDS), round(seconds / SYNC_SECONDS)
    writes = Writes(each, syncs, sync_seconds=SYNC_SECONDS)
    with writer_of(schema, folders, writes) as (begin, ended):
        near = job_of(folder, schema, folders, SPLITS, mode, way.sink)
        reached = through_agents(near) if way.agents else nullcontext(FarJob(near, ()))
        with reached as far, _working(far.path, out, way) as worker:
            until(state_of(far.path).exists)
            with closing(SqliteStore.open(state_of(far.path), "tail")) as store:
                until(lambda: all(state.position for state in store.states()))
                time.sleep(_WARM_SECONDS)
                before = cpu_seconds(worker.pid)
                time.sleep(seconds / 2)
                idle = cpu_seconds(worker.pid) - before
                before, agents_ns = cpu_seconds(worker.pid), sum(far.cpu_ns())
                machine = busy_ticks()
                begin()
                durable = ended()
                until(lambda: delivered(store) >= syncs * each)
                cpu = cpu_seconds(worker.pid) - before
                agents_ns = sum(far.cpu_ns()) - agents_ns
                busy, ticks = (b - a for a, b in zip(machine, busy_ticks(), strict=True))
    late = sorted(_late(durable, json.loads(out.read_text()), each))
    return {
        "idle": _PERCENT * idle / (seconds / 2),
        "change": cpu / (syncs * each) * 1e6,
        "busy": _PERCENT * busy / ticks,
        "agents": agents_ns / (syncs * each) / 1e3,
        "p50": late[len(late) // 2],
        "p99": late[len(late) * 99 // 100],
        "max": late[-1],
    }


@contextmanager
def _working(job: Path, out: Path, way: Way) -> Iterator[subprocess.Popen[bytes]]:
    """Run the worker of a job in a process of its own; it ends before *out* is there."""
    events = () if way.inotify else ("--no-inotify",)
    with subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", "bench.paces", "--work", str(job), str(out), *events], cwd=_ROOT
    ) as worker:
        try:
            yield worker
        finally:
            worker.send_signal(signal.SIGINT)
            worker.wait(60)


def _late(durable: Sequence[int], noted: Sequence[tuple[int, int]], each: int) -> Sequence[float]:
    """Return how many ms after its second log was durable each section was acknowledged."""
    found, at = [], 0
    for number in range(len(durable) // LOGS):
        second = sorted(durable[number * LOGS : (number + 1) * LOGS])[1]
        while at < len(noted) and noted[at][1] < (number + 1) * each:
            at += 1
        if at == len(noted):
            raise ProbeFailedError(f"section {number} was not acknowledged")
        found.append((noted[at][0] - second) / 1e6)
    warm = len(found) // 10  # What is made once is there then.
    return found[warm:]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="bench.paces", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long at each rate")
    parser.add_argument("--work", nargs=2, metavar=("JOB", "OUT"), help=argparse.SUPPRESS)
    parser.add_argument("--rates", type=int, nargs="+", help="changes a second")
    parser.add_argument("--agents", action="store_true", help="read through agents")
    parser.add_argument("--no-inotify", action="store_true", help="as on a remote file system")
    given = parser.parse_args()
    way = Way(agents=given.agents, inotify=not given.no_inotify)
    if given.work:
        return work(*given.work, inotify=way.inotify)
    figures = []
    with tempfile.TemporaryDirectory(prefix="headrace-paces-") as name:
        recording = prepare(
            "wide", Path(name) / "wide", replicas=LOGS, consistency="QUORUM", mutations_max=None
        )
        for rate in given.rates or RATES:
            found = {
                mode: measured(
                    Path(name) / f"{mode}{rate}",
                    str(recording.schema),
                    mode,
                    rate,
                    given.seconds,
                    way,
                )
                for mode in MODES
            }
            for mode, row in found.items():
                title = f"{mode}, {rate:,} a second: "
                figures += [
                    Figure(f"{title}idle", "% of a core", [row["idle"]], {}),
                    Figure(f"{title}a change", "µs", [row["change"]], {"agents": row["agents"]}),
                    Figure(
                        f"{title}durable → acknowledged, p99",
                        "ms",
                        [row["p99"]],
                        {"p50": row["p50"], "max": row["max"]},
                    ),
                ]
    sys.stdout.write(table(figures) + "\n")
    sys.stdout.write(f"load of this machine: {os.getloadavg()[0]:.1f} (1 min)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Both modes beside each other: what a worker costs, and how late it is: `python -m bench.paces`.

Another process writes three live segments as nodes do. The worker has a sink that takes everything
at once and notes when. What is late is the last change of a section, at QUORUM: from when the
second log said that it is durable until it was acknowledged. Nothing of a broker is in it.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from bench.__main__ import table
from bench.errors import ProbeFailedError
from bench.figures import Figure
from bench.recordings import prepare
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
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.plugins import Delivery, Settle
from headrace.sinks.null import NullSink, NullWriter

_ROOT: Final = Path(__file__).parents[1]
MODES: Final = ("log", "realtime")
RATES: Final = (1_000, 20_000)
SYNC_SECONDS: Final = 0.01  # `commitlog_sync: group`, as often as this.
_WARM_SECONDS: Final = 1.0
_PERCENT: Final = 100


def work(job: str, out: str) -> int:
    """Run *job*, and write into *out* how many changes were acknowledged when, in ns."""
    noted: list[tuple[int, int]] = []

    class Noting(NullWriter):
        """Notes when changes are acknowledged."""

        def submit(self, delivery: Delivery, settle: Settle) -> None:
            super().submit(delivery, settle)
            noted.append((time.monotonic_ns(), self.records))

    def opened(_: NullSink) -> NullWriter:
        return Noting()

    NullSink.open = opened  # type: ignore[method-assign, assignment]
    status = headrace(["--log-level", "error", "run", job])
    Path(out).write_text(json.dumps(noted))
    return status


def measured(
    folder: Path, schema: str, mode: str, rate: int, seconds: float
) -> Mapping[str, float]:
    """Return CPU shares and delays of a worker in *mode* at *rate* changes a second."""
    folders = [folder / f"node{number}" for number in range(LOGS)]
    out = folder / "noted.json"
    each, syncs = round(rate * SYNC_SECONDS), round(seconds / SYNC_SECONDS)
    writes = Writes(each, syncs, sync_seconds=SYNC_SECONDS)
    with writer_of(schema, folders, writes) as (begin, ended):
        job = job_of(folder, schema, folders, SPLITS, mode)
        with subprocess.Popen(  # noqa: S603 (our own module)
            [sys.executable, "-m", "bench.paces", "--work", str(job), str(out)], cwd=_ROOT
        ) as worker:
            try:
                until(state_of(job).exists)
                with closing(SqliteStore.open(state_of(job), "tail")) as store:
                    until(lambda: all(state.position for state in store.states()))
                    time.sleep(_WARM_SECONDS)
                    before = cpu_seconds(worker.pid)
                    time.sleep(seconds / 2)
                    idle = cpu_seconds(worker.pid) - before
                    before = cpu_seconds(worker.pid)
                    begin()
                    durable = ended()
                    until(lambda: delivered(store) >= syncs * each)
                    cpu = cpu_seconds(worker.pid) - before
            finally:
                worker.send_signal(signal.SIGINT)
                worker.wait(60)
    late = sorted(_late(durable, json.loads(out.read_text()), each))
    return {
        "idle": _PERCENT * idle / (seconds / 2),
        "change": cpu / (syncs * each) * 1e6,
        "p50": late[len(late) // 2],
        "p99": late[len(late) * 99 // 100],
        "max": late[-1],
    }


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
    given = parser.parse_args()
    if given.work:
        return work(*given.work)
    figures = []
    with tempfile.TemporaryDirectory(prefix="headrace-paces-") as name:
        recording = prepare(
            "wide", Path(name) / "wide", replicas=LOGS, consistency="QUORUM", mutations_max=None
        )
        for rate in RATES:
            found = {
                mode: measured(
                    Path(name) / f"{mode}{rate}",
                    str(recording.schema),
                    mode,
                    rate,
                    given.seconds,
                )
                for mode in MODES
            }
            for mode, row in found.items():
                title = f"{mode}, {rate:,} a second: "
                figures += [
                    Figure(f"{title}idle", "% of a core", [row["idle"]], {}),
                    Figure(f"{title}a change", "µs", [row["change"]], {}),
                    Figure(
                        f"{title}durable → acknowledged, p99",
                        "ms",
                        [row["p99"]],
                        {"p50": row["p50"], "max": row["max"]},
                    ),
                ]
    sys.stdout.write(table(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

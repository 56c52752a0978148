"""How much faster two pumps are than one: `python -m bench.pumps`, on an idle machine.

Processes share a job whose logs are empty. When each has its splits, all segments are linked into
the logs at once; it ends when every change is committed. Beside the ratio of the times is that of
the CPU that a pump took: it says the same on a machine that is busy.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from bench.errors import ProbeFailedError
from bench.recordings import mutations_of, prepare
from bench.starting import HEADRACE
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.forge.segments import write_log

SECONDS_MAX: Final = 300
SPLITS: Final = 16
_KEY: Final = 18  # Where the bytes of the partition key begin, behind a length of one byte.
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_FIRST_ID: Final = 1_800_000_000_000


@dataclass(frozen=True)
class Run:
    """What one run took; `cpu_seconds` of each pump."""

    seconds: float
    cpu_seconds: Sequence[float]


def logs(folder: Path, *, rounds: int, replicas: int) -> tuple[Path, int]:
    """Write the recording so often, each time with other keys, in each of so many logs.

    Returns the schema, and how many mutations there are.
    """
    wide = prepare("wide", folder / "recorded", replicas=1, consistency="ONE", mutations_max=None)
    entries = mutations_of(wide.schema)
    for node in range(replicas):
        made = (_changed(entry, number) for number in range(rounds) for entry in entries)
        write_log(folder / f"all{node}", made, first_id=_FIRST_ID + 1_000_000 * node)
    return wide.schema, rounds * len(entries)


def run(folder: Path, place: Path, schema: Path, *, mutations: int, pumps: int) -> Run:
    """Let so many pumps read the logs of *folder*; *place* is made for the job."""
    whole = sorted(folder.glob("all*"))
    nodes = {log.name: place / log.name for log in whole}
    for path in nodes.values():
        path.mkdir(parents=True)
    job = {
        "job": "bench",
        "state": "state.db",
        "source": {
            "plugin": "cassandra",
            "schema": str(schema),
            "consistency": "QUORUM" if len(nodes) > 1 else "ONE",
            "nodes": {node: str(path) for node, path in nodes.items()},
            "splits": SPLITS,
        },
        "sink": {"plugin": "null"},
        "runtime": {"commit_max_seconds": 0.2, "outstanding_bytes_max": 16 << 20},
    }
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    with _processes(place / "job.yaml", pumps) as children:
        _until((place / "state.db").exists)
        with closing(SqliteStore.open(place / "state.db", "bench")) as store:
            _until(lambda: _shared(store, pumps))
            before = [_cpu(child.pid) for child in children]
            began = time.monotonic()
            for log in whole:
                for segment in sorted(log.iterdir()):
                    os.link(segment, nodes[log.name] / segment.name)
            _until(lambda: _delivered(store) >= mutations)
            seconds = time.monotonic() - began
            cpu = [_cpu(child.pid) - b for child, b in zip(children, before, strict=True)]
    return Run(seconds, cpu)


def main() -> int:
    """Print what one and two pumps take; return 1 if two are not as much faster as promised."""
    parser = argparse.ArgumentParser(prog="python -m bench.pumps", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="the best of so many")
    parser.add_argument("--rounds", type=int, default=20, help="the recording so often")
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--no-alarm", action="store_true", help="never fail for being slow")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-pumps-") as name:
        folder = Path(name)
        schema, mutations = logs(folder, rounds=given.rounds, replicas=given.replicas)
        every: dict[int, list[Run]] = {1: [], 2: []}
        for number in range(given.runs):
            for pumps, made in every.items():
                place = folder / f"run{number}-{pumps}"
                made.append(run(folder, place, schema, mutations=mutations, pumps=pumps))
    best = {pumps: min(made, key=lambda each: each.seconds) for pumps, made in every.items()}
    light = {pumps: min(max(each.cpu_seconds) for each in made) for pumps, made in every.items()}
    for pumps, fastest in best.items():
        rate = mutations / fastest.seconds
        sys.stdout.write(
            f"{pumps} pumps: {rate:,.0f} mutations a second; CPU of one {light[pumps]:.2f} s\n"
        )
    faster, lighter = best[1].seconds / best[2].seconds, light[1] / light[2]
    sys.stdout.write(f"by time {faster:.2f} times, by CPU {lighter:.2f} times\n")
    sys.stdout.write(f"load before this: {os.getloadavg()[2]:.1f}\n")
    return int(faster < 1.7 and not given.no_alarm)  # noqa: PLR2004 (what is promised)


def _changed(entry: bytes, number: int) -> bytes:
    """Return a mutation of another key."""
    end = _KEY + entry[_KEY - 1]
    key = (int.from_bytes(entry[_KEY:end], "big") ^ number).to_bytes(end - _KEY, "big")
    return entry[:_KEY] + key + entry[end:]


def _shared(store: SqliteStore, pumps: int) -> bool:
    owners = Counter(row.owner for row in store.leases())
    return None not in owners and [SPLITS // pumps] * pumps == list(owners.values())


def _delivered(store: SqliteStore) -> int:
    return sum(c.delivered for state in store.states() for c in state.counters.values())


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise ProbeFailedError("the pumps did not come so far")
        time.sleep(0.05)


@contextmanager
def _processes(job: Path, count: int) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    children = [
        subprocess.Popen(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", HEADRACE, "--log-level", "error", "run", str(job)]
        )
        for _ in range(count)
    ]
    try:
        yield children
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            child.wait(SECONDS_MAX)


if __name__ == "__main__":
    sys.exit(main())

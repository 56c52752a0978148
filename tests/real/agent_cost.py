"""What a reader that catches up through the agent costs the writes of the agent's node.

One node is written to at a steady pace, one statement at a time; meanwhile nobody reads its log,
or a reader takes all finished segments from the agent again and again. The ways take turns, so that
a slow minute of the machine hits all; each figure is the median of the rounds.

PYTHONPATH=tests/helpers .venv/bin/python tests/real/agent_cost.py [--rounds 5] [--seconds 10]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
from cassandra.cluster import Session
from load import Load, make_tables
from ring_jobs import agents
from servers.cassandra import CURRENT, Cassandra, Release
from servers.ring import connected

from headrace.sources.cassandra.agent_protocol import ENTRIES_PATH, SEGMENTS_PATH, Entries

PIECE_BYTES: Final = 1 << 20
BACKLOG: Final = 30_000
PADDING: Final = 3_000
A_SECOND: Final = 200
READER_NICE: Final = 19  # It stands for one on another machine.
SETTINGS: Final = {"cdc_total_space": "2048MiB"}
KEYSPACE: Final = "cost"
WAYS: Final[dict[str, tuple[str, ...] | None]] = {
    "nobody reads": None,
    "a reader catches up": (),
    "the same, --rate-bytes 8MiB": ("--rate-bytes", "8MiB"),
}


def read_for_ever(url: str) -> None:
    """Take all entries of the finished segments until killed; print the rate of each pass."""
    os.nice(READER_NICE)
    everything = [(-(1 << 63), (1 << 63) - 1)]
    while True:
        begun = time.monotonic()
        with urllib.request.urlopen(url + SEGMENTS_PATH) as answer:  # noqa: S310 (ours)
            segments = json.load(answer)["segments"]
        passed = 0
        for each in segments:
            for begin in range(0, each["bytes"], PIECE_BYTES):
                if each["limit"] != -1 or each["missing"]:
                    continue
                asked = Entries(
                    begin=begin,
                    bytes=PIECE_BYTES,
                    key=bytes(16),
                    full=True,
                    ranges=everything,
                    passed=frozenset(),
                    kept=frozenset(),
                )
                request = urllib.request.Request(  # noqa: S310 (ours)
                    f"{url}{ENTRIES_PATH}/{each['name']}", msgspec.msgpack.encode(asked)
                )
                with urllib.request.urlopen(request) as answer:  # noqa: S310 (ours)
                    answer.read()
                passed += PIECE_BYTES
        sys.stdout.write(f"{passed / (time.monotonic() - begun):.0f}\n")
        sys.stdout.flush()


@contextmanager
def reading(node: Cassandra, folder: Path, options: tuple[str, ...]) -> Iterator[Path]:
    """Have a process catch up through an agent; give the file of its bytes per second."""
    folder.mkdir()
    with agents([node], folder, *options) as through:
        command = [sys.executable, __file__, "--read", through[node.host]["url"]]
        with (folder / "rates").open("w") as rates:
            reader = subprocess.Popen(  # noqa: S603 (ourselves)
                command, stdout=rates
            )
        try:
            yield folder / "rates"
        finally:
            reader.kill()
            reader.wait()


def latencies_ms(session: Session, seconds: float) -> list[float]:
    """Write one row after another for so long, at a steady pace; return how long each took."""
    insert = session.prepare(f"INSERT INTO {KEYSPACE}.items (id, name) VALUES (?, ?)")  # noqa: S608 (ours)
    found: list[float] = []
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + seconds:
        due = begun + len(found) / A_SECOND
        time.sleep(max(0.0, due - now))
        asked = time.monotonic()
        session.execute(insert, (len(found), "x" * 300))
        found.append(1000 * (time.monotonic() - asked))
    return found


def main() -> None:
    """Measure, or be the reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--read", help="used by this program itself")
    given = parser.parse_args()
    if given.read:
        read_for_ever(given.read)
    measure(given.rounds, given.seconds)


def measure(rounds: int, seconds: float) -> None:
    """Let the ways take turns, and print what each cost."""
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="headrace-cost-") as name, ExitStack() as stack:
        folder = Path(name)
        release = Release(CURRENT.version, CURRENT.java, SETTINGS)
        node = stack.enter_context(Cassandra(folder / "node", release=release))
        session = stack.enter_context(connected([node.host], node.port)).connect()
        make_tables(session, KEYSPACE, replicas=1)
        Load(session, KEYSPACE, padding=PADDING).write(BACKLOG)
        for number in range(rounds):
            for way, options in WAYS.items():
                with ExitStack() as reads:
                    if options is not None:
                        place = folder / f"{number} {way}"
                        told = reads.enter_context(reading(node, place, options))
                        while not told.stat().st_size:
                            time.sleep(0.1)  # Until it is through once.
                    times = sorted(latencies_ms(session, seconds))
                    found[way].append((times[len(times) // 2], times[len(times) * 99 // 100]))
                    if options is not None:
                        rates[way] += [float(rate) for rate in told.read_text().split()]
    for way, figures in found.items():
        half, most = (statistics.median(each) for each in zip(*figures, strict=True))
        rate = statistics.median(rates[way]) / 1e6 if rates[way] else 0
        sys.stdout.write(f"{way:30} p50 {half:6.2f} ms  p99 {most:6.2f} ms  {rate:6.1f} MB/s\n")


if __name__ == "__main__":
    main()

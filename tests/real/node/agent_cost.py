"""What a reader that catches up through the agent costs the writes of the agent's node.

One node is written to at a steady pace, one statement at a time; meanwhile no process reads its
log, or a reader takes all finished segments from the agent again and again. A write is timed from
when it was due, so one that is slow counts for those that it kept waiting. The ways take turns,
each round the other way round, so that a slow minute of the machine hits all. Of each round there
is a p50 and a p99: printed are the median of the rounds, the least and the highest. A difference
between ways that is less than that between rounds says nothing.

PYTHONPATH=tests .venv/bin/python tests/real/node/agent_cost.py [--rounds 5] [--seconds 8]
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cassandra.cluster import Session

from headrace.sources.cassandra.agent.protocol import ENTRIES_PATH, SEGMENTS_PATH, Entries
from real.load import Load, make_tables
from real.ring_jobs import agents
from real.servers.cassandra import CURRENT, Cassandra, Release
from real.servers.ring import connected

PIECE_BYTES: Final = 1 << 20
BACKLOG: Final = 5_000
PADDING: Final = 12_000
A_SECOND: Final = 200
WARM_SECONDS: Final = 10.0
READER_NICE: Final = 19  # It stands for one on another machine.
SETTINGS: Final = {"cdc_total_space": "2048MiB"}
KEYSPACE: Final = "cost"
Options = tuple[str, ...] | None  # Of the agent that is read from, if there is one.
WAYS: Final[dict[str, Options]] = {
    "nobody reads": None,
    "a reader catches up": (),
    "the same, --rate-bytes 8MiB": ("--rate-bytes", "8MiB"),
}


class Round(NamedTuple):
    """What a round gave: ms that half of the writes, and 99 of 100, took at most; bytes/s read."""

    p50: float
    p99: float
    rate: float


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
    """Write one row after another for so long, at a steady pace; return how late each was done."""
    insert = session.prepare(f"INSERT INTO {KEYSPACE}.items (id, name) VALUES (?, ?)")  # noqa: S608 (ours)
    found: list[float] = []
    begun = time.monotonic()
    while (due := begun + len(found) / A_SECOND) < begun + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        session.execute(insert, (len(found), "x" * 300))
        found.append(1000 * (time.monotonic() - due))
    return found


def main() -> None:
    """Measure, or be the reader."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--read", help="used by this program itself")
    given = parser.parse_args()
    if given.read:
        read_for_ever(given.read)
    measure(given.rounds, given.seconds)


def measure(rounds: int, seconds: float) -> None:
    """Let the ways take turns, and print what each cost."""
    found: dict[str, list[Round]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="headrace-cost-") as name, ExitStack() as stack:
        folder = Path(name)
        release = Release(CURRENT.version, CURRENT.java, SETTINGS)
        node = stack.enter_context(Cassandra(folder / "node", release=release))
        session = stack.enter_context(connected([node.host], node.port)).connect()
        make_tables(session, KEYSPACE, replicas=1)
        Load(session, KEYSPACE, padding=PADDING).write(BACKLOG)
        latencies_ms(session, WARM_SECONDS)
        for number in range(rounds):
            for way in list(WAYS)[:: 1 if number % 2 else -1]:
                place = folder / f"{number} {way}"
                found[way].append(one_round(node, session, seconds, place, WAYS[way]))
    sys.stdout.write(f"{rounds} rounds of {seconds:g} s, {A_SECOND} writes a second\n")
    for way, figures in found.items():
        p50, p99, rates = zip(*figures, strict=True)
        rate = statistics.median(rates) / 1e6
        sys.stdout.write(f"{way:28} p50 {spread(p50)} ms  p99 {spread(p99)} ms  {rate:5.1f} MB/s\n")


def one_round(
    node: Cassandra, session: Session, seconds: float, folder: Path, options: Options
) -> Round:
    """Measure one way once."""
    with ExitStack() as stack:
        reported = None if options is None else stack.enter_context(reading(node, folder, options))
        while reported is not None and not reported.stat().st_size:
            time.sleep(0.1)  # Until it is through once.
        times = sorted(latencies_ms(session, seconds))
        rates = [float(rate) for rate in reported.read_text().split()] if reported else [0.0]
    return Round(times[len(times) // 2], times[len(times) * 99 // 100], statistics.median(rates))


def spread(figures: Sequence[float]) -> str:
    """Return the median, and between which they lie."""
    return f"{statistics.median(figures):5.1f} ({min(figures):.1f} to {max(figures):.1f})"


if __name__ == "__main__":
    main()

"""What exactly-once delivery costs, compared with at least once: `make bench-once`.

Lines of a file go to a real broker, in turns at least once and exactly once, each run in a process
of its own. The embedded broker cannot stand in: it does not describe the configuration of topics.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from bench.measure import probe

LINES: Final = 200_000
RUNS: Final = 5
GOAL: Final = 1.3  # Times the CPU of at least once.
Runs = Mapping[bool, Sequence[Mapping[str, Any]]]  # Any: what a probe measured, in JSON.


def measured(folder: Path, bootstrap_servers: str, *, lines: int, runs: int) -> Runs:
    """Copy so many lines to the broker, *runs* times each way; True is exactly once."""
    path = folder / "in.jsonl"
    path.write_text((json.dumps({"n": 1, "text": "x" * 250}) + "\n") * lines)
    found: dict[bool, list[Mapping[str, Any]]] = {False: [], True: []}
    for number in range(runs):
        for exactly_once, samples in found.items():
            job = folder / f"run{number}-{exactly_once}.json"
            sink = {
                "plugin": "kafka",
                "bootstrap.servers": bootstrap_servers,
                "topic": f"price-{uuid4().hex}",
                "format": "json",
                "exactly.once": exactly_once,
            }
            document = {
                "job": job.stem,
                "state": str(job.with_suffix(".db")),
                "source": {"plugin": "files", "path": str(path)},
                "sink": sink,
            }
            job.write_text(json.dumps(document))
            sample = probe("run", job=str(job))
            if sample["changes"] != lines:
                raise ProbeFailedError(f"{sample['changes']} changes of {lines} lines")
            samples.append(sample)
    return found


def main() -> int:
    """Print the least of the runs each way; return 1 if the goal was missed."""
    parser = broker_parser("bench.once", __doc__, runs=RUNS)
    parser.add_argument("--lines", type=int, default=LINES, help="how many are copied in a run")
    given = parser.parse_args()
    with brokers(given) as (servers, folder):
        found = measured(folder, servers, lines=given.lines, runs=given.runs)
    cpu, cpu_once = (min(s["cpu_ns"] for s in found[way]) / 1e9 for way in (False, True))
    wall, wall_once = (min(s["wall_s"] for s in found[way]) for way in (False, True))
    sys.stdout.write(
        f"{given.lines} records, at least once: CPU {cpu:.2f} s, wall {wall:.2f} s\n"
        f"{given.lines} records, exactly once: CPU {cpu_once:.2f} s, wall {wall_once:.2f} s\n"
        f"exactly once: {cpu_once / cpu:.2f} x the CPU (goal: at most {GOAL})\n"
    )
    return int(cpu_once > GOAL * cpu and not given.no_alarm)


if __name__ == "__main__":
    sys.exit(main())

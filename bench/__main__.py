"""Measures, prints one table, and keeps the raw numbers: `python -m bench`."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.errors import ProbeFailedError
from bench.figures import figures_of
from bench.machine import machine_facts
from bench.measure import measure
from bench.reporting import RESULTS, as_json, keep, status_of, table

RUNS: Final = 5
MUTATIONS_QUICK: Final = 2_000


def main() -> int:
    """Return 1 if a figure is beyond its alarm, or as asked its goal, or was not measured."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help="how often each is measured")
    parser.add_argument("--quick", action="store_true", help="one run, little data: does it work?")
    parser.add_argument("--no-alarm", action="store_true", help="never fail for being slow")
    parser.add_argument("--goals", action="store_true", help="fail for goals that are missed, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    facts = machine_facts()
    _say("machine: " + ", ".join(f"{k} {v}" for k, v in facts.items() if k != "libraries"))
    if not (facts["compiled"] or given.quick):
        sys.stderr.write("error: the hot modules are interpreted\nhint: make bench compiles them\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        try:
            samples, recordings = measure(
                Path(folder),
                runs=1 if given.quick else given.runs,
                mutations_max=MUTATIONS_QUICK if given.quick else None,
            )
        except ProbeFailedError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    figures = figures_of(samples, recordings)
    _say(table(figures))
    raw = {
        "machine": facts,
        "recordings": {n: [r.mutations, r.mutation_bytes] for n, r in recordings.items()},
        "figures": [as_json(figure) for figure in figures],
        "samples": samples,
    }
    keep(given.results, "", raw)
    return 0 if given.no_alarm or given.quick else status_of(figures, goals=given.goals)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

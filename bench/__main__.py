"""Measures, prints one table, and keeps the raw numbers: `python -m bench`."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.errors import ProbeFailedError
from bench.figures import Figure, figures_of
from bench.machine import machine_facts
from bench.measure import measure

RESULTS: Final = Path(__file__).parent / "results"
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
    given.results.mkdir(parents=True, exist_ok=True)
    path = given.results / time.strftime("%Y-%m-%dT%H%M%S.json")
    path.write_text(json.dumps(raw, indent=1) + "\n")
    _say(f"raw numbers: {path}")
    too_much = [] if given.no_alarm or given.quick else complaints(figures, goals=given.goals)
    for complaint in too_much:
        sys.stderr.write(f"{complaint}\n")
    if too_much:
        sys.stderr.write("hint: on a busy machine give --no-alarm\n")
    return int(bool(too_much))


def complaints(figures: Sequence[Figure], *, goals: bool) -> Sequence[str]:
    """Return a line for each figure beyond its alarm, and with *goals* for those beyond these."""
    found = [("alarm", figure, figure.alarm) for figure in figures if figure.alarming]
    if goals:
        found += [("goal", figure, figure.goal) for figure in figures if figure.misses]
    return [
        f"{name}: {figure.title}: {_measured(figure.least)} {figure.unit} at the least, "
        f"at most {_shown(most)} is {'allowed' if name == 'alarm' else 'the goal'}"
        for name, figure, most in found
    ]


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as lines of text: least and median of the runs, goal, alarm, bounds."""
    rows = [("", "least", "median", "goal", "alarm", "", "beside it, in the same run")]
    for figure in figures:
        bounds = ", ".join(f"{name} {_measured(value)}" for name, value in figure.bounds.items())
        rows.append(
            (
                figure.title,
                _measured(figure.least),
                _measured(figure.measured),
                _shown(figure.goal),
                _shown(figure.alarm),
                figure.unit,
                bounds,
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for title, *numbers, unit, bounds in rows:
        right = [n.rjust(width) for n, width in zip(numbers, widths[1:], strict=False)]
        lines.append("  ".join((title.ljust(widths[0]), *right, unit.ljust(widths[-2]), bounds)))
    return "\n".join(line.rstrip() for line in lines)


def as_json(figure: Figure) -> dict[str, object]:
    """Return a figure as it is kept."""
    return {
        "title": figure.title,
        "unit": figure.unit,
        "median": round(figure.measured, 3),
        "runs": [round(value, 3) for value in figure.runs],
        "bounds": {name: round(value, 3) for name, value in figure.bounds.items()},
        "goal": figure.goal,
        "alarm": figure.alarm,
    }


def _shown(number: float | None) -> str:
    """Return a limit as it was set, or nothing."""
    return "" if number is None else f"{number:g}"


def _measured(number: float) -> str:
    """Return three significant digits."""
    return f"{number:#.3g}".rstrip(".")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""What benchmarks print of their figures, what they keep, and with which status they end."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.figures import Figure

RESULTS: Final = Path(__file__).parent / "results"


def keep(folder: Path, name: str, raw: Mapping[str, object]) -> None:
    """Write *raw* into a file of *folder*, of that name and the time; print where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{'-' if name else ''}{time.strftime('%Y-%m-%dT%H%M%S')}.json"
    path.write_text(json.dumps(raw, indent=1) + "\n")
    sys.stdout.write(f"raw numbers: {path}\n")
    sys.stdout.flush()


def status_of(figures: Sequence[Figure], *, goals: bool) -> int:
    """Print the complaints; return 1 if there are any."""
    found = complaints(figures, goals=goals)
    sys.stderr.write("".join(f"{complaint}\n" for complaint in found))
    if found:
        sys.stderr.write("hint: on a busy machine give --no-alarm\n")
    return int(bool(found))


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

"""How late changes are that go into a real Kafka, in both modes: `python -m bench.latency`.

Another process writes three live segments as nodes do that sync each 10 ms. The worker reads their
directories at QUORUM and has a real broker acknowledge each record (`acks=all`). What is late is
the last change of a section: from when the second log said that it is durable until it was
acknowledged. All share the processors; the table says how busy these were.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.brokers import broker_parser, brokers
from bench.figures import Figure
from bench.machine import machine_facts
from bench.paces import MODES, RATES, Way, measured
from bench.recordings import prepare
from bench.reporting import RESULTS, as_json, keep, status_of, table
from bench.tail import LOGS

SECONDS: Final = 20.0
# In mode realtime, in ms, by rate: of the median and of the 99th in a hundred.
_GOALS_MS: Final[Mapping[int, tuple[float | None, float]]] = {1_000: (5, 25), 20_000: (None, 100)}
_ALARM: Final = 20  # Times the goal: processors are shared with all that is measured.


def figures_of(mode: str, rate: int, row: Mapping[str, float]) -> Sequence[Figure]:
    """Return what was found of one mode at one rate."""
    goals = _GOALS_MS.get(rate, (None, None)) if mode == "realtime" else (None, None)
    title = f"{mode}, {rate:,} a second: durable → acknowledged"
    beside = {"max": row["max"], "processors busy, %": row["busy"]}
    late = [
        Figure(
            f"{title}, {name}",
            "ms",
            [row[name]],
            beside,
            goal=goal,
            alarm=None if goal is None else goal * _ALARM,
        )
        for name, goal in zip(("p50", "p99"), goals, strict=True)
    ]
    return [*late, Figure(f"{mode}, {rate:,} a second: a change", "µs", [row["change"]], {})]


def main() -> int:
    """Return 1 if a figure is beyond its alarm."""
    parser = broker_parser("bench.latency", __doc__, runs=1)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long at each rate")
    parser.add_argument("--goals", action="store_true", help="fail for goals that are missed, too")
    parser.add_argument("--agents", action="store_true", help="read through agents")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    found: list[Mapping[str, object]] = []
    figures: list[Figure] = []
    with brokers(given) as (servers, folder):
        recording = prepare(
            "wide", folder / "wide", replicas=LOGS, consistency="QUORUM", mutations_max=None
        )
        for rate in RATES:
            for mode in MODES:
                sink = {
                    "plugin": "kafka",
                    "bootstrap.servers": servers,
                    "topic": f"latency-{uuid4().hex}",
                    "topic.creation.enable": True,
                }
                place, way = folder / f"{mode}{rate}", Way(agents=given.agents, sink=sink)
                row = measured(place, str(recording.schema), mode, rate, given.seconds, way)
                figures += figures_of(mode, rate, row)
                found.append({"mode": mode, "rate": rate, "load": os.getloadavg()[0], **row})
    sys.stdout.write(table(figures) + "\n")
    sys.stdout.write(f"load of this machine: {os.getloadavg()[0]:.1f} (1 min)\n")
    raw = {
        "machine": machine_facts(),
        "agents": given.agents,
        "found": found,
        "figures": [as_json(figure) for figure in figures],
    }
    keep(given.results, "latency", raw)
    return 0 if given.no_alarm else status_of(figures, goals=given.goals)


if __name__ == "__main__":
    sys.exit(main())

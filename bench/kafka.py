"""What a change costs on its way into a real Kafka, beside bare `produce`: `make bench-kafka`.

Three copies of each mutation, from directories. Every way is a whole worker with `acks=all` and
idempotence, in a process of its own, less the same on empty logs. Bare `produce` has the same
records, settings and headers, in confluent-kafka's producer with one callback. "changes/s" is the
best of the runs.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from bench.brokers import broker_parser, brokers
from bench.errors import ProbeFailedError
from bench.figures import MD5_NS, Figure, md5_ns
from bench.machine import machine_facts
from bench.measure import Jobs, probe
from bench.recordings import Recording, prepare
from bench.reporting import RESULTS, keep, status_of, table

RUNS: Final = 3
TIMES: Final = 3  # So often as many mutations as the recordings have: the start counts less.
TIMES_MIN: Final = 2  # A log that was recorded, and not forged, has a replication of its own.
_NS_PER_US: Final = 1_000
_GOALS_US: Final = {"wide": 3.0, "narrow": 2.2}  # At 250,000 changes a second, at the least.
_ALARMS_US: Final = {"wide": 5.5, "narrow": 4.0}
_COLUMNS: Final = {"wide": 13, "narrow": 4}
_HEADERS: Final = {
    "three headers": ["schemaId", "table", "token"],
    "schemaId alone": ["schemaId"],
    "no headers": [],
}
Sample = Mapping[str, Any]  # Any: what a probe measured, in JSON.


class Way(NamedTuple):
    """What is measured of a recording."""

    recording: str
    compression: str
    headers: str


WAYS: Final = [
    *(Way(r, c, "three headers") for r in _COLUMNS for c in ("none", "lz4")),
    *(Way(r, "lz4", headers) for r in _COLUMNS for headers in list(_HEADERS)[1:]),
]


def measured(
    folder: Path, servers: str, recordings: Mapping[str, Recording], *, runs: int
) -> Iterator[tuple[Way, Mapping[str, Sample]]]:
    """Measure each way *runs* times, one after another, so that a slow minute hits them all."""
    folder.mkdir()
    jobs = Jobs(folder)  # One for all runs: a job of a name that was used has a state elsewhere.
    for _ in range(runs):
        for way in WAYS:
            recording = recordings[way.recording]
            sink = {
                "plugin": "kafka",
                "bootstrap.servers": servers,
                "topic": f"bench-{uuid4().hex}",
                "topic.creation.enable": True,
                "compression.type": way.compression,
                "headers": _HEADERS[way.headers],
            }
            job = jobs.write(recording, recording.nodes, sink)
            null = {"plugin": "null"}
            found = {
                "run": jobs.probe("run", job=job),
                "start": jobs.probe("run", job=jobs.write(recording, recording.empty_nodes, sink)),
                "confluent": jobs.probe(
                    "run", job=jobs.write(recording, recording.nodes, sink), by_confluent=True
                ),
                "null": jobs.probe("run", job=jobs.write(recording, recording.nodes, null)),
                "bare": jobs.probe("produce", job=jobs.write(recording, recording.nodes, sink)),
            }
            for name, sample in found.items():
                sample.pop("modules", None)
                if name != "start" and sample["changes"] != recording.mutations:
                    raise ProbeFailedError(f"{way}: {sample['changes']} of {recording.mutations}")
            yield way, found


def figures_of(
    samples: Mapping[Way, Sequence[Mapping[str, Sample]]], md5: float
) -> Sequence[Figure]:
    """Return the CPU of a change and the time of a million, each way."""
    slower = max(1.0, md5 / MD5_NS)
    made = [Figure("this machine: MD5 of 323 bytes", "ns", [md5], {"where goals were set": MD5_NS})]
    for way, found in samples.items():
        cpu = [_per_change_us(s["run"], s["start"]) for s in found]
        bare = [s["bare"]["cpu_ns"] / s["bare"]["changes"] / _NS_PER_US for s in found]
        times = [_seconds(s["run"], s["start"]) for s in found]
        columns = _COLUMNS[way.recording]
        title = f"three copies of {columns} columns -> Kafka, {way.compression}, {way.headers}"
        figure = Figure(
            title,
            "µs",
            cpu,
            {
                "bare produce": min(bare),
                "by confluent-kafka": min(
                    _per_change_us(s["confluent"], s["start"]) for s in found
                ),
                "null sink": min(_per_change_us(s["null"], s["start"]) for s in found),
                "changes/s": 1e6 / min(times),
            },
            goal=_GOALS_US[way.recording],
            alarm=_ALARMS_US[way.recording],
        )
        made.append(figure.where(slower))
    return made


def _per_change_us(run: Sample, start: Sample) -> float:
    return float(run["cpu_ns"] - start["cpu_ns"]) / int(run["changes"]) / _NS_PER_US


def _seconds(run: Sample, start: Sample) -> float:
    """Return how long a million changes take, without start and end."""
    return float(run["wall_s"] - start["wall_s"]) / int(run["changes"]) * 1e6


def main() -> int:
    """Return 1 if a figure is beyond its alarm."""
    parser = broker_parser("bench.kafka", __doc__, runs=RUNS)
    parser.add_argument("--times", type=int, default=TIMES, help="how often each recording is read")
    parser.add_argument("--goals", action="store_true", help="fail for goals that are missed, too")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where raw JSON is kept")
    given = parser.parse_args()
    if given.times < TIMES_MIN:
        parser.error(f"--times: at least {TIMES_MIN}")
    samples: dict[Way, list[Mapping[str, Sample]]] = defaultdict(list)
    with brokers(given) as (servers, folder):
        recordings = {
            name: prepare(
                name,
                folder / name,
                replicas=3,
                consistency="QUORUM",
                mutations_max=None,
                times=given.times,
            )
            for name in _COLUMNS
        }
        for way, found in measured(folder / "jobs", servers, recordings, runs=given.runs):
            samples[way].append(found)
        bare = [probe("bare", log=str(recordings["wide"].log)) for _ in range(given.runs)]
    figures = figures_of(samples, min(md5_ns(each) for each in bare))
    sys.stdout.write(table(figures) + "\n")
    raw = {
        "machine": machine_facts(),
        "samples": [[*way, found] for way, found in samples.items()],
    }
    keep(given.results, "kafka", raw)
    return 0 if given.no_alarm else status_of(figures, goals=given.goals)


if __name__ == "__main__":
    sys.exit(main())

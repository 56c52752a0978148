"""What a replay costs for a change, in 2 to 128 shards: `python -m bench.spark`.

Each of three logs has all changes. A replay into the null sink reads them for all shards, in this
process (`--master none`) and on Spark; beside it, a worker reads the same bytes. Then come frames
of the logs, and a stream of a job: see `bench.spark_roads`. On Spark all that the machine does
counts, since Spark ends its processes at any time; so measure on a quiet machine. A figure is the
least of several runs.
"""

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.errors import ProbeFailedError
from bench.figures import Figure
from bench.measure import Jobs, repeated
from bench.recordings import Recording
from bench.reporting import RESULTS, keep, status_of, table
from bench.spark_roads import Roads, busy_seconds, figures_of_roads
from headrace.connector.commands.cli import main as headrace
from headrace.connector.control.jobs import job_text
from headrace.connector.obs.logging import configure
from headrace.connector.replay.delivery import ShardReport, Target, Work
from headrace.connector.replay.engine import NO_SPARK, engine
from headrace.connector.replay.execution import Performer
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.session import perform, session
from headrace.connector.replay.shards import SourceSpec

SHARDS: Final = (2, 8, 32, 128)
TIMES: Final = 3  # The recording: 330,000 changes, so that what a shard costs by itself is little.
FEW: Final = 1_000  # Changes of a stream that shows what a query takes by itself.
REPEATS: Final = 3
GROWTH_GOAL: Final = 1.2  # From the fewest shards to the most.
_US: Final = 1_000_000
_NULL: Final = {"plugin": "null"}
Found = Mapping[str, Mapping[str, Sequence[float]]]


def main() -> int:
    """Return 1 if a figure is beyond its goal."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--no-alarm", action="store_true", help="never fail for being slow")
    parser.add_argument("--mutations", type=int, default=None, help="only so many: does it work?")
    parser.add_argument("--no-spark", action="store_true", help="only `--master none`")
    parser.add_argument("--keep", type=Path, default=RESULTS, help="the folder of raw numbers")
    given = parser.parse_args()
    configure("warning")
    with repeated(given.mutations, TIMES) as (wide, jobs), repeated(FEW, 1) as (few, _):
        replays = Replays(wide, jobs)
        with contextlib.nullcontext() if given.no_spark else session("local[2]") as spark:
            roads = None if spark is None else Roads(spark, wide, jobs, few)
            if roads is not None:
                roads.first_frame()
            found = measured(replays, spark)
            along = {} if roads is None else roads.measured()
    figures = [*figures_of(found)]
    if along:
        figures += figures_of_roads(along, min(found["worker"]["all"]))
    sys.stdout.write(table(figures))
    keep(given.keep, "spark", {"changes": wide.mutations, "us": found, "roads": along})
    return 0 if given.no_alarm else status_of(figures, goals=True)


class Replays:
    """Replays of one recording, and a worker beside them, each with the CPU that it took."""

    def __init__(self, wide: Recording, jobs: Jobs) -> None:
        """Read nothing yet."""
        self._wide = wide
        self._jobs = jobs
        self._text = job_text(Path(jobs.write(wide, wide.nodes, _NULL)))

    def worker(self) -> float:
        """Return µs of a change for a worker of its own job."""
        before = time.process_time()
        job = self._jobs.write(self._wide, self._wide.nodes, _NULL)
        with contextlib.redirect_stdout(io.StringIO()):
            status = headrace(["run", job, "--until-idle"])
        return self._us(before, time.process_time(), self._wide.mutations if status == 0 else 0)

    def replay(self, by: Performer, cpu: Callable[[], float], shards: int) -> float:
        """Return µs of a change for a replay in so many *shards*; *cpu* says what it takes."""
        text, before = self._text, cpu()
        spec = SourceSpec(given=dict(text.source), directory=str(text.directory), job=text.name)
        target = Target(directory=str(text.directory), sink=dict(text.sink))
        plan = planned(spec, Selection(), shards=shards).shards
        reports: list[ShardReport] = []
        works = [Work(shard, target, "bench", 1) for shard in plan]
        by(works, begun=lambda _: None, ended=lambda _, report: reports.append(report))
        changes = sum(0 if each.problem else each.delivered for each in reports)
        return self._us(before, cpu(), changes)

    def _us(self, before: float, after: float, changes: int) -> float:
        if changes != self._wide.mutations:
            raise ProbeFailedError(f"{changes} changes of {self._wide.mutations}")
        return round((after - before) / changes * _US, 2)


def measured(replays: Replays, spark: SparkSession | None) -> Found:
    """Return µs of a change, of each run, by engine and number of shards."""
    found: dict[str, dict[str, list[float]]] = {"worker": {"all": []}}
    with engine(NO_SPARK) as here:
        engines: dict[str, tuple[Performer, Callable[[], float]]] = {
            "none": (here.perform, time.process_time)
        }
        if spark is not None:
            engines["spark"] = (partial(perform, spark), busy_seconds)
            replays.replay(*engines["spark"], SHARDS[0])  # Now all is imported.
        for _ in range(REPEATS):
            found["worker"]["all"].append(replays.worker())
            for name, does in engines.items():
                for count in SHARDS:
                    runs = found.setdefault(name, {}).setdefault(str(count), [])
                    runs.append(replays.replay(*does, count))
    return found


def figures_of(found: Found) -> Sequence[Figure]:
    """Return the figures: of each number of shards, and of the most beside the fewest."""
    worker = min(found["worker"]["all"])
    figures = [Figure("a worker, for a change", "µs", found["worker"]["all"], {})]
    for name, title in (("none", "a replay in one process"), ("spark", "a replay on Spark")):
        if name not in found:
            continue
        of = found[name]
        figures += [
            Figure(f"{title}, {count} shards", "µs", of[str(count)], {"worker": worker})
            for count in SHARDS
        ]
        fewest, most = (min(of[str(count)]) for count in (SHARDS[0], SHARDS[-1]))
        growth = [round(most / fewest, 2)]
        said = f"{title}: {SHARDS[-1]} shards for {SHARDS[0]}"
        figures.append(Figure(said, "x", growth, {}, goal=GROWTH_GOAL))
    return figures


if __name__ == "__main__":
    sys.exit(main())

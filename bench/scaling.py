"""What a second Spark worker brings, and what the driver keeps of what it has read.

`python -m bench.scaling` replays a recording into Parquet files on one worker of one core, then on
two, each a Spark cluster of processes on this machine, and says how much faster the two are. The
driver's memory is measured after a tenth of the rows, and after all of them. It needs two idle
cores.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.sql import SparkSession

from bench.errors import ProbeFailedError
from bench.measure import Jobs, repeated
from bench.recordings import Recording
from headrace.connector.control.jobs import job_text
from headrace.connector.obs.logging import configure
from headrace.connector.replay.delivery import Target, Work
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.session import perform, session
from headrace.connector.replay.shards import SourceSpec

SHARDS: Final = 4
TIMES: Final = 6  # The recording: a shard is 56 MB of each log. A plan makes it 128 MiB.
REPEATS: Final = 3  # Of all shards, so that a run takes some seconds.
GOAL: Final = 1.7
GROWTH_MAX: Final = 0.1  # Of the driver's memory, from a tenth of the rows to all of them.
_MEMORY_MB: Final = 1024
_TENTH: Final = 10


def main() -> int:
    """Return 1 if a figure is beyond its goal."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--no-alarm", action="store_true", help="never fail for being slow")
    parser.add_argument("--mutations", type=int, default=None, help="only so many: does it work?")
    given = parser.parse_args()
    configure("warning")
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)  # Whose workers are started.
    with repeated(given.mutations, TIMES) as (wide, jobs):
        one, two = (measured(workers, wide, jobs) for workers in (1, 2))
    faster = one["wall_seconds"] / two["wall_seconds"]
    growth = max(two["memory_bytes"] / two["memory_bytes_before"] - 1, 0)
    for result in (one, two):
        sys.stdout.write(f"{json.dumps(result)}\n")
    sys.stdout.write(
        f"two workers: {faster:.2f} x one (goal {GOAL})\n"
        f"driver's memory after {_TENTH} x the rows: + {growth:.1%} (at most {GROWTH_MAX:.0%})\n"
    )
    return int((faster < GOAL or growth > GROWTH_MAX) and not given.no_alarm)


def measured(workers: int, wide: Recording, jobs: Jobs) -> Mapping[str, Any]:
    """Replay *wide* on so many workers; say how long it took, once all were warm."""
    job = Path(jobs.write(wide, wide.nodes, {"plugin": "null"}))
    text = job_text(job)
    spec = SourceSpec(given=dict(text.source), directory=str(text.directory), job=text.name)
    shards = planned(spec, Selection(), shards=SHARDS).shards
    target = Target(directory=str(text.directory), path="out")
    works = [Work(shard, target, f"run{n}", 1) for n in range(REPEATS) for shard in shards]
    with session(f"local-cluster[{workers},1,{_MEMORY_MB}]") as spark:
        spark.sparkContext.parallelize(range(2), 2).count()
        _wait_for(spark, workers)
        _replay(spark, works[: len(works) // _TENTH])
        before_bytes = _memory_bytes(spark)
        _replay(spark, works[:SHARDS])  # Now all are warm.
        started = time.monotonic()
        changes, cpu_seconds = _replay(spark, works)
        wall_seconds = time.monotonic() - started
        after_bytes = _memory_bytes(spark)
    if changes != REPEATS * wide.mutations:
        raise ProbeFailedError(f"{changes} changes of {REPEATS * wide.mutations}")
    return {
        "workers": workers,
        "changes": changes,
        "wall_seconds": round(wall_seconds, 2),
        "cpu_seconds": round(cpu_seconds, 2),
        "memory_bytes_before": before_bytes,
        "memory_bytes": after_bytes,
    }


def _replay(spark: SparkSession, works: list[Work]) -> tuple[int, float]:
    reports: list[Any] = []
    perform(spark, works, begun=lambda _: None, ended=lambda _, report: reports.append(report))
    for report in reports:
        if report.problem:
            raise ProbeFailedError(report.problem)
    return sum(each.delivered for each in reports), sum(each.cpu_seconds for each in reports)


def _wait_for(spark: SparkSession, workers: int) -> None:
    """Wait until all executors are there: what is started before goes to the first of them."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 (nothing else tells)
    until = time.monotonic() + 60
    while context.getExecutorMemoryStatus().size() <= workers:  # The driver is one of them.
        if time.monotonic() > until:
            raise ProbeFailedError(f"{workers} executors were not there in a minute")
        time.sleep(0.1)


def _memory_bytes(spark: SparkSession) -> int:
    """Return what the driver uses: this process's resident memory, and the heap of its Java."""
    gc.collect()
    runtime = spark._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]  # noqa: SLF001 (as above)
    runtime.gc()
    heap: int = runtime.totalMemory() - runtime.freeMemory()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return heap + pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())

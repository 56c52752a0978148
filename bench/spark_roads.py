"""What else a change costs on Spark: frames of logs, their Parquet files, and a stream of a job.

Beside it, how long the first frame takes, and the most memory that a Python process of a task had.
"""

import contextlib
import io
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.errors import ProbeFailedError
from bench.figures import Figure
from bench.measure import Jobs
from bench.recordings import Recording
from bench.spark_floor import ready_frame
from headrace.connector.commands.cli import main as headrace

TASKS: Final = (2, 128)
_REPEATS: Final = 2
_US: Final = 1_000_000
_KB_OF_MB: Final = 1024
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PARENT: Final = 1  # A field of /proc/PID/stat behind the name.
_FIRST: Final = "first frame"
_MEMORY: Final = "memory"
_GOALS: Final = {"noop": 2.0, "parquet": 4.0}
_TITLES: Final = {
    "count, 2": "headrace.segments, count() in 2 tasks",
    "count, 128": "headrace.segments, count() in at most 128 tasks",
    "noop": "headrace.segments, all columns as Arrow",
    "parquet": "headrace.segments, into Parquet files",
    "stream": "a stream into the null sink",
}
# What Spark takes by itself: for rows that are ready, and for a stream of few changes.
_FLOORS: Final = {"noop": "noop, ready", "parquet": "parquet, ready", "stream": "stream, few"}
Samples = Mapping[str, Sequence[float]]


class Roads:
    """See the module; of one recording, and of one with *few* changes."""

    def __init__(self, spark: SparkSession, wide: Recording, jobs: Jobs, few: Recording) -> None:
        """Read nothing yet."""
        self._spark = spark
        self._wide = wide
        self._few = few
        self._jobs = jobs
        self._found: dict[str, list[float]] = {}

    def first_frame(self) -> None:
        """Measure the seconds until the first rows are shown; before all else, but what is warm."""
        started = time.monotonic()
        rows = self._frame(self._job(), 2).limit(1).collect()
        self._found[_FIRST] = [round(time.monotonic() - started, 2)]
        if len(rows) != 1:
            raise ProbeFailedError("no first row")

    def measured(self) -> Samples:
        """Return µs of CPU of a change for each road, and the most MB of a task."""
        job = self._job()
        files = Path(job).with_name("parquet")
        ready = ready_frame(self._spark, Path(job).with_name("ready"), job, TASKS[0])
        for _ in range(_REPEATS):
            for tasks in TASKS:
                self._take(f"count, {tasks}", self._frame(job, tasks).count)
            self._take("noop", lambda: self._written(self._frame(job, 2), "noop"))
            self._take("parquet", lambda: self._written(self._frame(job, 2), "parquet", files))
            if self._spark.read.parquet(str(files)).count() != self._wide.mutations:
                raise ProbeFailedError("the files do not have all changes")
            shutil.rmtree(files)
            self._take("noop, ready", lambda: self._written(ready, "noop"))
            self._take("parquet, ready", lambda: self._written(ready, "parquet", files))
            shutil.rmtree(files)
            self._take("stream", lambda: self._streamed(self._wide))
            self._take("stream, few", lambda: self._streamed(self._few))
        self._found[_MEMORY] = [most_memory_mb()]
        return self._found

    def _job(self) -> str:
        return self._jobs.write(self._wide, self._wide.nodes, {"plugin": "null"})

    def _frame(self, job: str, tasks: int) -> DataFrame:
        reader = self._spark.read.format("headrace.segments")
        return reader.option("job", job).option("shards", tasks).load()

    def _written(self, frame: DataFrame, kind: str, folder: Path | None = None) -> int:
        writer = frame.write.format(kind).mode("overwrite")
        writer.save() if folder is None else writer.save(str(folder))
        return self._wide.mutations

    def _streamed(self, of: Recording) -> int:
        job = self._jobs.write(of, of.nodes, {"plugin": "null"})
        with contextlib.redirect_stdout(io.StringIO()):
            status = headrace(["run", job, "--engine", "spark", "--until-idle"])
        return self._wide.mutations if status == 0 else 0  # Each road is divided by all changes.

    def _take(self, road: str, do: Callable[[], int]) -> None:
        before = busy_seconds()
        changes = do()
        spent = busy_seconds() - before
        if changes != self._wide.mutations:
            raise ProbeFailedError(f"{road}: {changes} changes of {self._wide.mutations}")
        self._found.setdefault(road, []).append(round(spent / changes * _US, 2))


def figures_of_roads(found: Samples, worker: float) -> Sequence[Figure]:
    """Return the figures; *worker* is what a change costs a worker."""
    goals = {**_GOALS, "stream": round(2 * worker, 2)}
    figures = []
    for road, title in _TITLES.items():
        goal = goals.get(road)
        alarm = None if goal is None else 10 * goal  # Spark's own work is most of it.
        bounds = {"worker": worker}
        if road in _FLOORS:
            bounds["spark alone"] = min(found[_FLOORS[road]])
        figures.append(Figure(title, "µs", found[road], bounds, goal, alarm))
    growth = [round(min(found["count, 128"]) / min(found["count, 2"]), 2)]
    said = "headrace.segments, count(): 128 tasks for 2"
    figures.append(Figure(said, "x", growth, {}, goal=1.2, alarm=3))
    figures.append(Figure("the first frame", "s", found[_FIRST], {}, goal=12, alarm=60))
    said = "the most memory of a task's process"
    return [*figures, Figure(said, "MB", found[_MEMORY], {}, goal=400, alarm=800)]


def busy_seconds() -> float:
    """Return the CPU seconds of all processes of this machine, also of those that ended."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:8]
    user, nice, system, _, _, interrupts, soft = map(int, fields)
    return (user + nice + system + interrupts + soft) / _TICKS


def most_memory_mb() -> float:
    """Return the most that any Python process below this one had in memory, of those that run."""
    names: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has ended.
            said, _, rest = place.read_text().rpartition(")")
            process = int(place.parent.name)
            names[process] = said.partition("(")[2]
            children.setdefault(int(rest.split()[_PARENT]), []).append(process)
    below = list(children.get(os.getpid(), ()))
    for process in below:  # It grows.
        below += children.get(process, [])
    most = 0.0
    for process in below:
        if names[process].startswith("python"):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{process}/status").read_text().splitlines()
                values = dict(line.split(":", 1) for line in lines)
                most = max(most, int(values.get("VmHWM", "0 kB").split()[0]) / _KB_OF_MB)
    return round(most, 1)

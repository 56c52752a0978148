"""Frames whose tasks fail or are slow the first time, and a program for a Spark that speculates.

Nothing here sleeps for a time: a slow attempt ends when the second one has done the same.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.connector.commands.cli import main
from headrace.connector.replay.session import session
from helpers.settings.native_modules import ROOT
from real.spark.spark_jobs import WAIT_SECONDS_MAX

Query = tuple[str, dict[str, str], list[str]]
"""A source, its options, and the columns that name a change."""

HELD_SECONDS_MAX: Final = 120.0
# A second attempt starts when half of the tasks have ended, or a quarter of a second is over.
# Unless a test says otherwise, an attempt that fails is not repeated: so what is attempted twice is
# so by speculation.
SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "250ms",
    "spark.speculation.task.duration.threshold": "250ms",
}
HOLDER: Final = '''
"""Python imports this module by itself; it holds the first task at an event until a second."""
import os
import re
import sys
import time
from pathlib import Path

EVENT, PATTERN = {event!r}, re.compile({pattern!r})
FOLDER = Path({folder!r})


def note(event, arguments):
    if event != EVENT or not (found := PATTERN.search(str(arguments[0]))):
        return
    first, second = FOLDER / "first", FOLDER / "second"
    place = found[0].encode()
    if first.exists():
        if first.read_bytes() == place:
            second.touch()
        return
    try:
        os.close(os.open(first, os.O_CREAT | os.O_EXCL))
    except FileExistsError:  # Another task was faster.
        return
    first.write_bytes(place)
    until = time.monotonic() + {seconds}
    while not second.exists() and time.monotonic() < until:
        time.sleep(0.02)


sys.addaudithook(note)
'''


def holding_python(folder: Path, event: str, pattern: str) -> Path:
    """Return an interpreter for Spark whose first task at an event waits for a second one there.

    *pattern* is of what the event is about; what it matches must be the same for both.
    """
    folder.mkdir()
    text = HOLDER.format(event=event, pattern=pattern, folder=str(folder), seconds=HELD_SECONDS_MAX)
    (folder / "sitecustomize.py").write_text(text)
    found = folder / "python"
    found.write_text(f'#!/bin/sh\nPYTHONPATH={folder}:$PYTHONPATH exec {sys.executable} "$@"\n')
    found.chmod(0o755)
    return found


def loaded(spark: SparkSession, query: Query) -> DataFrame:
    """Return a new frame, of the columns that name a change."""
    name, options, columns = query
    return spark.read.format(name).options(**options).load().selectExpr(*columns)


def failing_once(frame: DataFrame) -> list[list[object]]:
    """Return the rows of *frame*; the first attempt of each task fails after its first rows."""

    def fail(rows: Iterable[Row]) -> Iterator[Row]:
        context = TaskContext.get()
        for row in rows:
            yield row
            if context is not None and not context.attemptNumber():
                raise RuntimeError

    return rows_of(frame.rdd.mapPartitions(fail))


def overtaken(frame: DataFrame, folder: Path) -> list[list[object]]:
    """Return the rows of *frame*; an attempt waits amid its rows until another has read them all.

    It is the first attempt of the first part that has rows.
    """
    folder.mkdir()
    first, second = folder / "first", folder / "second"
    seconds = HELD_SECONDS_MAX

    def hold(rows: Iterable[Row]) -> Iterator[Row]:
        context = TaskContext.get()
        assert context is not None
        part = str(context.partitionId())
        for row in rows:
            yield row
            if context.attemptNumber() or first.exists():
                continue
            try:
                os.close(os.open(first, os.O_CREAT | os.O_EXCL))
            except FileExistsError:  # Another part was faster.
                continue
            first.write_text(part)
            until = time.monotonic() + seconds
            while not second.exists():
                assert time.monotonic() < until
                time.sleep(0.02)
        if context.attemptNumber() and first.read_text() == part:
            second.touch()

    found = rows_of(frame.rdd.mapPartitions(hold))
    assert second.exists()
    return found


def rows_of(frame: RDD[Row]) -> list[list[object]]:
    """Return the rows of a frame, sorted."""
    return sorted(list(row) for row in frame.collect())


def speculating(
    master: str, command: Sequence[str], python: Path | None = None, *, failures_max: int = 1
) -> str:
    """Run a command of this module with speculation at *master*; return what it printed.

    A task may fail fewer than *failures_max* times.
    """
    program = "import sys; from real.spark.spark_attempts import speculate; sys.exit(speculate())"
    done = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program, master, str(failures_max), *command],
        env=environment(python),
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def environment(python: Path | None) -> dict[str, str]:
    """Return the variables of a process that starts Spark, whose tasks use *python*."""
    path = os.pathsep.join(filter(None, [str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": str(python or sys.executable)}


def speculate() -> int:
    """Print the rows of queries, or run a command of headrace, on a Spark that speculates."""
    master, failures_max, what, *rest = sys.argv[1:]
    with session(master, {**SPECULATION, "spark.task.maxFailures": failures_max}) as spark:
        if what != "rows":
            return main([what, *rest])
        folder, queries = Path(rest[0]), json.loads(rest[1])
        found = [
            overtaken(loaded(spark, query), folder / str(number))
            for number, query in enumerate(queries)
        ]
    print(json.dumps(found))  # noqa: T201 (for the test)
    return 0

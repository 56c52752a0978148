"""Sinks in tasks of Spark: the suite that every sink must pass there, and rows of lakes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.plugins.testing import SinkSuite
from headrace.sources.cassandra.forge.mutations import encode_mutation
from headrace.sources.cassandra.schema.ddl import parse_schema
from helpers.histories.lakes import LakeBox
from helpers.logs.forged import NOW_US, SCHEMA, TABLE, insert
from helpers.logs.gap_jobs import GapJob
from helpers.settings.native_modules import ROOT
from real.spark.spark_jobs import WAIT_SECONDS_MAX

pytestmark = pytest.mark.real

LAKES: Final = (("iceberg", "append"), ("iceberg", "upsert"), ("delta", "upsert"))
SEGMENTS, WRITES, KEYS = 4, 300, 200  # A worker delivers the last segment.
RUN: Final = """
import sys
from headrace.connector.commands.cli import main
from headrace.connector.replay.session import session

command = ["--engine", "spark", "--until-idle", "--batch-bytes", "120000"]
with session("local[2]"):
    sys.exit(max(main(["run", job, *command]) for job in sys.argv[1:]))
"""
Write = tuple[bytes, int, bytes]
"""A key, when it was written, and its value; empty: its partition is deleted."""

SUITES = (
    "tests/sinks/files/test_files.py::TestFileSink",
    "tests/sinks/kafka/test_sink.py::TestKafkaSink",
)


def test_the_suite_of_sinks(spark: SparkSession) -> None:
    """Each sink passes each case in a process that Spark made for its tasks."""
    root = str(ROOT)

    def passed(suite: str) -> tuple[Sequence[str], str]:
        found, failed = [], []

        class Noted:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                if report.when == "call" and report.passed:
                    found.append(report.nodeid.rpartition("::")[2])
                if report.failed:
                    failed.append(str(report.longrepr))

        os.chdir(root)
        pytest.main(["-q", "-p", "no:cacheprovider", suite], plugins=[Noted()])
        return found, "\n".join(failed)

    results = spark.sparkContext.parallelize(SUITES, len(SUITES)).map(passed).collect()
    cases = {name for name in vars(SinkSuite) if name.startswith("test_")}
    for suite, (found, failed) in zip(SUITES, results, strict=True):
        assert not failed, suite
        assert cases <= {name.partition("[")[0] for name in found}, suite


def test_rows_of_lakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark and then a worker write: each change once, or each row as it was written last.

    Writes and deletions come in any order of their times, in several micro-batches.
    """
    given = random.Random(17)  # noqa: S311 (not for secrets)
    times = given.sample(range(SEGMENTS * WRITES), SEGMENTS * WRITES)
    writes = [
        (b"k%d" % given.randrange(KEYS), at_us, b"" if at_us % 5 == 0 else b"v%d" % at_us)
        for at_us in times
    ]
    jobs = []
    for kind, mode in LAKES:
        box = LakeBox(kind, tmp_path / "lakes", mode, monkeypatch, namespace=mode)
        folder = tmp_path / f"{kind}-{mode}"
        folder.mkdir()
        job = GapJob(folder)
        job.deliver({"plugin": kind, **box.options()}, {})
        jobs.append((box, job))
        log(job, 0, writes[: (SEGMENTS - 1) * WRITES])
    # In a process of its own: its tasks get the variables of their process.
    done = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", RUN, *(str(job.path) for _, job in jobs)],
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )
    assert 0 == done.returncode, done.stdout + done.stderr

    for box, job in jobs:
        committed = checkpoint_of(job.folder / "state.db", "orders").committed()
        assert committed is not None
        assert committed[0] > 0
        log(job, SEGMENTS - 1, writes[(SEGMENTS - 1) * WRITES :])
        assert 0 == job.run()
        assert len(writes) == job.delivered()
        rows = box.rows("forged.t")
        if box.mode == "upsert":
            assert folded(writes) == sorted((row["k"], row["v"]) for row in rows)
        else:
            assert sorted(writes) == sorted(map(write_in, rows))


def log(job: GapJob, first: int, writes: Sequence[Write]) -> None:
    """Let all nodes log writes, in segments from *first* on."""
    for number, at in enumerate(range(0, len(writes), WRITES), start=first + 1):
        job.spread(number, *map(raw, writes[at : at + WRITES]))


def raw(write: Write) -> bytes:
    """Return the mutation of a write."""
    key, at_us, value = write
    if value:
        return insert(key, value, at_us=at_us)
    deletion = {"ts": NOW_US + at_us, "ldt": NOW_US // 1_000_000}
    deleted = {"id": str(TABLE), "key": key.hex(), "items": [], "partition_deletion": deletion}
    return encode_mutation({"updates": [deleted]}, parse_schema(SCHEMA), 12)


def write_in(row: Mapping[str, Any]) -> Write:
    """Return the write that a row of a change says."""
    since = row["write_time"] - datetime.fromtimestamp(NOW_US // 1_000_000, UTC)
    return row["k"], since // timedelta(microseconds=1), (row["change"] or {}).get("v") or b""


def folded(writes: Iterable[Write]) -> Sequence[tuple[bytes, bytes]]:
    """Return the rows after writes: of each key the last one, unless that deletes it."""
    last = {key: value for key, _, value in sorted(writes, key=lambda write: write[1])}
    return sorted((key, value) for key, value in last.items() if value)

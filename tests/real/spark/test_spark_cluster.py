"""A cluster whose executors are processes: what is killed there with signal 9 loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.connector.commands.cli import main
from headrace.connector.replay.runs import RunTable, ShardState
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.stores import TableCounts
from helpers.settings.native_modules import ROOT
from real.servers.spark import INSTALLED, quick_start
from real.spark.spark_cluster import DRIVER, EXECUTOR, TASK, Moment, killing_python, past
from real.spark.spark_jobs import (
    WAIT_SECONDS_MAX,
    by_worker,
    kafka_sink,
    killed,
    messages,
    ring_job,
    spark_process,
)

pytestmark = pytest.mark.real

PAGE: Final = ROOT / "docs" / "spark.md"
SHARDS: Final = 8  # From that many on, logs are read once for all, and go through a shuffle.
# A task has delivered all of its shard, and has not said so: it removes its temporary folder.
DELIVERED: Final = ("shutil.rmtree", "headrace-replay-")
# A task of a stream has delivered all of its split, and has not said so: it removes what an
# earlier attempt could not deliver.
SETTLED: Final = ("os.remove", r"/dead-letters/\d+-\d+\.jsonl$")
# The driver has counted the second batch, and Spark has not committed it.
COUNTED: Final = ("os.rename", r"/delivered/1$")
# A task has decided a commit, and is about to add its rows to the tables: it locks these.
STAGED: Final = ("sqlite3.connect", r"/_headrace\.db\.lock$")


def submitted(master: str, command: str) -> list[str]:
    """Return the line of the page that submits a command, for the cluster *master*."""
    (line,) = re.findall(r"^    (spark-submit --master spark.*)$", PAGE.read_text(), re.MULTILINE)
    given = "run orders.yaml RUN"
    assert line.endswith(given)
    line = line.removesuffix(given).replace("spark://master1:7077", master) + command
    return ["sh", "-c", line]


def test_a_replay_through_kills(
    master: str, tmp_path: Path, bootstrap_servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A killed task, a killed executor and a killed driver lose nothing of a replay.

    What comes twice is of the shards that were not complete: two that had delivered all when their
    task and their executor were killed, and those that ran when the driver was. The run continues
    with the line of the page for `spark-submit`, whose jobs are named by what they do.
    """
    topic = f"replay-{uuid4().hex}"
    job = ring_job(tmp_path, "replay", kafka_sink(bootstrap_servers, topic))
    rate = str(by_worker().total() / 3)
    plan = ["replay", "plan", str(job), "--shards", str(SHARDS), "--rate", rate, "--json"]
    assert 0 == main(plan)
    run = str(json.loads(capsys.readouterr().out)["run"])
    python = killing_python(
        tmp_path / "kills", [Moment(TASK, *DELIVERED), Moment(EXECUTOR, *DELIVERED)]
    )

    def in_the_middle() -> bool:
        seen = {state for state, _ in shards(job, run)} if past(python) > 1 else set()
        return {ShardState.PASS, ShardState.STARTED} <= seen

    command = ["replay", "run", str(job), run, "--master", master]
    killed(command, tmp_path / "killed.log", in_the_middle, python)
    cut = [n for n, (state, _) in enumerate(shards(job, run)) if state is not ShardState.PASS]
    done = subprocess.run(  # noqa: S603 (the page's own line)
        submitted(master, f"run {job} {run}"),
        env=shell_with_spark() | noting_events(tmp_path / "events"),
        check=False,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert f"run {run}: {SHARDS} PASS" in done.stdout
    ended = shards(job, run)
    assert [ShardState.PASS] * SHARDS == [state for state, _ in ended]
    counts = [count for _, count in ended]
    found = messages(bootstrap_servers, f"{topic}.replay")
    assert by_worker().total() == sum(counts) == len(found)
    repeats = found.total() - len(found)
    into = "sink kafka, topics that end in .replay"
    assert {f"headrace: {run}: shard {n + 1} into {into}" for n in cut} == described(tmp_path)
    assert min(counts) * 2 <= repeats <= 2 * max(counts) + sum(counts[n] for n in cut)


def shards(job: Path, run: str) -> list[tuple[ShardState, int]]:
    """Return the state of each shard of a run, and how many changes it delivered."""
    with closing(RunTable(job.with_name("state.db"))) as table:
        return [(row.state, int(row.report.get("delivered", 0))) for row in table.shards(run)]


def noting_events(folder: Path) -> dict[str, str]:
    """Return the variable of a configuration with which Spark writes its events into *folder*."""
    folder.mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder.parent / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(folder.parent)}


def described(folder: Path) -> set[str]:
    """Return the descriptions of the jobs in the only log of events."""
    (log,) = (folder / "events").iterdir()
    events = map(json.loads, log.read_text().splitlines())
    jobs = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    return {job["Properties"]["spark.job.description"] for job in jobs}


def shell_with_spark() -> dict[str, str]:
    """Return the variables of a shell that finds Spark's programs as installed, and our Python."""
    given = {name: value for name, value in os.environ.items() if name not in quick_start()}
    folders = [str(INSTALLED / "bin"), str(Path(sys.executable).parent), given["PATH"]]
    return {**given, "PATH": os.pathsep.join(folders), "PYSPARK_PYTHON": sys.executable}


def test_a_stream_through_kills(
    master: str,
    spark: SparkSession,
    tmp_path: Path,
    bootstrap_servers: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A killed task, a killed executor and a killed driver lose nothing of a stream.

    The driver dies amid its commit: what it has counted of the second batch, Spark has not
    committed. Started again, in this process, it repeats that batch as a whole, and nothing else.
    """
    assert spark is SparkSession.getActiveSession()
    topic = f"stream-{uuid4().hex}"
    job = ring_job(tmp_path, "stream", kafka_sink(bootstrap_servers, topic), splits=4)
    moments = [Moment(TASK, *SETTLED), Moment(EXECUTOR, *SETTLED), Moment(DRIVER, *COUNTED)]
    python = killing_python(tmp_path / "kills", moments)
    options = ["--engine", "spark", "--until-idle", "--batch-bytes", "2097152"]
    command = ["run", str(job), *options]

    log = tmp_path / "killed.log"
    with spark_process([*command, "--master", master], log, python) as child:
        status = child.wait(WAIT_SECONDS_MAX)

    assert (-signal.SIGKILL, len(moments)) == (status, past(python)), log.read_text()
    checkpoint = checkpoint_of(tmp_path / "state.db", "stream")
    (half,) = (checkpoint.folder / "delivered").glob(".1.*")
    first, both = (delivered_in(path) for path in (half.with_name("0"), half))
    before = messages(bootstrap_servers, topic)
    assert 0 < first < both == len(before)
    assert 0 < before.total() - both <= 2 * first  # Of one split each.

    assert 0 == main(command)

    whole = messages(bootstrap_servers, topic)
    assert by_worker().total() == len(whole)
    assert before.total() - both + both - first == whole.total() - len(whole)
    again = whole - before
    assert both - first == sum(before[name] > 0 for name in again.elements())
    assert len(whole) == changes_of(job, capsys)


def delivered_in(path: Path) -> int:
    """Return how many records a file of the checkpoint counts."""
    kept = msgspec.msgpack.decode(path.read_bytes())
    splits = msgspec.convert(kept["splits"], list[dict[str, TableCounts]])
    return sum(counts.delivered for split in splits for counts in split.values())


def test_a_lake_through_kills(
    master: str, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task, an executor and a driver that are killed amid a commit: each change is in once.

    Task and executor have decided a commit then, and no table has it. A worker continues, has
    nothing to do, and its own lake has the same rows.
    """
    assert spark is SparkSession.getActiveSession()
    sink = {"plugin": "delta", "path": str(tmp_path / "lake")}
    job = ring_job(tmp_path, "stream", sink, splits=4)
    moments = [Moment(TASK, *STAGED), Moment(EXECUTOR, *STAGED), Moment(DRIVER, *COUNTED)]
    python = killing_python(tmp_path / "kills", moments)
    command = ["run", str(job), "--engine", "spark", "--until-idle", "--batch-bytes", "3145728"]

    log = tmp_path / "killed.log"
    with spark_process([*command, "--master", master], log, python) as child:
        status = child.wait(WAIT_SECONDS_MAX)
    assert (-signal.SIGKILL, len(moments)) == (status, past(python)), log.read_text()
    assert 0 == main(command)
    assert 0 == main(["run", str(job), "--until-idle"])

    (tmp_path / "other").mkdir()
    of_worker = ring_job(tmp_path / "other", "other", sink | {"path": str(tmp_path / "other/lake")})
    assert 0 == main(["run", str(of_worker), "--until-idle"])
    rows = in_lake(tmp_path / "lake")
    assert rows == in_lake(tmp_path / "other/lake")
    assert by_worker().total() == changes_of(job, capsys) == rows.total()


def in_lake(folder: Path) -> Counter[str]:
    """Return the rows of the tables in a folder, without where they were read."""
    found: Counter[str] = Counter()
    for place in folder.iterdir():
        if place.is_dir() and DeltaTable.is_deltatable(str(place)):
            rows = DeltaTable(place).to_pyarrow_table()
            names = sorted({*rows.column_names} - {"copies", "node", "segment", "position"})
            found.update(f"{place.name}: {row}" for row in rows.select(names).to_pylist())
    return found


def changes_of(job: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Return how many changes the books of a job, which balance, have as delivered."""
    capsys.readouterr()
    assert 0 == main(["verify", str(job), "--json"])
    tables = json.loads(capsys.readouterr().out)["total"]["tables"].values()
    return sum(int(table["delivered"]) for table in tables)

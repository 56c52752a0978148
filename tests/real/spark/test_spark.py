"""Spark itself: what it reads of recorded rings, and what runs on it."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import py4j
import pyarrow.parquet as pq
import pyspark
import pytest
import structlog
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headrace.connector.commands.cli import main
from headrace.connector.control.jobs import job_text
from headrace.connector.replay import planning
from headrace.connector.replay.delivery import ShardReport, Target, Work
from headrace.connector.replay.planning import planned
from headrace.connector.replay.selection import Selection
from headrace.connector.replay.session import perform
from headrace.connector.replay.shards import SourceSpec
from headrace.sinks.kafka.embedded import EmbeddedBroker
from helpers.jobs.deliveries import consume
from helpers.recordings.corpora import recording
from real.spark.spark_jobs import (
    NAMES,
    NODES,
    RING,
    WAIT_SECONDS_MAX,
    Names,
    by_worker,
    in_parquet,
    ring_job,
)

pytestmark = pytest.mark.real

LOST_EVERY: Final = 50  # Messages.
SHARD_BYTES_FEW: Final = 100_000  # So that a ring that was recorded has many shards.


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job over a recorded ring."""
    return ring_job(tmp_path, "ring", {"plugin": "null"})


def test_what_is_submitted_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting of the one who submits is used in place of ours; others of ours stay."""
    program = (
        "from headrace.connector.replay.session import session\n"
        "with session('local[1]', {'spark.sql.shuffle.partitions': '3'}) as spark:\n"
        "    names = 'ui.enabled', 'speculation', 'sql.shuffle.partitions', 'master'\n"
        "    print(*(spark.sparkContext.getConf().get(f'spark.{name}') for name in names))\n"
    )
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--conf spark.ui.enabled=true pyspark-shell")
    done = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS_MAX,
    )

    assert "true false 3 local[1]\n" == done.stdout


def test_processes_import_bytecode(spark: SparkSession) -> None:
    """Spark's Python processes import a pyspark whose bytecode is kept, and do not compile it."""
    task = spark.sparkContext.parallelize([0], 1)
    found = task.map(lambda _: (pyspark.__spec__.cached, py4j.__spec__.cached)).first()

    assert all(cached is not None and Path(cached).is_file() for cached in found)


def names_of(changes: DataFrame) -> Names:
    """Return the changes of a query, by what names them."""
    rows = changes.select(*NAMES).collect()
    return Counter(
        tuple(bytes(part) if isinstance(part, bytearray) else part for part in row) for row in rows
    )


def test_segments_equal_a_workers_changes(spark: SparkSession) -> None:
    """Spark agrees as a worker does: the same changes, each as often; in four tasks at least."""
    changes = spark.read.format("headrace.segments").load(str(recording(RING) / "segments"))

    assert by_worker() == names_of(changes)
    assert changes.rdd.getNumPartitions() >= 4


@pytest.mark.spark
def test_every_log_for_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Without agreement a task reads a part of one log, and all of them what the logs hold."""
    reader = spark.read.format("headrace.segments").option("agreement", "none")
    reader = reader.option("cache", str(tmp_path)).option("shards", "2")
    changes = reader.load(str(recording(RING) / "segments"))
    logged = by_worker(NODES[0]) + by_worker(NODES[1]) + by_worker(NODES[2])

    assert logged == names_of(changes)
    assert by_worker().total() < logged.total()
    assert set(NODES) == {path.name for path in tmp_path.iterdir()}


def test_filters(spark: SparkSession) -> None:
    """Spark applies filters on the changes that a worker delivers."""
    changes = spark.read.format("headrace.segments").load(str(recording(RING) / "segments"))
    wanted = by_worker()
    table = next(iter(wanted))[0]
    of_table = changes.where(f"`table` = '{table}' AND operation <> 'DELETE'")

    assert {n: c for n, c in wanted.items() if n[0] == table and n[1] != "DELETE"} == names_of(
        of_table
    )


def test_typed_columns(spark: SparkSession) -> None:
    """One table's changes have a column for each of its columns, and bytes besides or not."""
    wanted = Counter(name[0] for name in by_worker().elements())
    table = min(wanted, key=lambda name: wanted[name])
    reader = spark.read.format("headrace.segments").option("table", str(table))
    plain = reader.option("format", "none").load(str(recording(RING) / "segments"))
    whole = reader.option("format", "avro").load(str(recording(RING) / "segments"))

    row = plain.schema["row"].dataType
    assert isinstance(row, StructType)
    names = set(row.names)
    rows = plain.select("row.*", "cells", "unfit", "operation").where("operation <> 'DELETE'")

    assert wanted[table] == plain.count() == whole.where("value IS NOT NULL").count()
    assert names | {"cells", "unfit", "operation"} == set(rows.columns)
    assert all(row.operation != "DELETE" and not row.unfit for row in rows.collect())


def test_mutations_whole(spark: SparkSession) -> None:
    """In the format `mutations` a row is an agreed mutation, with all that it holds."""
    reader = spark.read.format("headrace.segments").option("format", "mutations")
    rows = reader.load(str(recording(RING) / "segments")).collect()

    documents = [json.loads(row.value) for row in rows]
    assert {name[3] for name in by_worker()} == {bytes(row.mutation) for row in rows}
    assert len(rows) == len({bytes(row.mutation) for row in rows})
    assert all(
        document["updates"][0]["key"] == row.key.hex()
        for document, row in zip(documents, rows, strict=True)
    )


@pytest.mark.spark
@pytest.mark.spark_few
def test_a_mistake_is_named(spark: SparkSession, job: Path) -> None:
    """What is wrong with an option reaches the user when the frame is loaded, without a trace."""
    wrong = [
        ("headrace.segments", {"path": "/", "formt": "json"}, "did you mean format?"),
        ("headrace.segments", {"path": "/", "format": "jsn"}, "did you mean json?"),
        ("headrace.table", {"job": str(job), "tabel": "k.t"}, "did you mean table?"),
        ("headrace.topic", {"job": str(job), "tabels": "k.t"}, "did you mean tables?"),
        ("headrace.history", {"path": "/h.db", "sinc": "2h"}, "did you mean since?"),
    ]
    for name, options, hint in wrong:
        with pytest.raises(PySparkException) as caught:
            spark.read.format(name).options(**options).load()
        check_plain(caught.value, hint)
    frame = spark.createDataFrame([("t", b"k", b"v")], "table string, key binary, value binary")
    writer = frame.write.format("headrace.sink").option("job", str(job)).option("sufix", ".copy")
    with pytest.raises(PySparkException) as caught:
        writer.mode("append").save()
    check_plain(caught.value, "did you mean suffix?")


def check_plain(error: PySparkException, hint: str) -> None:
    """Check that an error has ours, the hint and Spark's number, each in a line, and no trace."""
    ours, *rest = map(str.strip, str(error).strip().splitlines())
    assert "ConfigError: " in ours
    assert [f"hint: {hint}", "SQLSTATE: 38000"] == rest, str(error)


@pytest.mark.spark
@pytest.mark.spark_few
def test_sink_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of segments written to `headrace.sink` reach the sink of the job."""
    path = ring_job(tmp_path, "j", {"plugin": "files", "path": "out.jsonl"})
    changes = spark.read.format("headrace.segments").option("format", "json")
    frame = changes.option("job", str(path)).load().where("operation = 'UPDATE'")

    frame.write.format("headrace.sink").option("job", str(path)).mode("append").save()

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {"UPDATE"} == {line["op"] for line in lines}
    assert frame.count() == len(lines)


@pytest.mark.spark
def test_replay_on_spark(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run on Spark, in four tasks at least, delivers what a worker would, into a lake too.

    The driver, which is this process, opens no segment; what tasks wrote joins its tables.
    """
    del spark  # It is there: the command takes the session of its process.
    with opened_files() as opened:
        options = ["--to-folder", "out", "--lake", "delta", "--json"]
        assert 0 == main(["replay", "plan", str(job), *options])
        plan = json.loads(capsys.readouterr().out)
        run = plan["run"]
        assert 0 == main(["replay", "run", str(job), run])

    assert 4 <= plan["shards"]
    assert str(job) in opened
    assert any(path.endswith("_cdc.idx") for path in opened)  # These say how far a log is.
    assert not any(path.endswith(".log") for path in opened)

    wanted = by_worker()
    assert wanted == in_parquet(job.parent / "out")
    tables = [DeltaTable(log.parent) for log in job.parent.glob("out/*/_delta_log")]
    assert {name[0] for name in wanted} == {Path(table.table_uri).name for table in tables}
    assert wanted.total() == sum(table.to_pyarrow_table().num_rows for table in tables)
    assert 0 == main(["replay", "verify", str(job), run])


def test_logs_are_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """What the shards of a replay read comes by a shuffle: when they begin, no segment is left.

    All logs have all mutations: what the chosen one did not send would be read again.
    """
    ring = tmp_path / "ring"
    for node in NODES:
        shutil.copytree(recording(RING) / "segments" / NODES[0], ring / node)
    nodes = {node: str(ring / node) for node in NODES}
    text = job_text(ring_job(tmp_path, "once", {"plugin": "null"}, nodes=nodes))
    shards = planned(SourceSpec.of_job(text), Selection(), shards=8).shards
    target = Target(directory=str(tmp_path), path="out")
    reports: list[ShardReport] = []

    def empty(_: Work) -> None:
        for log in ring.rglob("*.log"):
            log.write_bytes(bytes(log.stat().st_size))

    works = [Work(shard, target, "once", 1) for shard in shards]
    apart = [replace(work, target=replace(target, path="apart")) for work in works]
    assert [""] * 8 == [work().problem for work in apart]
    perform(spark, works, begun=empty, ended=lambda _, report: reports.append(report))

    assert [""] * 8 == [report.problem for report in reports]
    found = in_parquet(tmp_path / "out")
    assert found
    assert in_parquet(tmp_path / "apart") == found


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """Note the path of every file that this process opens meanwhile."""
    opened: list[str] = []
    noting = True

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if noting and event == "open":
            opened.append(str(arguments[0]))

    sys.addaudithook(note)  # It stays, and does nothing afterwards.
    try:
        yield opened
    finally:
        noting = False


def test_reconcile_on_spark(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compared by Spark's tasks, logs and topic differ in what they do without Spark, and no more.

    Their report is the same to the last key, and so are the changes that a repair is to send. So it
    is if there are many tasks, for which the logs are read once.
    """
    assert spark is SparkSession.getActiveSession()  # The command takes the one that is there.
    broker = EmbeddedBroker()
    sink = {"plugin": "kafka", "bootstrap.servers": broker.bootstrap_servers}
    whole = ring_job(tmp_path, "whole", sink | {"topic": "whole"})
    assert 0 == main(["run", str(whole), "--until-idle"])
    messages = consume(broker.bootstrap_servers, "whole")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number, each in enumerate(messages):
        if number % LOST_EVERY:
            producer.produce("holes", each.value(), each.key(), headers=each.headers())
    producer.flush(WAIT_SECONDS_MAX)
    holes = ring_job(tmp_path, "holes", sink | {"topic": "holes"})
    capsys.readouterr()

    plain, by_spark = (reconciled(holes, master) for master in ("none", None))
    monkeypatch.setattr(planning, "SHARD_BYTES", SHARD_BYTES_FEW)
    with structlog.testing.capture_logs() as reported:
        by_many = reconciled(holes, None)

    assert plain == by_spark == by_many
    assert [] == [each for each in reported if each["event"] == "logs_not_framed"]
    lost = len(range(0, len(messages), LOST_EVERY))
    differences = plain["differences"]
    assert (lost, 0) == (differences["missing"] + differences["stale"], differences["extra"])
    assert 0 < lost < len(messages)
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert 0 == main([*command[1:], "--master", "none"])
    assert 0 == main(["reconcile", str(holes), "--grace", "0"])


def reconciled(job: Path, master: str | None) -> dict[str, Any]:
    """Return the report of a reconciliation that finds differences, and plans a repair."""
    folder = job.with_name(f"report-{master}")
    command = ["reconcile", str(job), "--repair", "--grace", "0", "--report", str(folder)]
    assert 4 == main([*command, *(["--master", master] if master else [])])
    reported: dict[str, Any] = json.loads((folder / "report.json").read_text())
    rows = pq.read_table(folder / "differences.parquet").to_pylist()
    return reported | {"rows": sorted(map(str, rows))}

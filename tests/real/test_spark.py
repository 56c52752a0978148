"""Spark itself: what it reads of recorded rings, and what runs on it, on a cluster too."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from servers.process import free_ports

from corpora import recording
from headrace.connector.cli import main
from headrace.connector.replay.columns import record_batch
from headrace.connector.replay.session import session
from node_logs import everything

pytestmark = pytest.mark.real

RING = "5.0-ring"
NODES = ("node1", "node2", "node3")
WAIT_SECONDS_MAX = 180
Names = Counter[tuple[object, ...]]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Run one session in this process."""
    with session("local[2]") as running:
        yield running


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return a job over a recorded ring."""
    path = tmp_path / "job.yaml"
    given = {
        "job": "ring",
        "state": "state.db",
        "source": {"plugin": "cassandra", **options()},
        "sink": {"plugin": "null"},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def options() -> dict[str, object]:
    """Return the options of a job over the ring."""
    folder = recording(RING)
    nodes = {node: str(folder / "segments" / node) for node in NODES}
    return {"nodes": nodes, "schema": str(folder / "schema.cql")}


def by_worker() -> Names:
    """Return the changes that a worker makes of the ring, by what names them."""
    found: Names = Counter()
    for batch in everything(options()):
        rows = record_batch(batch.encode("avro"))
        columns = [rows.column(rows.schema.names.index(n)).to_pylist() for n in _NAMES]
        found.update(zip(*columns, strict=True))
    return found


_NAMES = ("table", "operation", "key", "mutation", "index")


def names_of(changes: DataFrame) -> Names:
    """Return the changes of a query, by what names them."""
    rows = changes.select(*_NAMES).collect()
    return Counter(
        tuple(bytes(part) if isinstance(part, bytearray) else part for part in row) for row in rows
    )


def test_segments_equal_a_workers_changes(spark: SparkSession) -> None:
    """Spark agrees as a worker does: the same changes, each as often; in four tasks at least."""
    changes = spark.read.format("headrace.segments").load(str(recording(RING) / "segments"))

    assert by_worker() == names_of(changes)
    assert changes.rdd.getNumPartitions() >= 4


def test_push_down(spark: SparkSession) -> None:
    """Filters give what they give without push-down, whether headrace or Spark applies them."""
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


def test_a_mistake_is_named(spark: SparkSession) -> None:
    """What headrace says of a wrong option reaches the user of Spark."""
    with pytest.raises(Exception, match=r"is no option of headrace\.segments"):
        spark.read.format("headrace.segments").option("pth", "x").load("/").count()


def test_sink_from_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of segments written to `headrace.sink` reach the sink of the job."""
    given = {"job": "j", "state": "s.db", "source": {"plugin": "cassandra", **options()}}
    given["sink"] = {"plugin": "files", "path": "out.jsonl"}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(given))
    changes = spark.read.format("headrace.segments").option("format", "json")
    frame = changes.option("job", str(path)).load().where("operation = 'UPDATE'")

    frame.write.format("headrace.sink").option("job", str(path)).mode("append").save()

    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {"UPDATE"} == {line["op"] for line in lines}
    assert frame.count() == len(lines)


def test_replay_on_spark(
    spark: SparkSession, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run on Spark, in four tasks at least, delivers what a worker would.

    The driver, which is this process, opens no segment.
    """
    del spark  # It is there: the command takes the session of its process.
    with opened_files() as opened:
        assert 0 == main(["replay", "plan", str(job), "--to-folder", "out", "--json"])
        plan = json.loads(capsys.readouterr().out)
        run = plan["run"]
        assert 0 == main(["replay", "run", str(job), run])

    assert 4 <= plan["shards"]
    assert str(job) in opened
    assert any(path.endswith("_cdc.idx") for path in opened)  # These say how far a log is.
    assert not any(path.endswith(".log") for path in opened)

    rows = pq.read_table(job.parent / "out", columns=list(_NAMES))
    assert by_worker() == Counter(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    assert 0 == main(["replay", "verify", str(job), run])


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


def test_cluster_of_two_workers(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run on a standalone cluster with two workers delivers the same."""
    assert 0 == main(["replay", "plan", str(job), "--to-folder", "out", "--json"])
    run = json.loads(capsys.readouterr().out)["run"]
    with ExitStack() as stack:
        master = cluster(stack, job.parent)
        command = ["replay", "run", str(job), run, "--master", master]
        program = f"import sys; from headrace.connector.cli import main; sys.exit(main({command}))"
        child = subprocess.run(  # noqa: S603 (our own interpreter)
            [sys.executable, "-c", program],
            check=False,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
        )

    assert 0 == child.returncode, child.stderr
    rows = pq.read_table(job.parent / "out", columns=list(_NAMES))
    assert by_worker() == Counter(zip(*(c.to_pylist() for c in rows.columns), strict=True))


def stream_job(folder: Path, job: str) -> Path:
    """Return a job over the recorded ring, in four splits, into a file named as the job is."""
    path = folder / f"{job}.yaml"
    given = {
        "job": job,
        "state": "state.db",
        "source": {"plugin": "cassandra", **options(), "splits": 4},
        "sink": {"plugin": "files", "path": f"{job}.jsonl"},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def lines_of(job: Path) -> int:
    """Return how many records the sink of a job has by now."""
    sink = job.with_suffix(".jsonl")
    return sink.read_bytes().count(b"\n") if sink.exists() else 0


def delivered(job: Path) -> Counter[str]:
    """Return what the sink of a job has, without what is another one's whoever reads."""
    found: Counter[str] = Counter()
    for line in job.with_suffix(".jsonl").read_text().splitlines():
        document = json.loads(line)
        for name in ("copies", "node", "segment", "position"):
            del document[name]
        found[json.dumps(document, sort_keys=True)] += 1
    return found


def test_a_stream_is_what_a_worker_delivers(spark: SparkSession, tmp_path: Path) -> None:
    """Micro-batches bring the multiset that a worker does; SIGTERM ends them with status 0."""
    assert spark is SparkSession.getActiveSession()  # The command takes the one that is there.
    of_worker, of_spark = stream_job(tmp_path, "worker"), stream_job(tmp_path, "stream")
    assert 0 == main(["run", str(of_worker), "--until-idle"])
    wanted = delivered(of_worker)

    def end() -> None:
        until = time.monotonic() + WAIT_SECONDS_MAX
        while lines_of(of_spark) < wanted.total() and time.monotonic() < until:
            time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    watch = threading.Thread(target=end)
    watch.start()
    try:
        status = main(["run", str(of_spark), "--engine", "spark", "--batch-bytes", "1"])
    finally:
        watch.join()

    assert (0, wanted) == (status, delivered(of_spark))
    assert 3 < batches_of(of_spark)


def batches_of(job: Path) -> int:
    """Return how many micro-batches were planned."""
    folder = job.with_name("state.db.spark") / job.stem / "offsets" / "offsets"
    return len(list(folder.glob("[0-9]*")))


def test_a_stream_that_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """What a killed driver left undone is done, and only its last batch comes twice."""
    assert spark is SparkSession.getActiveSession()
    job = stream_job(tmp_path, "killed")
    command = ["run", str(job), "--engine", "spark", "--until-idle", "--batch-bytes", "3145728"]
    program = f"import sys; from headrace.connector.cli import main; sys.exit(main({command}))"
    with (tmp_path / "killed.log").open("w") as log:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter)
            [sys.executable, "-c", program], stdout=log, stderr=log, start_new_session=True
        )
        until = time.monotonic() + WAIT_SECONDS_MAX
        committed = tmp_path / "state.db.spark" / "killed" / "offsets" / "commits" / "0"
        first = 0
        while not first or lines_of(job) == first:  # Up to the midst of the second batch.
            assert child.poll() is None, (tmp_path / "killed.log").read_text()
            assert time.monotonic() < until
            first = first or (lines_of(job) if committed.exists() else 0)
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGKILL)  # Its Java too.
        child.wait()
    unfinished = lines_of(job) - first

    assert 0 == main(command)

    whole = delivered(job)
    assert by_worker().total() == len(whole)
    assert 2 >= max(whole.values())
    assert whole.total() - len(whole) <= unfinished


def cluster(stack: ExitStack, folder: Path) -> str:
    """Start a master and two workers of one core each; return the master's address."""
    home = Path(pyspark.__file__).parent
    master = f"spark://127.0.0.1:{free_ports(1)[0]}"
    port = master.rpartition(":")[2]
    start(stack, folder, home, "Master", "--host", "127.0.0.1", "--port", port)
    wait_for(folder / "Master.log", r"New state: ALIVE")
    for number in range(2):
        work = str(folder / f"work{number}")
        start(
            stack,
            folder,
            home,
            "Worker",
            *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--work-dir", work, master),
            name=f"Worker{number}",
        )
    for number in range(2):
        wait_for(folder / f"Worker{number}.log", r"Successfully registered")
    return master


def start(
    stack: ExitStack, folder: Path, home: Path, kind: str, *arguments: str, name: str = ""
) -> None:
    """Start one of Spark's own servers; it ends with *stack*."""
    log = stack.enter_context((folder / f"{name or kind}.log").open("w"))
    program = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
    child = subprocess.Popen(  # noqa: S603 (Spark's own program)
        [str(home / "bin" / "spark-class"), program, "--webui-port", "0", *arguments],
        stdout=log,
        stderr=log,
        env=os.environ | {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
    )
    stack.callback(child.wait)
    stack.callback(child.terminate)


def wait_for(log: Path, pattern: str) -> None:
    """Wait until *log* says *pattern*."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not re.search(pattern, log.read_text()):
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)

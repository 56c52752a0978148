"""What runs on Spark to its end: micro-batches, killed drivers and tasks, and a real broker."""

import json
import os
import signal
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headrace.connector.commands.cli import main
from headrace.connector.control.commands import Commands
from headrace.connector.control.service import ControlService
from headrace.connector.foundation.states import Observed
from headrace.connector.language.parser import parse_script
from headrace.connector.replay.runs import RunTable, ShardState
from headrace.connector.replay.stream.checkpoint import checkpoint_of
from headrace.connector.replay.stream.streaming import PartsPartition, SegmentStream
from headrace.connector.stores import StoreUnavailableError
from headrace.connector.stores.open_control_store import open_notes
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob
from helpers.servers.ports import free_ports
from helpers.servers.rest_server import Client
from real.spark.spark_jobs import (
    WAIT_SECONDS_MAX,
    by_worker,
    delivered,
    in_parquet,
    kafka_sink,
    killed,
    late_python,
    lines_of,
    living,
    messages,
    ring_job,
    stream_job,
    without_origin,
    worker_file,
)

pytestmark = pytest.mark.real

SEGMENTS = 40  # Of each of three nodes, before the poisoned ones.


@pytest.mark.spark
@pytest.mark.spark_few
def test_a_stream_is_what_a_worker_delivers(spark: SparkSession, tmp_path: Path) -> None:
    """Micro-batches bring the multiset that a worker does; SIGTERM ends them with status 0.

    Until then the driver serves its measures.
    """
    assert spark is SparkSession.getActiveSession()  # The command takes the one that is there.
    of_worker, of_spark = stream_job(tmp_path, "worker"), stream_job(tmp_path, "stream")
    assert 0 == main(["run", str(of_worker), "--until-idle"])
    wanted = delivered(of_worker)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    records = f'headrace_micro_batch_records_total{{job="stream"}} {wanted.total()}.0'
    served = ""
    ended = threading.Event()

    def end() -> None:
        nonlocal served
        until = time.monotonic() + WAIT_SECONDS_MAX
        while records not in served.splitlines() and time.monotonic() < until:
            if ended.wait(0.2):  # Then the signal would end the tests.
                return
            with suppress(OSError), urlopen(f"http://{address}/metrics", timeout=10) as answer:
                served = answer.read().decode()
        os.kill(os.getpid(), signal.SIGTERM)

    watch = threading.Thread(target=end)
    watch.start()
    try:
        command = ["run", str(of_spark), "--engine", "spark", "--batch-bytes", "1"]
        status = main([*command, "--metrics", address])
    finally:
        ended.set()
        watch.join()

    assert (0, wanted) == (status, delivered(of_spark))
    assert records in served.splitlines()
    assert 'headrace_micro_batch_seconds_count{job="stream"}' in served
    assert 3 < len(offsets_of(of_spark))


def offsets_of(job: Path) -> list[dict[str, object]]:
    """Return where the micro-batches of a job end, as Spark's checkpoint has it."""
    folder = job.with_name("state.db.spark") / job.stem / "offsets" / "offsets"
    files = sorted(folder.glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(file.read_text().splitlines()[-1]) for file in files]


def test_a_stream_that_was_killed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a killed driver left undone is done, and only its last batch comes twice.

    What the checkpoint tells at the end is the end of the logs, and the books count all once. The
    Python process of the source came too late for Spark at first: the stream was started again.
    """
    assert spark is SparkSession.getActiveSession()
    job = stream_job(tmp_path, "killed")
    command = ["run", str(job), "--engine", "spark", "--until-idle", "--batch-bytes", "2097152"]
    checkpoint = checkpoint_of(tmp_path / "state.db", "killed")

    def unfinished() -> int:
        """Return how many records the sink has of a batch that was not committed after others."""
        committed = checkpoint.committed()
        batches = range(committed[0] + 1) if committed else range(0)
        return lines_of(job) - sum(map(checkpoint.records, batches)) if batches else 0

    log = tmp_path / "killed.log"
    late = late_python(tmp_path, "pyspark.sql.streaming.python_streaming_source_runner")
    killed(command, log, lambda: unfinished() > 0, late)
    twice = unfinished()
    assert '"event":"stream_restarted"' in log.read_text()

    assert 0 == main(command)

    whole = delivered(job)
    assert by_worker().total() == len(whole)
    assert 2 >= max(whole.values())
    assert whole.total() - len(whole) <= twice
    reader = SegmentStream({"job": str(job), "format": "sink"})
    last = offsets_of(job)[-1]
    assert last == reader.latestOffset(last, ReadAllAvailable())
    states = checkpoint.states
    (plan,) = reader.partitions(last, last)
    assert isinstance(plan, PartsPartition)
    assert all(states.load(last, part.shard.split).position for part in plan.parts)
    reader.stop()
    capsys.readouterr()
    assert 0 == main(["verify", str(job), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert len(whole) == sum(table["delivered"] for table in result["total"]["tables"].values())


def test_a_worker_on_spark(tmp_path: Path) -> None:
    """A worker runs on Spark what a source wants there, and status and REST show it.

    A driver that is killed amid a batch is started again: nothing is lost, and no batch comes more
    than twice. STOP ends the stream.
    """
    tables, total = sorted({str(name[0]) for name in by_worker()}), by_worker().total()
    path, port, out = tmp_path / "worker.yaml", free_ports(1)[0], tmp_path / "j.yaml"
    made = [f"CREATE DATA_SOURCE cdc ON TABLE {t} WITH k AND job = 'j'" for t in tables]
    made[0] += " AND engine = 'spark'"
    options = ["--pumps", "2", "--master", "local[2]", "--batch-bytes", "3145728"]
    command = ["worker", str(worker_file(path)), "--rest", f"127.0.0.1:{port}", *options]
    source = f"cdc.{tables[0]}"
    with closing(open_notes(tmp_path / "state.db")) as notes:
        commands, service = Commands(notes), ControlService(notes)
        for parsed in parse_script(";".join(["CREATE DATA_SINK k WITH 'file://j.jsonl'", *made])):
            service.execute(parsed.statement)
        with living(command, tmp_path / "log") as wait:
            wait(lambda: lines_of(out) > 0)
            os.kill(int(commands.status(source).worker.partition(":")[2]), signal.SIGKILL)
            wait(lambda: total == distinct(out))
            wait(lambda: commands.status(source).state is Observed.RUNNING)
            wait(lambda: bool(commands.offsets(source)))
            assert b'headrace_micro_batches_total{job="j"' in Client(port)("GET", "/metrics").body
            commands.stop("k")
            wait(lambda: commands.status(source).state is Observed.STOPPED)
    assert 2 >= max(delivered(out).values())


def distinct(job: Path) -> int:
    """Return how many different changes the sink of a job has; one may be half written."""
    with suppress(ValueError):
        return len(delivered(job))
    return 0


def planned(job: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Plan a run of four shards, each of which takes three seconds, two at once."""
    rate = str(by_worker().total() / 6)
    plan = ["replay", "plan", str(job), "--to-folder", "out", "--shards", "4", "--rate", rate]
    assert 0 == main([*plan, "--json", *options])
    return str(json.loads(capsys.readouterr().out)["run"])


def states(job: Path, run: str) -> list[ShardState]:
    """Return the states of a run's shards."""
    table = RunTable(job.parent / "state.db")
    try:
        return [row.state for row in table.shards(run)]
    except StoreUnavailableError:  # It is being written to.
        return []
    finally:
        table.close()


def test_a_replay_that_was_killed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run whose driver and tasks were killed is ended by a second one; nothing is there twice."""
    assert spark is SparkSession.getActiveSession()
    job = ring_job(tmp_path, "ring", {"plugin": "null"})
    run = planned(job, capsys)
    command = ["replay", "run", str(job), run]

    def in_the_middle() -> bool:
        seen = states(job, run)
        begun = bool(list(tmp_path.glob("out/*/.*.part")))
        return begun and {ShardState.PASS, ShardState.STARTED} <= set(seen)

    killed([*command, "--master", "local[2]"], tmp_path / "killed.log", in_the_middle)
    before = states(job, run)

    assert 0 == main(command)

    assert {ShardState.PASS, ShardState.STARTED} <= set(before)
    assert [ShardState.PASS] * 4 == states(job, run)
    assert by_worker() == in_parquet(tmp_path / "out")
    assert [] == list(tmp_path.glob("out/*/.*.part"))
    assert 0 == main(["replay", "verify", str(job), run])


def test_a_task_that_was_killed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task that dies in the middle of a shard is tried again by Spark; the run goes through."""
    assert spark is SparkSession.getActiveSession()
    job = ring_job(tmp_path, "ring", {"plugin": "null"})
    run = planned(job, capsys)
    victims: list[int] = []

    def kill() -> None:
        until = time.monotonic() + WAIT_SECONDS_MAX
        while not victims and time.monotonic() < until:
            victims.extend(writing(tmp_path / "out")[:1])
            time.sleep(0.02)
        for victim in victims:
            os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        status = main(["replay", "run", str(job), run])
    finally:
        killer.join()

    assert (0, 1) == (status, len(victims))
    assert by_worker() == in_parquet(tmp_path / "out")


def writing(folder: Path) -> list[int]:
    """Return the tasks' processes that have a file in *folder* open.

    Only theirs are looked at: with all of a busy machine, a task could come and go meanwhile.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"pyspark.daemon" in (process / "cmdline").read_bytes():
                links = [link.readlink() for link in (process / "fd").iterdir()]
                if any(link.is_relative_to(folder) for link in links):
                    found.append(int(process.name))
    return found


def test_kafka(spark: SparkSession, tmp_path: Path, bootstrap_servers: str) -> None:
    """A real broker gets the messages of a worker from micro-batches, and the rows of a frame."""
    topics = {name: f"{name}-{uuid4().hex}" for name in ("worker", "stream")}
    jobs = {
        name: ring_job(tmp_path, name, kafka_sink(bootstrap_servers, topic), splits=4)
        for name, topic in topics.items()
    }
    assert 0 == main(["run", str(jobs["worker"]), "--until-idle"])
    wanted = messages(bootstrap_servers, topics["worker"])

    stream = ["run", str(jobs["stream"]), "--engine", "spark", "--until-idle"]
    assert 0 == main([*stream, "--batch-bytes", "3145728"])
    rows = spark.read.format("headrace.segments").option("format", "json")
    frame = rows.option("job", str(jobs["stream"])).load()
    writer = frame.write.format("headrace.sink").option("job", str(jobs["stream"]))
    writer.option("suffix", ".copy").mode("append").save()

    assert by_worker().total() == wanted.total()
    assert wanted == messages(bootstrap_servers, topics["stream"])
    of_frame: Counter[tuple[object, ...]] = Counter(
        (bytes(row.key), without_origin(row.value), bytes(row.schema_id)) for row in frame.collect()
    )
    assert of_frame == messages(bootstrap_servers, topics["stream"] + ".copy")


def test_a_poisoned_segment(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many segments a damaged one and one that cannot be decoded are named, each by its shard.

    All else is done, by all shards.
    """
    assert spark is SparkSession.getActiveSession()
    job = GapJob(tmp_path)
    for number in range(1, SEGMENTS + 1):
        job.spread(number, insert(b"k%d" % number, b"v", table=TABLE))
    bad = insert(b"bad", b"v" * 40, table=TABLE)
    job.spread(SEGMENTS + 1, bad[:-42] + b"\xff" * 42)
    damaged = job.poison(SEGMENTS // 2, b"k%d" % (SEGMENTS // 2))
    options = ["--to-folder", "out", "--shards", "8", "--json"]
    assert 0 == job.replay("plan", *options)
    run = str(json.loads(capsys.readouterr().out)["run"])

    assert 0 == job.replay("run", run)

    assert [ShardState.PASS] * 8 == states(job.path, run)
    found = pq.read_table(tmp_path / "out", columns=["key"]).column("key").to_pylist()
    keys = [key[1:] for key in found]  # Behind its length, in Avro.
    assert sorted(b"k%d" % number for number in range(1, SEGMENTS + 1)) == sorted(keys)
    capsys.readouterr()
    assert 0 == job.replay("status", run, "--json")
    shards = json.loads(capsys.readouterr().out)["shards"]
    assert list(range(1, 9)) == [shard["number"] for shard in shards]
    notes = [note for shard in shards for note in shard["notes"]]
    assert 2 == len(notes)
    assert 1 == sum(damaged in note for note in notes)


def test_typed_topic(spark: SparkSession, tmp_path: Path, bootstrap_servers: str) -> None:
    """A table's frame of its topic equals its frame of the segments, column by column."""
    sink = kafka_sink(bootstrap_servers, f"typed-{uuid4().hex}") | {"format": "avro"}
    job = str(ring_job(tmp_path, "typed", sink))
    assert 0 == main(["run", job, "--until-idle"])
    wanted = Counter(str(name[0]) for name in by_worker().elements())
    ((table, count),) = wanted.most_common(1)
    frames = [
        spark.read.format(name).option("job", job).option("table", table).load()
        for name in ("headrace.segments", "headrace.topic")
    ]
    # Each reader reads another copy.
    of_reader = ("copies", "node", "segment", "position")
    of_logs, of_topic = (frame.drop("part", "offset", *of_reader) for frame in frames)

    assert of_logs.schema == of_topic.schema
    found = [Counter(map(repr, frame.drop("value").collect())) for frame in (of_logs, of_topic)]
    assert found[0] == found[1]
    assert count == found[0].total()

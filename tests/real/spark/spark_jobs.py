"""Jobs over a recorded ring for Spark: what a worker makes of it, and commands to be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import yaml

from headrace.connector.replay.columns import arrow_schema, record_batch
from headrace.sources.cassandra.encode.origin import ORIGIN
from helpers.jobs.deliveries import consume
from helpers.logs.node_logs import everything
from helpers.recordings.corpora import recording
from real.servers import sessions

RING: Final = "5.0-ring"
NODES: Final = ("node1", "node2", "node3")
NAMES: Final = ("table", "operation", "key", "mutation", "index")
WAIT_SECONDS_MAX: Final = 600
Names = Counter[tuple[object, ...]]


def options() -> dict[str, object]:
    """Return the options of a job over the ring."""
    folder = recording(RING)
    nodes = {node: str(folder / "segments" / node) for node in NODES}
    return {"nodes": nodes, "schema": str(folder / "schema.cql")}


def ring_job(folder: Path, job: str, sink: Mapping[str, object], **source: object) -> Path:
    """Return a job over the ring, in a file named as the job is."""
    path = folder / f"{job}.yaml"
    given = {
        "job": job,
        "state": "state.db",
        "source": {"plugin": "cassandra", **options(), **source},
        "sink": dict(sink),
    }
    path.write_text(yaml.safe_dump(given))
    return path


def worker_file(path: Path) -> Path:
    """Write the file of a worker over the ring, in four splits, and return it."""
    source = {"plugin": "cassandra", **options(), "splits": 4}
    runtime = {"restart_pause_seconds": 0.1}
    path.write_text(yaml.safe_dump({"state": "state.db", "source": source, "runtime": runtime}))
    return path


def stream_job(folder: Path, job: str) -> Path:
    """Return a job over the ring, in four splits, into a file named as the job is."""
    return ring_job(folder, job, {"plugin": "files", "path": f"{job}.jsonl"}, splits=4)


def by_worker(*nodes: str) -> Names:
    """Return the changes that a worker makes of the ring, by what names them.

    Of *nodes*, if some are given, those that a single log has.
    """
    given = options()
    if nodes:
        folder = recording(RING) / "segments"
        given |= {"nodes": {node: str(folder / node) for node in nodes}, "consistency": "ONE"}
    found: Names = Counter()
    for batch in everything(given):
        rows = record_batch(batch.encode("avro"), arrow_schema(ORIGIN))
        columns = [rows.column(rows.schema.names.index(n)).to_pylist() for n in NAMES]
        found.update(zip(*columns, strict=True))
    return found


def in_parquet(folder: Path) -> Names:
    """Return the changes in a folder of Parquet files, by what names them."""
    rows = pq.read_table(folder, columns=list(NAMES))
    return Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def lines_of(job: Path) -> int:
    """Return how many records the sink of a job has by now."""
    sink = job.with_suffix(".jsonl")
    return sink.read_bytes().count(b"\n") if sink.exists() else 0


def delivered(job: Path) -> Counter[str]:
    """Return what the sink of a job has, without where each change was read."""
    lines = job.with_suffix(".jsonl").read_text().splitlines()
    return Counter(map(without_origin, lines))


def without_origin(document: str | bytes) -> str:
    """Return what a change says without where it was read."""
    found = json.loads(document)
    for name in ("copies", "node", "segment", "position"):
        del found[name]
    return json.dumps(found, sort_keys=True)


def kafka_sink(bootstrap_servers: str, topic: str) -> dict[str, object]:
    """Return a sink into a topic, in JSON."""
    return {
        "plugin": "kafka",
        "bootstrap.servers": bootstrap_servers,
        "topic": topic,
        "format": "json",
    }


def messages(bootstrap_servers: str, topic: str) -> Counter[tuple[object, ...]]:
    """Return the messages of a topic: key, what the value says, and the id of the schema."""
    return Counter(
        (
            message.key(),
            without_origin(message.value() or b""),
            dict(message.headers() or ())["schemaId"],
        )
        for message in consume(bootstrap_servers, topic)
    )


def headrace(command: list[str]) -> list[str]:
    """Return what runs a command in a process of its own."""
    program = (
        f"import sys; from headrace.connector.commands.cli import main; sys.exit(main({command}))"
    )
    return [sys.executable, "-c", program]


def late_python(folder: Path, module: str) -> Path:
    """Return an interpreter that ends at once the first time it is to run *module*."""
    found, met = folder / "python", folder / "met"
    met_now = f'[ "$2" = {module} ] && [ ! -e {met} ] && touch {met} && exit 1'
    found.write_text(f'#!/bin/sh\n{met_now}\nexec {sys.executable} "$@"\n')
    found.chmod(0o755)
    return found


@contextmanager
def living(command: list[str], log: Path) -> Iterator[Callable[[Callable[[], bool]], None]]:
    """Run a command during the block, which gets what waits for a condition; then end it."""
    with log.open("w") as reported_here:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter)
            headrace(command), stdout=reported_here, stderr=reported_here, start_new_session=True
        )

        def wait(condition: Callable[[], bool]) -> None:
            until = time.monotonic() + WAIT_SECONDS_MAX
            while not condition():
                assert child.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)

        try:
            yield wait
            child.terminate()
            assert 0 == child.wait(WAIT_SECONDS_MAX), log.read_text()
        finally:
            sessions.kill(child.pid)
            child.wait()


@contextmanager
def spark_process(
    command: list[str], log: Path, python: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command during the block; then kill it, and its Java and all tasks too.

    *python* is the interpreter of Spark's processes.
    """
    environment = {**os.environ, "PYSPARK_PYTHON": str(python or sys.executable)}
    with log.open("w") as reported_here:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter)
            headrace(command),
            env=environment,
            stdout=reported_here,
            stderr=reported_here,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            sessions.kill(child.pid)
            child.wait()


def killed(
    command: list[str], log: Path, when: Callable[[], bool], python: Path | None = None
) -> None:
    """Run a command until *when* is true; then kill it, and its Java and all tasks too.

    They are stopped first, and *when* must still be true then: on a busy machine what was seen may
    be over before the signal comes. *python* is the interpreter of Spark's processes.
    """
    until = time.monotonic() + WAIT_SECONDS_MAX
    with spark_process(command, log, python) as child:
        while True:
            assert child.poll() is None, log.read_text()
            assert time.monotonic() < until
            if when():
                sessions.send_signal(child.pid, signal.SIGSTOP)
                if when():
                    return
                sessions.send_signal(child.pid, signal.SIGCONT)
            time.sleep(0.02)

"""Runs every probe a number of times, one after another, so that a slow minute hits them all."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

import yaml

from bench.recordings import Recording, prepare

ROOT: Final = Path(__file__).parents[1]
HEADRACE: Final = "import sys; from headrace.connector.cli import main; sys.exit(main())"
RECORDS: Final = (100_000, 1_000_000)  # Remembered while agreement is timed.
PENDING: Final = 400_000  # Among which one is looked up.
PROBE_SECONDS_MAX: Final = 300
_DELIVERIES: Final = 3  # In each run: the sink adds a small difference of two large figures.
_LOG_BYTES_MAX: Final = 2 << 30  # Of all recordings, with room to spare.
# By probe's name: what each of its runs measured.
Samples = Mapping[str, list[dict[str, Any]]]  # Any: numbers, and a list of names.


class ProbeFailedError(Exception):
    """A measured process failed, or did not do what it was measured at."""


def measure(
    folder: Path, *, runs: int, mutations_max: int | None
) -> tuple[Samples, Mapping[str, Recording]]:
    """Measure in *folder*; *mutations_max* takes only the beginning of each recording."""
    samples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=_in_memory()) as logs,
        _broker() as servers,
    ):
        make = partial(prepare, mutations_max=mutations_max)
        wide = make("wide", Path(logs, "wide"), replicas=3, consistency="QUORUM")
        long = make("wide", Path(logs, "long"), replicas=3, consistency="QUORUM", times=3)
        narrow = make("narrow", Path(logs, "narrow"), replicas=1, consistency="ONE")
        for number in range(runs):
            jobs = Jobs(folder / f"run{number}")
            jobs.folder.mkdir()
            for name, measured in _one_run(jobs, wide, narrow, servers):
                samples[name].append(measured)
            job = jobs.write(long, long.nodes, {"plugin": "null"})
            warm_up = 0 if mutations_max else wide.mutations
            measured = _complete(long, _probe("readers", job=job, warm_up=warm_up))
            samples["long.readers"].append(measured)
    return samples, {"wide": wide, "narrow": narrow}


def _in_memory() -> str | None:
    """Return a folder whose files are memory, if there is one with room: logs are read from it.

    Elsewhere a page that the system took back from the page cache is read from the disk.
    """
    found = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    if found.is_dir() and os.access(found, os.W_OK) and disk_usage(found).free > _LOG_BYTES_MAX:
        return str(found)
    return None


class Jobs:
    """Writes job files, each with a state of its own."""

    def __init__(self, folder: Path) -> None:
        """Write into *folder*."""
        self.folder = folder

    def write(
        self, recording: Recording, nodes: Mapping[str, Path], sink: Mapping[str, str]
    ) -> str:
        """Write a job that reads *nodes*; return its path."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        source = {
            "plugin": "cassandra",
            "schema": str(recording.schema),
            "consistency": recording.consistency,
            "nodes": {node: str(path) for node, path in nodes.items()},
        }
        job = {
            "job": f"bench-{folder.name}",
            "state": "state.db",
            "source": source,
            "sink": dict(sink),
        }
        path = folder / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        return str(path)


def _one_run(
    jobs: Jobs, wide: Recording, narrow: Recording, servers: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    null = {"plugin": "null"}
    for recording in (wide, narrow):
        name, log = recording.name, str(recording.log)
        yield f"{name}.bare", _probe("bare", log=log)
        schema = str(recording.schema)
        yield f"{name}.frame", _probe("frame", log=log, schema=schema)
        yield f"{name}.intake", _probe("intake", log=log, schema=schema)
        yield f"{name}.lz4", _probe("intake", log=str(recording.lz4), schema=schema)
        job = jobs.write(recording, recording.nodes, null)
        yield f"{name}.readers", _complete(recording, _probe("readers", job=job))
        job = jobs.write(recording, recording.nodes, null)
        yield f"{name}.network", _complete(recording, _probe("network", job=job))
        yield from _worker(name, jobs, recording, null)
    for records in RECORDS:
        few = min(records, wide.mutations) if wide.mutations < min(RECORDS) else records
        yield f"agreement.{records}", _probe("agreement", records=few)
    few = min(PENDING, wide.mutations) if wide.mutations < min(RECORDS) else PENDING
    yield "look_up", _probe("look_up", records=few)
    for columns in (20, 200):
        yield f"fold.{columns}", _probe("fold", columns=columns)
    kafka = {"plugin": "kafka", "bootstrap.servers": servers, "topic": "bench"}
    yield from _worker("kafka", jobs, wide, kafka)
    job = jobs.write(wide, wide.nodes, null)
    yield "bulk.arrow", _complete(wide, _probe("arrow", job=job))
    yield "bulk.typed", _complete(wide, _probe("arrow", job=job, table="bulk.wide"))
    yield "bulk.parquet", _complete(wide, _probe("shards", job=job, folder="out"))
    job = jobs.write(wide, wide.nodes, kafka | {"topic": "replayed"})
    yield "bulk.kafka", _complete(wide, _probe("shards", job=job, folder=""))
    for _ in range(_DELIVERIES):
        job = jobs.write(wide, wide.nodes, kafka | {"topic": "bare"})
        yield "kafka.produce", _complete(wide, _probe("produce", job=job))
        job = jobs.write(wide, wide.nodes, kafka | {"topic": "by-sink"})
        yield "kafka.deliver", _complete(wide, _probe("deliver", job=job))
    job = jobs.write(wide, wide.nodes, null)
    yield "wide.encode", _complete(wide, _probe("encode", job=job))
    yield "wide.identify", _probe("identify", log=str(wide.log), schema=str(wide.schema))


def _worker(
    name: str, jobs: Jobs, recording: Recording, sink: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure a whole worker: with the recording, with empty logs, and its imports alone."""
    measured = _probe("run", job=jobs.write(recording, recording.nodes, sink))
    modules = measured.pop("modules")
    yield f"{name}.run", _complete(recording, measured)
    started = _probe("run", job=jobs.write(recording, recording.empty_nodes, sink))
    del started["modules"]
    yield f"{name}.start", started
    yield f"{name}.imports", _probe("imports", modules=modules)


def _complete(recording: Recording, measured: dict[str, Any]) -> dict[str, Any]:
    if measured["changes"] != recording.mutations:
        raise ProbeFailedError(
            f"{recording.name}: {measured['changes']} changes of {recording.mutations} mutations"
        )
    return measured


def _probe(name: str, **arguments: object) -> dict[str, Any]:
    child = subprocess.run(  # noqa: S603 (our own interpreter)
        [sys.executable, "-m", "bench.probes", name, json.dumps(arguments)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS_MAX,
    )
    if child.returncode:
        raise ProbeFailedError(f"probe {name}: status {child.returncode}\n{child.stderr}")
    measured: dict[str, Any] = json.loads(child.stdout)
    return measured


@contextmanager
def _broker() -> Iterator[str]:
    """Run an embedded broker in a process of its own; give its address."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [sys.executable, "-c", HEADRACE, "embedded-broker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None  # noqa: S101 (asked for above)
        servers = child.stdout.readline().strip()
        if not servers:
            raise ProbeFailedError("the embedded broker did not start")
        yield servers  # Leaving the block closes its input, which ends it.

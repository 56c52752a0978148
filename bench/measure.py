"""Runs every probe a number of times, one after another, so that a slow minute hits them all."""

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from shutil import disk_usage
from typing import Any, Final

import yaml

from bench.errors import ProbeFailedError
from bench.recordings import Recording, prepare
from bench.row_kinds import write_kinds
from bench.starting import HEADRACE, ready_line

ROOT: Final = Path(__file__).parents[1]
RECORDS: Final = (100_000, 1_000_000)  # Remembered while agreement is timed.
WORKERS: Final = 8  # That share the agents of a ring.
PENDING: Final = 400_000  # Among which one is looked up.
PROBE_SECONDS_MAX: Final = 300
TAILS: Final = ("log", 1_000), ("log", 5_000), ("realtime", 1_000)  # Mutations a second.
TAIL_SPLITS: Final = 8
NEWS_SPLITS: Final = 256  # Of which, at 1,000 changes a second, a third have one at each sync.
STILL: Final = 64  # Logs, and splits.
SPLITS: Final = (128, 1_024)  # That one worker owns.
TABLES: Final = (200, 2_000)
RINGS: Final = ((3, 64), (64, 64))  # Logs, and splits.
RING_CHANGES: Final = 6_000
TAIL_SECONDS: Final = 6.0
TAIL_SECONDS_QUICK: Final = 0.5
_DELIVERIES: Final = 3  # In each run: the sink adds a small difference of two large figures.
_MASK: Final = {
    "transforms": "mask",
    "transforms.mask.type": "MaskField",
    "transforms.mask.fields": "payload.email",
}
_LOG_BYTES_MAX: Final = 2 << 30  # Of all recordings, with room to spare.
# By probe's name: what each of its runs measured.
Samples = Mapping[str, list[dict[str, Any]]]  # Any: numbers, and a list of names.
Probe = Callable[..., dict[str, Any]]


def measure(
    folder: Path, *, runs: int, mutations_max: int | None
) -> tuple[Samples, Mapping[str, Recording]]:
    """Measure in *folder*; *mutations_max* takes only the beginning of each recording.

    What then is measured says nothing, so the probes are started the cheaper way.
    """
    samples: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with (
        forked_probes() if mutations_max else nullcontext(probe) as run_probe,
        tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=_in_memory()) as logs,
        _broker() as servers,
    ):
        make = partial(prepare, mutations_max=mutations_max)
        wide = make("wide", Path(logs, "wide"), replicas=3, consistency="QUORUM")
        long = make("wide", Path(logs, "long"), replicas=3, consistency="QUORUM", times=3)
        kinds = write_kinds(wide, Path(logs, "kinds"))
        narrow = make("narrow", Path(logs, "narrow"), replicas=1, consistency="ONE")
        for number in range(runs):
            jobs = Jobs(folder / f"run{number}", run_probe)
            jobs.folder.mkdir()
            for name, measured in _one_run(jobs, wide, narrow, servers):
                samples[name].append(measured)
            for kind, log in kinds.items():
                job = jobs.write(wide, {"node1": log}, {"plugin": "null"}, consistency="ONE")
                samples[f"rows.{kind}"].append(run_probe("rows", job=job))
            job = jobs.write(long, long.nodes, {"plugin": "null"})
            warm_up = 0 if mutations_max else wide.mutations
            measured = _complete(long, run_probe("readers", job=job, warm_up=warm_up))
            samples["long.readers"].append(measured)
            for name, measured in _tails(wide, Path(logs, f"tails{number}"), run_probe):
                samples[name].append(measured)
            for name, measured in _many(wide, Path(logs, f"many{number}"), run_probe):
                samples[name].append(measured)
    return samples, {"wide": wide, "narrow": narrow}


@contextmanager
def repeated(mutations_max: int | None, times: int) -> Iterator[tuple[Recording, "Jobs"]]:
    """Yield the wide recording of three logs, so many *times*, and a folder for jobs over it."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        wide = prepare(
            "wide",
            Path(folder) / "wide",
            replicas=3,
            consistency="QUORUM",
            mutations_max=mutations_max,
            times=times,
        )
        runs = Path(folder) / "runs"
        runs.mkdir()
        yield wide, Jobs(runs)


def probe(name: str, **arguments: object) -> dict[str, Any]:
    """Run one of `bench.probes` in a process of its own; return what it measured."""
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
def forked_probes() -> Iterator[Probe]:
    """Give `probe` for many processes: copies of one that has imported what the probes need."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", "bench.probes", "bench.bulk"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:

        def forked(name: str, **arguments: object) -> dict[str, Any]:
            try:
                return pool.submit(_measured, name, arguments).result(PROBE_SECONDS_MAX)
            except Exception as error:
                # The cause is the text of the traceback in the process.
                raise ProbeFailedError(f"probe {name}: {error!r}\n{error.__cause__}") from error

        yield forked


def _measured(name: str, arguments: Mapping[str, object]) -> dict[str, Any]:
    from bench.probes import PROBES  # noqa: PLC0415 (in the process of the probe only)

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    return dict(PROBES[name](**arguments))


def _in_memory() -> str | None:
    """Return a folder whose files are memory, if there is one with room: logs are read from it.

    Elsewhere a page that the system took back from the page cache is read from the disk.
    """
    found = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    if found.is_dir() and os.access(found, os.W_OK) and disk_usage(found).free > _LOG_BYTES_MAX:
        return str(found)
    return None


class Jobs:
    """Writes job files, each with a state of its own, and runs probes of them."""

    def __init__(self, folder: Path, run_probe: Probe = probe) -> None:
        """Write into *folder*."""
        self.folder = folder
        self.probe = run_probe

    def write(
        self,
        recording: Recording,
        nodes: Mapping[str, Path],
        sink: Mapping[str, object],
        *,
        consistency: str = "",
    ) -> str:
        """Write a job that reads *nodes*, at the recording's *consistency*; return its path."""
        source = {
            "plugin": "cassandra",
            "schema": str(recording.schema),
            "consistency": consistency or recording.consistency,
            "nodes": {node: str(path) for node, path in nodes.items()},
        }
        return self.write_job(source, sink)

    def write_job(self, source: Mapping[str, object], sink: Mapping[str, object]) -> str:
        """Write a job of this source and this sink; return its path."""
        folder = self.folder / str(len(list(self.folder.iterdir())))
        folder.mkdir()
        job = {
            # Logs have notes of the jobs that read them, so each run has jobs of its own.
            "job": f"bench-{self.folder.name}-{folder.name}",
            "state": "state.db",
            "source": dict(source),
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
        yield f"{name}.bare", jobs.probe("bare", log=log)
        schema = str(recording.schema)
        yield f"{name}.frame", jobs.probe("frame", log=log, schema=schema)
        yield f"{name}.intake", jobs.probe("intake", log=log, schema=schema)
        yield f"{name}.lz4", jobs.probe("intake", log=str(recording.lz4), schema=schema)
        job = jobs.write(recording, recording.nodes, null)
        yield f"{name}.readers", _complete(recording, jobs.probe("readers", job=job))
        yield from _through_agents(name, jobs, recording, workers=1)
        yield from _worker(name, jobs, recording, null)
    yield from _through_agents("shared", jobs, wide, workers=WORKERS)
    for records in RECORDS:
        few = min(records, wide.mutations) if wide.mutations < min(RECORDS) else records
        yield f"agreement.{records}", jobs.probe("agreement", records=few)
    few = min(PENDING, wide.mutations) if wide.mutations < min(RECORDS) else PENDING
    yield "look_up", jobs.probe("look_up", records=few)
    for columns in (20, 200):
        yield f"fold.{columns}", jobs.probe("fold", columns=columns)
    kafka = {"plugin": "kafka", "bootstrap.servers": servers, "topic": "bench"}
    yield from _worker("kafka", jobs, wide, kafka)
    yield from _worker("masked", jobs, wide, kafka | {"topic": "masked"} | _MASK)
    lines = {"plugin": "files", "path": str(jobs.folder / "out.jsonl")}
    yield from _worker("files", jobs, wide, lines)
    job = jobs.write(wide, wide.nodes, null)
    yield "bulk.arrow", _complete(wide, jobs.probe("arrow", job=job))
    yield "bulk.typed", _complete(wide, jobs.probe("arrow", job=job, table="bulk.wide"))
    yield "bulk.parquet", _complete(wide, jobs.probe("shards", job=job, folder="out"))
    job = jobs.write(wide, wide.nodes, kafka | {"topic": "replayed"})
    yield "bulk.kafka", _complete(wide, jobs.probe("shards", job=job, folder=""))
    for _ in range(_DELIVERIES):
        job = jobs.write(wide, wide.nodes, kafka | {"topic": "bare"})
        yield "kafka.produce", _complete(wide, jobs.probe("produce", job=job))
        job = jobs.write(wide, wide.nodes, kafka | {"topic": "by-sink"})
        yield "kafka.deliver", _complete(wide, jobs.probe("deliver", job=job))
    job = jobs.write(wide, wide.nodes, null)
    yield "wide.encode", _complete(wide, jobs.probe("encode", job=job))
    yield "wide.identify", jobs.probe("identify", log=str(wide.log), schema=str(wide.schema))


def _through_agents(
    name: str, jobs: Jobs, recording: Recording, *, workers: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure what agents and workers take: with the recording, and with empty logs."""
    null = {"plugin": "null"}
    job = jobs.write(recording, recording.nodes, null)
    measured = jobs.probe("network", job=job, workers=workers)
    yield f"{name}.network", _complete(recording, measured)
    job = jobs.write(recording, recording.empty_nodes, null)
    yield f"{name}.network_start", jobs.probe("network", job=job, workers=workers)


def _tails(
    recording: Recording, folder: Path, run_probe: Probe
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure a worker while the logs are written, and while they are not."""
    seconds = TAIL_SECONDS if recording.mutations >= min(RECORDS) else TAIL_SECONDS_QUICK
    schema = str(recording.schema)
    for mode, rate in TAILS:
        written = {"rate": rate, "seconds": seconds, "splits": TAIL_SPLITS, "mode": mode}
        place = str(folder / f"{mode}-{rate}")
        yield f"tail.{mode}.{rate}", run_probe("tail", schema=schema, folder=place, **written)
    count = NEWS_SPLITS if seconds == TAIL_SECONDS else TAIL_SPLITS
    written = {"rate": 1_000, "seconds": seconds, "splits": count}
    yield "news", run_probe("tail", schema=schema, folder=str(folder / "news"), **written)
    ring = {"logs": STILL, "splits": STILL, "seconds": seconds}
    yield "still", run_probe("still", schema=schema, folder=str(folder / "still"), **ring)


def _many(
    recording: Recording, folder: Path, run_probe: Probe
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure workers with many splits, with many tables, and with many logs; and with fewer."""
    schema, few = str(recording.schema), recording.mutations < min(RECORDS)
    for splits in SPLITS:
        place = str(folder / f"splits-{splits}")
        count = splits // 8 if few else splits
        yield f"splits.{splits}", run_probe("splits", schema=schema, folder=place, splits=count)
    for tables in TABLES:
        place, count = str(folder / f"tables-{tables}"), tables // 10 if few else tables
        yield f"tables.{tables}", run_probe("tables", folder=place, tables=count)
    for logs, splits in RINGS:
        yield (
            f"rings.{logs}",
            run_probe(
                "rings",
                schema=schema,
                folder=str(folder / f"rings-{logs}"),
                logs=logs,
                splits=splits,
                changes=RING_CHANGES // 10 if few else RING_CHANGES,
            ),
        )


def _worker(
    name: str, jobs: Jobs, recording: Recording, sink: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure a whole worker: with the recording, with empty logs, and its imports alone."""
    measured = jobs.probe("run", job=jobs.write(recording, recording.nodes, sink))
    modules = measured.pop("modules")
    yield f"{name}.run", _complete(recording, measured)
    started = jobs.probe("run", job=jobs.write(recording, recording.empty_nodes, sink))
    del started["modules"]
    yield f"{name}.start", started
    yield f"{name}.imports", jobs.probe("imports", modules=modules)


def _complete(recording: Recording, measured: dict[str, Any]) -> dict[str, Any]:
    if measured["changes"] != recording.mutations:
        raise ProbeFailedError(
            f"{recording.name}: {measured['changes']} changes of {recording.mutations} mutations"
        )
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
        yield ready_line(
            child, "stdout"
        ).strip()  # Leaving the block closes its input, which ends it.

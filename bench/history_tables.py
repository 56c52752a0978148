"""What a history costs in tables of Cassandra, beside one in a file.

`python -m bench.history --store cassandra` starts a node, which keeps one copy of each row. The CPU
is that of the worker alone, whose positions are in a file each time. Both stores are measured one
after the other, in the same run. Bytes are those of the files of tables after a flush.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import yaml

from bench.errors import ProbeFailedError
from bench.figures import Figure
from bench.measure import Jobs
from bench.recordings import Recording
from headrace import history
from headrace.connector.history.config import SCOPES
from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import shared, unshared
from headrace.sources.cassandra.schema.ddl import parse_schema

INCLUDES: Final = {"change": "change", "all images": ",".join(SCOPES)}
STORES: Final = ("file", "tables")
COMMITS: Final = 60
SIZES: Final = (1, 100)  # Changes of a commit.
PAGE: Final = 100
_FILE: Final = "tables.yaml"
_TABLES: Final = ("changes", "states", "expiries")
_US: Final = 1_000_000
_MS: Final = 1_000
Sample = Mapping[str, Any]  # Any: what a probe measured, in JSON.


class Node(NamedTuple):
    """A node that runs."""

    config: Mapping[str, Any]
    """The options of a store there; Any: as in YAML."""
    folder: Path
    process: Any  # Its class is that of the tests.

    def bytes_kept(self) -> int:
        """Return how many bytes the files of histories have, when all is written to them."""
        self.process.nodetool("flush", "headrace")
        data = self.folder / "data" / "headrace"
        files = (each for name in _TABLES for each in data.glob(f"history_{name}-*/*.db"))
        return sum(each.stat().st_size for each in files)


@contextmanager
def node_of(folder: Path) -> Iterator[Node]:
    """Run a node with all of Java's compilers, and with the tables of a store."""
    # Found where the tests that need Java are.
    from real.servers.cassandra import CURRENT, Cassandra, Release  # noqa: PLC0415 (with Java only)

    options = ("-XX:TieredStopAtLevel=4", "-Xms1G", "-Xmx1G")
    settings = {
        "commitlog_segment_size": "32MiB",  # As nodes have it: it bounds what one write has.
        "commitlog_total_space": "1024MiB",
        "cdc_total_space": "1024MiB",
        "memtable_heap_space": "256MiB",
    }
    release = Release(CURRENT.version, CURRENT.java, settings, options)
    with Cassandra(folder, release=release) as node:
        point = f"{node.host}:{node.port}"
        given = {"contact_points": [point], "replication_factor": 1, "request_seconds_max": 30}
        config = CassandraStoreConfig(
            contact_points=(point,), replication_factor=1, request_seconds_max=30
        )
        shared(config, create=True)  # Makes the tables of the store; is the one that readers use.
        yield Node({"plugin": "cassandra", **given}, folder, node)
        unshared(config)


def place_of(folder: Path, store: str, name: str, node: Node) -> str:
    """Return the place of a history for a job in *folder*."""
    if store == "file":
        return str(folder / f"{name}.db")
    given = {"state": "state.db", "source": {"plugin": "files"}, "store": dict(node.config)}
    (folder / _FILE).write_text(yaml.safe_dump(given))
    return f"{folder / _FILE}#{name}"


def worker_samples(jobs: Jobs, recording: Recording, node: Node, run: int) -> Iterator[Sample]:
    """Yield what a worker takes into each store, each way, less its start; and its bytes."""
    (of_table,) = parse_schema(recording.schema.read_text()).tables.values()
    for way, include in INCLUDES.items():
        for store in STORES:
            found = {}
            before = node.bytes_kept()
            for kind, logs in (("start", recording.empty_nodes), ("run", recording.nodes)):
                sink = {"plugin": "history", "table": of_table.qualified, "include": include}
                job = Path(jobs.write(recording, logs, sink | {"seed": "empty", "path": "-"}))
                name = f"{kind}_{way.replace(' ', '_')}_{run}"
                place = place_of(job.parent, store, name, node)
                given = yaml.safe_load(job.read_text())
                given["sink"]["path"] = place if store == "file" else f"{_FILE}#{name}"
                job.write_text(yaml.safe_dump(given))
                found[kind] = jobs.probe("run", job=str(job))
                found[kind].pop("modules")
            if found["run"]["changes"] != recording.mutations:
                raise ProbeFailedError(f"{way}: {found['run']['changes']} of {recording.mutations}")
            size = Path(place).stat().st_size if store == "file" else node.bytes_kept() - before
            yield {
                "store": store,
                "way": way,
                "place": place,
                "bytes": size,
                **found,
            }


def commit_samples(folder: Path, node: Node, run: int) -> Iterator[Sample]:
    """Yield what small commits take in each store: ms each, and the CPU of this process."""
    from headrace.plugins.testing.doubles import DrivenClock  # noqa: PLC0415 (needs pytest)
    from helpers.histories.kept import FOREVER_MS, Kept, settled  # noqa: PLC0415 (tests')
    from helpers.histories.rows import TABLE, change, delivery  # noqa: PLC0415 (tests')

    folder.mkdir()
    os.chdir(folder)  # A sink takes a place in tables as one of this folder.
    for size in SIZES:
        for store in STORES:
            place = place_of(folder, store, f"commits_{size}_{run}", node)
            path = place if store == "file" else Path(place).name
            options = {"table": TABLE, "seed": "empty", "include": ",".join(SCOPES), "path": path}
            writer = Kept(DrivenClock(), **options).writer()
            times, cpu_ns = [], 0
            for number in range(COMMITS):
                rows = (change(written_us=number, of=(n, number), total=n) for n in range(size))
                writer.submit(delivery(*rows), settled)
                began, began_ns = time.perf_counter(), time.process_time_ns()
                if not writer.commit({"head": b"%d" % number}, FOREVER_MS):
                    raise ProbeFailedError("a commit was refused")
                cpu_ns += time.process_time_ns() - began_ns
                times.append((time.perf_counter() - began) * _MS)
            writer.close()
            cpu_us = cpu_ns / 1_000 / COMMITS
            yield {"store": store, "size": size, "ms": median(times), "cpu_us": cpu_us}


def page_samples(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield how long a page with all images takes, and the CPU of this process."""
    for each in samples:
        if each["way"] != "all images":
            continue
        with history.connect(each["place"]) as opened:
            middle_ms = next(iter(opened.select(0, limit=1))).time_ms
            began, began_ns = time.perf_counter(), time.process_time_ns()
            found = list(opened.select(middle_ms, include=SCOPES, limit=PAGE))
            cpu_ms = (time.process_time_ns() - began_ns) / _US
            took_ms = (time.perf_counter() - began) * _MS
        if len(found) != PAGE:
            raise ProbeFailedError(f"{len(found)} of {PAGE} changes")
        yield {"store": each["store"], "ms": took_ms, "cpu_ms": cpu_ms}


def figures_of(
    workers: Sequence[Sample], commits: Sequence[Sample], pages: Sequence[Sample]
) -> list[Figure]:
    """Return the figures of each store, side by side."""
    made = []
    for way in INCLUDES:
        for store in STORES:
            mine = [each for each in workers if (each["store"], each["way"]) == (store, way)]
            changes = mine[0]["run"]["changes"]
            cpu = [(e["run"]["cpu_ns"] - e["start"]["cpu_ns"]) / changes / 1_000 for e in mine]
            walls = [e["run"]["wall_s"] - e["start"]["wall_s"] for e in mine]
            bounds = {
                "bytes": mine[0]["bytes"] / changes,
                "changes/s": changes / min(walls),
            }
            made.append(Figure(f"13 columns -> {store}, {way}", "µs", cpu, bounds))
    for size in SIZES:
        for store in STORES:
            times = [e for e in commits if (e["store"], e["size"]) == (store, size)]
            cpu_us = min(e["cpu_us"] for e in times)
            title = f"a commit of {size} with all images -> {store}"
            made.append(Figure(title, "ms", [e["ms"] for e in times], {"CPU in µs": cpu_us}))
    for store in STORES:
        times = [each for each in pages if each["store"] == store]
        cpu_ms = min(each["cpu_ms"] for each in times)
        title = f"a page of {PAGE} with all images, {store}"
        made.append(Figure(title, "ms", [each["ms"] for each in times], {"CPU in ms": cpu_ms}))
    return made


def measured(folder: Path, recording: Recording, *, runs: int) -> tuple[list[Figure], Sample]:
    """Measure both stores, *runs* times; return the figures, and what they were made of."""
    workers: list[Sample] = []
    commits: list[Sample] = []
    pages: list[Sample] = []
    with node_of(folder / "node") as node:
        (folder / "jobs").mkdir()
        jobs = Jobs(folder / "jobs")
        list(commit_samples(folder / "warm", node, runs))  # The node compiles what it uses most.
        for run in range(runs):
            made = list(worker_samples(jobs, recording, node, run))
            workers += made
            commits += commit_samples(folder / f"commits{run}", node, run)
            pages += page_samples(made)
    raw = {"workers": workers, "commits": commits, "pages": pages}
    return figures_of(workers, commits, pages), raw

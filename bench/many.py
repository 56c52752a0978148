"""What many splits, many tables and many logs cost a worker: four of `bench.probes`.

Each is a whole worker with a sink that takes everything, in the process of the probe unless nothing
is written.
"""

import contextlib
import io
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final
from unittest.mock import patch
from uuid import UUID

import structlog
import yaml

from bench.errors import ProbeFailedError
from bench.machine import memory_bytes_max
from bench.recordings import mutations_of, with_key
from bench.tail import WARM_SECONDS, cpu_seconds, state_of, until, worker_of
from headrace.connector.commands.run import run_main
from headrace.connector.hosting.host import Host
from headrace.connector.obs.logging import configure
from headrace.connector.runtime.pipeline import Pipeline
from headrace.connector.stores.sqlite.store import SqliteStore
from headrace.sources.cassandra.forge.mutations import MESSAGING, encode_mutation
from headrace.sources.cassandra.forge.segments import write_log
from headrace.sources.cassandra.native import ops
from headrace.sources.cassandra.ring.topology import Node, Topology
from headrace.sources.cassandra.schema.ddl import parse_schema

LOGS: Final = 3  # The replicas of each key.
WATCHED_SECONDS: Final = 5.0  # So long an idle worker is watched, from when its splits are open.
TICK_SECONDS: Final = 0.02  # The default of `tick_min_ms`.
AWAY_PASSES: Final = 100  # Made while one log cannot be read.
_SECONDS_MAX: Final = 120
_FIRST_ID: Final = 1_790_000_000_000
_TABLE_ID: Final = 0x0F0E0D0C3B1E11EF9D2B000000000000
_NS: Final = 1_000_000_000
_KEY_AT: Final = 18  # Of the bytes of a mutation's first key, whose length is before.


def splits(schema: str, folder: str, splits: int) -> Mapping[str, object]:
    """Open so many splits of three empty logs, then watch the worker, whose tick is the default.

    At last one log is moved away. *folder* is made.
    """
    place = Path(folder)
    logs = _logs(place, [[] for _ in range(LOGS)])
    job = _job(place, schema, {node: {"path": str(path)} for node, path in logs.items()}, splits)
    watched = _Watched(job, splits, logs["node00"])
    watched.run()
    return {
        "opening_ns": watched.opening_ns,
        "idle_cpu_ns": watched.idle_cpu_ns,
        "idle_ns": watched.idle_ns,
        "tick_ns": statistics.median(watched.ticks_ns),
        "away_tick_ns": statistics.median(watched.away_ns),
        "splits": splits,
    }


class _Watched:
    """A worker that is watched through the passes of its pipeline."""

    def __init__(self, job: Path, splits: int, log: Path) -> None:
        """*log* is the log that is moved away."""
        self._host = Host(job, log=structlog.stdlib.get_logger())
        self._splits = splits
        self._log = log
        self._opened: tuple[int, int] | None = None
        self._away = False
        self.opening_ns = self.idle_cpu_ns = self.idle_ns = 0
        self.ticks_ns: list[float] = []
        self.away_ns: list[float] = []

    def run(self) -> None:
        """Run the worker until all was seen."""
        configure("error")
        run_pass = Pipeline.run_pass
        began_ns, until = time.process_time_ns(), time.monotonic() + _SECONDS_MAX

        def watched(pipeline: Pipeline) -> None:
            before_ns, began = time.thread_time_ns(), time.monotonic()
            run_pass(pipeline)
            ticks = max(1, round((time.monotonic() - began) / TICK_SECONDS))
            self._see(pipeline, (time.thread_time_ns() - before_ns) / ticks, began_ns)
            if time.monotonic() > until:
                self._host.stop()

        with patch.object(Pipeline, "run_pass", watched):
            self._host.run(until_idle=False)
        if len(self.away_ns) < AWAY_PASSES:
            raise ProbeFailedError("the worker did not come so far")

    def _see(self, pipeline: Pipeline, tick_ns: float, began_ns: int) -> None:
        if self._opened is None:
            runs = pipeline.runs
            if len(runs) == self._splits and all(run.is_open for run in runs):
                self._opened = time.process_time_ns(), time.monotonic_ns()
                self.opening_ns = self._opened[0] - began_ns
            return
        cpu_ns, opened_ns = self._opened
        if self._away:
            self.away_ns.append(tick_ns)
            if len(self.away_ns) == AWAY_PASSES:
                self._host.stop()
            return
        self.ticks_ns.append(tick_ns)
        passed_ns = time.monotonic_ns() - opened_ns
        if passed_ns >= WATCHED_SECONDS * 1_000_000_000:
            self.idle_cpu_ns, self.idle_ns = time.process_time_ns() - cpu_ns, passed_ns
            self._log.rename(self._log.with_name("away"))
            self._away = True


def tables(folder: str, tables: int) -> Mapping[str, object]:
    """Deliver one change of each of so many tables. *folder* is made."""
    place = Path(folder)
    ids = [UUID(int=_TABLE_ID + number) for number in range(tables)]
    ddl = "".join(
        f"CREATE TABLE shop.t{number} (id blob PRIMARY KEY, name text, price bigint, at timestamp) "
        f"WITH cdc = true AND ID = {each};\n"
        for number, each in enumerate(ids)
    )
    schema = place / "schema.cql"
    place.mkdir(parents=True)
    schema.write_text(
        "CREATE KEYSPACE shop WITH replication = "
        f"{{'class': 'SimpleStrategy', 'replication_factor': '1'}};\n{ddl}"
    )
    parsed = parse_schema(schema.read_text())
    made = [
        encode_mutation(_change_of(number, each), parsed, MESSAGING[7])
        for number, each in enumerate(ids)
    ]
    del parsed
    logs = _logs(place, [made])
    job = _job(place, str(schema), {node: {"path": str(path)} for node, path in logs.items()}, 8)
    return _until_idle(job, tables)


def _change_of(number: int, table: UUID) -> Mapping[str, object]:
    """Return an insert into a table, with a key and a time of its own."""
    cell = {"ts": 1 + number, "value": "61"}
    item = {"clustering": [], "liveness": {"ts": 1 + number}, "columns": {"name": cell}}
    return {"updates": [{"id": str(table), "key": f"{number:08x}", "epoch": 5, "items": [item]}]}


def rings(schema: str, folder: str, logs: int, splits: int, changes: int) -> Mapping[str, object]:
    """Deliver so many changes, each from three of so many logs. *folder* is made."""
    place = Path(folder)
    nodes = _ring(logs)
    parsed = parse_schema(Path(schema).read_text())
    (keyspace,) = parsed.keyspaces.values()
    ring = Topology.of(nodes, [keyspace], "QUORUM")
    recorded = mutations_of(Path(schema))
    entries: dict[str, list[bytes]] = {node.name: [] for node in nodes}
    for number in range(changes):
        entry = with_key(recorded[number % len(recorded)], number // len(recorded))
        end = _KEY_AT + entry[_KEY_AT - 1]
        ((replicas, _),) = ring.at(keyspace.name, ops.token(memoryview(entry), _KEY_AT, end))
        for node in replicas:
            entries[node].append(entry)
    paths = _logs(place, list(entries.values()))
    return _until_idle(_job(place, schema, _given(nodes, paths), splits), changes)


def still(schema: str, folder: str, logs: int, splits: int, seconds: float) -> Mapping[str, object]:
    """Watch a worker in mode realtime while nothing is written to so many logs."""
    place = Path(folder)
    nodes = _ring(logs)
    paths = _logs(place, [[] for _ in nodes])
    job = _job(place, schema, _given(nodes, paths), splits, "realtime")
    with worker_of(job) as worker, closing(SqliteStore.open(state_of(job), "many")) as store:
        until(lambda: len(store.states()) == splits and all(s.position for s in store.states()))
        time.sleep(WARM_SECONDS)
        before = cpu_seconds(worker.pid)
        time.sleep(seconds)
        cpu = cpu_seconds(worker.pid) - before
    return {"idle_cpu_ns": round(cpu * _NS), "idle_ns": round(seconds * _NS)}


def _ring(logs: int) -> Sequence[Node]:
    """Return so many nodes with equal parts of the ring."""
    step = (1 << 64) // logs
    return [Node(f"node{n:02}", (n * step - (1 << 63),), "dc1") for n in range(logs)]


def _given(nodes: Sequence[Node], paths: Mapping[str, Path]) -> Mapping[str, object]:
    return {
        node.name: {"path": str(paths[node.name]), "tokens": list(node.tokens), "dc": "dc1"}
        for node in nodes
    }


def _logs(place: Path, entries: Sequence[Sequence[bytes]]) -> dict[str, Path]:
    """Write a log of each of *entries*; return them by node."""
    logs = {f"node{number:02}": place / f"node{number:02}" for number in range(len(entries))}
    for number, (path, made) in enumerate(zip(logs.values(), entries, strict=True)):
        write_log(path, made, first_id=_FIRST_ID + 1_000 * number)
    return logs


def _job(
    place: Path, schema: str, nodes: Mapping[str, object], splits: int, mode: str = "log"
) -> Path:
    source = {
        "mode": mode,
        "plugin": "cassandra",
        "schema": schema,
        "consistency": "QUORUM" if len(nodes) > 1 else "ONE",
        "nodes": dict(nodes),
        "splits": splits,
    }
    job = {"job": "many", "state": "state.db", "source": source, "sink": {"plugin": "null"}}
    path = place / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def _until_idle(job: Path, changes: int) -> Mapping[str, object]:
    configure("error")
    summary = job.with_name("summary.json")
    started_ns = time.process_time_ns()
    with contextlib.redirect_stdout(io.StringIO()):
        run_main([str(job), "--until-idle", "--summary-json", str(summary)])
    cpu_ns = time.process_time_ns() - started_ns
    delivered = json.loads(summary.read_text())["run"]["changes"]
    if delivered != changes:
        raise ProbeFailedError(f"{delivered} changes of {changes}")
    return {"changes": changes, "cpu_ns": cpu_ns, "memory_bytes": memory_bytes_max()}

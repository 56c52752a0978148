"""Random writes on a real node: the history of each table is what SELECT shows, through crashes.

`HEADRACE_SEED` gives another run.
"""

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.arrival import ms_of
from headrace.connector.history.config import SCOPES
from headrace.connector.history.errors import HistoryMissingError
from headrace.connector.history.following import tail
from headrace.connector.history.images import WIDE
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.store.contract import Range
from headrace.connector.history.store.places import opened
from headrace.connector.serde.codecs.records import reader_of
from headrace.plugins import HeadraceError
from headrace.sources.cassandra.log import read_mutations
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnKind, Schema, TableSchema
from helpers.jobs.children import until
from helpers.logs.sample_log import segments
from real.node.random_statements import KEYSPACE, Workload
from real.node.selected import comparable_row, loaded
from real.node.test_random_writes import SEED, connected, selected, written
from real.servers.cassandra import RELEASES, Cassandra
from real.stream import HEADRACE

pytestmark = pytest.mark.real

NAME: Final = "5.0-none"
STEPS: Final = ("history_rows:5", "history_decided:3", "history_rows:3")  # Of changes.
SECONDS_MAX: Final = 120
KILLED_AT: Final = (1, 8, 30)  # Changes in the history when its worker is killed; in turn.
FILES: Final = (1, 4)  # That a history has; in turn.
RUNTIME: Final = {"commit_max_seconds": 0.02, "batch_records_max": 3, "tick_min_ms": 5}
Row = Mapping[str, Any]


class Then(SystemClock):
    """The moment of a SELECT: what expires later is there."""

    def __init__(self, now_s: int) -> None:
        """Stand still."""
        self._now_ms = now_s * 1_000

    def wall_ms(self) -> int:
        """Return that moment."""
        return self._now_ms


def job_of(folder: Path, cdc_raw: Path, table: str, *, files: int = 1) -> tuple[Path, Path]:
    """Write a job that keeps the history of a table; return it, and the path of the history."""
    file = folder / f"{table}.db"
    given = {
        "job": table,
        "state": f"{table}.state",
        "source": {
            "plugin": "cassandra",
            "nodes": {"node1": str(cdc_raw)},
            "schema": str(folder / "schema.cql"),
            "consistency": "ONE",
            "splits": 1,
            "tables": [f"{KEYSPACE}.{table}"],
        },
        "sink": {
            "plugin": "history",
            "path": str(file),
            "table": f"{KEYSPACE}.{table}",
            "include": ",".join(SCOPES),
            "seed": "empty",
            "files": files,
        },
        "runtime": RUNTIME,
    }
    path = folder / f"{table}.yaml"
    path.write_text(yaml.safe_dump(given))
    return path, file


def kept(file: Path) -> int:
    """Return how many changes a history has."""
    try:
        found = opened(str(file), SystemClock())
    except HistoryMissingError:
        return 0
    try:
        return found.extent()[2]
    finally:
        found.close()


def run(job: Path, *, killed_at: int, file: Path) -> bool:
    """Run a job to its end, or kill it when the history has so many changes; say which."""
    process = subprocess.Popen(  # noqa: S603 (headrace itself)
        [*HEADRACE, "run", str(job), "--until-idle"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    until(
        lambda: process.poll() is not None or 0 < killed_at <= kept(file),
        "the worker neither ends nor commits",
    )
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), err.decode()
    return process.returncode == 0


def events_of(place: Path | str, now_s: int) -> list[Event]:
    """Return all changes of a history, with all images, the newest as of then."""
    history = History(opened(str(place), Then(now_s)), frozenset(SCOPES), Then(now_s))
    try:
        query = Query(from_ms=0, limit=1_000)
        return [event for page in history.pages(query) for event in page.events]
    finally:
        history.close()


def identities(place: Path | str) -> list[tuple[bytes, int]]:
    """Return what identifies each change of a history: its mutation, and its place there."""
    store = opened(str(place), SystemClock())
    try:
        readers = {n: reader_of(schema.value) for n, schema in store.schemas().items()}
        with store.reading():
            stored = list(store.changes(Range(0, 1 << 62)))
    finally:
        store.close()
    values = [readers[each.schema](each.change) for each in stored]
    return [(value["mutation"], value["index"]) for value in values]


def times(schema: Schema, folder: Path, table: str) -> set[int]:
    """Return the write times of all changes of a table in the logs in *folder*."""
    found = set()
    for path in segments(folder):
        with path.open("rb") as stream:
            for mutation in read_mutations(stream, schema, place=path.name):
                mine = [c for c in mutation.changes() if c.table.name == table]
                found |= {change.timestamp_us for change in mine}
    return found


def named(row: Row, names: Sequence[str]) -> str:
    """Return columns of a row as a text that compares."""
    return repr([row.get(name) for name in names])


def difference(table: TableSchema, rows: Sequence[Row], events: Sequence[Event]) -> list[str]:
    """Return what SELECT shows and the newest images do not, and the other way round."""
    shown = [column for column in table.columns if column.kind is not ColumnKind.STATIC]
    types = {column.name: column.type for column in shown}
    keys = [column.name for column in (*table.partition_key, *table.clustering)]
    regular = [column.name for column in table.columns if column.kind is ColumnKind.REGULAR]
    mine: dict[str, str] = {}
    for event in events:
        if event.operation in WIDE or event.static or not event.latest:
            continue
        whole = comparable_row(types, {**event.key, **event.latest})
        mine[named(whole, keys)] = named(whole, regular)
    theirs = {}
    for row in rows:
        whole = comparable_row(types, row)
        if all(whole[column.name] is not None for column in table.clustering):
            theirs[named(whole, keys)] = named(whole, regular)
    keys_that_differ = sorted(
        k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)
    )
    return [f"{key}: {mine.get(key)}, SELECT shows {theirs.get(key)}" for key in keys_that_differ]


def check(
    known: TableSchema,
    rows: Sequence[Any],
    written_us: set[int],
    events: Sequence[Event],
    found: Sequence[tuple[bytes, int]],
) -> None:
    """Compare a history with what SELECT shows, and with the logs."""
    arrivals = [event.arrival for event in events]
    assert sorted(set(arrivals)) == arrivals
    assert [] == difference(known, [loaded(row) for row in rows], events), known.name
    assert not any(event.partial for event in events)
    assert len(set(found)) == len(found) == len(events)
    assert written_us == {event.written_us for event in events}


class Reader(threading.Thread):
    """Follows a history from its beginning, while workers write and die."""

    def __init__(self, place: str) -> None:
        """Start."""
        super().__init__(daemon=True)
        self._place = place
        self._over = threading.Event()
        self._query = Query(from_ms=0, limit=7, scopes=frozenset({"change"}))
        self.arrivals: list[int] = []
        self._history: History | None = None
        self.start()

    def run(self) -> None:
        """Read what is final, again and again."""
        while not self._over.wait(0.05):
            with suppress(HeadraceError):  # No worker has made it yet.
                self.read()

    def read(self) -> None:
        """Read on from the last page."""
        clock = SystemClock()
        if self._history is None:
            self._history = History(opened(self._place, clock), frozenset(), clock)
        page = tail(self._history, self._query, wait_ms=0, pause=lambda _: None)
        while page.events:
            self.arrivals += [event.arrival for event in page.events]
            self._query = replace(self._query, after=page.token)
            page = tail(self._history, self._query, wait_ms=0, pause=lambda _: None)

    def end(self) -> list[int]:
        """Stop, and return the arrivals of all changes that it has seen."""
        self._over.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        self.read()
        assert self._history is not None
        self._history.close()
        return self.arrivals


def in_tables(folder: Path, node: Cassandra, table: str) -> tuple[Path, str]:
    """Write a job that keeps the history of a table in tables; return it, and the place."""
    path, _ = job_of(folder, node.cdc_raw, table)
    given = yaml.safe_load(path.read_text())
    given["job"] = f"{table}-tables"  # Another one than that of the file, over the same logs.
    given["store"] = {
        "plugin": "cassandra",
        "contact_points": [f"{node.host}:{node.port}"],
        "replication_factor": 1,
    }
    job = folder / f"{table}-tables.yaml"
    given["sink"]["path"] = f"{job.name}#{table}"
    job.write_text(yaml.safe_dump(given))
    return job, f"{job}#{table}"


def killed_at(job: Path, step: str) -> bool:
    """Run a job to its end, or until it reaches a step, at which it is killed; say which."""
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, "run", str(job), "--until-idle"],
        env=os.environ | {"HEADRACE_CRASH_AT": step},
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def written_in_tables(folder: Path, node: Cassandra, table: str) -> str:
    """Keep the history of a table in tables of the node; its workers are killed at each step."""
    job, place = in_tables(folder, node, table)
    reader = Reader(place)
    assert [True] * len(STEPS) == [killed_at(job, step) for step in STEPS]
    assert not killed_at(job, "never")
    arrivals = reader.end()
    assert sorted(set(arrivals)) == arrivals
    assert len(identities(place)) == len(arrivals)
    return place


def check_rest(place: str) -> None:
    """Note that a row expires, settle, and purge a history: no worker does that here."""
    store = opened(place, SystemClock())
    with store.reading():
        ((key, row), *_) = [(each.key, each.row) for each in store.changes(Range(0, 1 << 62))]
    (part,) = store.parts
    with part.writing():
        ((_, _, state),) = part.states([(key, row)])
        part.keep_states({(key, row): state}, {(key, row): 86_401})
    with part.writing():
        assert [(key, row, state, 86_401)] == part.due(90_000, 9)
        part.set_expiries({(key, row): 0})
    with part.reading():
        assert [] == part.due(90_000, 9)
    now_ms = SystemClock().wall_ms()
    store.settle(now_ms)
    assert ms_of(store.last() + 1) >= now_ms
    store.purge()
    with pytest.raises(HistoryMissingError):
        opened(place, SystemClock())


def test_the_newest_images_are_what_select_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its workers are killed while they write; no change is lost, and none is there twice."""
    seed = int(os.environ.get("HEADRACE_SEED", SEED))
    workload = Workload(seed, vectors=True, late=True)
    release = RELEASES[NAME]
    with Cassandra(tmp_path / "node", release=release) as node, connected(node) as session:
        written(session, workload)
        ddl, rows, now_s = selected(session, workload)
        (tmp_path / "schema.cql").write_text(ddl)
        schema = parse_schema(ddl)
        first = next(table.name for table in workload.tables if table.cdc)
        place = written_in_tables(tmp_path, node, first)
        in_cluster = events_of(place, now_s), identities(place)
        check_rest(place)
    killed = changes = 0
    counts, files = itertools.cycle(KILLED_AT), itertools.cycle(FILES)
    for table in filter(lambda table: table.cdc, workload.tables):
        job, file = job_of(tmp_path, node.cdc_raw, table.name, files=next(files))
        killed += not run(job, killed_at=next(counts), file=file)
        assert run(job, killed_at=0, file=file)
        events = events_of(file, now_s)
        known = schema.table(f"{KEYSPACE}.{table.name}")
        assert known is not None
        mine = rows[table.name], times(schema, node.cdc_raw, table.name)
        check(known, *mine, events, identities(file))
        if table.name == first:
            check(known, *mine, *in_cluster)
        changes += len(events)
    with capsys.disabled():
        sys.stdout.write(f"\nHEADRACE_SEED={seed}: {changes} changes, {killed} kills ")
    assert killed > 0
    assert changes > 100

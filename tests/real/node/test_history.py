"""Random writes on a real node: the history of each table is what SELECT shows, through crashes.

`HEADRACE_SEED` gives another run.
"""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.config import SCOPES
from headrace.connector.history.errors import HistoryMissingError
from headrace.connector.history.images import WIDE
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.store.file import HistoryFile
from headrace.connector.serde.codecs.records import reader_of
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
KILLED_AT: Final = (1, 8, 30)  # Changes in the history when its worker is killed; in turn.
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


def job_of(folder: Path, cdc_raw: Path, table: str) -> tuple[Path, Path]:
    """Write a job that keeps the history of a table; return it, and the history's file."""
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
        },
        "runtime": RUNTIME,
    }
    path = folder / f"{table}.yaml"
    path.write_text(yaml.safe_dump(given))
    return path, file


def kept(file: Path) -> int:
    """Return how many changes a history has."""
    try:
        opened = HistoryFile.opened(file)
    except HistoryMissingError:
        return 0
    try:
        return opened.extent()[2]
    finally:
        opened.close()


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


def events_of(file: Path, now_s: int) -> list[Event]:
    """Return all changes of a history, with all images, the newest as of then."""
    history = History(HistoryFile.opened(file), frozenset(SCOPES), Then(now_s))
    try:
        query = Query(from_ms=0, limit=1_000)
        return [event for page in history.pages(query) for event in page.events]
    finally:
        history.close()


def identities(file: Path) -> list[tuple[bytes, int]]:
    """Return what identifies each change of a history: its mutation, and its place there."""
    opened = HistoryFile.opened(file)
    try:
        readers = {n: reader_of(schema.value) for n, schema in opened.schemas().items()}
        stored = opened.run("SELECT schema, change FROM changes").fetchall()
    finally:
        opened.close()
    values = [readers[number](change) for number, change in stored]
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
    killed = changes = 0
    counts = itertools.cycle(KILLED_AT)
    for table in filter(lambda table: table.cdc, workload.tables):
        known = schema.table(f"{KEYSPACE}.{table.name}")
        assert known is not None
        job, file = job_of(tmp_path, node.cdc_raw, table.name)
        killed += not run(job, killed_at=next(counts), file=file)
        assert run(job, killed_at=0, file=file)
        events = events_of(file, now_s)
        arrivals = [event.arrival for event in events]
        assert sorted(set(arrivals)) == arrivals
        expected = [loaded(row) for row in rows[table.name]]
        assert [] == difference(known, expected, events), table.name
        assert not any(event.partial for event in events)
        found = identities(file)
        assert len(set(found)) == len(found) == len(events)
        assert times(schema, node.cdc_raw, table.name) == {event.written_us for event in events}
        changes += len(events)
    with capsys.disabled():
        sys.stdout.write(f"\nHEADRACE_SEED={seed}: {changes} changes, {killed} kills ")
    assert killed > 0
    assert changes > 100

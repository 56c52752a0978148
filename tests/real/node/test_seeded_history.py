"""A real node whose tables had rows before their histories: a seed beside writes, and its images.

`HEADRACE_SEED` gives another run.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cassandra import InvalidRequest
from cassandra.cluster import Session

from headrace.connector.history.images import WIDE
from headrace.connector.history.query import Event
from headrace.connector.history.seeding import seed_now
from headrace.connector.history.store.file import HistoryFile
from headrace.sources.cassandra.schema.ddl import parse_schema
from headrace.sources.cassandra.schema.tables import ColumnKind, TableSchema
from helpers.jobs.children import until
from real.node.random_statements import KEYSPACE, Workload
from real.node.selected import comparable_row, loaded
from real.node.test_history import events_of, job_of, run
from real.node.test_random_writes import SEED, connected, selected
from real.servers.cassandra import RELEASES, Cassandra
from real.stream import HEADRACE

pytestmark = pytest.mark.real

NAME: Final = "5.0-none"
BEFORE: Final = 200  # Statements before the histories, and beside and after their seeds.
AFTER: Final = 200
TABLES: Final = 4  # Each has processes of its own.
SECONDS_MAX: Final = 120
FAR: Final = str(1 << 60)  # A time far ahead, which a history takes for one that it has seen.
_TIME: Final = re.compile(r" USING TIMESTAMP -?[0-9]+(?: AND( TTL [0-9]+))?")


def write(session: Session, statements: Iterator[str], count: int) -> None:
    """Execute some of them: every fifth with its time, if that is before all histories."""
    for number, statement in zip(range(count), statements, strict=False):
        is_late = number % 5 == 0 and FAR not in statement
        try:
            session.execute(statement if is_late else now(statement))
        except InvalidRequest:
            continue


def now(statement: str) -> str:
    """Return a statement that is written at its time."""
    return _TIME.sub(lambda found: f" USING{found[1]}" if found[1] else "", statement)


def headrace(*arguments: str) -> str:
    """Call a command; return what it prints."""
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, *arguments], capture_output=True, timeout=SECONDS_MAX, check=False
    )
    assert 0 == done.returncode, done.stderr.decode()
    return done.stdout.decode()


def seeded_job(folder: Path, node: Cassandra, table: str) -> tuple[Path, Path]:
    """Create a history that begins now, of a job that runs; return its job file, and its file."""
    path, _ = job_of(folder, node.cdc_raw, table)
    document = yaml.safe_load(path.read_text())
    del document["sink"], document["source"]["tables"]
    document["source"]["streamed"] = "publish"
    document["source"]["contact_points"] = [f"{node.host}:{node.port}"]
    path.write_text(yaml.safe_dump(document))
    create = f"CREATE CDC {table} ON {KEYSPACE}.{table} INCLUDE (ALL) WITH seed = 'snapshot' "
    create += f"AND start = 'latest' AND job = '{table}'"
    headrace("exec", "--state", str(folder / document["state"]), "-e", create)
    return path, folder / "history" / f"{table}.db"


def seed(job: Path, file: Path) -> bool:
    """Seed a history; kill the first try as soon as it has read rows. Say whether it was killed."""
    command = ["seed", str(job), file.stem, "--shards", "16"]
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*HEADRACE, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as first:
        until(
            lambda: first.poll() is not None or rows_read(file) > 0,
            "the seed neither ends nor reads",
        )
        first.send_signal(signal.SIGKILL)
    headrace(*command)
    return first.returncode == -signal.SIGKILL


@contextmanager
def following(job: Path) -> Iterator[None]:
    """Run a job meanwhile."""
    with subprocess.Popen(  # noqa: S603 (headrace itself)
        [*HEADRACE, "run", str(job)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as live:
        try:
            yield
            assert live.poll() is None
        finally:
            live.terminate()
            assert 0 == live.wait(SECONDS_MAX)


def rows_read(file: Path) -> int:
    """Return how many rows a seed has read."""
    with closing(HistoryFile.opened(file)) as opened:
        found = seed_now(opened)
    return found.rows if found else 0


def from_source(job: Path, file: Path) -> list[Any]:
    """Return the newest image of each change, as a read of the table at ALL has it."""
    state = job.with_name(yaml.safe_load(job.read_text())["state"])
    select = f"SELECT JSON FROM {file.stem} WHERE CDC_TIME() >= 0"  # noqa: S608 (a name)
    images, after = [], ""
    while True:
        text = f"{select} LIMIT 100 {after} LATEST FROM SOURCE CONSISTENCY ALL"
        answer = headrace("exec", "--state", str(state), "-e", text).splitlines()
        found = [json.loads(line) for line in answer]
        images += [json.loads(each["json"]).get("latest_image") for each in found if "json" in each]
        tokens = [each["next_token"] for each in found if "next_token" in each]
        if not tokens:
            return images
        after = f"AFTER '{tokens[0]}'"


def names(table: TableSchema, *kinds: ColumnKind) -> list[str]:
    """Return the names of columns of these kinds."""
    return [c.name for c in table.columns if c.kind in kinds and not c.is_dropped]


def differing(table: TableSchema, rows: list[dict[str, Any]], event: Event) -> str:
    """Return how a newest image differs from what SELECT shows of its row; empty if not at all."""
    types = {column.name: column.type for column in table.columns}
    keys = [c.name for c in (*table.partition_key, *table.clustering)]
    regular = names(table, ColumnKind.REGULAR)
    nothing = dict.fromkeys(types)
    mine = comparable_row(types, {**nothing, **event.key, **(event.latest or {})})
    theirs = [comparable_row(types, row) for row in rows]
    theirs = [row for row in theirs if all(row[name] == mine[name] for name in keys)]
    if not theirs:
        return "" if not event.latest else f"{event.key}: {event.latest}, SELECT shows no row"
    shown = [(name, mine[name], theirs[0][name]) for name in regular]
    other = [each for each in shown if each[1] != each[2]]
    return f"{event.key}: {other}" if other or not event.latest else ""


def test_newest_images_of_older_rows_are_what_select_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds are killed, and clients write meanwhile; nothing is wrong unless it is partial."""
    given = int(os.environ.get("HEADRACE_SEED", SEED))
    workload = Workload(given, vectors=True, late=True)
    statements = workload.statements(BEFORE + AFTER)
    tables = [table.name for table in workload.tables if table.cdc][:TABLES]
    killed = 0
    with Cassandra(tmp_path / "node", release=RELEASES[NAME]) as node, connected(node) as session:
        for statement in workload.ddl():
            session.execute(statement, timeout=60)
        write(session, statements, BEFORE)
        jobs = {}
        (tmp_path / "schema.cql").write_text(described(session))
        for table in tables:
            jobs[table] = seeded_job(tmp_path, node, table)
            assert run(jobs[table][0], killed_at=0, file=jobs[table][1])
        beside = threading.Thread(target=write, args=(session, statements, AFTER // 2))
        beside.start()
        for job, file in jobs.values():
            with following(job):
                killed += seed(job, file)
        beside.join(SECONDS_MAX)
        assert not beside.is_alive()
        write(session, statements, AFTER)
        ddl, rows, now_s = selected(session, workload)
        images = {}
        for table, (job, file) in jobs.items():
            assert run(job, killed_at=0, file=file)
            images[table] = from_source(job, file)
    schema = parse_schema(ddl)
    counts = Counter[str]()
    for table, (_, file) in jobs.items():
        known = schema.table(f"{KEYSPACE}.{table}")
        assert known is not None
        compare(known, [loaded(row) for row in rows[table]], events_of(file, now_s), images[table])
        counts += counted(events_of(file, now_s))
    with capsys.disabled():
        sys.stdout.write(f"\nHEADRACE_SEED={given}: {dict(counts)}, {killed} kills ")
    assert killed > 0
    assert counts["whole"] > counts["partial"]
    assert counts["old"] > 20


def compare(
    table: TableSchema, rows: list[dict[str, Any]], events: Sequence[Event], images: Sequence[Any]
) -> None:
    """Compare images that are whole with what SELECT shows, and with those read of the table."""
    for event, image in zip(events, images, strict=True):
        if event.operation in WIDE:
            assert image is None
        elif not event.partial:
            assert event.latest == image, (table.name, event.key)
            assert event.static or "" == differing(table, rows, event), table.name


def counted(events: Sequence[Event]) -> Counter[str]:
    """Return how many images are whole, and have columns that no change wrote; and are partial."""
    mine = [event for event in events if event.operation not in WIDE]
    whole = [event for event in mine if not event.partial]
    old = [event for event in whole if set(event.latest or {}) - set(event.change or {})]
    return Counter(whole=len(whole), partial=len(mine) - len(whole), old=len(old))


def described(session: Session) -> str:
    """Return the DDL."""
    found = session.execute(f"DESCRIBE KEYSPACE {KEYSPACE} WITH INTERNALS")
    return "\n".join(row.create_statement for row in found) + "\n"

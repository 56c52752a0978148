"""Times to live that end on a real node: an event for each, in a file, in several, in tables."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cassandra.cluster import Session

from headrace.connector.foundation.clock import SystemClock
from headrace.connector.history.config import SCOPES
from headrace.connector.history.query import Event, Query
from headrace.connector.history.reading import History
from headrace.connector.history.store.places import opened
from headrace.plugins import HeadraceError, Operation
from helpers.jobs.children import until, until_after
from real.servers.cassandra import Cassandra
from real.stream import HEADRACE, Worker

pytestmark = pytest.mark.real

KEYSPACE: Final = "ending"
TTL_S: Final = (
    20  # Of statements below: changes have to arrive before it ends, also on a busy machine.
)
SECONDS_MAX: Final = 120
FIRST: Final = "INSERT INTO ending.t (id, at, note, total) VALUES (1, 0, 'stays', 0)"
WRITES: Final = (
    "INSERT INTO ending.t (id, at, note, total) VALUES (1, 1, 'goes', 1) USING TTL 20",
    "INSERT INTO ending.t (id, at, note, total) VALUES (1, 2, 'first', 2)",
    "UPDATE ending.t USING TTL 20 SET note = 'short' WHERE id = 1 AND at = 2",
    "INSERT INTO ending.t (id, at, note, total) VALUES (1, 3, 'renewed', 3) USING TTL 20",
    "INSERT INTO ending.t (id, at, note, total) VALUES (1, 3, 'for ever', 3)",
    "INSERT INTO ending.t (id, at, note, total) VALUES (1, 4, 'deleted', 4) USING TTL 20",
    "DELETE FROM ending.t WHERE id = 1 AND at = 4",
    "UPDATE ending.t USING TTL 20 SET shared = 'static' WHERE id = 2",
    "UPDATE ending.t USING TTL 20 SET tags = tags + {'a'} WHERE id = 1 AND at = 0",
    "INSERT INTO ending.t (id, at, note) VALUES (3, 1, 'later') USING TTL 86400",
)
COUNT: Final = len(WRITES) + 1
Row = Mapping[str, Any]  # Any: columns, as JSON has them.


def prepared(folder: Path, node: Cassandra, session: Session) -> Mapping[str, Path]:
    """Make the table; return a job for a history in a file, in several, and in tables."""
    session.execute(
        "CREATE KEYSPACE ending WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.execute(
        "CREATE TABLE ending.t (id int, at int, note text, total int, tags set<text>, "
        "shared text static, PRIMARY KEY (id, at)) WITH cdc = true"
    )
    described = session.execute("DESCRIBE KEYSPACE ending WITH INTERNALS")
    ddl = "\n".join(row.create_statement for row in described) + "\n"
    (folder / "schema.cql").write_text(ddl)
    store = {
        "plugin": "cassandra",
        "contact_points": [f"{node.host}:{node.port}"],
        "keyspace": "expiring",
        "replication_factor": 1,
    }
    jobs = {}
    for name, path, more in (
        ("file", str(folder / "file.db"), {}),
        ("files", str(folder / "files.db"), {}),
        ("tables", "job.yaml#ending", {"store": store}),
    ):
        given = {
            "job": f"expiring-{name}",
            "state": "job.state",
            "source": {
                "plugin": "cassandra",
                "nodes": {"node1": str(node.cdc_raw)},
                "schema": str(folder / "schema.cql"),
                "consistency": "ONE",
                "splits": 1,
                "tables": ["ending.t"],
            },
            "sink": {
                "plugin": "history",
                "path": path,
                "table": "ending.t",
                "include": ",".join(SCOPES),
                "seed": "empty",
                "ttl_events": False,
                "files": 4 if name == "files" else 1,
            },
            "runtime": {"commit_max_seconds": 0.02, "tick_min_ms": 5},
            **more,
        }
        (folder / name).mkdir()
        jobs[name] = folder / name / "job.yaml"
        jobs[name].write_text(yaml.safe_dump(given))
    return jobs


def place_of(name: str, job: Path) -> str:
    """Return the place of the history of a job."""
    return f"{job}#ending" if name == "tables" else str(job.parents[1] / f"{name}.db")


def killed_in_a_commit(job: Path) -> bool:
    """Run a job until it has written the rows of its first change, and decided nothing."""
    done = subprocess.run(  # noqa: S603 (headrace itself)
        [*HEADRACE, "run", str(job), "--until-idle"],
        env=os.environ | {"HEADRACE_CRASH_AT": "history_rows:4"},
        capture_output=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode != 0


def events_of(place: str) -> Sequence[Event]:
    """Return all events of a history, of what expired up to now, too; none where it is not yet."""
    clock = SystemClock()
    try:
        history = History(opened(place, clock), frozenset(SCOPES), clock)
    except HeadraceError:
        return []
    try:
        return history.select(Query(from_ms=0, limit=1_000)).events
    finally:
        history.close()


def wait_for_events(place: str, count: int, *, expired: int = 0) -> Sequence[Event]:
    """Wait until a history has so many events, and so many of what expired; return them."""
    until(
        lambda: len(found := events_of(place)) >= count and len(expiries(found)) >= expired,
        f"{place}: not all came",
    )
    return events_of(place)


def expiries(events: Sequence[Event]) -> Sequence[Event]:
    """Return those that no client wrote."""
    return [event for event in events if event.expired]


def shown(session: Session) -> Mapping[tuple[int, int], Row]:
    """Return the rows that SELECT shows, without their keys and static columns."""
    rows = session.execute("SELECT JSON id, at, note, total, tags FROM ending.t")
    found = (json.loads(row[0]) for row in rows)
    return {(row.pop("id"), row.pop("at")): row for row in found if row["at"] is not None}


def check(
    events: Sequence[Event],
    before: Mapping[tuple[int, int], Row],
    after: Mapping[tuple[int, int], Row],
    ends_us: tuple[int, int],
) -> None:
    """Compare what expired with what SELECT showed before that, and shows behind it."""
    found = {(each.key["id"], each.key.get("at")): each for each in expiries(events)}
    assert {(1, 0), (1, 1), (1, 2), (2, None)} == found.keys()
    assert len(found) == len(expiries(events))
    operations = {key: each.operation for key, each in found.items()}
    assert Operation.DELETE is operations.pop((1, 1))
    assert {Operation.UPDATE} == set(operations.values())
    static = found.pop((2, None))
    assert ({"shared": "static"}, {"shared": None}) == (static.pre, static.post or {"shared": None})
    for (partition, at), event in found.items():
        key = partition, at or 0
        assert before[key] == event.pre
        assert after.get(key) == event.post
        assert not event.partial
        assert ends_us[0] <= event.written_us <= ends_us[1]
    for event in events:
        if not event.static:
            assert after.get((event.key["id"], event.key["at"]), {}) == event.latest


def test_each_row_that_loses_values_has_one_event(
    tmp_path: Path, node: Cassandra, session: Session
) -> None:
    """With the images around it; what was renewed or deleted has none.

    The worker of the tables died in a commit, and restarts at once with other options.
    """
    jobs = prepared(tmp_path, node, session)
    session.execute(FIRST)
    until(lambda: killed_in_a_commit(jobs["tables"]), "the first change did not come")
    with ExitStack() as stack:
        workers = {}
        for name, job in jobs.items():
            given = yaml.safe_load(job.read_text())
            given["sink"]["ttl_events"] = True
            workers[name] = stack.enter_context(Worker(given, job.parent))
        places = {name: place_of(name, job) for name, job in jobs.items()}
        for place in places.values():
            assert 1 == len(wait_for_events(place, 1))
        began_s = int(time.time())
        for statement in WRITES:
            session.execute(statement)
        before, ended_s = shown(session), int(time.time()) + 1
        for place in places.values():
            wait_for_events(place, COUNT)
        assert int(time.time()) < began_s + TTL_S, "the machine is too busy: nothing came in time"
        until_after(ended_s + TTL_S)
        after = shown(session)
        for name, place in places.items():
            found = wait_for_events(place, COUNT, expired=4)
            ends_us = (began_s + TTL_S) * 1_000_000, (ended_s + TTL_S) * 1_000_000
            check(found, before, after, ends_us)
            assert found == events_of(place)
            assert 0 == workers[name].stop(), workers[name].log.read_text()

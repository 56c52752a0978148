"""A replay and a comparison that statements ask for, taken by a worker, with a real Kafka."""

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.connector.control.service import ControlService
from headrace.connector.language.parser import parse_statement
from headrace.connector.language.rendering import ResultTable
from headrace.connector.stores.asked_runs import AskedRuns, RunState
from headrace.connector.stores.open_control_store import open_notes
from helpers.jobs.children import RUN, until
from helpers.jobs.deliveries import consume
from helpers.logs.forged import TABLE, insert
from helpers.logs.gap_jobs import GapJob

pytestmark = pytest.mark.real

ROWS = 200
SOURCE = "DATA_SOURCE cdc ON TABLE forged.t"


@pytest.mark.parametrize("engine", ["worker", "spark"])
def test_runs_of_statements(tmp_path: Path, bootstrap_servers: str, engine: str) -> None:
    """Both reach their end in SHOW RUNS: each change is in the side topic, and nothing differs.

    The process is killed while the replay is taken. On Spark the job and its runs have one session.
    """
    topic = f"runs-{uuid.uuid4().hex[:8]}"
    job = GapJob(tmp_path)
    job.spread(1, *(insert(b"k%d" % n, b"%c" % n, table=TABLE) for n in range(ROWS)))
    job.from_statements()
    job.leave_name()

    def execute(text: str) -> ResultTable:
        with closing(open_notes(tmp_path / "state.db")) as notes:
            return ControlService(notes).execute(parse_statement(text))

    def run(name: str) -> Mapping[str, str]:
        table = execute("SHOW RUNS")
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        return next(row for row in rows if row["run"] == name)

    def seen(name: str) -> RunState:
        with closing(open_notes(tmp_path / "state.db")) as notes:
            found = AskedRuns(notes).get(name)
        assert found is not None
        return found[1].state

    execute(f"CREATE DATA_SINK k WITH 'kafka://{bootstrap_servers}?topic={topic}'")
    execute(f"CREATE {SOURCE} WITH k AND job = 'orders' AND engine = '{engine}'")
    with worker(job.path):
        asked = execute(f"REPLAY {SOURCE} FROM '2020-01-01' WITH rate = 50 AND shards = 8")
        name = asked.rows[0][0]
        until(lambda: int(run(name)["shards"].split("/")[0]) > 1, "it was not taken")
    assert "RUNNING" == run(name)["state"]
    with worker(job.path):
        until(lambda: run(name)["state"] == "COMPLETED", "the replay never ended")
        until(lambda: ROWS <= len(keys_of(bootstrap_servers, topic)), "the job never delivered")
        compared = execute(f"RECONCILE {SOURCE} WITH no_table = true AND grace = 0").rows[0][0]
        until(lambda: run(compared)["state"] == "COMPLETED", "the comparison never ended")
        slow = execute(f"REPLAY {SOURCE} WITH rate = 1 AND shards = 8").rows[0][0]
        until(lambda: run(slow)["state"] == "RUNNING", "the slow replay was not taken")
        execute(f"STOP RUN '{slow}'")
        until(lambda: seen(slow) is RunState.WAITING, "the slow replay was not halted")
        assert "0/8" == run(slow)["shards"]  # Each takes longer than a halt may.
        job.spread(2, insert(b"last", b"v", table=TABLE))
        until(lambda: b"last" in keys_of(bootstrap_servers, topic), "the job ended with its run")

    assert ("8/8", str(ROWS), "0") == tuple(run(name)[n] for n in ("shards", "changes", "lost"))
    assert "no difference" in run(compared)["result"]
    keys = [message.key() for message in consume(bootstrap_servers, f"{topic}.replay")]
    assert ROWS == len(set(keys))
    assert len(keys) < ROWS + ROWS // 2  # Only a shard that was not done came twice.
    assert ROWS + 1 == len(keys_of(bootstrap_servers, topic))


def keys_of(bootstrap_servers: str, topic: str) -> set[bytes]:
    """Return the keys of a topic, each of one text, without what is before it in Avro."""
    return {(message.key() or b"")[1:] for message in consume(bootstrap_servers, topic)}


@contextmanager
def worker(path: Path) -> Iterator[None]:
    """Run a worker, and kill it and its children at the end of the block."""
    with subprocess.Popen(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", RUN, "run", str(path), "--job", "orders"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as child:
        try:
            yield
        finally:
            child.send_signal(signal.SIGKILL)

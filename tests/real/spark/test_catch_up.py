"""Lagging splits of a running job, worked off on Spark; and a driver that is killed there."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from headrace.connector.commands.cli import main
from headrace.connector.stores.sqlite.store import SqliteStore
from helpers.recordings.corpora import recording
from real.servers import sessions

pytestmark = pytest.mark.real

RING = "5.0-ring"
NODES = ("node1", "node2", "node3")
WANTED = ("2-of-4", "3-of-4")
CHUNK_BYTES = str(2 << 20)  # Of 12 segments of 1 MiB.
WAIT_SECONDS_MAX = 600


def job_of(folder: Path, name: str) -> Path:
    """Return a job over the logs in *folder*."""
    path = folder / f"{name}.yaml"
    given = {
        "job": name,
        "state": "state.db",
        "source": {
            "plugin": "cassandra",
            "nodes": {node: str(folder / node) for node in NODES},
            "schema": str(recording(RING) / "schema.cql"),
            "splits": 4,
        },
        "sink": {"plugin": "files", "path": f"{name}.jsonl"},
    }
    path.write_text(yaml.safe_dump(given))
    return path


def log(folder: Path) -> None:
    """Have all segments of each node in its log."""
    for node in NODES:
        for path in (recording(RING) / "segments" / node).glob("CommitLog-*"):
            shutil.copy2(path, folder / node)


def delivered(job: Path) -> Counter[str]:
    """Return what the sink of a job has, without where each change was read."""
    found: Counter[str] = Counter()
    sink = job.with_suffix(".jsonl")
    for line in sink.read_text().splitlines() if sink.exists() else ():
        document = json.loads(line)
        for name in ("copies", "node", "segment", "position"):
            del document[name]
        found[json.dumps(document, sort_keys=True)] += 1
    return found


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a session of its own, which ends with the block."""
    program = (
        "import sys; from headrace.connector.commands.cli import main;"
        f" sys.exit(main({arguments!r}))"
    )
    with (folder / f"{arguments[0]}.log").open("w") as out:
        child = subprocess.Popen(  # noqa: S603 (our own interpreter)
            [sys.executable, "-c", program], stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield child
        finally:
            sessions.kill(child.pid)
            child.wait()


class Eye:
    """Looks at the state of a job from outside."""

    def __init__(self, folder: Path, job: str) -> None:
        """Open nothing yet."""
        self._place = folder / "state.db", job

    def owners(self) -> dict[str, str | None]:
        """Return the owner of each split."""
        with closing(SqliteStore.open(*self._place)) as store:
            return {row.split: row.owner for row in store.leases()}

    def commits(self) -> int:
        """Return how many commits the wanted splits have had."""
        with closing(SqliteStore.open(*self._place)) as store:
            return sum(state.seq for state in store.states() if state.split in WANTED)


def wait_until(holds: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    """Wait, while *child* runs."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert child.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("killed", [False, True], ids=["whole", "killed"])
def test_beside_a_worker(tmp_path: Path, *, killed: bool) -> None:
    """Spark takes two of four splits from a running job, which loses and doubles nothing.

    A driver that is killed repeats at most its current chunk.
    """
    job, alone = job_of(tmp_path, "shared"), job_of(tmp_path, "alone")
    for node in NODES:
        (tmp_path / node).mkdir()
    assert 0 == main(["run", str(job), "--until-idle"])
    log(tmp_path)
    assert 0 == main(["run", str(alone), "--until-idle"])
    wanted, eye = delivered(alone), Eye(tmp_path, "shared")

    before = eye.commits()
    master = "local[2]" if killed else "local[8]"  # Eight tasks read the logs once.
    arguments = ("--split", ",".join(WANTED), "--chunk-bytes", CHUNK_BYTES, "--master", master)
    with running(tmp_path, "replay", "catch-up", str(job), *arguments) as driver:
        wait_until(lambda: None not in [eye.owners()[split] for split in WANTED], driver)
        with running(tmp_path, "run", str(job)) as worker:
            wait_until(lambda: eye.commits() > before, driver)
            if killed:
                sessions.kill(driver.pid)
            else:
                assert 0 == driver.wait(WAIT_SECONDS_MAX)
            wait_until(lambda: len(delivered(job)) == len(wanted), worker)
            wait_until(lambda: len(set(eye.owners().values())) == 1, worker)
            worker.send_signal(signal.SIGTERM)
            assert 0 == worker.wait(WAIT_SECONDS_MAX)

    found = delivered(job)
    assert set(wanted) == set(found)
    assert found == wanted or (killed and 2 >= max(found.values()))
    assert 0 == main(["verify", str(job)])

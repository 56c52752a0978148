"""Workers that share a job through the store in Cassandra, each with a state file of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import yaml

from headrace.connector.commands.cli import main
from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from helpers.jobs.children import RUN, SECONDS_MAX, until, write_lines
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

FILES = 4
LEASE_SECONDS = 4
HAND_OVER_SECONDS_MAX = (
    180  # It bounds a hang; on a machine that does little else it takes one or two.
)


class Machines:
    """A job over four files, and the processes that run it."""

    def __init__(self, folder: Path, node: Cassandra) -> None:
        """Write the first lines, and connect to the store."""
        self.folder = folder
        self.job = f"job-{uuid.uuid4()}"
        self.given = {
            "contact_points": [f"{node.host}:{node.port}"],
            "keyspace": "shared",
            "replication_factor": 1,
        }
        write_lines(folder, FILES, range(100))
        config = CassandraStoreConfig(
            **{**self.given, "contact_points": tuple(self.given["contact_points"])}  # type: ignore[arg-type]  # As YAML has it.
        )
        self.store = CassandraStore.open_job(config, self.job)

    def file(self, name: str) -> Path:
        """Return the job's file on the machine *name*."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        document = {
            "job": self.job,
            "state": "state.db",
            "store": {"plugin": "cassandra", **self.given},
            "source": {"plugin": "files", "path": f"{self.folder}/in*.jsonl"},
            "sink": {"plugin": "files", "path": "out.jsonl"},
            "runtime": {"lease_seconds": LEASE_SECONDS, "commit_max_seconds": 0.2},
        }
        (home / "job.yaml").write_text(yaml.safe_dump(document))
        return home / "job.yaml"

    @contextmanager
    def running(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job on the machine *name*, and kill what is left of it in the end."""
        file = self.file(name)
        with file.with_name("log").open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 (headrace itself)
                [sys.executable, "-c", RUN, "run", str(file)],
                stderr=log,
                stdout=subprocess.DEVNULL,
            )
            try:
                yield child
            finally:
                child.kill()
                child.wait()

    def owned(self) -> list[int]:
        """Return how many splits each owner has, the fewest first."""
        owners = Counter(row.owner for row in self.store.leases() if row.owner)
        return sorted(owners.values())

    def are_both_at_work(self) -> bool:
        """Say whether two owners have all splits; how many each has goes by the load."""
        return 2 == len(self.owned()) and FILES == sum(self.owned())

    def owner(self) -> set[str | None]:
        """Return who owns splits."""
        return {row.owner for row in self.store.leases()}

    def lines(self, *names: str) -> Counter[tuple[int, int]]:
        """Return how often each line came out, on those machines or on all."""
        found: Counter[tuple[int, int]] = Counter()
        for name in names or ("m1", "m2"):
            path = self.folder / name / "out.jsonl"
            content = path.read_bytes() if path.exists() else b""
            for line in content[: content.rfind(b"\n") + 1].splitlines():
                document = json.loads(line)
                found[document["file"], document["n"]] += 1
        return found

    def has(self, count: int) -> bool:
        """Say whether so many lines of each file came out."""
        return {(f, n) for f in range(FILES) for n in range(count)} == set(self.lines())


@pytest.fixture
def machines(tmp_path: Path, node: Cassandra) -> Iterator[Machines]:
    """Return a job that no worker runs yet."""
    made = Machines(tmp_path, node)
    with closing(made.store):
        yield made


def test_splits_move_between_machines(machines: Machines) -> None:
    """TP03: two share the splits; when one is asked to end, the other has them at once."""
    with ExitStack() as stack:
        first, _ = (stack.enter_context(machines.running(name)) for name in ("m1", "m2"))
        until(machines.are_both_at_work, "the splits are not shared")
        until(lambda: machines.has(100), "not all lines came out")
        first.send_signal(signal.SIGTERM)
        asked = time.monotonic()
        until(lambda: machines.owned() == [4], "nobody took the splits")
        took = time.monotonic() - asked
        write_lines(machines.folder, FILES, range(100, 200))
        until(lambda: machines.has(200), "lines are missing")

        assert 0 == first.wait(SECONDS_MAX)
        assert took < HAND_OVER_SECONDS_MAX
    assert {1} == set(machines.lines().values())  # A planned hand-over repeats nothing.


def test_a_killed_worker_is_replaced(machines: Machines) -> None:
    """`kill -9` moves its splits within a lease; no line is missing."""
    with ExitStack() as stack:
        first, _ = (stack.enter_context(machines.running(name)) for name in ("m1", "m2"))
        until(machines.are_both_at_work, "the splits are not shared")
        first.kill()
        write_lines(machines.folder, FILES, range(100, 200))
        until(lambda: machines.owned() == [4], "nobody took the splits")
        until(lambda: machines.has(200), "lines are missing")
    assert machines.has(200)


def test_a_worker_that_slept_past_its_lease_does_nothing(machines: Machines) -> None:
    """When it wakes it submits nothing of splits that another has, and its commits are refused."""
    with ExitStack() as stack:
        sleeper = stack.enter_context(machines.running("m1"))
        until(lambda: machines.owned() == [4] and machines.has(100), "it does not run")
        (owner,) = machines.owner()
        os.kill(sleeper.pid, signal.SIGSTOP)
        stack.enter_context(machines.running("m2"))
        until(lambda: owner not in machines.owner() and machines.owned() == [4], "not taken over")
        write_lines(machines.folder, FILES, range(100, 200))
        until(lambda: machines.has(200), "lines are missing")
        os.kill(sleeper.pid, signal.SIGCONT)
        log = machines.folder / "m1" / "log"
        until(lambda: "split_lost" in log.read_text(), "it does not notice")

        late = {n for _, n in machines.lines("m1") if n >= 100}
        assert set() == late


def test_a_run_is_known_on_every_machine(
    machines: Machines, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay that one machine planned and started another shows, ends and compares."""
    here, there = (str(machines.file(name)) for name in ("m1", "m2"))
    assert 0 == main(["replay", "plan", here, "--to-folder", "out", "--json"])
    run = json.loads(capsys.readouterr().out)["run"]
    missing = machines.folder / "in0.jsonl"
    content = missing.read_bytes()
    missing.unlink()
    assert 1 == main(["replay", "run", here, run, "--master", "none"])
    missing.write_bytes(content)

    assert 0 == main(["replay", "status", there, run])
    assert f"{FILES - 1} PASS, 1 FAIL" in capsys.readouterr().out
    assert 0 == main(["replay", "run", there, run, "--master", "none"])
    assert 0 == main(["replay", "verify", there, run, "--master", "none"])
    assert f"{FILES} PASS" in capsys.readouterr().out
    assert not [*machines.folder.rglob("state.db.runs*")]

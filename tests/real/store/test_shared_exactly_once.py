"""Exactly once with the store in Cassandra: machines die and sleep, and nothing comes twice."""

import json
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import yaml

from headrace.connector.stores.cassandra.session import CassandraStoreConfig
from headrace.connector.stores.cassandra.store import CassandraStore
from helpers.jobs.children import JobFolder, until, write_lines
from helpers.jobs.committed import change, committed, counted
from helpers.jobs.forked import fork_after_a_death
from helpers.logs.gap_jobs import GapJob
from real.ring_jobs import store_on
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

FILES, LINES, MORE = 4, 500, 100
LEASE_SECONDS = 3
KILLS = 8
# Before the transaction, within it, behind it, amid its copy, and behind that.
STEPS = (
    "encoded:8",
    "submitted:8",
    "settled:8",
    "commit_chunks:6",
    "commit_heads:6",
    "committed:6",
)


class Machines:
    """A job over four files into Kafka, and folders of machines that share the store only."""

    def __init__(self, folder: Path, node: Cassandra, bootstrap_servers: str) -> None:
        """Write the first lines, and connect to the store."""
        self.folder = folder
        self.topic = f"once-{uuid.uuid4().hex}"
        self.bootstrap_servers = bootstrap_servers
        self._place = f"{node.host}:{node.port}"
        config = CassandraStoreConfig(
            contact_points=(self._place,), keyspace="once", replication_factor=1
        )
        self.store = CassandraStore.open_job(config, self.topic)
        self.written = 0
        self.write(LINES)

    def write(self, lines: int) -> None:
        """Append so many lines to each file."""
        write_lines(self.folder, FILES, range(self.written, self.written + lines))
        self.written += lines

    def machine(self, name: str) -> JobFolder:
        """Return the job's folder on the machine *name*."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        store = {"contact_points": [self._place], "keyspace": "once", "replication_factor": 1}
        document = {
            "job": self.topic,
            "state": "state.db",
            "store": {"plugin": "cassandra", **store},
            "source": {"plugin": "files", "path": f"{self.folder}/in*.jsonl"},
            "sink": {
                "plugin": "kafka",
                "bootstrap.servers": self.bootstrap_servers,
                "topic": self.topic,
                "format": "json",
                "exactly.once": True,
            },
            "runtime": {
                "tick_min_ms": 5,
                "commit_max_seconds": 0.05,
                "batch_records_max": 40,
                "lease_seconds": LEASE_SECONDS,
            },
        }
        (home / "job.yaml").write_text(yaml.safe_dump(document))
        return JobFolder(home, lambda line: str(line["n"]))

    def counts(self) -> Counter[Hashable]:
        """Return how often a consumer of what is committed sees each line."""
        found = committed(self.bootstrap_servers, self.topic)
        return counted(found, lambda value: tuple(json.loads(value).values())[:2])

    def expected(self) -> dict[tuple[int, int], int]:
        """Return what `counts` should be."""
        return {(name, n): 1 for name in range(FILES) for n in range(self.written)}

    def is_whole(self) -> bool:
        """Say whether each line is there."""
        return set(self.expected()) <= set(self.counts())

    def owners(self) -> set[str | None]:
        """Return who owns splits."""
        return {row.owner for row in self.store.leases()}


@pytest.fixture
def machines(tmp_path: Path, node: Cassandra, bootstrap_servers: str) -> Iterator[Machines]:
    """Return a job that no worker runs yet."""
    made = Machines(tmp_path, node, bootstrap_servers)
    with closing(made.store):
        yield made


@pytest.mark.parametrize("step", STEPS)
def test_another_machine_goes_on_after_a_death(machines: Machines, step: str) -> None:
    """K03: wherever the first one dies, the second one continues behind its last transaction."""
    first, second = machines.machine("m1"), machines.machine("m2")
    assert -signal.SIGKILL == first.finish(crash_at=step), first.log()
    assert 0 == second.finish(), second.log()

    assert machines.expected() == machines.counts()


def test_machines_that_are_killed_at_random_moments(machines: Machines) -> None:
    """K03: of two that run, one dies again and again, and each line is there once."""
    moment = random.Random(3)  # noqa: S311 (a test's dice)
    folders = [machines.machine("m1"), machines.machine("m2")]
    children = [folder.start() for folder in folders]
    try:
        for number in range(KILLS):
            machines.write(MORE)
            time.sleep(moment.uniform(0.5, 2.5))  # The moment is the test.
            children[number % 2].kill()
            children[number % 2].wait()
            children[number % 2] = folders[number % 2].start()
        until(machines.is_whole, "something is missing")
    finally:
        for child in children:
            child.kill()
            child.wait()

    assert machines.expected() == machines.counts()


def test_a_machine_that_sleeps_in_a_transaction(machines: Machines) -> None:
    """Another takes over when its leases ran out; when it wakes up, the brokers refuse it."""
    first, second = machines.machine("m1"), machines.machine("m2")
    with ExitStack() as stack:
        sleeper = stack.enter_context(first.running())
        until(machines.is_whole, "it never delivered")
        (owner,) = machines.owners()
        machines.write(MORE)  # It is amid these, more or less.
        sleeper.send_signal(signal.SIGSTOP)
        stack.enter_context(second.running())
        until(lambda: owner not in machines.owners() | {None}, "no take-over")
        machines.write(MORE)
        sleeper.send_signal(signal.SIGCONT)
        until(machines.is_whole, "something is missing")
        until(lambda: "split_lost" in first.log(), "it does not notice")

    assert machines.expected() == machines.counts()


def test_a_source_that_is_stopped_alone_after_a_death(
    tmp_path: Path, node: Cassandra, bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker died between a commit and its copy: the part begins behind that commit."""
    monkeypatch.chdir(tmp_path)
    job = GapJob(tmp_path, f"part-{uuid.uuid4().hex}")
    job.keep_states_in(store_on(node, f"parted_{uuid.uuid4().hex}"))
    where = f"kafka://{bootstrap_servers}?topic={job.name}&format=json&exactly.once=true"
    fork_after_a_death(job, where, crash_at="commit_chunks:1")
    found = counted(committed(bootstrap_servers, job.name), change)

    assert 6 == len(found)
    assert {1} == set(found.values())

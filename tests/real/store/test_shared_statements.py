"""Statements in a store that machines share: any of them executes, all of them run the jobs."""

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.connector.control.commands import Commands
from headrace.connector.foundation.states import Observed
from headrace.connector.stores.open_control_store import open_notes
from helpers.jobs.children import RUN, until
from helpers.recordings.corpora import recording
from helpers.servers.ports import free_port
from helpers.servers.rest_server import Client
from real.ring_jobs import store_on
from real.servers.cassandra import Cassandra

pytestmark = pytest.mark.real

KEYSPACE = "noted"
TABLE = "ember_zephyr.onyx_ledger"
NAME = f"cdc.{TABLE}"
SOURCE = f"DATA_SOURCE cdc ON TABLE {TABLE}"
LEASE_SECONDS = 4


class Machine:
    """A machine: a folder with a worker's file."""

    def __init__(self, folder: Path, node: Cassandra) -> None:
        """Write the file."""
        folder.mkdir()
        self.folder = folder
        self.file = folder / "worker.yaml"
        self.port = free_port()
        self.client = Client(self.port)
        segments = recording("5.0-ops")
        document = {
            "state": "state.db",
            "store": store_on(node, KEYSPACE),
            "source": {
                "plugin": "cassandra",
                "nodes": {"n1": f"{segments}/segments"},
                "schema": f"{segments}/schema.cql",
                "consistency": "ONE",
                "splits": 4,
            },
            "runtime": {"lease_seconds": LEASE_SECONDS, "restart_pause_seconds": 0.1},
        }
        self.file.write_text(yaml.safe_dump(document))

    def run(self, *arguments: str) -> str:
        """Run a command of headrace, and return what it prints."""
        return subprocess.run(  # noqa: S603 (headrace itself)
            [sys.executable, "-c", RUN, *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.folder,
        ).stdout

    def execute(self, text: str) -> Sequence[dict[str, Any]]:
        """Execute statements; return the rows of their answers."""
        printed = self.run("exec", "--state", str(self.file), "--format", "jsonl", "-e", text)
        return [json.loads(line) for line in printed.splitlines()]

    @contextmanager
    def working(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a worker, and kill what is left of it in the end."""
        with (self.folder / "log").open("ab") as log:
            child = subprocess.Popen(  # noqa: S603 (headrace itself)
                [
                    *(sys.executable, "-c", RUN, "worker", str(self.file)),
                    *("--rest", f"127.0.0.1:{self.port}"),
                ],
                stderr=log,
            )
        try:
            yield child
        finally:
            child.kill()
            child.wait()

    def changes(self) -> Counter[tuple[str, int]]:
        """Return how often each change came out here."""
        path = self.folder / "out.jsonl"
        content = path.read_bytes() if path.exists() else b""
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        return Counter((line["mutation"], line["index"]) for line in map(json.loads, lines))


@pytest.fixture
def machines(tmp_path: Path, node: Cassandra) -> Sequence[Machine]:
    """Return two machines on which nothing runs yet."""
    return [Machine(tmp_path / name, node) for name in ("m1", "m2")]


def test_statements_of_two_machines(machines: Sequence[Machine]) -> None:
    """What one executes both run, show and steer; what is moved comes again, whichever dies."""
    here, there = machines
    here.execute("CREATE DATA_SINK k WITH 'file://out.jsonl'")
    there.execute(f"CREATE {SOURCE} WITH k")
    assert [NAME] == [row["name"] for row in here.execute("DESCRIBE DATA_SOURCES")]
    with ExitStack() as stack:
        first, _ = (stack.enter_context(machine.working()) for machine in machines)
        commands = Commands(stack.enter_context(closing(open_notes(there.file))))

        def state() -> Observed:
            return commands.status(NAME).state

        def owners() -> list[str]:
            return [split.worker for split in commands.status(NAME).splits]

        def all_changes() -> Counter[tuple[str, int]]:
            return here.changes() + there.changes()

        until(lambda: all(owners()) and 2 == len(set(owners())), "they do not share the job")
        until(lambda: state() is Observed.RUNNING, "it does not run")
        until(there.client.answers, "the other one does not answer")
        assert 204 == there.client("PUT", f"/connectors/{NAME}/stop").status
        until(lambda: state() is Observed.STOPPED, "it does not stop")
        once = all_changes()
        assert once
        assert {1} == set(once.values())
        here.execute(f"ALTER {SOURCE} SET POSITION = 'earliest'")
        there.execute(f"RESUME {SOURCE}")
        until(lambda: set(all_changes()) == set(once) and 2 in all_changes().values(), "no more")
        until(lambda: {2} == set(all_changes().values()), "not all came again")
        first.send_signal(signal.SIGKILL)
        until(lambda: [4] == sorted(Counter(owners()).values()), "nobody took its splits")

        def read_through() -> list[str]:
            rows = there.run("splits", str(there.file), "--job", "k", "--json").splitlines()
            reported = map(json.loads, rows)
            return [row["split"] for row in reported if row["lag"] == 0 and row["since"]]

        until(lambda: 4 == len(read_through()), "not all of its logs are read")
        assert 4 == len(there.execute("SHOW SPLITS"))
        assert there.execute("SHOW OFFSETS")
        assert there.execute("SHOW LAG")
        assert "balance" in there.run("verify", str(there.file), "--job", "k")

"""The processes of the quickstart. Imports little: they start while the rest is imported."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Final, Self

from headrace.connector.demo.child import Child
from headrace.connector.demo.quickstart.registry import Registry
from headrace.connector.foundation.processes import COMMAND

JOB: Final = "quickstart"
JOB_FILE: Final = "job.yaml"
STATE_FILE: Final = "state.db"
REGISTRY_FILE: Final = "registry.db"
RING_FOLDER: Final = "ring"
WRITES_FILE: Final = "writes.jsonl"
TOPIC: Final = "changes"
NODES: Final = ("node1", "node2", "node3")
_COMMIT_SECONDS_MAX: Final = 0.5
_LEASE_SECONDS: Final = 2
_RETRY_SECONDS_MAX: Final = 60


class Processes(contextlib.ExitStack):
    """Ring, broker, registry and worker in a folder; leaving the context ends them."""

    def __init__(self, folder: Path) -> None:
        """Start them: the worker imports its modules, and waits for `begin`."""
        super().__init__()
        self.registry = self.enter_context(Registry(folder / REGISTRY_FILE))
        self._folder, self._servers = folder, ""
        (folder / RING_FOLDER).mkdir()
        self.worker = self._worker()
        self.broker = self._started("broker", [*COMMAND, "embedded-broker"])
        self.ring = self._started("ring", [*COMMAND, "forge-ring", str(folder / RING_FOLDER)])

    def begin(self) -> str:
        """Start the worker's job once broker and ring are up; return the broker's address."""
        self.registry.serve()
        servers = self.broker.line()
        self._servers = servers
        job = json.dumps(_job(self._folder), indent=1)
        (self._folder / JOB_FILE).write_text(job, encoding="utf-8")
        self.ring.line()
        self.worker.say(f"{servers} {self.registry.url}")
        return servers

    def start_worker(self) -> None:
        """Start another worker, which begins at once."""
        self.worker = self._worker()
        self.worker.say(f"{self._servers} {self.registry.url}")

    def __enter__(self) -> Self:
        """Return the processes."""
        return self

    def _worker(self) -> Child:
        module = f"{__package__}.worker"
        command = [sys.executable, "-m", module, str(self._folder / JOB_FILE)]
        return self._started("worker", command)

    def _started(self, name: str, command: list[str]) -> Child:
        return self.enter_context(Child(name, command, self._folder, is_heard=True))


def _job(folder: Path) -> dict[str, object]:
    """Return the job file: JSON is YAML. Statements have its sink and its table."""
    ring = folder / RING_FOLDER
    return {
        "job": JOB,
        "state": str(folder / STATE_FILE),
        "source": {
            "plugin": "cassandra",
            "schema": str(ring / "schema.cql"),
            "nodes": {name: str(ring / name) for name in NODES},
            "consistency": "QUORUM",
            "mode": "realtime",
        },
        "runtime": {
            "commit_max_seconds": _COMMIT_SECONDS_MAX,
            "lease_seconds": _LEASE_SECONDS,
            "retry_seconds_max": _RETRY_SECONDS_MAX,
        },
    }

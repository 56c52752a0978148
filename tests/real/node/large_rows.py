"""A job of large rows, which fill `cdc_raw` soon, and its writer."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from cassandra import WriteFailure

from real.load import make_tables
from real.ring_jobs import job, wait_for
from real.servers.cassandra import Cassandra
from real.servers.ring import connected
from real.stream import Worker

ROW_BYTES: Final = 100_000
ROWS_MIB: Final = 10  # Rows in a MiB.
PIECE_MIB: Final = 2
IN_USE: Final = 4 << 20  # At most, when finished segments have left.


def bytes_in(folder: Path) -> int:
    """Return how much the segments in *folder* have."""
    total = 0
    for path in folder.glob("CommitLog-*.log"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


class LargeRows:
    """Rows of `items` in a keyspace of a node, and a job that may stand meanwhile."""

    def __init__(self, node: Cassandra, keyspace: str, folder: Path) -> None:
        """Make the tables; *folder* is the job's."""
        self._node, self._keyspace, self._folder = node, keyspace, folder
        self._cluster = connected([node.host], node.port)
        self._session = self._cluster.connect()
        make_tables(self._session, keyspace, replicas=1)
        self._insert = self._session.prepare(
            f"INSERT INTO {keyspace}.items (id, name) VALUES (?, ?)"  # noqa: S608 (ours)
        )
        self._tried = 0
        self.taken: set[int] = set()

    def close(self) -> None:
        """Disconnect."""
        self._cluster.shutdown()

    def is_taken(self) -> bool:
        """Write a row; say whether the node takes it."""
        self._tried += 1
        try:
            self._session.execute(self._insert, (self._tried, "x" * ROW_BYTES))
        except WriteFailure:
            return False
        self.taken.add(self._tried)
        return True

    def write(self, mib: int) -> None:
        """Write so much, each piece when finished segments have left `cdc_raw`."""
        for _ in range(0, mib, PIECE_MIB):
            self.rush(PIECE_MIB)
            wait_for(lambda: bytes_in(self._node.cdc_raw) < IN_USE, "finished segments stay")

    def rush(self, mib: int) -> None:
        """Write so much at once."""
        assert all(self.is_taken() for _ in range(mib * ROWS_MIB))

    def fill(self, mib_max: int) -> bool:
        """Write until the node takes no more; say whether it came to that."""
        return not all(self.is_taken() for _ in range(mib_max * ROWS_MIB))

    @contextmanager
    def published(self, nodes: Mapping[str, object]) -> Iterator[None]:
        """Run the job through the block, and until the row that was taken last is out."""
        points = [f"{self._node.host}:{self._node.port}"]
        document = job(points, self._keyspace, nodes, consistency="ONE", gaps="expire", splits=1)
        document["sink"] = {"plugin": "files", "path": str(self._folder / "out.jsonl")}
        with Worker(document, self._folder) as worker:
            yield
            last = max(self.taken)
            wait_for(lambda: not worker.running() or last in self.came(), "the last does not come")
            assert 0 == worker.stop()

    def came(self) -> set[int]:
        """Return the rows that were published."""
        return {each["key"]["id"] for each in self._documents() if "control" not in each}

    def gaps(self) -> list[str]:
        """Return the kinds of the reported gaps."""
        return [each["kind"] for each in self._documents() if "control" in each]

    def _documents(self) -> list[dict[str, Any]]:
        path = self._folder / "out.jsonl"
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in whole]

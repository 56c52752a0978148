"""A store in a file whose truth is with the sink."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from copy_suite import CopySuite, Keeper
from headrace.connector.runtime.writers import Writers
from headrace.connector.stores import QUARANTINE_BYTES_MAX
from headrace.connector.stores.sqlite import SqliteConfig, SqliteStore
from headrace.connector.stores.sqlite_file import connect, transaction
from headrace.connector.stores.transactional import TransactionalStore
from headrace.plugins.testing import StoreSuite
from headrace.plugins.testing.doubles import ChaosConfig, DrivenClock, context
from stores import SqliteDriver
from transactions import TransactionalSink


class FileKeeper(Keeper):
    """A state file."""

    kind = SqliteStore

    def __init__(self, path: Path) -> None:
        """Look at nothing yet."""
        super().__init__()
        self.config = SqliteConfig(path=str(path))

    def forget_commits(self, *, tokens: bool = False) -> None:
        """Change it with SQL."""
        with transaction(other := connect(self.config.path)):
            other.execute("UPDATE heads SET seq = 0, head = NULL, chunks = '[]'")
            if tokens:
                other.execute("UPDATE heads SET token = 0")
                other.execute("UPDATE leases SET token = 0")
        other.close()


class TransactionalStoreDriver(SqliteDriver):
    """A file, and a sink that keeps the states."""

    def __init__(self, path: Path) -> None:
        """Begin with an empty sink."""
        super().__init__(path)
        self._sinks: dict[str, TransactionalSink] = {}

    def open(  # type: ignore[override]  # A store in a file, but not by its class.
        self, job: str, *, quarantine_bytes_max: int = QUARANTINE_BYTES_MAX
    ) -> TransactionalStore:
        """Connect to both once more; jobs are apart in the sink, too."""
        clock = DrivenClock()
        sink = self._sinks.setdefault(job, TransactionalSink(ChaosConfig(), context()))
        writers = Writers(sink, clock)
        return FileKeeper(self.path).transactional(
            job, writers.claimed, clock, quarantine_bytes_max=quarantine_bytes_max
        )

    def remove(self, what: str, split: str) -> None:
        """Remove it from the sink, which has the chunks; or from the file."""
        if what != "chunks":
            super().remove(what, split)
            return
        entries = self._sinks[self.job].entries[split]
        for name in [name for name in entries if name.startswith("chunk/")]:
            del entries[name]


class TestTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> TransactionalStoreDriver:
        """Return a driver of a file that is not there yet."""
        return TransactionalStoreDriver(tmp_path / "state.db")


class TestCopiesInAFile(CopySuite):
    """Its copies are rows of the state file."""

    @pytest.fixture
    def keeper(self, tmp_path: Path) -> Iterator[FileKeeper]:
        """Return a keeper of a file that is not there yet."""
        with contextlib.closing(FileKeeper(tmp_path / "state.db")) as keeper:
            yield keeper

"""A store in a file whose truth is with the sink."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from copy_suite import CopyDriver, CopySuite, Keeper
from headrace.connector.stores.sqlite import SqliteConfig, SqliteStore
from headrace.connector.stores.sqlite_file import connect, transaction
from headrace.plugins.testing import StoreSuite
from stores import SqliteDriver


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


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[FileKeeper]:
    """Return a keeper of a file that is not there yet."""
    with contextlib.closing(FileKeeper(tmp_path / "state.db")) as keeper:
        yield keeper


class TestTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, keeper: FileKeeper) -> CopyDriver:
        """Return a driver of a file that is not there yet."""
        return CopyDriver(keeper, SqliteDriver(Path(keeper.config.path)))


class TestCopiesInAFile(CopySuite):
    """Its copies are rows of the state file."""

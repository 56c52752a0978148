"""A store in a file whose truth is with the sink."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connector.stores.sqlite.store import SqliteConfig, SqliteStore
from headrace.plugins import EncodedPosition
from headrace.plugins.testing.doubles import ChaosConfig, context
from helpers.jobs.transactions import TransactionalSink
from helpers.stores.copy_suite import Copies, CopyDriver, CopySuite, Process
from helpers.stores.drivers import SqliteDriver
from helpers.stores.file_rows import replace_heads, replace_leases
from helpers.stores.store_suite import StoreSuite


class FileCopies(Copies):
    """A state file."""

    kind = SqliteStore

    def __init__(self, path: Path) -> None:
        """Look at nothing yet."""
        super().__init__()
        self.config = SqliteConfig(path=str(path))

    def forget_commits(self, *, tokens: bool = False) -> None:
        """Change the rows of the file."""
        path, token = Path(self.config.path), {"token": 0} if tokens else {}
        replace_heads(path, lambda _: {"seq": 0, "position": None, "chunks": None, **token})
        replace_leases(path, lambda _: token)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[FileCopies]:
    """Return a store in a file that does not exist yet."""
    with contextlib.closing(FileCopies(tmp_path / "state.db")) as copies:
        yield copies


def test_a_file_that_lost_its_log_goes_on_from_the_sink(copies: FileCopies, tmp_path: Path) -> None:
    """It has the key by which the sink keeps the state, also of a job that has just started."""
    sink = TransactionalSink(ChaosConfig(), context())
    process = Process(copies, sink)
    process.found()
    process.commit(0, 1, x=b"1")
    alone = shutil.copy(copies.config.path, tmp_path / "alone.db")
    log_bytes = Path(f"{copies.config.path}-wal").stat().st_size

    assert 0 < log_bytes  # What is not in the copy.
    with contextlib.closing(FileCopies(Path(alone))) as other:
        assert (1, EncodedPosition(b"1", {"x": b"1"})) == Process(other, sink).found()


class TestTransactionalStore(StoreSuite):
    """It is a store like any other."""

    @pytest.fixture
    def driver(self, copies: FileCopies) -> CopyDriver:
        """Return a driver of a file that does not exist yet."""
        return CopyDriver(copies, SqliteDriver(Path(copies.config.path)))


class TestCopiesInAFile(CopySuite):
    """Its copies are rows of the state file."""

"""The registry's file."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from headrace.connector.registry import store
from headrace.connector.registry.store import RegistryStore
from headrace.connector.stores import StateFileError, StateLockedError
from helpers.settings.leftovers import open_files


def test_a_locked_file_is_reported_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, and of no one else's: another process keeps it for itself."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "registry.db"
    RegistryStore(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StateLockedError, match=r"locked for 0\.05 s"):
            RegistryStore(path)


def test_a_file_that_is_no_database_does_not_stay_open(tmp_path: Path) -> None:
    """It is refused as such."""
    path = tmp_path / "registry.db"
    path.write_bytes(b"x" * 5_000)
    with pytest.raises(StateFileError, match="not a database") as refused:
        RegistryStore(path)
    assert 0 == open_files(tmp_path), refused  # Its frames would hold a connection.

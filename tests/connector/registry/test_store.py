"""The registry's file."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from headrace.connector.registry import store
from headrace.connector.registry.store import RegistryStore
from headrace.connector.stores import StateLockedError


def test_a_locked_file_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole, and of no one else's: another process keeps it for itself."""
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.05)
    path = tmp_path / "registry.db"
    RegistryStore(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")

        with pytest.raises(StateLockedError, match=r"locked for 0\.05 s"):
            RegistryStore(path)

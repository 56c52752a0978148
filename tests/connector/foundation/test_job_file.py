"""A state file is recognised, and stays as safe as before."""

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.connector.foundation.job_file import is_state

_LOOK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM t").fetchone()[0])
connection.close()
"""


@pytest.mark.parametrize("name", ["job", "other.db", "worker.yaml", "folder", "missing"])
def test_what_sqlite_did_not_write_is_no_state(tmp_path: Path, name: str) -> None:
    """Text, an empty file, a file with the suffix of YAML, a folder, and none: nothing is made."""
    (tmp_path / "job").write_text("job: a\n" * 200)
    (tmp_path / "other.db").touch()
    sqlite3.connect(tmp_path / "worker.yaml").execute("CREATE TABLE t (n)").connection.close()
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    assert not is_state(tmp_path / name)
    assert before == sorted(tmp_path.iterdir())


def test_a_look_at_a_state_keeps_the_locks_on_it(tmp_path: Path) -> None:
    """Another process that closes the state does not take itself for the last one.

    It would remove the log, and what this process commits then would be lost.
    """
    path = tmp_path / "state ?.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE t (n)")
        for number in range(3):
            assert is_state(path)
            seen = subprocess.run(  # noqa: S603 (our own interpreter)
                [sys.executable, "-c", _LOOK, str(path)],
                check=True,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert number == int(seen.stdout)
            connection.execute("INSERT INTO t VALUES (?)", (number,))

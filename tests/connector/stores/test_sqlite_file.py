"""The state file: what is refused, and that two processes' connections agree."""

import sqlite3
import stat
from pathlib import Path

import pytest

from headrace.connector.stores import (
    StateFileError,
    StateLostError,
    StateNewerError,
    StoreUnavailableError,
)
from headrace.connector.stores.sqlite_file import (
    APPLICATION_ID,
    VERSION,
    connect,
    network_file_system,
    transaction,
)
from spoilt import spoil

MOUNTS = """\
/dev/vda / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
server:/export /mnt/shared nfs4 rw,vers=4.2 0 0
//host/share /mnt/shared/my\\040files cifs rw 0 0
user@host: /home/me/remote fuse.sshfs rw 0 0
/dev/vdb /mnt/shared/local xfs rw 0 0
"""


def test_opens_durably(tmp_path: Path) -> None:
    """A new file is in WAL mode, synchronous to the disk, and marked as ours."""
    connection = connect(tmp_path / "state.db")

    assert ("wal",) == connection.execute("PRAGMA journal_mode").fetchone()
    assert (2,) == connection.execute("PRAGMA synchronous").fetchone()
    assert (VERSION,) == connection.execute("PRAGMA user_version").fetchone()
    assert (APPLICATION_ID,) == connection.execute("PRAGMA application_id").fetchone()
    connection.close()
    connect(tmp_path / "state.db").close()


def test_refuses_what_is_no_database(tmp_path: Path) -> None:
    """A file of another kind is refused and left as it is."""
    path = tmp_path / "schema.cql"
    path.write_text("CREATE TABLE ks.t (id int PRIMARY KEY);\n" * 100)
    before = path.read_bytes()
    with pytest.raises(StateFileError, match=r"schema\.cql: cannot be used as a state file"):
        connect(path)

    assert before == path.read_bytes()


def test_refuses_another_programs_database(tmp_path: Path) -> None:
    """An SQLite database with tables of its own is not ours to write into."""
    path = tmp_path / "places.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE places (id INTEGER)")
    other.close()
    with pytest.raises(StateFileError, match="another program's"):
        connect(path)


def test_refuses_a_newer_file(tmp_path: Path) -> None:
    """A file that a newer headrace wrote is refused with both versions."""
    path = tmp_path / "state.db"
    connection = connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with pytest.raises(StateNewerError, match=f"has version {VERSION + 1}, .* knows {VERSION}"):
        connect(path)


@pytest.mark.parametrize(
    ("name", "create", "message"),
    [
        ("missing/state.db", True, "its directory does not exist"),
        (".", True, "is a directory"),
        ("state.db", False, "there is no state file"),
    ],
)
def test_refuses_a_bad_place(tmp_path: Path, name: str, create: bool, message: str) -> None:  # noqa: FBT001 (a table of cases)
    """What is wrong with the place is said with the path."""
    with pytest.raises(StateFileError, match=message) as caught:
        connect(tmp_path / name, create=create)

    assert str(tmp_path / name) == caught.value.place
    assert 3 == caught.value.exit_status


def test_refuses_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without write permission is refused before anything is tried."""
    monkeypatch.setattr("os.access", lambda *_: False)  # The tests may run as root.
    with pytest.raises(StateFileError, match="is not writable"):
        connect(tmp_path / "state.db")

    assert not (tmp_path / "state.db").exists()


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/var/lib/state.db", ""),
        ("/dev/shm/state.db", ""),  # noqa: S108 (only a text)
        ("/mnt/shared/state.db", "nfs4"),
        ("/mnt/sharedness/state.db", ""),
        ("/mnt/shared/my files/state.db", "cifs"),
        ("/mnt/shared/local/state.db", ""),
        ("/home/me/remote/a/b/state.db", "fuse.sshfs"),
    ],
)
def test_knows_network_file_systems(path: str, expected: str) -> None:
    """The innermost mount decides."""
    assert expected == network_file_system(path, MOUNTS)


def test_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """An error inside the block undoes all of it."""
    connection = connect(tmp_path / "state.db")

    def fail() -> None:
        with transaction(connection):
            connection.execute("INSERT INTO schemas VALUES (x'00', 't', '', '', '')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [] == connection.execute("SELECT * FROM schemas").fetchall()
    connection.close()


def test_a_full_file_is_a_named_error(tmp_path: Path) -> None:
    """What SQLite cannot write is reported as unavailable, and nothing of it stays."""
    connection = connect(tmp_path / "state.db")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreUnavailableError, match="full"), transaction(connection):
        connection.execute("INSERT INTO schemas VALUES (x'00', ?, '', '', '')", ("t" * 100_000,))

    assert [] == connection.execute("SELECT * FROM schemas").fetchall()
    connection.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """The file holds the job's secret key, so others have no access."""
    connect(tmp_path / "state.db").close()

    assert 0o600 == stat.S_IMODE((tmp_path / "state.db").stat().st_mode)


SPOILT = (
    ("DROP TABLE seen", "table seen: found no such table"),
    ("ALTER TABLE heads DROP COLUMN counters", "table heads, column counters: found no such"),
    (
        "DROP TABLE chunks; CREATE TABLE chunks (job TEXT, split TEXT, name TEXT, content BLOB)",
        "table chunks, column job: found TEXT not strict, expected TEXT NOT NULL KEY",
    ),
)


@pytest.mark.parametrize(("script", "message"), SPOILT)
def test_names_a_table_that_was_changed(tmp_path: Path, script: str, message: str) -> None:
    """A file of ours that lacks a table or a column is lost at once, not tried for ever."""
    path = tmp_path / "state.db"
    connection = connect(path)
    connection.executescript(script)
    connection.close()
    with pytest.raises(StateLostError, match=message) as caught:
        connect(path)

    assert (str(path), 1, False) == (
        caught.value.place,
        caught.value.exit_status,
        caught.value.restartable,
    )


def test_a_file_that_became_shorter_is_lost(tmp_path: Path) -> None:
    """Its hint is to restore it: under a path of its own the job would begin anew."""
    path = tmp_path / "state.db"
    connect(path).close()
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(StateLostError, match=r"is damaged: .* malformed") as caught:
        connect(path)

    assert caught.value.hint.startswith("restore the state file from a backup")


def test_names_a_value_of_another_kind(tmp_path: Path) -> None:
    """What SQLite would not have let in was put there otherwise: table, row and column are said."""
    path = tmp_path / "state.db"
    connect(path).close()
    spoil(path, "leases", "INSERT INTO leases VALUES ('job', 'a', NULL, 'x', 0, 0, '', 0)")
    message = "table leases, row job, a, column token: found text, expected integer"
    with pytest.raises(StateLostError, match=message):
        connect(path)


def test_what_is_lost_meanwhile_is_named(tmp_path: Path) -> None:
    """A table that goes while the file is open is damage too, and the file is named."""
    path = tmp_path / "state.db"
    connection = connect(path)
    connection.execute("DROP TABLE schemas")
    message = "no such table: schemas"
    with pytest.raises(StateLostError, match=message) as caught, transaction(connection):
        connection.execute("DELETE FROM schemas")
    connection.close()

    assert str(path) == caught.value.place

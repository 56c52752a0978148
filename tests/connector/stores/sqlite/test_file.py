"""The state file: what is refused, and that two processes' connections agree."""

import contextlib
import errno
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.connector.stores import (
    StateFileError,
    StateLockedError,
    StateLostError,
    StateNewerError,
    StoreUnavailableError,
)
from headrace.connector.stores.sqlite import file as sqlite_file
from headrace.connector.stores.sqlite.file import APPLICATION_ID, VERSION, connect
from headrace.connector.stores.sqlite.store import SqliteStore, SqliteValues
from helpers.jobs.children import SECONDS_MAX
from helpers.stores.damaged import spoil


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


def test_refuses_a_file_of_before_the_release(tmp_path: Path) -> None:
    """Its tables were others: it is refused and left as it is."""
    path = tmp_path / "state.db"
    connection = connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION - 1}")
    connection.close()
    with pytest.raises(StateFileError, match=f"has version {VERSION - 1}, from before"):
        connect(path)


def test_transaction_is_all_or_nothing(tmp_path: Path) -> None:
    """An error inside the block undoes all of it."""
    connection = connect(tmp_path / "state.db")

    def fail() -> None:
        with SqliteValues(connection).grouped():
            connection.execute("INSERT INTO rows VALUES ('[]', 'a', 0, x'00')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [] == connection.execute("SELECT * FROM rows").fetchall()
    connection.close()


def test_a_full_file_is_a_named_error(tmp_path: Path) -> None:
    """What SQLite cannot write is reported as unavailable, and nothing of it stays."""
    connection = connect(tmp_path / "state.db")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreUnavailableError, match="full"), SqliteValues(connection).grouped():
        connection.execute("INSERT INTO rows VALUES ('[]', 'a', 0, zeroblob(100000))")

    assert [] == connection.execute("SELECT * FROM rows").fetchall()
    connection.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """The file holds the job's secret key, so others have no access."""
    connect(tmp_path / "state.db").close()

    assert 0o600 == stat.S_IMODE((tmp_path / "state.db").stat().st_mode)


SPOILT = (
    ("DROP TABLE rows", "table rows: found no such table"),
    ("ALTER TABLE rows DROP COLUMN value", "table rows, column value: found no such"),
    (
        "DROP TABLE rows; CREATE TABLE rows (partition TEXT, name TEXT, stamp INT, value BLOB)",
        "table rows, column partition: found TEXT not strict, expected TEXT NOT NULL KEY",
    ),
)


@pytest.mark.parametrize(("script", "message"), SPOILT)
def test_names_a_table_that_was_changed(tmp_path: Path, script: str, message: str) -> None:
    """A state file without a table or a column is lost at once, not retried for ever."""
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
    """Its hint is to restore it: under a path of its own the job would start over."""
    path = tmp_path / "state.db"
    connect(path).close()
    path.write_bytes(path.read_bytes()[:5_000])
    with pytest.raises(StateLostError, match=r"is damaged: .* malformed") as caught:
        SqliteStore.open(path, "job").job_key()

    assert caught.value.hint.startswith("restore the state file from a backup")


def test_names_a_value_of_another_kind(tmp_path: Path) -> None:
    """A value that SQLite does not allow was put there otherwise: the reader says where."""
    path = tmp_path / "state.db"
    with contextlib.closing(SqliteStore.open(path, "job")) as store:
        store.register(["a"])
    spoil(path, "rows", "UPDATE rows SET stamp = 'x' WHERE name = 'a'")
    message = r'table rows, \["leases", "job", "\d+"\], a: found a value of another kind'
    with (
        contextlib.closing(SqliteStore.open(path, "job")) as store,
        pytest.raises(StateLostError, match=message),
    ):
        store.leases()


def test_what_is_lost_meanwhile_is_named(tmp_path: Path) -> None:
    """A table that goes while the file is open is damage too, and the file is named."""
    path = tmp_path / "state.db"
    connection = connect(path)
    connection.execute("DROP TABLE rows")
    message = "no such table: rows"
    with pytest.raises(StateLostError, match=message) as caught, SqliteValues(connection).grouped():
        connection.execute("DELETE FROM rows")
    connection.close()

    assert str(path) == caught.value.place


def test_a_new_file_has_its_name_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies while it makes the file leaves neither it nor a file beside it."""

    def fails(*_given: object) -> NoReturn:
        assert [] == list(tmp_path.glob("state.db*"))
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr("os.link", fails)
    with pytest.raises(StateFileError, match="cannot be made: not here"):
        connect(tmp_path / "state.db")

    assert [] == list(tmp_path.iterdir())


def test_many_may_make_it_at_once(tmp_path: Path) -> None:
    """All get one file, with the tables."""
    code = (
        "import sys; from headrace.connector.stores.sqlite.store import SqliteStore;"
        "input(); print(SqliteStore.open(sys.argv[1], 'j').job_key().hex())"
    )
    children = [
        subprocess.Popen(  # noqa: S603 (a script of ours)
            [sys.executable, "-c", code, str(tmp_path / "state.db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    said = [child.communicate(b"\n", SECONDS_MAX)[0] for child in children]

    assert 1 == len(set(said))
    assert 33 == len(said[0])
    assert ["state.db"] == [path.name for path in tmp_path.iterdir()]


def test_a_dangling_link_is_followed(tmp_path: Path) -> None:
    """The file is made where the link leads."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "state.db").symlink_to(tmp_path / "disk" / "real.db")
    connect(tmp_path / "state.db").close()

    assert (tmp_path / "disk" / "real.db").stat().st_size


@pytest.mark.parametrize("create", [True, False])
def test_an_emptied_file_is_lost(tmp_path: Path, create: bool) -> None:  # noqa: FBT001 (a parameter)
    """It had the positions of all splits: who takes it for a new one delivers all again."""
    path = tmp_path / "state.db"
    connect(path).close()
    path.write_bytes(b"")
    with pytest.raises(StateLostError, match="the state file is empty"):
        connect(path, create=create)

    assert b"" == path.read_bytes()


@pytest.mark.parametrize("how", ["unlink", "move", "replace"])
def test_a_file_that_loses_its_name_is_lost(tmp_path: Path, how: str) -> None:
    """Writes to an open file are lost when it was removed, moved, or replaced."""
    path, other = tmp_path / "state.db", tmp_path / "other.db"
    connection = connect(path)
    connect(other).close()
    SqliteValues(connection).check()
    match how:
        case "unlink":
            path.unlink()
        case "move":
            path.rename(tmp_path / "moved.db")
        case _:
            other.replace(path)
    found = "another file is there now" if how == "replace" else "nothing is there any more"

    with pytest.raises(StateLostError, match=found) as caught:
        SqliteValues(connection).check()
    assert str(path) == caught.value.place
    connection.close()


def test_a_locked_file_is_reported_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole; what is to be looked for is a process that writes and does not end."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "state.db"
    with contextlib.closing(connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with (
            contextlib.closing(connect(path)) as connection,
            pytest.raises(StateLockedError, match=r"kept the state file locked for 0\.05 s") as e,
            SqliteValues(connection).grouped(),
        ):
            raise AssertionError("it got the lock")

    assert str(path) == e.value.place
    assert "restore" not in e.value.hint


def test_a_locked_file_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening an existing file takes no lock: a reader waits for no writer."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "state.db"
    with contextlib.closing(SqliteStore.open(path, "job")) as made:
        key = made.job_key()
    with contextlib.closing(connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with contextlib.closing(SqliteStore.open(path, "job", create=False)) as store:
            assert ([], key) == (list(store.leases()), store.job_key())


def test_a_file_that_is_to_be_read_exclusively_is_reported_as_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is one damaged that another process keeps for itself while it is opened."""
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_MS", 50)
    path = tmp_path / "state.db"
    connect(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateLockedError):
            connect(path)

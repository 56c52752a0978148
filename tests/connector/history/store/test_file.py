"""The file of a history: it is made whole, others are refused, and what is old goes in parts."""

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest

from headrace.connector.history.arrival import first_of
from headrace.connector.history.errors import HistoryFileError, HistoryMissingError
from headrace.connector.history.store.blocks import COUNT_MAX
from headrace.connector.history.store.file import INSERT_MAX, HistoryFile
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.kept import FOREVER_MS, Kept, beside, file_of, settled
from helpers.histories.rows import TABLE, change, delivery
from helpers.settings.leftovers import open_files

NOW_US = 1_700_000_000_000_000


def made(folder: Path, **options: str) -> Kept:
    """Return an empty history of the table."""
    return Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty") | options)


def test_a_file_has_its_name_when_it_has_its_tables(tmp_path: Path) -> None:
    """While many make and open it, none sees a part of it, and nothing else is left."""
    path = tmp_path / "h" / "history.db"
    found: list[str] = []

    def make() -> None:
        file = HistoryFile.made(path, TABLE, 8)
        found.append(file.table)
        file.close()

    def look() -> None:
        with contextlib.suppress(HistoryMissingError):
            HistoryFile.opened(path).close()
        found.append(TABLE)

    threads = [threading.Thread(target=each) for each in (make, look) * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [TABLE] * 16 == found
    assert [path.name] == [left.name for left in path.parent.iterdir()]


def test_another_file_is_refused(tmp_path: Path) -> None:
    """One of another program, one that is not a database, and none at all. None stays open."""
    other = tmp_path / "history.db"
    with pytest.raises(HistoryMissingError):
        HistoryFile.opened(other)
    sqlite3.connect(other).execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(HistoryFileError, match="is not the file of a history"):
        made(tmp_path)
    other.write_bytes(b"x" * 5_000)
    with pytest.raises(HistoryFileError, match="cannot be used") as refused:
        made(tmp_path)
    assert 0 == open_files(tmp_path), refused  # Its frames would hold a connection.


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    """It is not misread: the error names both versions."""
    kept = made(tmp_path)
    connection = sqlite3.connect(kept.sink.config.place)
    connection.execute("PRAGMA user_version = 5")
    connection.close()
    with pytest.raises(HistoryFileError, match="has version 5, this headrace knows 7"):
        kept.history()


def test_states_of_one_hash_are_apart(tmp_path: Path) -> None:
    """Keys, and names of rows, that have the same CRC-32."""
    writer = made(tmp_path).writer()
    file = file_of(writer)
    words = b"plumless", b"buckeroo"
    names = [(key, row) for key in words for row in words]
    states = {name: b"state of %s %s" % name for name in names[:-1]}
    for _ in range(2):  # New ones, and those that are replaced.
        with file.writing():
            list(file.states(names))
            file.keep_states(states, {})
        assert {(*name, state) for name, state in states.items()} == {*file.states(names)}
        assert [(*names[0], states[names[0]])] == list(file.states([names[0], names[-1]]))
        assert [states[names[2]]] == [state for _, state in file.states_of(words[1])]
        states = {name: state[::-1] for name, state in states.items()}
    writer.close()


def test_states_are_written_in_any_number(tmp_path: Path) -> None:
    """New ones and those that are replaced, together: more, as many, and fewer than a statement."""
    writer = made(tmp_path).writer()
    file = file_of(writer)
    expected: dict[tuple[bytes, bytes], bytes] = {}
    for begin, end in ((0, INSERT_MAX), (1, 5), (3, 3 * INSERT_MAX + 5), (0, 2), (500, 2_000)):
        names = [(b"key %d" % (number // 3), b"row %d" % number) for number in range(begin, end)]
        states = {name: b"%d of %s" % (begin, name[1]) for name in names[::2]}
        expiries = dict.fromkeys([*states][::2], begin + 1)
        with file.writing():
            list(file.states(names))
            file.keep_states(states, expiries)
        expected |= states
        due = {(key, row): at_s for key, row, _, at_s in file.due(begin + 1, 10_000)}
        assert expiries.items() <= due.items()
        assert not due.keys() & {*states}.difference(expiries)
    found = [((key, row), state) for key, row, state in file.states([*expected])]
    assert len(found) == len(expected)
    assert expected == dict(found)
    writer.close()


def test_retention_removes_in_parts(tmp_path: Path) -> None:
    """A commit removes a bounded number, in whole blocks, and later ones the rest."""
    kept = made(tmp_path, retention="1h")
    writer = kept.writer()
    writer.submit(delivery(*(change(written_us=NOW_US, of=(n, 1)) for n in range(2_500))), settled)
    assert writer.commit({}, FOREVER_MS)
    kept.clock.advance(3_600_000 + 1)
    left = []
    for _ in range(4):
        assert writer.commit({}, FOREVER_MS)
        left.append(file_of(writer).extent()[2])
    writer.close()
    per_commit = 1_000 // COUNT_MAX * COUNT_MAX
    assert [2_500 - per_commit, 2_500 - 2 * per_commit, 0, 0] == left


def test_retention_keeps_blocks_that_are_not_all_old(tmp_path: Path) -> None:
    """No answer has what is old of them."""
    kept = made(tmp_path, retention="1h")
    writer = kept.writer()
    for number in (1, 2):
        writer.submit(delivery(change(written_us=NOW_US, of=(number, 1))), settled)
        assert writer.commit({}, FOREVER_MS)
        kept.clock.advance(1_000)
    kept.clock.advance(3_600_000 - 1_000)
    assert writer.commit({}, FOREVER_MS)
    file = file_of(writer)
    assert 1 == file.extent()[2]
    assert file.removed() < file.floor() == first_of(kept.clock.wall_ms() - 3_600_000)
    assert file.extent()[0] == file.floor()
    kept.clock.advance(1)
    assert writer.commit({}, FOREVER_MS)
    assert 0 == file.extent()[2]
    writer.close()

"""A copy of notes that two share."""

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.connector.stores import StateLostError, StoreUnavailableError, note_copy
from headrace.connector.stores.note_copy import NoteCopy
from headrace.connector.stores.open_control_store import open_notes
from headrace.plugins.stores.key_values import Entry, Key, Partition
from headrace.plugins.testing.memory_values import MemoryValues
from helpers.stores.shared import Kept, shared_notes


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Return notes of nothing, of which each copy always looks at the version."""
    monkeypatch.setattr(note_copy, "FRESH_SECONDS", 0.0)
    return Kept(tmp_path / "state.db")


@pytest.fixture
def copies(kept: Kept) -> Iterator[tuple[NoteCopy, NoteCopy]]:
    """Return two copies of them."""
    with closing(shared_notes(kept)) as one, closing(shared_notes(kept)) as other:
        yield one, other


def test_what_one_puts_the_other_finds(copies: tuple[NoteCopy, NoteCopy]) -> None:
    """Within the transaction at once, for others when it has ended; None removes a note."""
    one, other = copies
    with one.transaction():
        one.put("k", "a", "1")
        one.put("k", "b", "2")
        one.put("k", "b", None)
        assert ({"a": "1"}, "1") == (one.all("k"), one.get("k", "a"))
        assert {} == other.all("k")

    assert ({"a": "1"}, {}) == (other.all("k"), other.all("l"))
    with other.transaction(), other.transaction():
        other.put("k", "a", None)
    assert None is one.get("k", "a")


def test_of_two_that_write_at_once_one_does(copies: tuple[NoteCopy, NoteCopy]) -> None:
    """The other gets an error, has changed nothing, and can repeat it."""
    one, other = copies

    def meanwhile() -> None:
        with other.transaction():
            other.put("k", "a", "theirs")

    def mine(*, interrupted: bool) -> None:
        with one.transaction():
            if interrupted:
                meanwhile()
            one.put("k", "b", "mine")

    with pytest.raises(StoreUnavailableError, match="another process changed something"):
        mine(interrupted=True)
    assert {"a": "theirs"} == one.all("k")
    mine(interrupted=False)

    assert {"a": "theirs", "b": "mine"} == other.all("k")


def test_what_raises_puts_nothing(copies: tuple[NoteCopy, NoteCopy]) -> None:
    """A transaction that ends with an error is not a transaction."""
    one, other = copies

    def fails() -> None:
        with one.transaction():
            one.put("k", "a", "1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    assert ({}, {}) == (one.all("k"), other.all("k"))


def test_nothing_to_change_writes_nothing(kept: Kept, copies: tuple[NoteCopy, NoteCopy]) -> None:
    """A transaction that only looks, or puts what is there, changes no row."""
    one, _ = copies
    one.put("k", "a", "1")
    before = dict(kept.memory.rows)
    with one.transaction():
        one.put("k", "a", one.get("k", "a"))

    assert before == kept.memory.rows


def test_while_the_store_is_away(kept: Kept, copies: tuple[NoteCopy, NoteCopy]) -> None:
    """Nothing is changed, and nothing forgotten."""
    one, _ = copies
    one.put("k", "a", "1")
    kept.memory.away = True
    with pytest.raises(StoreUnavailableError):
        one.put("k", "a", "2")
    kept.memory.away = False

    assert "1" == one.get("k", "a")


def test_a_snapshot_stays_as_it_is(copies: tuple[NoteCopy, NoteCopy]) -> None:
    """What another process writes during a transaction is seen after it."""
    one, other = copies
    with one.snapshot():
        other.put("k", "a", "1")
        during = one.get("k", "a")

    assert (None, "1") == (during, one.get("k", "a"))


def test_notes_that_change_while_they_are_read(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of before and after a write are not taken for the notes, whichever has the version."""
    with closing(shared_notes(kept)) as one, closing(shared_notes(kept)) as other:
        with one.transaction():
            one.put("k", "a", "1")
            one.put("k", "b", "1")
        scan, scans = MemoryValues.scan, list[int]()

        def torn(self: MemoryValues, partitions: Collection[Partition]) -> Mapping[Key, Entry]:
            first = scan(self, partitions)
            scans.append(len(first))
            if len(scans) > 1:
                return first
            with one.transaction():
                one.put("k", "a", "2")
                one.put("k", "b", "2")
            page = {key: entry for key, entry in first.items() if '"a"' in key.name}
            return {**scan(self, partitions), **page}

        monkeypatch.setattr(MemoryValues, "scan", torn)

        assert {"a": "2", "b": "2"} == other.all("k")
        assert [3, 3] == scans


@dataclass(frozen=True)
class _Document:
    number: int


def test_documents_are_what_they_were(copies: tuple[NoteCopy, NoteCopy]) -> None:
    """One that cannot be read is named; its content is not guessed."""
    one, other = copies
    one.put_document("k", "b", _Document(2))
    one.put_document("k", "a", _Document(1))

    assert ["a", "b"] == list(other.documents("k", _Document))
    assert _Document(2) == other.document("k", "b", _Document)
    one.put("k", "b", "{}")
    with pytest.raises(StateLostError, match="note 'b' of k cannot be read"):
        other.document("k", "b", _Document)


def test_who_writes_to_a_state_file_waits_for_its_turn(tmp_path: Path) -> None:
    """Of two that change the same note at once none is refused, and none is overwritten."""
    path, count = tmp_path / "state.db", 20
    open_notes(path).close()

    def grow() -> None:
        with closing(open_notes(path)) as notes:
            for _ in range(count):
                with notes.transaction():
                    notes.put("k", "a", str(1 + int(notes.get("k", "a") or 0)))

    threads = [threading.Thread(target=grow) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=180)

    with closing(open_notes(path)) as notes:
        assert str(2 * count) == notes.get("k", "a")


def test_in_a_state_file_stores_and_notes_change_together(tmp_path: Path) -> None:
    """What raises in a transaction takes back what the block did to jobs; then all is as before."""
    with closing(open_notes(tmp_path / "state.db")) as notes:
        store = notes.store("j")
        store.job_key()

        def fails() -> None:
            with notes.transaction():
                store.register(["s"])
                notes.put("k", "a", "1")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fails()
        assert ((), None) == (tuple(store.leases()), notes.get("k", "a"))
        notes.put("k", "a", "2")
        assert "2" == notes.get("k", "a")

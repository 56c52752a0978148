"""Line 36: what of the framework's doing may come twice is counted by its cause, and no other."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connector.runtime.books.equations import SplitBooks, repeats
from headrace.connector.runtime.books.summary import books_text
from headrace.connector.runtime.messages import Lose
from headrace.connector.runtime.metrics import book_measures
from headrace.plugins.testing.doubles import ChaosResult as Fate
from headrace.plugins.testing.doubles import sample_records
from headrace.sources.cassandra.state.bookkeeping import BOOKKEEPING
from helpers.jobs.rig import RECORD_BYTES, Rig

COUNT = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state is."""
    return tmp_path / "state.db"


def counted(rig: Rig) -> Mapping[str, int]:
    """Return what may have come twice of the only split, by its causes."""
    (state,) = rig.store.states()
    found = repeats(SplitBooks(state.split, {}, state.counters, BOOKKEEPING))
    return {cause: count for cause, count in found.items() if count}


def given_up(path: Path) -> None:
    """Deliver what there is, commit nothing, and end."""
    before = Rig(path)
    before.open({"a": COUNT})
    before.gain("w0")
    before.until(lambda: len(before.written()) == COUNT)
    assert 0 == before.committed()


def goes_on(path: Path) -> Rig:
    """Return a process that continues after another was abandoned."""
    given_up(path)
    after = Rig(path)
    after.open({"a": COUNT})
    return after


@pytest.mark.parametrize(("ended", "cause"), [(True, "window"), (False, "zombie")])
def test_what_a_former_owner_had_not_committed(path: Path, ended: bool, cause: str) -> None:  # noqa: FBT001 (a case)
    """All that is there comes again, from one that is dead or one that may live; then no more."""
    rig = goes_on(path)
    rig.gain(former="w0", ended=ended)
    rig.until(lambda: COUNT == rig.committed())
    assert {cause: COUNT} == counted(rig)
    rig.splits["a"] += [[record] for record in sample_records(COUNT, first=COUNT)]
    rig.until(lambda: 2 * COUNT == rig.committed())

    assert {cause: COUNT} == counted(rig)


def test_no_more_than_a_window_is_in_doubt(path: Path) -> None:
    """Of a large backlog the former owner can have sent at most one window (I7)."""
    given_up(path)
    rig = Rig(path, commit_bytes_max=3 * RECORD_BYTES, batch_records_max=1)
    rig.open({"a": COUNT})
    rig.gain(former="w0", ended=True)
    rig.until(lambda: COUNT == rig.committed())

    assert {"window": 3} == counted(rig)


def test_what_was_given_back_was_committed(path: Path) -> None:
    """Who takes a split that its owner gave back counts nothing."""
    rig = goes_on(path)
    rig.gain()
    rig.until(lambda: COUNT == rig.committed())

    assert {} == counted(rig)


def test_what_is_read_again_in_one_process(path: Path) -> None:
    """After an error that restarts a split, what it had delivered is delivered again."""
    rig = Rig(path)
    rig.open({"a": COUNT})
    rig.gain()
    rig.until(lambda: len(rig.written()) == COUNT)
    rig.faults.append(ZeroDivisionError())
    rig.until(lambda: COUNT == rig.committed())

    assert 2 * COUNT == len(rig.written())
    assert {"window": COUNT} == counted(rig)


def test_what_is_lost_and_gained_again_in_one_process(path: Path) -> None:
    """What it had delivered and not committed is delivered again; then no more."""
    rig = Rig(path)
    rig.open({"a": COUNT})
    rig.gain()
    rig.until(lambda: len(rig.written()) == COUNT)
    rig.pipeline.command(Lose("a"))
    rig.gain()
    rig.until(lambda: COUNT == rig.committed())
    assert 2 * COUNT == len(rig.written())
    rig.splits["a"] += [[record] for record in sample_records(COUNT, first=COUNT)]
    rig.until(lambda: 2 * COUNT == rig.committed())

    assert {"window": COUNT} == counted(rig)


def test_what_is_sent_again(path: Path) -> None:
    """A batch that failed in part is sent again from there on, with what followed it."""
    rig = Rig(path)
    rig.open({"a": COUNT})
    rig.script.append(Fate.MISCOUNT)
    rig.gain()
    rig.until(lambda: COUNT == rig.committed())

    assert {"resend": COUNT} == counted(rig)


def test_they_can_be_seen(path: Path) -> None:
    """`verify` prints a bound and its reason for each; metrics have them by split and cause."""
    rig = goes_on(path)
    rig.gain(former="w0", ended=True)
    rig.until(lambda: COUNT == rig.committed())
    (state,) = rig.store.states()
    books = [SplitBooks(state.split, {"repeats.late": 2}, state.counters, BOOKKEEPING)]

    text = books_text(books)
    assert "at most 8 changes may be in the sink twice (window): a worker died" in text
    assert "at most 2 mutations may be in the sink twice (late): a copy came" in text
    (found,) = (
        each for each in book_measures(books, BOOKKEEPING) if each.name == "headrace_repeats_total"
    )
    reported = {str(labels["cause"]): n for labels, n in found.samples if isinstance(labels, dict)}
    assert {"window": 8, "zombie": 0, "resend": 0, "late": 2} == reported

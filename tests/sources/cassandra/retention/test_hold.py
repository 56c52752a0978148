"""Segments go only when no one needs them any more (I5)."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import END_OFFSET
from headrace.sources.cassandra.forge.segments import write_segment
from headrace.sources.cassandra.logs import pins
from headrace.sources.cassandra.logs.directory import LogDirectory
from headrace.sources.cassandra.logs.pins import (
    FOLDER,
    HoldDeniedError,
    HoldError,
    Pending,
    listed_in,
    name_of,
    noted_in,
    notes_in,
    write_new,
)
from headrace.sources.cassandra.retention.disposal import Disposal
from headrace.sources.cassandra.retention.hold import Hold, store_mark
from headrace.sources.cassandra.state.cdc_state import Marker
from helpers.logs.holding import hold_on, retention_of

DELETE = Disposal(keep=False)
NOTHING: Pending = {}
LISTED = ((0, (1, 3)),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory of three final segments and a live one."""
    for segment_id in (1, 2, 3):
        write_segment(tmp_path / "cdc_raw", b"x", segment_id=segment_id)
    write_segment(tmp_path / "cdc_raw", b"x", segment_id=4, index="20")
    return tmp_path / "cdc_raw"


def hold(folder: Path, job: str = "orders", disposal: Disposal = DELETE) -> Hold:
    """Return the hold of a job."""
    return hold_on(retention_of(LogDirectory(folder), disposal), job)


def left(folder: Path) -> list[int]:
    """Return which segments are left, each with its index."""
    found = LogDirectory(folder).segments()
    names = {path.name for path in folder.iterdir() if path.name != FOLDER}
    assert {s.name for s in found} | {f"CommitLog-7-{s.segment_id}_cdc.idx" for s in found} == names
    return [segment.segment_id for segment in found]


def past(segment_id: int) -> Marker:
    """Return the marker of a reader that has read a segment to its end."""
    return Marker(segment_id, END_OFFSET)


def test_a_segment_goes_when_all_splits_are_past_it(folder: Path) -> None:
    """G13: one split behind keeps it; its index goes with it; a live segment never goes."""
    mine = hold(folder)
    mine.register_all(["0", "1"])
    mine.register("0", past(9), NOTHING)
    assert 0 == mine.dispose()

    mine.register("1", Marker(2, 77), NOTHING)
    assert 1 == mine.dispose()
    assert [2, 3, 4] == left(folder)

    mine.register("1", past(9), NOTHING)
    assert 2 == mine.dispose()
    assert [4] == left(folder)


def test_a_pending_copy_holds_its_segment(folder: Path) -> None:
    """Past a segment by position, a split can still need bytes in it."""
    mine = hold(folder)
    mine.register("0", past(3), {2: ()})
    assert 2 == mine.dispose()
    assert [2, 4] == left(folder)

    mine.register("0", past(3), NOTHING)
    assert 1 == mine.dispose()


def test_two_jobs_cannot_rob_each_other(folder: Path) -> None:
    """A segment waits for the splits of every job, also of one that keeps and never deletes."""
    mine, other = hold(folder), hold(folder, "audit/all", Disposal())
    other.register_all(["0", "1"])
    mine.register("0", past(3), NOTHING)
    assert 0 == mine.dispose()

    other.register("0", past(3), NOTHING)
    other.register("1", past(1), NOTHING)
    assert 1 == mine.dispose()
    assert [2, 3, 4] == left(folder)


def test_a_job_that_comes_back_keeps_what_it_noted(folder: Path) -> None:
    """Registering again does not claim everything again."""
    hold(folder).register("0", past(2), NOTHING)

    again = hold(folder)
    again.register_all(["0"])

    assert 2 == again.dispose()


def test_notes_that_went_with_the_directory_are_left_again(folder: Path) -> None:
    """I5: of a node that was set up again the first split to commit takes nothing of the others."""
    mine = hold(folder)
    mine.register_all(["0", "1"])
    for split in "01":
        mine.register(split, past(1), NOTHING)
    shutil.rmtree(folder / FOLDER)

    mine.register("0", past(3), NOTHING)
    assert 0 == mine.dispose()

    mine.register("1", past(1), NOTHING)  # As before, and it is noted all the same.
    assert 1 == mine.dispose()


def test_notes_that_are_left_together_belong_to_their_splits(folder: Path) -> None:
    """Each is known by its split, and is replaced without the others."""
    splits = ["1-of-2", "a/b.c", "é"]
    mine = hold_on(retention_of(LogDirectory(folder), DELETE), "or.ders", store="5a")
    mine.register("1-of-2", past(2), NOTHING)

    mine.register_all(splits)
    mine.register("é", past(3), NOTHING)

    noted = noted_in(folder / FOLDER, "or.ders")
    found = {(each.split, each.segment, each.store) for each in noted}
    assert {("1-of-2", 2, "5a"), ("a/b.c", 0, "5a"), ("é", 3, "5a")} == found
    assert 3 == len(list((folder / FOLDER).iterdir()))


@pytest.mark.parametrize("refused", [errno.EPERM, errno.EMLINK])
def test_notes_are_left_where_files_cannot_be_linked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """Not every file system can, or takes so many."""

    def link(source: str, target: str) -> None:
        raise OSError(refused, os.strerror(refused), source, None, target)

    monkeypatch.setattr(os, "link", link)
    mine = hold(folder)
    mine.register_all(["0", "1"])
    mine.register("0", past(3), NOTHING)

    assert ["0", "1"] == sorted(each.split for each in noted_in(folder / FOLDER, "orders"))
    assert 0 == mine.dispose()


def test_a_note_that_was_just_left_is_not_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came after the notes were listed; whose it is knows what it says."""
    monkeypatch.setattr(pins, "names_in", lambda _: set())
    hold(folder).register("1", past(3), NOTHING)

    names = [name_of("orders", split, "") for split in ("0", "1")]
    assert names[:1] == write_new(folder / FOLDER, names, b"{}")

    assert {names[0]: b"{}"}.items() <= contents(folder).items()
    assert b"{}" != contents(folder)[names[1]]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the notes by name."""
    return {path.name: path.read_bytes() for path in (folder / FOLDER).iterdir()}


def test_keep_never_deletes(folder: Path) -> None:
    """However far everybody is."""
    mine = hold(folder, disposal=Disposal())
    mine.register("0", past(9), NOTHING)

    assert 0 == mine.dispose()
    assert [1, 2, 3, 4] == left(folder)


def test_archive_moves_both_files(folder: Path, tmp_path: Path) -> None:
    """G13: the segment and its index lie in the archive, unchanged."""
    archive = tmp_path / "some" / "archive"
    retention = retention_of(LogDirectory(folder), Disposal(keep=False, archive=archive))
    retention.check()
    mine = hold_on(retention, "orders")
    mine.register("0", past(2), NOTHING)

    assert 2 == mine.dispose()

    assert [3, 4] == left(folder)
    assert {f"CommitLog-7-{i}{end}" for i in (1, 2) for end in (".log", "_cdc.idx")} == {
        path.name for path in archive.iterdir()
    }
    assert (archive / "CommitLog-7-1.log").read_bytes() == b"x"


def test_what_was_half_disposed_of_is_finished(folder: Path) -> None:
    """A crash between a segment and its index leaves nothing that stops the next disposal."""
    mine = hold(folder)
    mine.register("0", past(3), NOTHING)
    (folder / "CommitLog-7-1_cdc.idx").unlink()

    assert 2 == mine.dispose()


def test_a_note_that_cannot_be_read_stops_disposal(folder: Path) -> None:
    """No one knows what it needs; the error names the file."""
    mine = hold(folder)
    mine.register("0", past(3), NOTHING)
    (folder / FOLDER / "audit.0").write_bytes(b"\xff{")

    with pytest.raises(HoldError) as caught:
        mine.dispose()

    assert str(folder / FOLDER / "audit.0") == caught.value.place
    assert [1, 2, 3, 4] == left(folder)


def test_a_place_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    """Found before anything is read; with keep it does not matter."""
    (tmp_path / "file").touch()
    archive = Disposal(keep=False, archive=tmp_path / "file" / "archive")

    with pytest.raises(HoldDeniedError) as caught:
        retention_of(LogDirectory(folder), archive).check()

    assert 3 == caught.value.exit_status
    retention_of(LogDirectory(tmp_path / "missing"), Disposal()).check()
    hold(tmp_path / "missing", disposal=Disposal()).register("0", past(1), NOTHING)


def test_a_note_is_written_when_it_says_something_new(folder: Path) -> None:
    """Progress within a segment costs no write; its end, another segment or a pending one does."""
    mine = hold(folder)
    written = []
    for marker, pending in (
        (Marker(2, 10), NOTHING),
        (Marker(2, 99), NOTHING),
        (Marker(2, 99), {1: ()}),
        (past(2), {1: ()}),
        (Marker(3, 5), {1: ()}),
        (Marker(3, 5), NOTHING),
        (past(3), NOTHING),
        (past(3), NOTHING),
        (Marker(4, 1), NOTHING),
    ):
        mine.register("0", marker, pending)
        (note,) = (folder / FOLDER).iterdir()
        written.append(note.read_bytes())
        note.write_bytes(b"")  # So that only a new note is found.

    assert [True, False, True, True, True, True, True, False, True] == list(map(bool, written))


def test_a_note_that_needs_everything_is_not_written_again(folder: Path) -> None:
    """It says the same; one of a split that knows segments, or has copies pending, says more."""
    mine, names = hold(folder), list("012345")
    mine.register_all(names)
    shared = contents(folder)
    mine.register("0", Marker(0, 0), NOTHING)
    assert shared == contents(folder)

    mine.register("1", Marker(0, 0), NOTHING, LISTED)
    mine.register("2", Marker(0, 0), {2: ()})
    mine.register("3", Marker(1, 0), NOTHING)
    mine.register("4", Marker(0, END_OFFSET), NOTHING)
    now = contents(folder)
    changed = {name for name in now if now[name] != shared[name]}
    assert set("1234") == {name.split(".")[1] for name in changed}
    assert LISTED in listed_in(folder / FOLDER)

    mine.register("0", past(1), NOTHING)
    mine.register("0", Marker(0, 0), NOTHING)  # Its position was set.
    assert [1, 2, 3, 4] == left(folder)
    (note,) = (n.need for n in notes_in(folder / FOLDER) if n.need.split == "0")
    assert Marker(0, 0) == note.marker


def test_jobs_of_one_name_in_two_stores_are_two_jobs(folder: Path) -> None:
    """Each leaves a note of its own, so neither can rob the other."""
    marks = [store_mark(key) for key in (b"a", b"b")]
    jobs = [
        hold_on(retention_of(LogDirectory(folder), DELETE), "orders", store=mark) for mark in marks
    ]
    for each in jobs:
        each.register_all(["0"])
    jobs[0].register("0", past(9), NOTHING)
    assert 0 == jobs[0].dispose()

    jobs[1].withdraw(["0"])
    assert 3 == jobs[0].dispose()

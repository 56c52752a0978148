"""A `cdc_raw` directory: what is listed, what is durable, what is refused."""

from pathlib import Path

import pytest

from headrace.sources.cassandra.errors import LogUnreadableError, NotCdcDirectoryError
from headrace.sources.cassandra.forge.segments import write_segment
from headrace.sources.cassandra.log import LogEntries
from headrace.sources.cassandra.logs.directory import (
    NO_LIMIT,
    LogDirectory,
    SegmentFile,
    SegmentInfo,
)
from headrace.sources.cassandra.logs.index_files import LOOKS
from helpers.recordings.corpora import CORPORA, recording


def limits(log: LogDirectory) -> dict[int, int]:
    """Return the limit of each listed segment."""
    return {segment.segment_id: segment.limit for segment in log.segments()}


def index(folder: Path, segment_id: int, text: str) -> None:
    """Write an index file."""
    (folder / f"CommitLog-7-{segment_id}_cdc.idx").write_text(text)


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", 0),
        ("512", 512),
        ("512\n", 512),
        ("512\nCOMPLETED", NO_LIMIT),
        ("512\nCOMPLETED\n", NO_LIMIT),
        ("", 0),
        ("512\nCOMP", 0),
        ("-1", 0),
        ("51x", 0),
        ("99999999999", 0),
    ],
)
def test_an_index_says_what_is_durable(tmp_path: Path, text: str, limit: int) -> None:
    """G01: an offset is a limit, COMPLETED is none; what is neither yet allows nothing (I6)."""
    write_segment(tmp_path, b"", segment_id=5, index=text)

    assert {5: limit} == limits(LogDirectory(tmp_path))


def test_a_limit_never_goes_back(tmp_path: Path) -> None:
    """G01: an index is truncated before it is written: empty or smaller, it is not believed."""
    log = LogDirectory(tmp_path)
    write_segment(tmp_path, b"", segment_id=5, index="512")
    seen = [limits(log)[5]]

    for text in ("", "51", "600", "5", "600\nCOMPLETED"):
        index(tmp_path, 5, text)
        seen.append(limits(log)[5])

    assert [512, 512, 512, 600, 600, NO_LIMIT] == seen


def test_a_segment_without_index_is_not_listed(tmp_path: Path) -> None:
    """It holds no durable CDC data yet; an index without its segment is not listed either."""
    write_segment(tmp_path, b"", segment_id=5, index=None)
    index(tmp_path, 6, "7")

    assert {} == limits(LogDirectory(tmp_path))


def test_a_segment_is_final_once_a_later_one_has_an_index(tmp_path: Path) -> None:
    """After a crash an index can stay without COMPLETED for ever."""
    log = LogDirectory(tmp_path)
    for segment_id, text in ((9, "70"), (10, "80"), (11, "")):
        write_segment(tmp_path, b"", segment_id=segment_id, index=text)
    write_segment(tmp_path, b"", segment_id=12, index=None)

    assert {9: NO_LIMIT, 10: NO_LIMIT, 11: 0} == limits(log)


def test_the_commit_log_directory_tells_what_the_node_let_go(tmp_path: Path) -> None:
    """Only together with a later segment there: an empty or wrong directory says nothing."""
    commitlog = tmp_path / "commitlog"
    commitlog.mkdir()
    log = LogDirectory(tmp_path / "cdc_raw", commitlog)
    write_segment(tmp_path / "cdc_raw", b"", segment_id=9, index="70")
    seen = [limits(log)[9]]
    for name in ("CommitLog-7-8.log", "CommitLog-7-9.log", "CommitLog-7-10.log"):
        (commitlog / name).touch()
        seen.append(limits(log)[9])
    (commitlog / "CommitLog-7-9.log").unlink()
    seen.append(limits(log)[9])

    assert [70, 70, 70, 70, NO_LIMIT] == seen


def test_a_directory_that_fails_later_is_tried_again(tmp_path: Path) -> None:
    """It was there before: a disk or a mount fails for now, which is not a mistake in the job."""
    log = LogDirectory(tmp_path / "cdc_raw")
    with pytest.raises(NotCdcDirectoryError):
        log.segments()
    write_segment(tmp_path / "cdc_raw", b"", segment_id=9)
    assert {9: NO_LIMIT} == limits(log)
    (tmp_path / "cdc_raw").rename(tmp_path / "away")

    with pytest.raises(LogUnreadableError):
        log.segments()
    (tmp_path / "away").rename(tmp_path / "cdc_raw")
    assert {9: NO_LIMIT} == limits(log)


def test_a_check_reads_no_index(tmp_path: Path) -> None:
    """However often a log is checked, a half-written index was not looked at and is not a flaw."""
    log = LogDirectory(tmp_path)
    write_segment(tmp_path, b"", segment_id=5, index="51x")
    for _ in range(LOOKS):
        log.check()
    log.segments()

    assert [] == list(log.flaws)


def test_a_check_names_a_commit_log_directory_that_is_missing(tmp_path: Path) -> None:
    """It is named before anything is read, also while no segment depends on it.

    A node that has not started yet has none, and no segments.
    """
    LogDirectory(tmp_path, tmp_path / "commitlog").check()
    write_segment(tmp_path, b"", segment_id=5, index="51\nCOMPLETED")
    with pytest.raises(LogUnreadableError, match="No such file") as caught:
        LogDirectory(tmp_path, tmp_path / "commitlog").check()

    assert str(tmp_path / "commitlog") == caught.value.place


def test_an_index_without_its_segment_is_listed_as_missing(tmp_path: Path) -> None:
    """G02: unless it is the newest, whose segment may be on its way."""
    log = LogDirectory(tmp_path)
    for segment_id in (5, 6, 7):
        write_segment(tmp_path, b"", segment_id=segment_id)
    for segment_id in (5, 7):
        (tmp_path / f"CommitLog-7-{segment_id}.log").unlink()

    assert [(5, True), (6, False)] == [(s.segment_id, s.missing) for s in log.segments()]


RECORDED = sorted(
    path.name.removesuffix(".tar.xz")
    for path in CORPORA.glob("[4-6].*.tar.xz")
    if not path.name.endswith("-space.tar.xz")  # They have names and times only.
)


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_segment_has_all_that_its_index_tells_of(name: str) -> None:
    """Closed, killed or restarted, of any version: nothing is missed where nothing is damaged."""
    folders = {index.parent for index in recording(name).rglob("*_cdc.idx")}
    found = [(folder, info) for folder in folders for info in LogDirectory(folder).segments()]
    assert found
    for folder, info in found:
        with (folder / info.name).open("rb") as stream:
            entries = LogEntries(stream, segment_id=info.segment_id, indexed=info.indexed)
            assert 0 < sum(1 for _ in entries)


def test_an_index_tells_how_far_the_sections_of_a_final_segment_reach(tmp_path: Path) -> None:
    """One that a replay wrote does not: it has the file's length. A live one has its limit."""
    log = LogDirectory(tmp_path)
    for segment_id, text in ((5, "60"), (6, "70\nCOMPLETED"), (7, "100\nCOMPLETED"), (8, "90")):
        write_segment(tmp_path, bytes(100), segment_id=segment_id, index=text)
    reported = [(info.limit, info.indexed) for info in log.segments()]
    index(tmp_path, 6, "100\nCOMPLETED")

    assert [(NO_LIMIT, 60), (NO_LIMIT, 70), (NO_LIMIT, 0), (90, 0)] == reported
    assert reported == [(info.limit, info.indexed) for info in log.segments()]


def test_the_index_of_the_newest_segment_tells_it_when_it_is_final(tmp_path: Path) -> None:
    """What it said first counts: a replay writes the file's length into it."""
    log = LogDirectory(tmp_path)
    write_segment(tmp_path, bytes(100), segment_id=8, index="90")
    reported = []
    for text in ("90", "90\nCOMPLETED", "100\nCOMPLETED"):
        index(tmp_path, 8, text)
        reported += [(info.limit, info.indexed) for info in log.segments()]

    assert [(90, 0), (NO_LIMIT, 90), (NO_LIMIT, 90)] == reported


def test_segments_come_by_number(tmp_path: Path) -> None:
    """G12: ids are numbers: 10 comes after 9."""
    for segment_id in (10, 9, 100):
        write_segment(tmp_path, b"", segment_id=segment_id)

    assert [9, 10, 100] == list(limits(LogDirectory(tmp_path)))


def test_an_empty_directory_has_no_segments(tmp_path: Path) -> None:
    """A node that has just been given CDC is not a mistake, our own folder in it neither."""
    (tmp_path / ".headrace").mkdir()

    assert {} == limits(LogDirectory(tmp_path))


@pytest.mark.parametrize(
    ("name", "found"),
    [("missing", "No such file"), ("file", "Not a directory"), ("other", "found 'x.txt'")],
)
def test_what_is_no_cdc_raw_is_named(tmp_path: Path, name: str, found: str) -> None:
    """The path, what is there, and where the right one is named; exit status 3."""
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.txt").touch()

    with pytest.raises(NotCdcDirectoryError, match=found) as caught:
        LogDirectory(tmp_path / name).segments()

    assert str(tmp_path / name) == caught.value.place
    assert "cassandra.yaml" in caught.value.hint
    assert 3 == caught.value.exit_status


def test_an_open_segment_outlives_its_name(tmp_path: Path) -> None:
    """What was opened can be read to its end after it was deleted; bytes are counted."""
    log = LogDirectory(tmp_path)
    path = write_segment(tmp_path, b"0123456789", segment_id=5)
    opened = log.open(log.segments()[0])
    path.unlink()
    buffer = memoryview(bytearray(6))

    assert (6, 4, 0) == tuple(opened.read_into(offset, buffer) for offset in (0, 6, 10))
    assert bytes(buffer).startswith(b"6789")
    assert 10 == opened.bytes_read
    opened.close()
    opened.close()


def test_a_segment_that_vanished_is_distinguished(tmp_path: Path) -> None:
    """Gone is another thing than not readable."""
    with pytest.raises(FileNotFoundError):
        LogDirectory(tmp_path).open(SegmentInfo(5, "CommitLog-7-5.log", NO_LIMIT))

    folder = tmp_path / "CommitLog-7-5.log"
    folder.mkdir()
    with pytest.raises(LogUnreadableError, match="found a directory") as caught:
        SegmentFile(folder)

    assert str(folder) == caught.value.place

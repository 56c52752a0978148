"""Listings are spared while no event comes, and made where events cannot be relied on."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.plugins.testing.doubles import DrivenClock
from headrace.sources.cassandra.forge.segments import write_segment
from headrace.sources.cassandra.logs.directory import NO_LIMIT, LogDirectory
from headrace.sources.cassandra.logs.folder_watch import CHECKED_MS, FolderWatch, Inotify

LOOKS = 5
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


class Deaf(Inotify):
    """Of a file system that other machines write to: no event comes."""

    def watch(self, path: Path, what: int, by: FolderWatch) -> int | None:
        """Watch it, as far as anyone can see."""
        del what, by
        return hash(path)

    def drain(self) -> None:
        """Take none."""


def watched(
    folder: Path, clock: DrivenClock, inotify: Inotify | None = None, *, commitlog: bool = False
) -> LogDirectory:
    """Return the log in *folder*, watched."""
    (folder / "raw").mkdir(exist_ok=True)
    (folder / "hold").mkdir(exist_ok=True)
    (folder / "commitlog").mkdir(exist_ok=True)
    return LogDirectory(
        folder / "raw",
        folder / "commitlog" if commitlog else None,
        hold=folder / "hold",
        watch=FolderWatch(inotify or Inotify(), clock.monotonic_ms),
    )


def index(folder: Path, segment_id: int, text: str) -> None:
    """Write an index file."""
    (folder / f"CommitLog-7-{segment_id}_cdc.idx").write_text(text)


def limits(log: LogDirectory) -> dict[int, int]:
    """Return the limit of each listed segment."""
    return {segment.segment_id: segment.limit for segment in log.segments()}


def test_nothing_changed(tmp_path: Path) -> None:
    """The last listing is returned, until it is checked; if it is the same, the same object."""
    clock = DrivenClock()
    log = watched(tmp_path, clock)
    write_segment(tmp_path / "raw", b"", segment_id=5, index="512")
    first = log.segments()

    for _ in range(LOOKS):
        clock.advance(CHECKED_MS // 2)
        assert first is log.segments()


def test_a_checked_log_is_watched_from_its_first_listing(tmp_path: Path) -> None:
    """It will be listed again; one that is only listed once costs no watch."""
    logs = [watched(tmp_path, DrivenClock()) for _ in range(2)]
    write_segment(tmp_path / "raw", b"", segment_id=5, index="512")
    logs[0].check()

    assert 2 == len([log.segments() for log in logs])
    assert [True, False] == [log.tells for log in logs]


CHANGES: dict[str, tuple[Callable[[Path], object], dict[int, int]]] = {
    "an index is written again": (lambda at: index(at / "raw", 5, "600"), {5: 600}),
    "a segment comes": (
        lambda at: write_segment(at / "raw", b"", segment_id=6, index="7"),
        {5: NO_LIMIT, 6: 7},
    ),
    "a segment goes": (lambda at: (at / "raw/CommitLog-7-5_cdc.idx").unlink(), {}),
    "one is held": (
        lambda at: write_segment(at / "hold", b"", segment_id=6, index="1"),
        {5: NO_LIMIT, 6: 1},
    ),
    "one is renamed": (
        lambda at: [
            path.rename(path.with_name(path.name.replace("-5", "-9")))
            for path in list((at / "raw").iterdir())
        ],
        {9: 512},
    ),
    "the node has no name for it any more, but for a later one": (
        lambda at: (at / "commitlog/CommitLog-7-6.log").touch(),
        {5: NO_LIMIT},
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_at_once(tmp_path: Path, change: str) -> None:
    """Without any time passing; also the one after it."""
    make, expected = CHANGES[change]
    log = watched(tmp_path, DrivenClock(), commitlog=True)
    write_segment(tmp_path / "raw", b"", segment_id=5, index="512")
    assert {5: 512} == limits(log) == limits(log)

    make(tmp_path)

    assert expected == limits(log) == limits(log)
    write_segment(tmp_path / "raw", b"", segment_id=12, index="1")
    assert {**expected, 12: 1}.keys() == limits(log).keys()


SYNCS: dict[str, tuple[Callable[[Path], object], dict[int, int], int]] = {
    "of the live segment": (lambda at: index(at / "raw", 5, "600"), {4: NO_LIMIT, 5: 600}, 0),
    "before its index": (
        lambda at: (at / "raw/CommitLog-7-5.log").write_bytes(b"x"),
        {4: NO_LIMIT, 5: 512},
        0,
    ),
    "with the same index": (lambda at: index(at / "raw", 5, "512"), {4: NO_LIMIT, 5: 512}, 0),
    "that completes it": (
        lambda at: index(at / "raw", 5, "600\nCOMPLETED"),
        {4: NO_LIMIT, 5: NO_LIMIT},
        1,
    ),
    "whose index is half-written": (lambda at: index(at / "raw", 5, ""), {4: NO_LIMIT, 5: 512}, 1),
    "of an earlier segment": (
        lambda at: index(at / "raw", 4, "40\nCOMPLETED"),
        {4: NO_LIMIT, 5: 512},
        1,
    ),
    "after which the segment goes": (
        lambda at: (at / "raw/CommitLog-7-5.log").unlink(),
        {4: NO_LIMIT},
        1,
    ),
    "of a name in the hold": (
        lambda at: index(at / "hold", 5, "9"),
        {4: NO_LIMIT, 5: 512},
        1,
    ),
}


@pytest.mark.parametrize("sync", SYNCS)
def test_a_sync_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str) -> None:
    """That of the live segment is known from its index; after anything else the log is listed."""
    make, expected, listings = SYNCS[sync]
    log = watched(tmp_path, DrivenClock())
    write_segment(tmp_path / "raw", b"", segment_id=4, index="30\nCOMPLETED")
    write_segment(tmp_path / "raw", b"", segment_id=5, index="512")
    (tmp_path / "raw/CommitLog-7-5.log").write_bytes(bytes(1_000))
    index(tmp_path / "hold", 5, "8")
    assert {4: NO_LIMIT, 5: 512} == limits(log) == limits(log) == limits(log)
    assert log.is_still()
    listed: list[Path] = []
    scandir = os.scandir

    def noted(path: Path) -> object:
        listed.append(path)
        return scandir(path)

    make(tmp_path)

    assert not log.is_still()
    monkeypatch.setattr(os, "scandir", noted)
    assert (expected, listings) == (limits(log), listed.count(tmp_path / "raw"))
    if sync == "of the live segment":
        written_ns = (tmp_path / "raw/CommitLog-7-5_cdc.idx").stat().st_mtime_ns
        assert written_ns // 1_000_000 == log.segments()[-1].durable_ms


def test_a_sync_is_seen_after_others(tmp_path: Path) -> None:
    """Each of many syncs is seen, also beside a new segment, after which the next one is live."""
    log = watched(tmp_path, DrivenClock())
    write_segment(tmp_path / "raw", bytes(100), segment_id=5, index="1")
    seen = [limits(log), limits(log)]
    for offset in (2, 3):
        index(tmp_path / "raw", 5, f"{offset}")
        seen.append(limits(log))
    index(tmp_path / "raw", 5, "4")
    write_segment(tmp_path / "raw", bytes(100), segment_id=6, index="1")
    seen.append(limits(log))
    index(tmp_path / "raw", 6, "7")
    seen.append(limits(log))

    live = [{5: 1}, {5: 1}, {5: 2}, {5: 3}]
    assert [*live, {5: NO_LIMIT, 6: 1}, {5: NO_LIMIT, 6: 7}] == seen


@pytest.mark.parametrize("is_written", [False, True])
def test_a_folder_is_replaced(tmp_path: Path, *, is_written: bool) -> None:
    """The path leads elsewhere: what counts is where it leads, also if it was written to before."""
    log = watched(tmp_path, DrivenClock())
    write_segment(tmp_path / "raw", b"", segment_id=5, index="512")
    assert {5: 512} == limits(log) == limits(log)

    if is_written:
        index(tmp_path / "raw", 5, "600")
    (tmp_path / "raw").rename(tmp_path / "old")
    write_segment(tmp_path / "raw", b"", segment_id=5, index="700")
    seen = [limits(log)]
    index(tmp_path / "raw", 5, "800")
    seen.append(limits(log))

    assert [{5: 700}, {5: 800}] == seen


def test_no_event_comes(tmp_path: Path) -> None:
    """What caused no event shows when the listing is checked; from the second time on at once."""
    clock = DrivenClock()
    log = watched(tmp_path, clock, Deaf())
    seen = []
    for limit in range(4):
        write_segment(tmp_path / "raw", b"", segment_id=5, index=f"{limit}")
        at_once = limits(log)
        clock.advance(CHECKED_MS)
        seen.append((at_once, limits(log)))

    late = [({5: max(0, limit - 1)}, {5: limit}) for limit in range(3)]
    assert [*late, ({5: 3}, {5: 3})] == seen


def test_no_folder_can_be_watched(tmp_path: Path) -> None:
    """Each listing is made: so it is where the system has no inotify, or gives no more of it."""

    class Refused(Inotify):
        def watch(self, path: Path, what: int, by: FolderWatch) -> int | None:
            del path, what, by
            return None

    log = watched(tmp_path, DrivenClock(), Refused())
    seen = []
    for limit in range(LOOKS):
        write_segment(tmp_path / "raw", b"", segment_id=5, index=f"{limit}")
        seen.append(limits(log))

    assert [{5: limit} for limit in range(LOOKS)] == seen


def test_a_malformed_index_is_looked_at_again(tmp_path: Path) -> None:
    """Without an event: it is reported when it stays so."""
    log = watched(tmp_path, DrivenClock())
    write_segment(tmp_path / "raw", b"", segment_id=5, index="nonsense")

    reported = [len(log.flaws) for _ in range(LOOKS) if log.segments() is not None]

    assert [0, 0, 1, 1, 1] == reported


def test_events_are_taken_once_for_several_folders(tmp_path: Path) -> None:
    """While they are held, one that came since is not taken; it is not lost either."""
    inotify, logs = Inotify(), []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        logs.append(watched(tmp_path / name, DrivenClock(), inotify))
        write_segment(tmp_path / name / "raw", bytes(100), segment_id=5, index="1")
        assert {5: 1} == limits(logs[-1]) == limits(logs[-1]) == limits(logs[-1])
    index(tmp_path / "a/raw", 5, "2")

    inotify.hold()
    index(tmp_path / "b/raw", 5, "3")
    held = [log.is_still() for log in logs]
    seen = [limits(log) for log in logs]
    inotify.go_on()

    assert ([False, True], [{5: 2}, {5: 1}]) == (held, seen)
    assert [{5: 2}, {5: 3}] == [limits(log) for log in logs]


def test_a_malformed_index_is_no_missed_event(tmp_path: Path) -> None:
    """However often one is half-written when the log is listed, events are relied on."""
    log = watched(tmp_path, DrivenClock())
    write_segment(tmp_path / "raw", bytes(100), segment_id=5, index="1")
    assert {5: 1} == limits(log) == limits(log)
    for offset in range(2, 2 + LOOKS):
        index(tmp_path / "raw", 5, "")
        limits(log)
        index(tmp_path / "raw", 5, f"{offset}")
        assert {5: offset} == limits(log)

    assert log.tells


def test_it_is_closed_and_goes_on(tmp_path: Path) -> None:
    """Its descriptor is given back; what is listed later is watched again."""
    inotify = Inotify()
    log = watched(tmp_path, DrivenClock(), inotify)
    write_segment(tmp_path / "raw", b"", segment_id=5, index="1")
    before = [limits(log), limits(log)]

    inotify.close()
    inotify.close()
    index(tmp_path / "raw", 5, "2")
    seen = [limits(log)]
    index(tmp_path / "raw", 5, "3")
    seen.append(limits(log))

    assert [[{5: 1}, {5: 1}], [{5: 2}, {5: 3}]] == [before, seen]

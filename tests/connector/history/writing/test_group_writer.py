"""A history in several files takes each change once, wherever a commit is broken off."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.arrival import ms_of
from headrace.connector.history.following import tail
from headrace.connector.history.query import Event, Query
from headrace.connector.history.store.group import Decided, HistoryGroup, PartFile
from headrace.plugins import TransactionalWriter
from headrace.plugins.testing import TransactionalDriver, TransactionalSuite
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.driver import HistoryDriver
from helpers.histories.failing import Failing, committed, files_of
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.rows import TABLE, change, delivery

NOW_US = 1_700_000_000_000_000
FILES = 3
KEYS = range(1, 10)  # Each file has some of them.


def made(folder: Path, **options: str) -> Kept:
    """Return a history in several files."""
    given = beside(folder, table=TABLE, seed="empty", files=str(FILES))
    return Kept(DrivenClock(), **given | options)


def events(kept: Kept) -> list[Event]:
    """Return what a query sees a moment later."""
    kept.clock.advance(FILES)
    history = kept.history()
    try:
        found = [e for page in history.pages(Query(from_ms=0, limit=7)) for e in page.events]
    finally:
        history.close()
    assert sorted({event.arrival for event in found}) == [event.arrival for event in found]
    return found


def group_of(writer: TransactionalWriter) -> HistoryGroup:
    """Return the files of a writer."""
    store = writer._file  # type: ignore[attr-defined]  # noqa: SLF001 (its disk)
    assert isinstance(store, HistoryGroup)
    return store


def sent(total: int) -> Sequence[Mapping[str, Any]]:
    """Return a change for each key."""
    return [change(written_us=NOW_US + total, of=(key, 1), total=total) for key in KEYS]


def commit(writer: TransactionalWriter, total: int) -> None:
    """Write a change for each key, and the position behind them."""
    writer.submit(delivery(*sent(total)), settled)
    assert writer.commit({"head": b"%d" % total}, FOREVER_MS)


def totals(kept: Kept) -> list[tuple[object, list[object]]]:
    """Return the totals of each key, in order; each image begins as the last one ended."""
    found: dict[object, list[Event]] = {}
    for event in events(kept):
        found.setdefault(event.key["id"], []).append(event)
    for mine in found.values():
        assert [{}, *(event.post for event in mine[:-1])] == [event.pre for event in mine]
        assert {mine[-1].post["total"]} == {(e.latest or {})["total"] for e in mine}  # type: ignore[index]
    return [
        (key, [(e.change or {})["total"] for e in found[key]]) for key in sorted(found, key=str)
    ]


def all_of(*given: int) -> list[tuple[object, list[int]]]:
    """Return what `totals` does when each key has these."""
    return [(key, list(given)) for key in KEYS]


def set_timeouts(writer: TransactionalWriter) -> None:
    """Have a writer wait for no lock."""
    for file in files_of(group_of(writer)):
        file.run("PRAGMA busy_timeout = 0")


class TestGroupWriter(TransactionalSuite):
    """It obeys the contract of sinks that are written exactly once."""

    @pytest.fixture
    def driver(self, tmp_path: Path) -> TransactionalDriver:
        """Return a history of its own."""
        return HistoryDriver(made(tmp_path), events)


def test_a_commit_that_fails_at_any_statement_is_whole_or_not_there(tmp_path: Path) -> None:
    """The next writer finds all changes with their position, each once, or neither."""
    kept = made(tmp_path)
    total, outcomes = 1, set[bool]()
    for statement in range(1, 500):
        writer = kept.writer()
        writer.submit(delivery(*sent(total)), settled)
        Failing(writer, statement)
        is_done = committed(writer)
        writer.close()
        following = kept.sink.open_split("1-of-1")
        entries = following.begin(FOREVER_MS)
        following.close()
        is_decided = entries == {"head": b"1"}
        outcomes.add(is_decided)
        assert is_decided or not is_done
        if is_decided:
            assert all_of(total) == totals(kept)
            if is_done:
                break
            shutil.rmtree(tmp_path)
            kept = made(tmp_path)
            continue
        assert [] == events(kept)
    assert {True, False} == outcomes
    assert 30 < statement < 499


def killed(kept: Kept, at: int, *, behind: bool) -> bool:
    """Commit in a process that is killed before or *behind* its COMMIT of a number."""
    pid = os.fork()
    if not pid:
        try:
            writer = kept.writer()
            left = at

            def counted(run: Callable[..., Any]) -> Callable[..., Any]:
                def run_or_die(*given: Any) -> Any:  # noqa: ANN401 (as sqlite3 has it)
                    nonlocal left
                    left -= given[0] == "COMMIT"
                    if not left and not behind:
                        os.kill(os.getpid(), signal.SIGKILL)
                    found = run(*given)
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return found

                return run_or_die

            for file in files_of(group_of(writer)):
                file.run = counted(file.run)
            commit(writer, 2)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize("behind", [False, True])
def test_a_worker_that_is_killed_at_any_commit_loses_and_repeats_nothing(
    tmp_path: Path, *, behind: bool
) -> None:
    """The first of its commits, that of the head, decides; the next worker does the rest."""
    found = []
    for number in range(1, 20):
        kept = made(tmp_path / str(number))
        writer = kept.writer()
        commit(writer, 1)
        writer.close()
        if not killed(kept, number, behind=behind):
            break
        following = kept.sink.open_split("1-of-1")
        found.append(following.begin(FOREVER_MS) == {"head": b"2"})
        commit(following, 3)
        following.close()
        assert (all_of(1, 2, 3) if found[-1] else all_of(1, 3)) == totals(kept)
    assert [behind, *[True] * FILES] == found


def test_what_a_split_decided_is_taken_by_the_writer_of_another(tmp_path: Path) -> None:
    """As after a change of the plan: a writer of any split puts it into the files."""
    kept = made(tmp_path)
    writer = kept.writer("1-of-2")
    writer.submit(delivery(*sent(1)), settled)
    other = kept.history()
    part = other.file.parts[1]
    set_timeouts(writer)
    with part.writing():
        assert not writer.commit({"head": b"1"}, FOREVER_MS)
    writer.close()
    other.close()
    kept.writer("1-of-1").close()
    assert all_of(1) == totals(kept)


def test_a_writer_begins_while_another_split_goes_on(tmp_path: Path) -> None:
    """What it has read of the head is old by then: the other has taken that, and more."""
    kept = made(tmp_path)
    writer, following = kept.writer("1-of-2"), kept.sink.open_split("2-of-2")
    group = group_of(following)
    set_timeouts(writer)
    writer.submit(delivery(*sent(1)), settled)
    with group.files[0].writing(), group.files[1].writing(), group.files[2].writing():
        assert not writer.commit({"head": b"1"}, FOREVER_MS)
    read = group.undone

    def read_before_the_other_goes_on() -> list[Decided]:
        found = read()
        assert FILES == len(found)
        assert writer.commit({"head": b"1"}, FOREVER_MS)
        commit(writer, 2)
        commit(writer, 3)
        return found

    group.undone = read_before_the_other_goes_on  # type: ignore[method-assign]
    assert following.begin(FOREVER_MS) == {}
    following.close()
    writer.close()
    assert all_of(1, 2, 3) == totals(kept)


def test_a_commit_waits_for_a_file_that_is_locked(tmp_path: Path) -> None:
    """It says that it is not whole yet; called again, each change is there once."""
    kept = made(tmp_path)
    writer = kept.writer()
    other = kept.history()
    set_timeouts(writer)
    writer.submit(delivery(*sent(1)), settled)
    with other.file.parts[2].writing():
        assert [False, False] == [writer.commit({"head": b"1"}, FOREVER_MS) for _ in range(2)]
    assert writer.commit({"head": b"1"}, FOREVER_MS)
    commit(writer, 2)
    other.close()
    writer.close()
    assert all_of(1, 2) == totals(kept)


def test_the_head_forgets_what_files_have(tmp_path: Path) -> None:
    """Values of rows are there no longer than until the next writer begins."""
    kept = made(tmp_path)
    for total in (1, 2):
        writer = kept.writer()
        (head, *_) = files_of(group_of(writer))
        text = "SELECT sum(length(content)) FROM decided"
        assert not head.run(text).fetchone()[0]
        commit(writer, total)
        assert head.run(text).fetchone()[0]
        writer.submit(delivery(change(written_us=NOW_US, of=(1, 1))), settled)
        assert writer.commit({}, FOREVER_MS)
        assert 1 == head.run("SELECT count(*) FROM decided WHERE content <> x''").fetchone()[0]
        writer.close()


def test_workers_that_write_at_once_lose_nothing_and_a_tail_sees_all(tmp_path: Path) -> None:
    """At any file of each of them, what a TAIL has passed is final."""
    kept = made(tmp_path)
    rounds, failed = 12, list[BaseException]()

    def write(worker: int) -> None:
        try:
            writer = kept.writer(f"{worker}-of-2")
            for number in range(rounds):
                keys = range(100 * worker, 100 * worker + 20)
                given = [change(written_us=number, of=(key, 1), total=number) for key in keys]
                writer.submit(delivery(*given), settled)
                assert writer.commit({"head": b"%d" % number}, FOREVER_MS)
            writer.close()
        except BaseException as error:  # noqa: BLE001 (the test reports it)
            failed.append(error)

    threads = [threading.Thread(target=write, args=(worker,)) for worker in (1, 2)]
    for thread in threads:
        thread.start()
    history, found, query = kept.history(), list[Event](), Query(from_ms=0, limit=50)
    while any(thread.is_alive() for thread in threads) or len(found) < rounds * 40:
        assert not failed
        page = tail(history, query, wait_ms=0, pause=lambda _: None)
        found += page.events
        query = Query(from_ms=0, limit=50, after=page.token)
    for thread in threads:
        thread.join(60)
    history.close()
    assert [(e.arrival, e.post) for e in found] == [(e.arrival, e.post) for e in events(kept)]
    per_key: dict[object, list[object]] = {}
    for event in found:
        per_key.setdefault(event.key["id"], []).append((event.change or {})["total"])
    assert {*range(100, 120), *range(200, 220)} == {*per_key}
    assert all(list(range(rounds)) == each for each in per_key.values())


def test_files_have_milliseconds_of_their_own(tmp_path: Path) -> None:
    """So an arrival names one change."""
    kept = made(tmp_path)
    writer = kept.writer()
    for total in range(1, 4):
        commit(writer, total)
    for number, part in enumerate(group_of(writer).files):
        assert isinstance(part, PartFile)
        first, last, count = part.extent()
        assert count
        assert {number} == {ms_of(arrived) % FILES for arrived in (first, last)}
    writer.close()
    assert all_of(1, 2, 3) == totals(kept)


def test_what_expired_arrives_in_each_file(tmp_path: Path) -> None:
    """With the next query, and once."""
    kept = made(tmp_path, ttl_events="true")
    writer = kept.writer()
    soon_s = kept.clock.wall_ms() // 1_000 + 5
    writer.submit(
        delivery(
            *(change(written_us=NOW_US, of=(k, 1), expires=soon_s, note="brief") for k in KEYS)
        ),
        settled,
    )
    assert writer.commit({}, FOREVER_MS)
    kept.clock.advance(6_000)
    for _ in range(2):
        gone = [event.key["id"] for event in events(kept) if event.expired]
        assert [*KEYS] == sorted(gone, key=str)
    writer.close()

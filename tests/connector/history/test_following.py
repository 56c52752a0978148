"""Who follows a history by what is final sees each change once; who follows the clock may not."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.connector.history.errors import QueryError
from headrace.connector.history.following import WAIT_MS_MAX, Pace, poll, tail
from headrace.connector.history.query import Event, Page, Query
from headrace.connector.history.reading import History
from headrace.connector.history.store import deciding
from headrace.connector.history.store.places import opened
from headrace.connector.history.writing.writer import HistoryWriter
from headrace.plugins.testing.doubles import DrivenClock
from helpers.histories.failing import call_before_decision
from helpers.histories.kept import FOREVER_MS, Kept, beside, settled
from helpers.histories.rows import TABLE, change, delivery

pytestmark = pytest.mark.usefixtures("each_store")

SECONDS_MAX = 60


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """Return an empty history."""
    return Kept(DrivenClock(), **beside(tmp_path, table=TABLE, seed="empty"))


@pytest.fixture
def history(kept: Kept) -> Iterator[History]:
    """Return it to be read."""
    made = kept.history()
    yield made
    made.close()


def commit(kept: Kept, number: int) -> None:
    """Commit a change of the row with this number."""
    writer = kept.writer(f"split {number}")
    writer.submit(delivery(change(written_us=number, of=(number, 1))), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()


class Slow:
    """A commit that has given its arrivals and stops before it is durable."""

    def __init__(self, kept: Kept, number: int) -> None:
        """Start it, and return when it has stopped."""
        self._arrived, self._leave = threading.Event(), threading.Event()
        writer = kept.writer("slow")
        writer.submit(delivery(change(written_us=number, of=(number, 1))), settled)

        def stop() -> None:
            self._arrived.set()
            assert self._leave.wait(SECONDS_MAX)

        call_before_decision(writer, stop)
        self._thread = threading.Thread(target=self._commit, args=(writer,))
        self._thread.start()
        assert self._arrived.wait(SECONDS_MAX)

    def finish(self) -> None:
        """Let it become durable."""
        self._leave.set()
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive()

    @staticmethod
    def _commit(writer: HistoryWriter) -> None:
        assert writer.commit({}, FOREVER_MS)
        writer.close()


def ids(pages: list[Page]) -> list[object]:
    """Return the keys of the changes of pages, in order."""
    return [event.key["id"] for page in pages for event in page.events]


def polled(history: History, until_ms: int, query: Query, pace: Pace, clock: DrivenClock) -> Any:  # noqa: ANN401
    """Return the pages of a poller up to a time; each pause moves the clock."""
    found = []
    for end_ms, page in poll(history, query, pace, pause=lambda s: clock.advance(round(s * 1000))):
        found.append(page)
        if end_ms >= until_ms and not page.token:
            return found
    raise AssertionError


def test_a_poller_misses_what_is_committed_late_and_a_tail_does_not(
    kept: Kept, history: History
) -> None:
    """A commit takes longer than the time of safety: its change is in a range that was read."""
    start_ms = kept.clock.wall_ms()
    commit(kept, 1)
    kept.clock.advance(100)
    slow = Slow(kept, 2)
    query, pace = Query(from_ms=start_ms), Pace(every_ms=500, safety_ms=1_000)
    seen = polled(history, start_ms + 5_000, query, pace, kept.clock)
    first = tail(history, query, wait_ms=0, pause=lambda _: None)
    slow.finish()
    commit(kept, 3)
    kept.clock.advance(1)
    rest_ms = start_ms + 5_000
    seen += polled(history, rest_ms + 5_000, Query(from_ms=rest_ms), pace, kept.clock)
    after = Query(from_ms=start_ms, after=first.token)
    assert [1, 3] == ids(seen)
    assert [1, 2, 3] == ids([first, tail(history, after, wait_ms=0, pause=lambda _: None)])


def test_nothing_is_final_while_a_commit_is_under_way(kept: Kept, history: History) -> None:
    """A query then answers up to the last commit, and says so."""
    commit(kept, 1)
    last_ms = kept.clock.wall_ms()
    kept.clock.advance(1_000)
    slow = Slow(kept, 2)
    kept.clock.advance(9_000)
    page = history.select(Query(from_ms=0))
    slow.finish()
    assert ([1], last_ms) == (ids([page]), page.safe_until_ms)
    later = history.select(Query(from_ms=0))
    assert ([1, 2], kept.clock.wall_ms()) == (ids([later]), later.safe_until_ms)


def test_a_tail_sees_each_change_once_in_any_pages(kept: Kept, history: History) -> None:
    """Its tokens continue where it stopped, with one change a page, and commits between."""
    query = Query(from_ms=0, limit=1)
    found: list[object] = []
    for number in range(1, 12):
        commit(kept, number)
        if number % 3 == 0:
            kept.clock.advance(number)
        page = tail(history, query, wait_ms=0, pause=lambda _: None)
        found += ids([page])
        query = Query(from_ms=0, limit=1, after=page.token)
    while (page := tail(history, query, wait_ms=0, pause=lambda _: None)).events:
        found += ids([page])
        query = Query(from_ms=0, limit=1, after=page.token)
    assert list(range(1, 12)) == found


@pytest.mark.parametrize("to_ms", [None, FOREVER_MS >> 20])
def test_pages_end_where_the_first_one_did(kept: Kept, history: History, to_ms: int | None) -> None:
    """What is committed while they are read is in none, also of a range that has not ended."""
    for number in (1, 2, 3):
        commit(kept, number)
    pages = history.pages(Query(from_ms=0, to_ms=to_ms, limit=1))
    found = [next(pages)]
    commit(kept, 4)
    assert [1, 2, 3] == ids([*found, *pages])


def test_a_tail_waits_for_the_next_commit(kept: Kept, history: History) -> None:
    """It looks again and again, and returns what came."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        kept.clock.advance(round(seconds * 1_000))
        if len(pauses) == 7:
            commit(kept, 1)

    page = tail(history, Query(from_ms=0), wait_ms=10_000, pause=pause)
    assert ([1], 7) == (ids([page]), len(pauses))


def test_a_tail_waits_no_longer_than_it_may(kept: Kept, history: History) -> None:
    """Then it has nothing but a token, behind which nothing is missed."""
    waited = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        kept.clock.advance(round(seconds * 1_000))

    page = tail(history, Query(from_ms=0), wait_ms=10 * WAIT_MS_MAX, pause=pause)
    assert [] == page.events
    assert WAIT_MS_MAX / 1_000 == pytest.approx(sum(waited))
    commit(kept, 1)
    after = Query(from_ms=0, after=page.token)
    assert [1] == ids([tail(history, after, wait_ms=0, pause=pause)])


def test_a_poller_sleeps_for_what_is_left_of_the_time_of_safety(
    kept: Kept, history: History
) -> None:
    """With x passed since the end of the range, it sleeps safety - x; behind, it does not sleep."""
    slept: list[float] = []

    def pause(seconds: float) -> None:
        slept.append(round(seconds, 3))
        kept.clock.advance(round(seconds * 1_000))

    start_ms = kept.clock.wall_ms()
    kept.clock.advance(1_700)
    pace = Pace(every_ms=500, safety_ms=1_000)
    ranges = poll(history, Query(from_ms=start_ms), pace, pause=pause)
    ends = [next(ranges)[0] - start_ms for _ in range(3)]
    assert [500, 1_000, 1_500] == ends
    assert [0.3, 0.5] == slept


def expiring(folder: Path) -> Kept:
    """Return a history of one change, whose row expires after five seconds."""
    kept = Kept(DrivenClock(), **beside(folder, table=TABLE, seed="empty", ttl_events="true"))
    writer = kept.writer()
    soon_s = kept.clock.wall_ms() // 1_000 + 5
    writer.submit(delivery(change(written_us=1, expires=soon_s, note="a")), settled)
    assert writer.commit({}, FOREVER_MS)
    writer.close()
    return kept


def test_a_poller_of_an_idle_history_sees_what_expired(tmp_path: Path) -> None:
    """Once, though no client writes: with the range of its arrival, for each of two pollers."""
    kept = expiring(tmp_path)
    start_ms = kept.clock.wall_ms()
    query, pace = Query(from_ms=start_ms), Pace(every_ms=500, safety_ms=1_000)
    for _ in range(2):
        history = kept.history()
        pages = polled(history, start_ms + 10_000, query, pace, kept.clock)
        history.close()
        shown = [(event.key["id"], event.expired) for page in pages for event in page.events]
        assert [(1, False), (1, True)] == shown


def test_a_poller_reads_on_while_a_commit_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What expired cannot arrive before its end; a range behind it has it, once."""
    monkeypatch.setattr(deciding, "PATIENCE_MS", deciding.PATIENCE_MS_MAX)  # It takes so long.
    kept = expiring(tmp_path)
    start_ms, history = kept.clock.wall_ms(), kept.history()
    other = opened(kept.sink.config.place, kept.clock)
    query, pace = Query(from_ms=start_ms + 1), Pace(every_ms=4_000, safety_ms=1_000)
    with other.writing():
        assert [] == ids(polled(history, start_ms + 12_000, query, pace, kept.clock))
    rest = Query(from_ms=start_ms + 12_001)
    seen = polled(history, start_ms + 20_000, rest, pace, kept.clock)
    other.close()
    history.close()
    assert [True] == [event.expired for page in seen for event in page.events]


def test_a_tail_does_not_go_back(history: History) -> None:
    """A token of a descending query is refused."""
    with pytest.raises(QueryError, match="token"):
        tail(history, Query(from_ms=0, after="0000000000000000<"), wait_ms=0, pause=lambda _: None)


def test_the_time_of_an_event_is_that_of_its_commit(kept: Kept, history: History) -> None:
    """Not of its write, which clients set."""
    commit(kept, 1)
    (event,) = tail(history, Query(from_ms=0), wait_ms=0, pause=lambda _: None).events
    assert isinstance(event, Event)
    assert (kept.clock.wall_ms(), 0, 1) == (event.time_ms, event.sequence, event.written_us)

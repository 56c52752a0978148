"""What the write times of some entries say of a log that is read."""

from headrace.sources.cassandra.logs.logged_times import LATEST, LatestTimes
from helpers.logs.forged import NOW_US, TABLE, insert, mutation

ANY = (float("-inf"), float("inf"))


def test_the_latest_turns_count() -> None:
    """A log is as old as its oldest entry once some were seen; what is empty does not count."""
    latest = LatestTimes()
    found = [(latest.oldest_us, latest.newest_us)]
    are_few = [latest.is_any]
    for at_us in (5, 1, 9, 7):
        latest.note(insert(b"k", at_us=at_us), 12)
        latest.note(mutation(TABLE.bytes + b"\1k\1"), 12)
        are_few.append(latest.is_any)
        found.append((latest.oldest_us - NOW_US, latest.newest_us - NOW_US))
    latest.forget()

    assert 3 == LATEST
    assert [True, True, True, False, False] == are_few
    assert [ANY, (ANY[0], 5), (ANY[0], 5), (1, 9), (1, 9)] == found
    assert ANY == (latest.oldest_us, latest.newest_us)

"""Bytes a second of splits, by times that a test gives."""

from headrace.connector.runtime.splits.assignment import FADE_MS, Rates


def test_a_steady_stream_has_its_rate() -> None:
    """A steady rate is reported exactly after some time; the rate of a stopped stream fades."""
    rates = Rates()
    rates.begin("a", 0, 0)
    for second in range(1, 601):
        rates.observe({"a": 5_000 * second}, 1_000 * second)
    assert {"a": 5_000} == rates.all()
    for second in range(601, 601 + FADE_MS // 1_000):
        rates.observe({"a": 5_000 * 600}, 1_000 * second)

    assert 5_000 * 0.36 < rates.all()["a"] < 5_000 * 0.38


def test_an_idle_time_counts_for_nothing() -> None:
    """What comes after it is compared with the last look, as without it."""
    rates = Rates()
    rates.observe({"a": 0}, 0)
    for second in range(1, 600):
        rates.observe({"a": 0}, 1_000 * second)
    rates.observe({"a": FADE_MS * 10}, 600_000)

    assert FADE_MS * 10 * 0.015 < rates.all()["a"] < FADE_MS * 10 * 0.018


def test_a_new_owner_goes_on_from_what_the_last_one_reported() -> None:
    """A split that came from elsewhere weighs at once what it weighed there."""
    rates = Rates()
    rates.begin("a", 7_000, 10_000)

    assert {"a": 7_000} == rates.all()
    rates.observe({"a": 700}, 10_100)
    assert {"a": 7_000} == rates.all()
    rates.end("a")
    rates.end("a")
    assert {} == rates.all()


def test_a_run_that_began_again_counts_nothing_twice() -> None:
    """A total that is smaller than before says nothing."""
    rates = Rates()
    rates.observe({"a": 1_000_000}, 0)
    rates.observe({"a": 10}, 1_000)

    assert {"a": 0} == rates.all()

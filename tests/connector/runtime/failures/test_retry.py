"""The budget of a failing call."""

import pytest

from headrace.connector.runtime.failures.retry import (
    PAUSE_MAX_MS,
    UNNAMED_FAILURES_MAX,
    RetriesExhaustedError,
    Retry,
    call_with_retries,
)
from headrace.plugins import RetriableError
from headrace.plugins.testing.doubles import DrivenClock
from helpers.jobs.rig import DrivenWake

ERROR = RetriableError("no")


def test_pauses_double_up_to_a_bound() -> None:
    """The first pause is 100 ms, the longest ten seconds."""
    retry = Retry(10**9)

    pauses = [retry.failed(0, ERROR) for _ in range(30)]
    assert [100, 200, 400, 800, 1600, 3200, 6400, 10_000] == pauses[:8]
    assert {PAUSE_MAX_MS} == set(pauses[8:])


def test_budget_counts_from_the_first_failure() -> None:
    """When the time is up the last error is named."""
    retry = Retry(1_000)
    retry.failed(5_000, ERROR)
    retry.failed(5_999, ERROR)
    with pytest.raises(RetriesExhaustedError, match=r"failed 3 times in 1 s: no"):
        retry.failed(6_000, ERROR)


def test_success_fills_the_budget() -> None:
    """After a success the budget starts over."""
    retry = Retry(1_000)
    retry.failed(0, ERROR)
    retry.succeeded()

    assert 10_100 == retry.failed(10_000, ERROR)


def test_bugs_are_repeated_a_few_times() -> None:
    """An error without a name uses up its chances long before the time is up."""
    retry = Retry(10**9)
    for _ in range(UNNAMED_FAILURES_MAX):
        retry.failed(0, ZeroDivisionError("secret"))
    with pytest.raises(RetriesExhaustedError, match=r"failed 9 times in 0 s: ZeroDivisionError"):
        retry.failed(0, ZeroDivisionError("secret"))


@pytest.mark.parametrize(("failures", "waited"), [(0, []), (2, [100, 200]), (99, [100, 200, 400])])
def test_a_call_is_repeated_until_it_succeeds(failures: int, waited: list[int]) -> None:
    """With the pauses between, and for no longer than the budget."""
    clock = DrivenClock()
    wake, left = DrivenWake(clock), [ERROR] * failures

    def call() -> str:
        if left:
            raise left.pop()
        return "made"

    if failures > len(waited):
        with pytest.raises(RetriesExhaustedError):
            call_with_retries(call, Retry(600), clock, wake)
    else:
        assert "made" == call_with_retries(call, Retry(600), clock, wake)
    assert waited == wake.waits

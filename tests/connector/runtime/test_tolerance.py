"""What becomes of errors of single records, and how many there may be."""

import pytest

from headrace.connector.runtime.tolerance import (
    FOR_EVER_MS,
    BudgetSpentError,
    ErrorBudget,
    ErrorPolicy,
)
from headrace.plugins import ConfigError, SinkOptions, parse_config


def policy_of(**options: object) -> ErrorPolicy:
    """Return the policy of these options; underscores in keys stand for dots."""
    given = {f"errors.{key.replace('_', '.')}": value for key, value in options.items()}
    return ErrorPolicy.of(parse_config(SinkOptions, given), retry_ms_max=7)


def test_a_budget_is_spent_within_its_window() -> None:
    """As many as allowed pass; one more within the window does not; after it they are forgotten."""
    budget = ErrorBudget(records_max=3, window_ms=1_000)

    budget.spend(2, 0)
    budget.spend(1, 999)
    budget.spend(2, 1_000)
    with pytest.raises(
        BudgetSpentError, match="4 records were set aside within 1 s, allowed are 3"
    ):
        budget.spend(1, 1_001)


def test_without_a_bound_everything_passes() -> None:
    """The default is no bound."""
    ErrorBudget(records_max=None, window_ms=1).spend(1 << 40, 0)


def test_a_budget_of_nothing_stops_at_the_first() -> None:
    """Zero is a bound, and nothing set aside spends nothing."""
    budget = ErrorBudget(records_max=0, window_ms=1)
    budget.spend(0, 0)
    with pytest.raises(BudgetSpentError):
        budget.spend(1, 0)


def test_sinks_without_the_options_have_the_defaults() -> None:
    """A sink that does not inherit them tolerates, and repeats as the runtime says."""
    assert ErrorPolicy(retry_ms_max=9) == ErrorPolicy.of(object(), retry_ms_max=9)
    assert ErrorPolicy(retry_ms_max=7) == policy_of()


@pytest.mark.parametrize(("asked", "expected"), [(0, 0), (5, 5), (-1, FOR_EVER_MS)])
def test_connects_time_for_retries_wins(asked: int, expected: int) -> None:
    """-1 is for ever."""
    assert expected == policy_of(retry_timeout=asked).retry_ms_max


def test_every_option_has_an_effect() -> None:
    """O09: each key of Kafka Connect, and the budget, is heeded."""
    assert policy_of(
        tolerance="none",
        retry_delay_max_ms="500",
        log_enable="true",
        deadletterqueue_topic_name="dead",
        deadletterqueue_context_headers_enable="false",
        budget_records="4",
        budget_window_seconds="2.5",
    ) == ErrorPolicy(
        retry_ms_max=7,
        pause_ms_max=500,
        tolerant=False,
        logged=True,
        topic="dead",
        context=False,
        budget_records=4,
        budget_ms=2_500,
    )


def test_rows_are_never_logged() -> None:
    """Kafka Connect's option for that is refused with what to do instead."""
    with pytest.raises(ConfigError, match=r"errors\.log\.include\.messages: rows are never logged"):
        policy_of(log_include_messages="true")

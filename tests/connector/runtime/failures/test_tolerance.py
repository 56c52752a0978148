"""What becomes of errors of single records, and how many there may be."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from headrace.connector.foundation.job_file import RuntimeConfig
from headrace.connector.runtime.failures.tolerance import (
    FOR_EVER_MS,
    BudgetSpentError,
    ErrorBudget,
    ErrorPolicy,
)
from headrace.connector.stores.job import Job
from headrace.plugins import ConfigError, SinkOptions, parse_config
from headrace.plugins.testing.doubles import (
    ChaosResult,
    ChaosSink,
    MemoryConfig,
    MemorySource,
    sample_records,
)
from helpers.jobs.live_worker import LoneWorker


def policy_of(**options: object) -> ErrorPolicy:
    """Return the policy of these options; underscores in keys stand for dots."""
    given = {f"errors.{key.replace('_', '.')}": value for key, value in options.items()}
    return ErrorPolicy.of(parse_config(SinkOptions, given), retry_seconds_max=0.007)


def passes(budget: ErrorBudget, records: int) -> bool:
    """Say whether *records* may be dead-lettered at once."""
    try:
        budget.spend(records, 0)
    except BudgetSpentError:
        return False
    return True


def test_a_budget_is_spent_within_its_window() -> None:
    """As many as allowed pass; one more within the window does not; after it they are forgotten."""
    budget = ErrorBudget(records_max=3, window_ms=1_000)

    budget.spend(2, 0)
    budget.spend(1, 999)
    budget.spend(2, 1_000)
    with pytest.raises(
        BudgetSpentError, match="4 records were dead-lettered within 1 s, allowed are 3"
    ):
        budget.spend(1, 1_001)


def test_without_a_bound_everything_passes() -> None:
    """By default there is no bound."""
    assert passes(ErrorBudget(records_max=None, window_ms=1), 1 << 40)
    assert not passes(ErrorBudget(records_max=(1 << 40) - 1, window_ms=1), 1 << 40)


def test_a_budget_of_nothing_stops_at_the_first() -> None:
    """Zero is a bound, and no dead letters spend nothing."""
    budget = ErrorBudget(records_max=0, window_ms=1)
    budget.spend(0, 0)
    with pytest.raises(BudgetSpentError):
        budget.spend(1, 0)


def test_sinks_without_the_options_have_the_defaults() -> None:
    """A sink that does not inherit them tolerates, and repeats as the runtime says."""
    assert ErrorPolicy(retry_ms_max=9) == ErrorPolicy.of(object(), retry_seconds_max=0.009)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedOptions(SinkOptions):
    """The options of a `ChaosSink` that has some."""

    script: deque[ChaosResult] = field(default_factory=deque)


@pytest.mark.parametrize(
    ("result", "options", "failures", "events"),
    [
        (ChaosResult.REJECT_FIRST, {}, [], []),
        (ChaosResult.REJECT_FIRST, {"errors_log_enable": True}, [], ["record_dead_lettered"]),
        (ChaosResult.REJECT_FIRST, {"errors_tolerance": "none"}, ["delivery_failed"], []),
        (ChaosResult.REJECT_FIRST, {"errors_budget_records": 0}, ["error_budget_spent"], []),
        (ChaosResult.REFUSE, {}, [], []),
        (ChaosResult.REFUSE, {"errors_retry_timeout": 0}, ["retries_exhausted"], []),
    ],
)
def test_what_a_run_comes_to(
    tmp_path: Path,
    result: ChaosResult,
    options: dict[str, Any],
    failures: list[str],
    events: list[str],
) -> None:
    """A record is dead-lettered, logged, or stops its split; a call is repeated, or is not."""
    job = Job(
        name="job",
        directory=tmp_path,
        state=tmp_path / "state.db",
        source=MemorySource,
        source_config=MemoryConfig(splits={"a": [sample_records(3)]}),
        sink=ChaosSink,
        sink_config=ScriptedOptions(script=deque([result] * 3), **options),
        runtime=RuntimeConfig(tick_min_ms=5, commit_max_seconds=0.02),
    )
    capture = LogCapture()
    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, processors=[capture], wrapper_class=structlog.stdlib.BoundLogger
    )

    report = LoneWorker(job, log=log).run_alone(until_idle=True)

    assert failures == [error.code for error in report.failures]
    assert events == [e["event"] for e in capture.entries if e["event"] == "record_dead_lettered"]

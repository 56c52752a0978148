"""The handling of errors of single records, and their budget. Pure."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.connector.runtime.failures.retry import PAUSE_MAX_MS
from headrace.connector.stores.job import Job
from headrace.plugins import FatalError, Problem, Sink, SinkOptions
from headrace.plugins.config.sink_options import DEAD_LETTERS_KEY

FOR_EVER_MS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPolicy:
    """The `errors.` options."""

    retry_ms_max: int
    pause_ms_max: int = PAUSE_MAX_MS
    tolerant: bool = True
    logged: bool = False
    topic: str = ""
    context: bool = True
    budget_records: int | None = None
    budget_ms: int = 60_000

    @classmethod
    def of_job(cls, job: Job) -> "ErrorPolicy":
        """Read the options of the sink of *job*; its runtime has the default."""
        return cls.of(job.sink_config, retry_seconds_max=job.runtime.retry_seconds_max)

    @classmethod
    def of(cls, options: object, *, retry_seconds_max: float) -> "ErrorPolicy":
        """Read a sink's options; *retry_seconds_max* is the default."""
        retry_ms_max = round(retry_seconds_max * 1000)
        if not isinstance(options, SinkOptions):
            return cls(retry_ms_max=retry_ms_max)
        asked_ms = options.errors_retry_timeout
        if asked_ms is not None:
            retry_ms_max = FOR_EVER_MS if asked_ms < 0 else asked_ms
        return cls(
            retry_ms_max=retry_ms_max,
            pause_ms_max=options.errors_retry_delay_max,
            tolerant=options.errors_tolerance == "all",
            logged=options.errors_log_enable,
            topic=options.errors_topic or "",
            context=options.errors_context,
            budget_records=options.errors_budget_records,
            budget_ms=round(options.errors_budget_seconds * 1000),
        )


def topic_problems(sink: Sink | type[Sink], topic: str) -> Sequence[Problem]:
    """Return the problems of a *topic* for dead letters, if one is named."""
    if not topic or sink.heeds_topics:
        return ()
    hint = "leave it out: `headrace dlq` has the dead letters"
    return [Problem(DEAD_LETTERS_KEY, "this sink has no topics", hint)]


class BudgetSpentError(FatalError):
    """More records were dead-lettered within the window than `errors.budget.records` allows."""

    code = "error_budget_spent"


class NotToleratedError(FatalError):
    """A record cannot be processed, and `errors.tolerance` is `none`."""

    code = "not_tolerated"


class ErrorBudget:
    """Counts the dead letters of one split."""

    def __init__(self, *, records_max: int | None, window_ms: int) -> None:
        """None means no bound."""
        self._records_max = records_max
        self._window_ms = window_ms
        self._spent: deque[tuple[int, int]] = deque()
        self._count = 0

    def spend(self, records: int, now_ms: int) -> None:
        """Count *records* that were dead-lettered at *now_ms*.

        Raises:
            BudgetSpentError: they are too many. They are stored nevertheless.

        """
        if self._records_max is None or not records:
            return
        self._spent.append((now_ms, records))
        self._count += records
        while self._spent[0][0] <= now_ms - self._window_ms:
            self._count -= self._spent.popleft()[1]
        if self._count > self._records_max:
            raise BudgetSpentError(
                f"{self._count} records were dead-lettered within {self._window_ms / 1000:g} s, "
                f"allowed are {self._records_max}",
                hint="`headrace dlq list` shows them; errors.budget.records is the bound",
            )

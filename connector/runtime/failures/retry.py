"""Retries of failing calls: doubling pauses within a budget of time."""

from collections.abc import Callable
from typing import Final, TypeVar

from headrace.connector.foundation.clock import Wake
from headrace.connector.obs.blame import HINT, PluginBrokenError, described
from headrace.plugins import Clock, FatalError, HeadraceError, LeaseLostError, RetriableError

T = TypeVar("T")

PAUSE_FIRST_MS: Final = 100
PAUSE_MAX_MS: Final = 10_000
UNNAMED_FAILURES_MAX: Final = 8
_DOUBLINGS_MAX: Final = 16
_HINT: Final = "runtime.retry_seconds_max says how long to retry"


class RetriesExhaustedError(FatalError):
    """A call that may succeed later did not do so within `retry_seconds_max`."""

    code = "retries_exhausted"
    restartable = True


class Retry:
    """The budget of one kind of call. It is full again after each success."""

    def __init__(self, budget_ms: int, *, pause_ms_max: int = PAUSE_MAX_MS) -> None:
        """*budget_ms* counts from the first failure in a row; no pause exceeds *pause_ms_max*."""
        self._budget_ms = budget_ms
        self._pause_ms_max = pause_ms_max
        self._since_ms: int | None = None
        self._failures = 0

    def failed(self, now_ms: int, error: Exception) -> int:
        """Count a failure and return when to retry, on the clock of *now_ms*.

        An error that is not a `HeadraceError` is most likely a bug: only a few retries.

        Raises:
            RetriesExhaustedError: the budget is spent.

        """
        if self._since_ms is None:
            self._since_ms = now_ms
        spent_ms = now_ms - self._since_ms
        named = isinstance(error, HeadraceError)
        hopeless = not named and self._failures >= UNNAMED_FAILURES_MAX
        if hopeless or (spent_ms >= self._budget_ms and self._failures):
            raise RetriesExhaustedError(
                f"failed {self._failures + 1} times in {spent_ms / 1000:g} s: {described(error)}",
                hint=_HINT if named else HINT,
            ) from error
        pause_ms = min(PAUSE_FIRST_MS << min(self._failures, _DOUBLINGS_MAX), self._pause_ms_max)
        self._failures += 1
        return now_ms + pause_ms

    def succeeded(self) -> None:
        """Fill the budget again."""
        self._since_ms = None
        self._failures = 0


def call_with_retries(call: Callable[[], T], retry: Retry, clock: Clock, wake: Wake) -> T:
    """Retry *call* until it succeeds; blocks this thread.

    Raises:
        RetriesExhaustedError: the budget is spent.

    """
    while True:
        try:
            made = call()
        except RetriableError as error:
            now_ms = clock.monotonic_ms()
            wake.wait(retry.failed(now_ms, error) - now_ms)
        else:
            retry.succeeded()
            return made


def kind_of(error: Exception) -> tuple[str, str]:
    """Return how an error is handled, and its code."""
    if isinstance(error, LeaseLostError):
        done = "lost"
    elif isinstance(error, RetriableError) or not isinstance(error, HeadraceError):
        done = "retried"
    else:
        done = "failed"
    return done, error.code if isinstance(error, HeadraceError) else PluginBrokenError.code


def named(error: Exception) -> HeadraceError:
    """Return *error*, or a named error for one that has no name."""
    if isinstance(error, HeadraceError):
        return error
    return PluginBrokenError(described(error), hint=HINT)
